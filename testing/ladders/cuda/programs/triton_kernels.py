#!/usr/bin/env python3
"""Kernels written in Triton: elementwise, a matrix product on tensor cores, a reduction with atomics."""

import checks

torch = checks.need("torch", "triton", "numpy")
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

if not torch.cuda.is_available():
    checks.absent("no GPU")


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def matmul_kernel(a, b, c, size, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in range(0, size, TILE):
        left = tl.load(a + rows[:, None] * size + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * size + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * size + columns[None, :], total)


@triton.jit
def count_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum((tl.load(x + at, mask=at < n, other=0.0) > 0).to(tl.int32)))


@checks.check
def add():
    x, y = torch.arange(100_003.0).cuda(), torch.arange(100_003.0).cuda() * 0.5
    out = torch.empty_like(x)
    for _ in range(50):
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    checks.must("add_right", torch.equal(out, x + y))
    checks.show("add", out)


@checks.check
def matmul():
    torch.manual_seed(1)
    a, b = torch.randn(512, 512).half().cuda(), torch.randn(512, 512).half().cuda()
    c = torch.empty(512, 512, device="cuda")
    matmul_kernel[(8, 8)](a, b, c, 512, TILE=64)
    checks.close("matmul_right", c, a.float().cpu() @ b.float().cpu(), 1e-3)
    checks.show("matmul", c)


@checks.check
def count_on_streams():
    torch.manual_seed(2)
    x = torch.randn(1 << 20).cuda()
    out = torch.zeros(4, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    for i in range(4):
        with torch.cuda.stream(torch.cuda.Stream()):
            count_kernel[(triton.cdiv(x.numel(), 4096),)](x, out[i:], x.numel(), BLOCK=4096)
    torch.cuda.synchronize()
    checks.must("count_right", out.tolist() == [int((x > 0).sum())] * 4)
    checks.show("count", out)


if __name__ == "__main__":
    checks.main()
