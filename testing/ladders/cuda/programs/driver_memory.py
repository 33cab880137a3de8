#!/usr/bin/env python3
"""Every kind of memory on the driver API: mapped by hand, pools, managed, registered, pitched, shared by processes."""

import ctypes
import subprocess
import sys
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p

import checks
import cu

gpu = cu.Device()
WORDS = 1 << 16
BYTES = 4 * WORDS
DEVICE_LOCATION = (c_int * 2)(1, 0)  # CUmemLocation: device 0


def step(pointer, factor, stream=None, words=WORDS):
    gpu.launch(gpu.kernel("step"), pointer, c_uint(words), c_uint(factor), words=words, stream=stream)


def shows(name, words, factors):
    checks.must(f"{name}.right", words == cu.stepped(len(words), factors))
    checks.show(name, cu.packed(words))


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp of pinned memory on device 0."""

    _fields_ = [
        ("kind", c_int),
        ("handles", c_int),
        ("location", c_int * 2),
        ("security", c_void_p),
        ("flags", c_uint64),
    ]


@checks.check
def mapped_by_hand():
    """Addresses reserved, physical memory made and mapped, in two pieces side by side."""
    properties, granularity = AllocationProperties(1, 0, DEVICE_LOCATION), c_size_t()
    gpu.cu.cuMemGetAllocationGranularity(byref(granularity), byref(properties), 0)
    piece, address = granularity.value, c_uint64()
    gpu.cu.cuMemAddressReserve(byref(address), c_size_t(2 * piece), c_size_t(0), c_uint64(0), c_uint64(0))
    handles = [c_uint64(), c_uint64()]
    for at, handle in enumerate(handles):
        gpu.cu.cuMemCreate(byref(handle), c_size_t(piece), byref(properties), c_uint64(0))
        gpu.cu.cuMemMap(c_uint64(address.value + at * piece), c_size_t(piece), c_size_t(0), handle, c_uint64(0))
    access = (c_int * 3)(1, 0, 3)  # device 0 may read and write
    gpu.cu.cuMemSetAccess(address, c_size_t(2 * piece), access, c_size_t(1))
    words = 2 * piece // 4
    gpu.cu.cuMemsetD32_v2(address, 0, c_size_t(words))
    for factor in (3, 5, 7):
        step(address, factor, words=words)
    across = c_uint64(address.value + piece - 4096)
    found = gpu.read(across, 2048)
    first = (piece - 4096) // 4
    expected = [(((3 * 0 + i) * 5 + i) * 7 + i) & 0xFFFFFFFF for i in range(first, first + 2048)]
    checks.must("across_pieces", found == expected)
    checks.show("mapped", cu.packed(found))
    gpu.cu.cuMemUnmap(address, c_size_t(2 * piece))
    for handle in handles:
        gpu.cu.cuMemRelease(handle)
    gpu.cu.cuMemAddressFree(address, c_size_t(2 * piece))


@checks.check
def stream_ordered():
    """Allocated and freed in stream order, from the device's pool and one of our own."""

    class PoolProperties(ctypes.Structure):
        _fields_ = [("kind", c_int), ("handles", c_int), ("location", c_int * 2), ("security", c_void_p),
                    ("most", c_size_t), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54)]  # fmt: skip

    pool, stream = c_void_p(), gpu.stream()
    gpu.cu.cuMemPoolCreate(byref(pool), byref(PoolProperties(1, 0, DEVICE_LOCATION)))
    for name, own in (("default_pool", False), ("own_pool", True)):
        for turn in range(50):
            pointer = c_uint64()
            if own:
                gpu.cu.cuMemAllocFromPoolAsync(byref(pointer), c_size_t(BYTES), pool, stream)
            else:
                gpu.cu.cuMemAllocAsync(byref(pointer), c_size_t(BYTES), stream)
            gpu.cu.cuMemsetD32Async(pointer, 0, c_size_t(WORDS), stream)
            step(pointer, turn, stream)
            step(pointer, 3, stream)
            if turn == 49:
                back = (c_uint * WORDS)()
                gpu.cu.cuMemcpyDtoHAsync_v2(back, pointer, c_size_t(BYTES), stream)
            gpu.cu.cuMemFreeAsync(pointer, stream)
        gpu.synchronize(stream)
        shows(name, list(back), (49, 3))
    gpu.cu.cuMemPoolTrimTo(pool, c_size_t(0))
    gpu.cu.cuMemPoolDestroy(pool)


@checks.check
def managed():
    """Memory that moves by itself: used on both sides in turn, and sent ahead."""
    pointer, stream = c_uint64(), gpu.stream()
    gpu.cu.cuMemAllocManaged(byref(pointer), c_size_t(BYTES), 1)
    words = (c_uint * WORDS).from_address(pointer.value)
    ctypes.memset(words, 0, BYTES)
    for factor in (3, 5, 7):
        gpu.cu.cuMemPrefetchAsync_v2(
            pointer, c_size_t(BYTES), c_uint64(1), 0, stream
        )  # CUmemLocation by value: device 0
        gpu.synchronize(stream)
        step(pointer, factor)
        gpu.cu.cuCtxSynchronize()
        words[0] += 0
    shows("managed", list(words), (3, 5, 7))
    gpu.free(pointer)


@checks.check
def registered():
    """Ordinary memory made known to the driver, copied from and to asynchronously."""
    room, stream = (c_uint * WORDS)(), gpu.stream()
    pointer = gpu.allocate(WORDS)
    gpu.cu.cuMemHostRegister_v2(room, c_size_t(BYTES), 0)
    for factor in range(1, 20):
        gpu.cu.cuMemcpyHtoDAsync_v2(pointer, room, c_size_t(BYTES), stream)
        step(pointer, factor, stream)
        gpu.cu.cuMemcpyDtoHAsync_v2(room, pointer, c_size_t(BYTES), stream)
    gpu.synchronize(stream)
    shows("registered", list(room), range(1, 20))
    gpu.cu.cuMemHostUnregister(room)
    gpu.free(pointer)


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    SIDE = (("x", c_size_t), ("y", c_size_t), ("kind", c_uint), ("host", c_void_p), ("device", c_uint64))
    SIDE += (("array", c_void_p), ("pitch", c_size_t))
    _fields_ = [(f"from_{name}", kind) for name, kind in SIDE] + [(f"to_{name}", kind) for name, kind in SIDE]
    _fields_ += [("width", c_size_t), ("height", c_size_t)]


@checks.check
def rectangles():
    """Pitched memory and 2D copies: to the device, on it, and back."""
    pitch, first, second = c_size_t(), c_uint64(), c_uint64()
    gpu.cu.cuMemAllocPitch_v2(byref(first), byref(pitch), c_size_t(200), c_size_t(50), 4)
    gpu.cu.cuMemAllocPitch_v2(byref(second), byref(pitch), c_size_t(200), c_size_t(50), 4)
    source, back = (c_char * 10000)(*[i % 251 for i in range(10000)]), (c_char * 10000)()
    host, device = 1, 2
    there = Copy2D(from_kind=host, from_host=ctypes.addressof(source), from_pitch=200,
                   to_kind=device, to_device=first.value, to_pitch=pitch.value, width=200, height=50)  # fmt: skip
    across = Copy2D(from_kind=device, from_device=first.value, from_pitch=pitch.value,
                    to_kind=device, to_device=second.value, to_pitch=pitch.value, width=200, height=50)  # fmt: skip
    home = Copy2D(from_kind=device, from_device=second.value, from_pitch=pitch.value,
                  to_kind=host, to_host=ctypes.addressof(back), to_pitch=200, width=200, height=50)  # fmt: skip
    stream = gpu.stream(0)
    gpu.cu.cuMemcpy2D_v2(byref(there))
    gpu.cu.cuMemcpy2DAsync_v2(byref(across), stream)
    gpu.synchronize(stream)
    gpu.cu.cuMemcpy2DUnaligned_v2(byref(home))
    checks.must("rectangles", back.raw == source.raw)
    gpu.free(first, second)


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", c_char * 64)]


def other_process(handle, event):
    """The child: opens what the parent shares, works on it in turn."""
    shared, done = IpcHandle.from_buffer_copy(handle), IpcHandle.from_buffer_copy(event)
    pointer, opened = c_uint64(), c_void_p()
    gpu.cu.cuIpcOpenMemHandle_v2(byref(pointer), shared, 1)
    gpu.cu.cuIpcOpenEventHandle(byref(opened), done)
    stream = gpu.stream()
    gpu.cu.cuStreamWaitEvent(stream, opened, 0)
    for factor in (7, 11):
        step(pointer, factor, stream)
    gpu.synchronize(stream)
    gpu.cu.cuIpcCloseMemHandle(pointer)


@checks.check
def shared_between_processes():
    """Memory and an event by IPC handles: the child goes on where the parent was."""
    pointer, event, stream = gpu.allocate(WORDS), c_void_p(), gpu.stream()
    gpu.cu.cuMemsetD32_v2(pointer, 0, c_size_t(WORDS))
    gpu.cu.cuCtxSynchronize()
    handle, done = IpcHandle(), IpcHandle()
    gpu.cu.cuEventCreate(byref(event), 2 | 4)  # no timing, between processes
    gpu.cu.cuIpcGetMemHandle(byref(handle), pointer)
    gpu.cu.cuIpcGetEventHandle(byref(done), event)
    for factor in (3, 5):
        step(pointer, factor, stream)
    gpu.cu.cuEventRecord(event, stream)
    hexadecimal = [bytes(memoryview(h)).hex() for h in (handle, done)]
    child = subprocess.run([sys.executable, __file__, "--child", *hexadecimal], timeout=100)
    checks.show("child", child.returncode)
    step(pointer, 13, stream)
    gpu.synchronize(stream)
    shows("shared", gpu.read(pointer, WORDS), (3, 5, 7, 11, 13))
    gpu.free(pointer)


@checks.check
def exhausted():
    """The driver refuses what does not fit, again and again, and all that fits still works."""
    refusals = 0
    for _ in range(20):
        try:
            gpu.allocate(1 << 42)
        except cu.CudaError as error:
            refusals += str(error) == "cuMemAlloc_v2 = OUT_OF_MEMORY"
    checks.show("refusals", refusals)
    pointer = gpu.allocate(16)
    gpu.cu.cuMemsetD32_v2(pointer, 5, c_size_t(16))
    checks.must("goes_on", gpu.read(pointer, 16) == [5] * 16)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        other_process(*(bytes.fromhex(word) for word in sys.argv[2:4]))
    else:
        checks.main()
