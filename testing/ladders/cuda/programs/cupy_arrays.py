#!/usr/bin/env python3
"""CuPy: arrays and library calls, own kernels, streams, graphs, the memory pools, the default stream of either kind."""

import checks

checks.need("numpy")
cupy = checks.need("cupy")
import numpy  # noqa: E402

try:
    cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError as error:
    checks.absent(str(error))

SOURCE = r"""
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
N = 100_003


@cupy.fuse()
def square_plus_one(a):
    return a * a + 1


@checks.check
def arrays():
    x = cupy.arange(1_000_000, dtype=cupy.float32)
    checks.show("sum", cupy.sum(cupy.sin(x)))
    checks.show("sorted", cupy.sort(cupy.cos(x)))
    checks.show("fused", square_plus_one(x[:1000]))


@checks.check
def libraries():
    state = numpy.random.RandomState(1)
    a, b = state.rand(200, 300).astype("f"), state.rand(300, 100).astype("f")
    product = cupy.asarray(a) @ cupy.asarray(b)
    checks.close("matmul_right", product, a @ b, 1e-4)
    checks.show("matmul", product)
    checks.close("fft_right", abs(cupy.fft.fft(cupy.asarray(a))), abs(numpy.fft.fft(a)), 1e-4)
    checks.show("random", cupy.random.RandomState(3).rand(1000))
    checks.show(
        "solved", cupy.linalg.solve(cupy.asarray(a[:, :200]) + 10 * cupy.eye(200, dtype="f"), cupy.asarray(a[:, 0]))
    )


@checks.check
def raw_kernel():
    kernel = cupy.RawKernel(SOURCE, "axpy")
    x, y = cupy.arange(N, dtype=cupy.float32), cupy.ones(N, dtype=cupy.float32)
    for _ in range(100):
        kernel(((N + 255) // 256,), (256,), (cupy.float32(0.5), x, y, cupy.int32(N)))
    checks.must("axpy_right", bool((y == 1 + 50 * x).all()))
    checks.show("axpy", y)


@checks.check
def elementwise_and_reduction():
    squares = cupy.ElementwiseKernel("float32 x", "float32 z", "z = x * x + i", "squares")
    norm = cupy.ReductionKernel("float32 x", "float32 z", "x * x", "a + b", "z = sqrt(a)", "0", "norm")
    x = cupy.linspace(0, 1, N, dtype=cupy.float32)
    checks.show("squares", squares(x))
    checks.show("norm", norm(x))


@checks.check
def streams():
    own, done = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event()
    with own:
        x = cupy.zeros(N, dtype=cupy.float32)
        for turn in range(200):
            x = x * 1.01 + turn
        done.record()
    with cupy.cuda.Stream(non_blocking=True) as other:
        other.wait_event(done)
        y = x + 1
    other.synchronize()
    checks.show("streams", y)
    with cupy.cuda.Stream.ptds:
        z = cupy.arange(N, dtype=cupy.float32)
        for _ in range(100):
            z = z * 0.99
    cupy.cuda.Stream.ptds.synchronize()
    checks.show("per_thread_default", z)


@checks.check
def host_functions():
    stream, said = cupy.cuda.Stream(non_blocking=True), []
    with stream:
        x = cupy.ones(N, dtype=cupy.float32)
        for turn in range(5):
            x *= 2
            stream.launch_host_func(said.append, turn)
    stream.synchronize()
    checks.must("in_order", said == [0, 1, 2, 3, 4])
    checks.show("doubled", x)


@checks.check
def graph():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(N, dtype=cupy.float32)
        x += 0
        stream.synchronize()
        stream.begin_capture()
        x *= 1.5
        x += 1
        captured = stream.end_capture()
        for _ in range(20):
            captured.launch()
    stream.synchronize()
    checks.show("graph", x)


@checks.check
def pools():
    pool = cupy.get_default_memory_pool()
    for turn in range(50):
        x = cupy.full((1 << 18) + turn, turn, dtype=cupy.int32)
        if int(x[-1]) != turn:
            raise AssertionError(f"turn {turn} read {int(x[-1])}")
        if turn % 10 == 9:
            del x
            pool.free_all_blocks()
    checks.show("after_pool", cupy.arange(10).sum())
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        y = cupy.arange(N, dtype=cupy.float32)
        for _ in range(50):
            y = y + 1
        checks.show("async_pool", y)
        del y
    pinned = cupy.cuda.alloc_pinned_memory(4 * N)
    host = numpy.frombuffer(pinned, numpy.float32, N)
    host[:] = 3
    checks.show("pinned", cupy.asarray(host) * 2)
    managed = cupy.ndarray(N, cupy.float32, cupy.cuda.malloc_managed(4 * N))
    managed[:] = 7
    checks.show("managed", managed)


@checks.check
def out_of_memory():
    try:
        cupy.zeros(1 << 42, dtype=cupy.uint8)
        checks.show("too_much", "accepted")
    except cupy.cuda.memory.OutOfMemoryError as error:
        checks.show("too_much", type(error).__name__)
    checks.show("goes_on", cupy.ones(10).sum())


if __name__ == "__main__":
    checks.main()
