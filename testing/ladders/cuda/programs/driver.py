#!/usr/bin/env python3
"""The least a CUDA program does, on the driver API: query, allocate, copy, set, launch, free."""

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64

import checks
import cu

gpu = cu.Device()
PATTERN = bytes(range(256)) * 4096


@checks.check
def device_query():
    count, name, total = c_int(), ctypes.create_string_buffer(100), c_size_t()
    gpu.cu.cuDeviceGetCount(byref(count))
    gpu.cu.cuDeviceGetName(name, 100, gpu.device)
    gpu.cu.cuDeviceTotalMem_v2(byref(total), gpu.device)
    checks.show("devices", count.value)
    checks.show("name", name.value.decode())
    checks.show("memory", total.value)
    checks.show("capability", f"{gpu.attribute(75)}.{gpu.attribute(76)}")


@checks.check
def copy_both_ways():
    pointer, back = gpu.allocate(len(PATTERN) // 4), ctypes.create_string_buffer(len(PATTERN))
    gpu.cu.cuMemcpyHtoD_v2(pointer, c_char_p(PATTERN), c_size_t(len(PATTERN)))
    gpu.cu.cuMemcpyDtoH_v2(back, pointer, c_size_t(len(PATTERN)))
    checks.must("copied", back.raw == PATTERN)
    other = gpu.allocate(len(PATTERN) // 4)
    gpu.cu.cuMemcpyDtoD_v2(other, pointer, c_size_t(len(PATTERN)))
    gpu.cu.cuMemcpy(c_uint64(pointer.value), c_uint64(other.value), c_size_t(len(PATTERN)))
    gpu.cu.cuMemcpyDtoH_v2(back, other, c_size_t(len(PATTERN)))
    checks.must("copied_on_device", back.raw == PATTERN)
    gpu.free(pointer, other)


@checks.check
def set_memory():
    pointer = gpu.allocate(1024)
    gpu.cu.cuMemsetD8_v2(pointer, 0xA5, c_size_t(4096))
    checks.must("set_bytes", gpu.read(pointer, 1024) == [0xA5A5A5A5] * 1024)
    gpu.cu.cuMemsetD32_v2(pointer, c_uint(0xDEADBEEF), c_size_t(512))
    checks.must("set_words", gpu.read(pointer, 1024) == [0xDEADBEEF] * 512 + [0xA5A5A5A5] * 512)
    gpu.cu.cuMemsetD32Async(pointer, c_uint(7), c_size_t(1024), None)
    checks.must("set_async", gpu.read(pointer, 1024) == [7] * 1024)
    gpu.free(pointer)


@checks.check
def default_stream_kernels():
    pointer, n = gpu.allocate(4096), c_uint(4096)
    gpu.launch(gpu.kernel("fill"), pointer, n, c_uint(0), words=4096)
    for factor in range(1, 200):
        gpu.launch(gpu.kernel("step"), pointer, n, c_uint(factor), words=4096)
    words = gpu.read(pointer, 4096)
    checks.must("kernels_right", words == cu.stepped(4096, range(1, 200)))
    checks.show("kernels", cu.packed(words))
    gpu.free(pointer)


@checks.check
def many_small_launches():
    count = gpu.allocate(1)
    gpu.cu.cuMemsetD32_v2(count, 0, c_size_t(1))
    spin = gpu.kernel("spin")
    for _ in range(5000):
        gpu.launch(spin, count, c_uint64(2000), threads=1)
    checks.must("all_ran", gpu.read(count, 1) == [5000])
    gpu.free(count)


@checks.check
def launch_holding_the_interpreter():
    """A held launch must not need the interpreter's lock, which this one keeps."""
    locked = ctypes.PyDLL("libcuda.so.1")
    count = gpu.allocate(1)
    gpu.cu.cuMemsetD32_v2(count, 0, c_size_t(1))
    spin, arguments = gpu.kernel("spin"), cu.parameters(count, c_uint64(20_000))
    refused = sum(locked.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, None, arguments, None) != 0 for _ in range(500))
    checks.must("none_refused", refused == 0)
    checks.must("all_ran_locked", gpu.read(count, 1) == [500])
    gpu.free(count)


@checks.check
def errors_stay():
    """Calls that the driver refuses are refused with the same code."""
    for name, call in {
        "too_many_threads": lambda: gpu.launch(gpu.kernel("fill"), gpu.allocate(1), c_uint(1), c_uint(1), threads=4096),
        "no_such_kernel": lambda: gpu.kernel("nothing"),
        "null_copy": lambda: gpu.cu.cuMemcpyDtoH_v2(None, c_uint64(0), c_size_t(16)),
        "too_much_memory": lambda: gpu.allocate(1 << 42),
        "bad_image": lambda: gpu.load(b".version 6.0\n.target sm_50\nnonsense\0"),
    }.items():
        try:
            call()
            checks.show(name, "accepted")
        except cu.CudaError as error:
            checks.show(name, str(error))


@checks.check
def own_context():
    """A second context beside the primary one, destroyed with work in flight."""
    other = cu.Device(primary=False)
    pointer = other.allocate(1024)
    for factor in (3, 5, 7):
        other.launch(other.kernel("fill"), pointer, c_uint(1024), c_uint(factor), words=1024)
    checks.must("filled", other.read(pointer, 1024) == [7] * 1024)
    for _ in range(50):
        other.launch(other.kernel("spin"), pointer, c_uint64(100_000), threads=1)
    other.cu.cuCtxDestroy_v2(other.context)
    gpu.cu.cuCtxSetCurrent(gpu.context)
    pointer = gpu.allocate(16)
    gpu.launch(gpu.kernel("fill"), pointer, c_uint(16), c_uint(9), words=16)
    checks.must("first_context_goes_on", gpu.read(pointer, 16) == [9] * 16)


if __name__ == "__main__":
    checks.main()
