#!/usr/bin/env python3
"""The C API from Python, by ctypes: XQueues over CUDA streams of a program that has its own use for them.

streams.py [--torch] [--second]: PyTorch's streams and kernels, else the driver's own. Prints "ok WHAT" for each check.
With --second there is a second interpreter, after which PyGILState_Check says of every thread that it has Python's lock.
"""

import ctypes
import os
import sys
import threading

FILLS = 40
WORDS = 256

SUCCESS = 0
LEVEL_BLOCK = 1
SCHEDULER_LOCAL, POLICY_HPF = 2, 1
SYNC_HW_QUEUE = 1
STATE_IDLE = 1

Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)

second = None
if "--second" in sys.argv[1:]:
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    second = interpreters.create()

preempt = ctypes.CDLL("libpreempt.so")
halcuda = ctypes.CDLL("libhalcuda.so")
for name, arguments in {
    "XQueueCreate": [ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint64, ctypes.c_int64, ctypes.c_int64],
    "XQueueDestroy": [ctypes.c_uint64],
    "XQueueSubmit": [ctypes.c_uint64, ctypes.c_uint64],
    "XQueueWaitAll": [ctypes.c_uint64],
    "XQueueQuery": [ctypes.c_uint64, ctypes.POINTER(ctypes.c_int)],
    "XQueueSuspend": [ctypes.c_uint64, ctypes.c_int64],
    "XQueueResume": [ctypes.c_uint64, ctypes.c_int64],
    "HwCommandCreateCallback": [ctypes.POINTER(ctypes.c_uint64), Callback, ctypes.c_void_p],
    "XHintSetScheduler": [ctypes.c_int, ctypes.c_int],
    "XHintPriority": [ctypes.c_uint64, ctypes.c_int32],
}.items():
    getattr(preempt, name).argtypes = arguments
halcuda.CudaQueueCreate.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_void_p]


def need(result, what):
    if result != SUCCESS:
        print(f"FAIL {what}: {result}")
        sys.exit(1)


def check(holds, what):
    print("ok" if holds else "FAIL", what, flush=True)
    if not holds:
        sys.exit(1)


class Driver:
    """Streams and commands of the CUDA driver."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        need(self.cuda.cuInit(0), "cuInit")
        need(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
        need(self.cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        self.holding = ctypes.PyDLL("libcuda.so.1")
        self.context = context
        for library in self.cuda, self.holding:
            library.cuMemsetD32Async.argtypes = [ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p]

    def stream(self):
        stream, memory = ctypes.c_void_p(), ctypes.c_uint64()
        need(self.cuda.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
        need(self.cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 * WORDS)), "cuMemAlloc")
        return stream.value, memory

    def fill(self, stream, memory, value):
        return self.cuda.cuMemsetD32Async(memory.value, value, WORDS, stream)

    def beside_a_suspended_queue(self, stream, memory):
        """Launches by the driver's own functions: with Python's lock in hand one passes, without it one waits."""
        check(self.holding.cuMemsetD32Async(memory.value, 1, WORDS, stream) == SUCCESS, "with Python's lock in hand")
        if second is not None:
            # In the same thread, whose state there is another one.
            interpreters.run_string(second, f"""
import ctypes
holding = ctypes.PyDLL("libcuda.so.1")
holding.cuMemsetD32Async.argtypes = [ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p]
assert holding.cuMemsetD32Async({memory.value}, 1, {WORDS}, {stream}) == {SUCCESS}
""")
            check(True, "with it in hand in a second interpreter")
        self.thread = threading.Thread(target=self.launch, args=(stream, memory))
        self.thread.start()
        self.thread.join(0.05)
        check(self.thread.is_alive() == ("libxsched" in os.environ.get("LD_PRELOAD", "")), "without it")

    def launch(self, stream, memory):
        self.cuda.cuCtxSetCurrent(self.context)
        self.result = self.fill(stream, memory, 2)

    def holds(self, memory, value):
        words = (ctypes.c_uint * WORDS)()
        need(self.cuda.cuMemcpyDtoH_v2(words, memory, ctypes.c_size_t(4 * WORDS)), "cuMemcpyDtoH")
        return all(word == value for word in words)


class Torch:
    """PyTorch's. Its kernels run on its streams, also beside what is submitted."""

    def __init__(self):
        import torch

        self.torch = torch
        torch.ones(8, device="cuda").sum().item()

    def stream(self):
        stream = self.torch.cuda.Stream()
        memory = self.torch.zeros(WORDS, device="cuda")
        self.torch.cuda.synchronize()
        self.streams = {**getattr(self, "streams", {}), stream.cuda_stream: stream}
        return stream.cuda_stream, memory

    def fill(self, stream, memory, value):
        with self.torch.cuda.stream(self.streams[stream]):
            memory.fill_(value)
        return SUCCESS

    def holds(self, memory, value):
        return bool((memory == value).all().item())


def main():
    device = Torch() if "--torch" in sys.argv[1:] else Driver()
    need(preempt.XHintSetScheduler(SCHEDULER_LOCAL, POLICY_HPF), "XHintSetScheduler")
    queues, callbacks = [], []
    for priority in (1, 2):
        stream, memory = device.stream()
        hwq, xq = ctypes.c_uint64(), ctypes.c_uint64()
        need(halcuda.CudaQueueCreate(ctypes.byref(hwq), stream), "CudaQueueCreate")
        need(preempt.XQueueCreate(ctypes.byref(xq), hwq, LEVEL_BLOCK, 0), "XQueueCreate")
        need(preempt.XHintPriority(xq, priority), "XHintPriority")
        queues.append((stream, memory, xq))
    check(True, "XQueues on streams of the program")

    def submit(stream, memory, xq):
        for value in range(1, FILLS + 1):
            callback = Callback(lambda _hwq, _data, value=value: device.fill(stream, memory, value))
            callbacks.append(callback)
            command = ctypes.c_uint64()
            need(preempt.HwCommandCreateCallback(ctypes.byref(command), callback, None), "HwCommandCreateCallback")
            need(preempt.XQueueSubmit(xq, command), "XQueueSubmit")

    threads = [threading.Thread(target=submit, args=queue) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, memory, xq in queues:
        need(preempt.XQueueWaitAll(xq), "XQueueWaitAll")
        check(device.holds(memory, FILLS), "every command ran, in its order")
    stream, memory, xq = queues[0]
    need(preempt.XQueueSuspend(xq, SYNC_HW_QUEUE), "XQueueSuspend")
    submit(stream, memory, xq)
    state = ctypes.c_int()
    need(preempt.XQueueQuery(xq, ctypes.byref(state)), "XQueueQuery")
    check(state.value != STATE_IDLE and device.holds(memory, FILLS), "a suspended queue keeps its commands")
    if isinstance(device, Driver):
        device.beside_a_suspended_queue(stream, memory)
    need(preempt.XQueueResume(xq, 0), "XQueueResume")
    if isinstance(device, Driver):
        device.thread.join()
        check(device.result == SUCCESS, "what waited goes on")
    need(preempt.XQueueWaitAll(xq), "XQueueWaitAll")
    for _, _, xq in queues:
        need(preempt.XQueueDestroy(xq), "XQueueDestroy")
    check(device.fill(stream, memory, 7) == SUCCESS, "the stream is still the program's")


main()
