#!/usr/bin/env python3
"""Streams on the driver API: implicit barriers, events in a cycle, callbacks, memory operations, capture, threads."""

import ctypes
import threading
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

import checks
import cu

gpu = cu.Device()
WORDS = 2048
LEGACY, PER_THREAD = c_void_p(1), c_void_p(2)
EQUAL, AT_LEAST = 1, 0  # of cuStreamWaitValue32
WAIT_32, WRITE_32 = 1, 2  # of cuStreamBatchMemOp
MAPPED = 3  # portable and mapped host memory


def step(pointer, factor, stream):
    gpu.launch(gpu.kernel("step"), pointer, c_uint(WORDS), c_uint(factor), words=WORDS, stream=stream)


def zeros():
    pointer = gpu.allocate(WORDS)
    gpu.cu.cuMemsetD32_v2(pointer, 0, c_size_t(WORDS))
    gpu.cu.cuCtxSynchronize()
    return pointer


def shows(name, pointer, factors):
    """The words must be what these steps in this order make; a lost or swapped one would show."""
    words = gpu.read(pointer, WORDS)
    checks.must(f"{name}.in_order", words == cu.stepped(WORDS, factors))
    checks.show(name, cu.packed(words))
    gpu.free(pointer)


@checks.check
def legacy_stream_is_a_barrier():
    """Blocking streams and the legacy default stream take turns without any event."""
    pointer, blocking = zeros(), [gpu.stream(0), gpu.stream(0)]
    for factor in range(1, 100):
        step(pointer, factor, [blocking[0], None, blocking[1], LEGACY][factor % 4] if factor % 2 else None)
    shows("barrier", pointer, range(1, 100))


@checks.check
def events_in_a_cycle():
    """A waits for B, B for A, at other points; the events are used again."""
    pointer, streams, events = zeros(), [gpu.stream(), gpu.stream()], [gpu.event(), gpu.event()]
    for factor in range(1, 200):
        me = factor % 2
        gpu.cu.cuStreamWaitEvent(streams[me], events[1 - me], 0)
        step(pointer, factor, streams[me])
        gpu.cu.cuEventRecord(events[me], streams[me])
    for stream in streams:
        gpu.synchronize(stream)
    shows("cycle", pointer, range(1, 200))


@checks.check
def callbacks():
    """Host functions and callbacks run once each, in order, between the kernels."""
    pointer, stream, said = zeros(), gpu.stream(), []
    host_function = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: said.append(data))
    callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)(lambda _, status, data: said.append((status, data)))
    for turn in range(1, 41):
        step(pointer, turn, stream)
        gpu.cu.cuLaunchHostFunc(stream, host_function, c_void_p(turn))
        gpu.cu.cuStreamAddCallback(stream, callback, c_void_p(turn), 0)
    gpu.synchronize(stream)
    checks.must("callbacks_in_order", said == [item for turn in range(1, 41) for item in (turn, (0, turn))])
    shows("callbacks", pointer, range(1, 41))


def mapped_word():
    """A word that host and device share: its host side and its device address."""
    host, device = c_void_p(), c_uint64()
    gpu.cu.cuMemHostAlloc(byref(host), c_size_t(4096), MAPPED)
    gpu.cu.cuMemHostGetDevicePointer_v2(byref(device), host, 0)
    word = c_uint.from_address(host.value)
    word.value = 0
    return word, device


@checks.check
def memory_operations():
    """The program's own waits and writes in streams: two streams that hand over to each other, and to the host."""
    word, address = mapped_word()
    pointer, streams = zeros(), [gpu.stream(), gpu.stream()]
    # Each stream waits for what was written before in order of submission, so that none of it can wait for ever.
    for factor in range(1, 101):
        stream = streams[factor % 2]
        gpu.cu.cuStreamWaitValue32_v2(stream, address, c_uint(factor - 1), AT_LEAST)
        step(pointer, factor, stream)
        gpu.cu.cuStreamWriteValue32_v2(stream, address, c_uint(factor), 0)
    for stream in streams:
        gpu.synchronize(stream)
    checks.show("written", word.value)
    shows("memory_operations", pointer, range(1, 101))


@checks.check
def wait_for_the_host():
    """A stream waits for a word that the host stores later, while another stream works on."""
    word, address = mapped_word()
    held, other, free = zeros(), zeros(), gpu.stream()
    waiting = gpu.stream()
    gpu.cu.cuStreamWaitValue32_v2(waiting, address, c_uint(7), EQUAL)
    step(held, 3, waiting)
    for factor in range(1, 20):
        step(other, factor, free)
    gpu.synchronize(free)
    checks.show("still_waiting", gpu.cu.library.cuStreamQuery(waiting))
    word.value = 7
    gpu.synchronize(waiting)
    shows("held", held, [3])
    shows("beside", other, range(1, 20))


class BatchOperation(ctypes.Structure):
    """A wait or write of CUstreamBatchMemOpParams."""

    _fields_ = [("kind", c_uint), ("address", c_uint64), ("value", c_uint64), ("flags", c_uint), ("rest", c_uint64 * 2)]


@checks.check
def batched_memory_operations():
    word, address = mapped_word()
    stream = gpu.stream()
    batch = (BatchOperation * 3)()
    for at, (kind, value) in enumerate([(WRITE_32, 5), (WAIT_32, 5), (WRITE_32, 6)]):
        batch[at].kind, batch[at].address, batch[at].value = kind, address.value, value
        batch[at].flags = EQUAL if kind == WAIT_32 else 0
    gpu.cu.cuStreamBatchMemOp_v2(stream, 3, batch, 0)
    gpu.synchronize(stream)
    checks.show("batch", word.value)


@checks.check
def capture():
    """A graph from a capture in each mode, launched often; what is recorded does not run."""
    for mode in range(3):
        pointer, stream, graph, executable = zeros(), gpu.stream(), c_void_p(), c_void_p()
        gpu.cu.cuStreamBeginCapture_v2(stream, mode)
        for factor in (3, 5):
            step(pointer, factor, stream)
        gpu.cu.cuStreamEndCapture(stream, byref(graph))
        checks.must(f"capture.{mode}.ran_nothing", gpu.read(pointer, WORDS) == [0] * WORDS)
        gpu.cu.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
        for _ in range(30):
            gpu.cu.cuGraphLaunch(executable, stream)
            step(pointer, 7, stream)
        gpu.synchronize(stream)
        shows(f"capture.{mode}", pointer, [3, 5, 7] * 30)
        gpu.cu.cuGraphExecDestroy(executable)


@checks.check
def capture_refusals():
    """What is illegal while capturing is refused as ever, and what is captured afterwards works."""
    stream, graph, pointer = gpu.stream(0), c_void_p(), zeros()
    gpu.cu.cuStreamBeginCapture_v2(stream, 0)
    step(pointer, 3, stream)
    checks.show("synchronize", gpu.cu.library.cuStreamSynchronize(stream))
    checks.show("end", gpu.cu.library.cuStreamEndCapture(stream, byref(graph)))
    step(pointer, 5, stream)
    gpu.synchronize(stream)
    shows("after_refusal", pointer, [5])


@checks.check
def priorities():
    least, greatest = c_int(), c_int()
    gpu.cu.cuCtxGetStreamPriorityRange(byref(least), byref(greatest))
    checks.show("range", f"{least.value} {greatest.value}")
    pointers = []
    for priority in range(greatest.value, least.value + 1):
        stream, found = c_void_p(), c_int()
        gpu.cu.cuStreamCreateWithPriority(byref(stream), 1, priority)
        gpu.cu.cuStreamGetPriority(stream, byref(found))
        if found.value != priority:
            raise AssertionError(f"priority {priority} became {found.value}")
        pointer = zeros()
        for factor in range(1, 50):
            step(pointer, factor, stream)
        pointers.append((stream, pointer))
    for at, (stream, pointer) in enumerate(pointers):
        gpu.synchronize(stream)
        shows(f"priority.{at}", pointer, range(1, 50))


@checks.check
def destroyed_with_work_in_flight():
    pointer, count = zeros(), gpu.allocate(1)
    gpu.cu.cuMemsetD32_v2(count, 0, c_size_t(1))
    for _ in range(20):
        stream = gpu.stream()
        gpu.launch(gpu.kernel("spin"), count, c_uint64(50_000), threads=1, stream=stream)
        gpu.cu.cuStreamDestroy_v2(stream)
    gpu.cu.cuCtxSynchronize()
    checks.must("all_ran", gpu.read(count, 1) == [20])
    gpu.free(pointer, count)


@checks.check
def threads():
    """Eight threads, each with a stream of its own and its per-thread default stream."""
    pointers, errors = [zeros() for _ in range(8)], []

    def work(number):
        try:
            gpu.cu.cuCtxSetCurrent(gpu.context)
            own = gpu.stream()
            for factor in range(1, 101):
                stream = own if factor <= 50 else PER_THREAD
                if factor == 51:
                    gpu.synchronize(own)
                step(pointers[number], factor, stream)
            gpu.synchronize(PER_THREAD)
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    for at, pointer in enumerate(pointers):
        shows(f"thread.{at}", pointer, range(1, 101))


if __name__ == "__main__":
    checks.main()
