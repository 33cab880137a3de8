#!/usr/bin/env python3
"""PyTorch from a tensor to a small model, through cuBLAS, cuDNN, cuFFT, cuSPARSE, cuSOLVER and cuRAND."""

import checks

torch = checks.need("torch", "numpy")
DEVICE = checks.DEVICE
torch.manual_seed(1)


def made(*shape, dtype=torch.float32):
    """Made on the CPU, so that what is compared is the work on the device."""
    return torch.randn(*shape, dtype=dtype)


@checks.check
def tensors():
    x = torch.arange(1000.0)
    y = x.to(DEVICE)
    checks.must("to_device_and_back", torch.equal(y.cpu(), x))
    checks.show("sum", (y * 2 + 1).sum())
    checks.show("sorted", torch.sort(torch.sin(y)).values)


@checks.check
def blas():
    ones = torch.ones(256, 256, device=DEVICE)
    checks.must("sgemm_of_ones", bool(((ones @ ones) == 256.0).all()))
    for dtype, tolerance in (
        (torch.float32, 1e-5),
        (torch.float16, 5e-3),
        (torch.bfloat16, 4e-2),
        (torch.float64, 1e-12),
    ):
        a, b = made(512, 384).to(dtype), made(384, 640).to(dtype)
        product = a.to(DEVICE) @ b.to(DEVICE)
        name = str(dtype).removeprefix("torch.")
        checks.close(f"gemm_{name}_right", product.double(), a.double() @ b.double(), tolerance)
        checks.show(f"gemm_{name}", product)
    checks.show("batched", torch.bmm(made(16, 64, 96).to(DEVICE), made(16, 96, 32).to(DEVICE)))
    # A bias and an activation take the way through cuBLASLt.
    checks.show(
        "linear", torch.nn.functional.linear(made(64, 256).to(DEVICE), made(128, 256).to(DEVICE), made(128).to(DEVICE))
    )


@checks.check
def convolution():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    x, w = made(4, 16, 32, 32), made(24, 16, 3, 3)
    found = torch.nn.functional.conv2d(x.to(DEVICE), w.to(DEVICE), padding=1)
    checks.close("conv2d_right", found, torch.nn.functional.conv2d(x, w, padding=1), 1e-4)
    checks.show("conv2d", found)
    x, w = x.to(DEVICE).requires_grad_(), w.to(DEVICE).requires_grad_()
    torch.nn.functional.conv2d(x, w, stride=2).square().sum().backward()
    checks.show("conv2d_grad_input", x.grad)
    checks.show("conv2d_grad_weight", w.grad)


@checks.check
def fft():
    x = made(8, 1024)
    found = torch.fft.fft(x.to(DEVICE))
    checks.close("fft_right", torch.view_as_real(found), torch.view_as_real(torch.fft.fft(x)), 1e-5)
    checks.show("fft", torch.view_as_real(found))
    checks.show("rfft2", torch.view_as_real(torch.fft.rfft2(made(3, 60, 84).to(DEVICE))))


@checks.check
def sparse():
    dense = made(300, 400) * (torch.rand(300, 400) < 0.05)
    other = made(400, 32)
    found = dense.to(DEVICE).to_sparse_csr() @ other.to(DEVICE)
    # cuSPARSE adds in an order that varies: on an H200, bare, two runs in a process out of three gave the same bits.
    checks.close("csr_times_dense_right", found, dense @ other, 1e-4)
    checks.show("coo_times_dense", torch.sparse.mm(dense.to(DEVICE).to_sparse(), other.to(DEVICE)))


@checks.check
def solver():
    a = made(64, 64) + 16 * torch.eye(64)
    checks.close("inverse_right", torch.linalg.inv(a.to(DEVICE)) @ a.to(DEVICE), torch.eye(64), 1e-4)
    checks.show("cholesky", torch.linalg.cholesky((a @ a.T).to(DEVICE)))
    checks.show("eigenvalues", torch.linalg.eigvalsh((a + a.T).to(DEVICE)))


@checks.check
def random_numbers():
    torch.manual_seed(7)
    checks.show("randn", torch.randn(10000, device=DEVICE))
    checks.show("rand", torch.rand(1000, device=DEVICE))
    checks.show("randint", torch.randint(0, 1000, (1000,), device=DEVICE))
    checks.show("permutation", torch.randperm(5000, device=DEVICE))
    checks.show("dropout", torch.nn.functional.dropout(torch.ones(1000, device=DEVICE), 0.3))


@checks.check
def small_model():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(DEVICE)
    with torch.inference_mode():
        checks.show("small_model", model(made(32, 64).to(DEVICE)))


@checks.check
def reductions_and_indexing():
    x = made(1000, 300).to(DEVICE)
    checks.show("softmax", torch.softmax(x, 1))
    checks.show("cumsum", torch.cumsum(x, 0))
    checks.show("top", torch.topk(x, 5).indices)
    checks.show("unique", torch.unique((x * 10).int()))
    # Atomics in any order: the same bits are not promised.
    checks.show(
        "index_add", torch.zeros(50, 300, device=DEVICE).index_add_(0, torch.arange(1000, device=DEVICE) % 50, x)
    )
    checks.show("nonzero", (x > 2).nonzero())


@checks.check
def memory():
    """Pinned copies in both directions, and an out-of-memory that is one, after which everything works."""
    if DEVICE != "cuda":
        return
    host = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
    back = torch.empty(1 << 20, dtype=torch.int32).pin_memory()
    for turn in range(20):
        there = host.to(DEVICE, non_blocking=True)
        there += turn
        back.copy_(there, non_blocking=True)
        torch.cuda.synchronize()
        if not torch.equal(back, host + turn):
            raise AssertionError(f"turn {turn} gave wrong values")
    checks.show("pinned", back)
    for size in (1 << 42, 1 << 43):
        try:
            torch.empty(size, dtype=torch.uint8, device=DEVICE)
            checks.show("too_much", "accepted")
        except torch.cuda.OutOfMemoryError as error:
            checks.show("too_much", type(error).__name__)
    torch.cuda.empty_cache()
    checks.show("goes_on", torch.ones(100, device=DEVICE).sum())


if __name__ == "__main__":
    checks.main()
