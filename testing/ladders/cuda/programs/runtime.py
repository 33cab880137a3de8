#!/usr/bin/env python3
"""The least a CUDA program does, on the runtime API: set device, properties, malloc, memcpy, memset, free, reset."""

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

import checks
import cu

rt = cu.runtime()
if rt.library.cudaGetDeviceCount(byref(c_int())) != 0:
    checks.absent("the runtime finds no GPU")
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
BYTES = bytes(reversed(range(256))) * 1024


def allocate(size):
    pointer = c_void_p()
    rt.cudaMalloc(byref(pointer), c_size_t(size))
    return pointer


def read(pointer, size):
    back = ctypes.create_string_buffer(size)
    rt.cudaMemcpy(back, pointer, c_size_t(size), TO_HOST)
    return back.raw


@checks.check
def query():
    count, version = c_int(), c_int()
    rt.cudaGetDeviceCount(byref(count))
    rt.cudaSetDevice(0)
    rt.cudaRuntimeGetVersion(byref(version))
    threads = c_int()
    rt.cudaDeviceGetAttribute(byref(threads), 1, 0)
    checks.show("devices", count.value)
    checks.show("runtime", version.value)
    checks.show("threads_a_block", threads.value)


@checks.check
def copy_and_set():
    pointer = allocate(len(BYTES))
    rt.cudaMemcpy(pointer, c_char_p(BYTES), c_size_t(len(BYTES)), TO_DEVICE)
    checks.must("copied", read(pointer, len(BYTES)) == BYTES)
    other = allocate(len(BYTES))
    rt.cudaMemcpy(other, pointer, c_size_t(len(BYTES)), ON_DEVICE)
    rt.cudaMemset(pointer, 0x5A, c_size_t(len(BYTES)))
    checks.must("set", read(pointer, len(BYTES)) == b"\x5a" * len(BYTES))
    checks.must("copied_on_device", read(other, len(BYTES)) == BYTES)
    rt.cudaFree(pointer)
    rt.cudaFree(other)


@checks.check
def streams_and_events():
    stream, event = c_void_p(), c_void_p()
    rt.cudaStreamCreate(byref(stream))
    rt.cudaEventCreate(byref(event))
    pointer = allocate(len(BYTES))
    for value in range(200):
        rt.cudaMemsetAsync(pointer, value, c_size_t(len(BYTES)), stream)
    rt.cudaEventRecord(event, stream)
    rt.cudaEventSynchronize(event)
    checks.must("last_set_wins", read(pointer, len(BYTES)) == bytes([199]) * len(BYTES))
    rt.cudaEventDestroy(event)
    rt.cudaStreamDestroy(stream)
    rt.cudaFree(pointer)


@checks.check
def errors():
    try:
        allocate(1 << 42)
        checks.show("too_much_memory", "accepted")
    except cu.CudaError as error:
        checks.show("too_much_memory", str(error))
    checks.show("last_error", rt.library.cudaGetLastError())
    checks.show("last_error_again", rt.library.cudaGetLastError())


@checks.check
def device_reset():
    """Everything goes, work in flight too; what is done afterwards works."""
    pointer = allocate(64 << 20)
    for value in range(100):
        rt.cudaMemsetAsync(pointer, value, c_size_t(64 << 20), None)
    rt.cudaDeviceReset()
    for value in (17, 18):
        pointer = allocate(1 << 20)
        rt.cudaMemset(pointer, value, c_size_t(1 << 20))
        checks.must(f"after_reset_{value}", read(pointer, 1 << 20) == bytes([value]) * (1 << 20))
        rt.cudaDeviceReset()


if __name__ == "__main__":
    checks.main()
