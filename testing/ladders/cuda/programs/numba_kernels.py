#!/usr/bin/env python3
"""Kernels compiled by numba from Python, with shared memory, streams, and a reduction."""

import warnings

import checks

numpy = checks.need("numpy", "numba")
warnings.filterwarnings("ignore")
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack  # gone from numpy 2.5, still asked for by numba
from numba import cuda, float32  # noqa: E402

try:
    cuda.current_context()
except Exception as error:  # numba has a type of its own for each way of not working
    checks.absent(f"numba.cuda does not work here: {str(error).splitlines()[0]}")

N = 100_003


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((16, 17), float32)
    row, column = cuda.grid(2)
    tile[cuda.threadIdx.x, cuda.threadIdx.y] = x[row, column]
    cuda.syncthreads()
    out[cuda.blockIdx.y * 16 + cuda.threadIdx.x, cuda.blockIdx.x * 16 + cuda.threadIdx.y] = tile[
        cuda.threadIdx.y, cuda.threadIdx.x
    ]


@cuda.reduce
def total(a, b):
    return a + b


@checks.check
def kernels():
    x, y = numpy.arange(N, dtype=numpy.float32), numpy.ones(N, dtype=numpy.float32)
    there, result = cuda.to_device(x), cuda.to_device(y)
    for _ in range(100):
        axpy[(N + 255) // 256, 256](numpy.float32(0.5), there, result)
    found = result.copy_to_host()
    checks.must("axpy_right", bool((found == 1 + 50 * x).all()))
    checks.show("axpy", found)


@checks.check
def shared_memory():
    x = numpy.arange(64 * 128, dtype=numpy.float32).reshape(64, 128)
    out = cuda.device_array((128, 64), numpy.float32)
    transpose[(4, 8), (16, 16)](cuda.to_device(x), out)
    checks.must("transposed", numpy.array_equal(out.copy_to_host(), x.T))


@checks.check
def streams():
    x = numpy.arange(N, dtype=numpy.float32)
    stream = cuda.stream()
    with cuda.pinned(x):
        there = cuda.to_device(x, stream=stream)
        result = cuda.to_device(numpy.zeros_like(x), stream=stream)
        for turn in range(50):
            axpy[(N + 255) // 256, 256, stream](numpy.float32(turn), there, result)
        found = result.copy_to_host(stream=stream)
        stream.synchronize()
    checks.show("streams", found)


@checks.check
def reduction():
    checks.show("total", int(total(numpy.arange(N, dtype=numpy.int64))))


@checks.check
def implicit_transfers():
    x, y = numpy.ones(1000, dtype=numpy.float32), numpy.zeros(1000, dtype=numpy.float32)
    axpy[4, 256](numpy.float32(3), x, y)
    checks.must("came_back", bool((y == 3).all()))


if __name__ == "__main__":
    checks.main()
