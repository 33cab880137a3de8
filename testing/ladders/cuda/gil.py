"""Two threads of one Python program, with streams of different priority, that hold the GIL while they launch.

gil.py [SECONDS]: ctypes.PyDLL keeps the GIL during a call, as extensions may that do not release it. The less urgent
thread launches on and on; the urgent one launches, waits (without the GIL), thinks for a while and launches again.
Prints "ready", then after SECONDS (of work of the urgent thread, or at "end" on stdin) a line of JSON: how often each
came round, and how long the urgent one took for a round, in ms.
"""

import ctypes
import json
import sys
import threading
import time

PTX = (
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 pns) {\n"
    ".reg .pred %p<2>; .reg .b64 %d<5>;\n"
    "ld.param.u64 %d1, [pns]; mov.u64 %d2, %globaltimer;\n"
    "LOOP: mov.u64 %d3, %globaltimer; sub.u64 %d4, %d3, %d2; setp.lt.u64 %p1, %d4, %d1; @%p1 bra LOOP;\nret; }\n"
)
NON_BLOCKING = 1
LOW, HIGH = 0, -2
KERNEL_US = 100
BATCH = 4

holding = ctypes.PyDLL("libcuda.so.1")
releasing = ctypes.CDLL("libcuda.so.1")


def ok(result):
    if result:
        raise RuntimeError(f"the driver answered {result}")


class Worker:
    """A thread's stream, and its kernels."""

    def __init__(self, context, function, priority):
        self.context, self.function = context, function
        self.stream = ctypes.c_void_p()
        ok(releasing.cuStreamCreateWithPriority(ctypes.byref(self.stream), NON_BLOCKING, priority))
        self.rounds = 0
        self.took = []

    def launch(self):
        ns = ctypes.c_uint64(KERNEL_US * 1000)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
        ok(holding.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, self.stream, arguments, None))

    def round(self):
        begin = time.perf_counter()
        for _ in range(BATCH):
            self.launch()
        ok(releasing.cuStreamSynchronize(self.stream))
        self.took.append((time.perf_counter() - begin) * 1e3)
        self.rounds += 1

    def work_until(self, over, pause=0.0):
        ok(releasing.cuCtxSetCurrent(self.context))
        while not over.is_set():
            self.round()
            if pause:
                time.sleep(pause)


def start():
    """A context with the kernel in it."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    ok(releasing.cuInit(0))
    ok(releasing.cuDeviceGet(ctypes.byref(device), 0))
    ok(releasing.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    ok(releasing.cuCtxSetCurrent(context))
    ok(releasing.cuModuleLoadData(ctypes.byref(module), PTX.encode()))
    ok(releasing.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
    return context, function


def quantile(values, q):
    return sorted(values)[round((len(values) - 1) * q)] if values else None


def main():
    context, function = start()
    low, high = Worker(context, function, LOW), Worker(context, function, HIGH)
    low.round()
    high.round()
    over = threading.Event()
    threads = [
        threading.Thread(target=low.work_until, args=(over,)),
        threading.Thread(target=high.work_until, args=(over, 0.001)),
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        took = high.took
        high.took = []
        print(json.dumps({
            "low": low.rounds, "high": high.rounds, "p50_ms": quantile(took, 0.5), "p90_ms": quantile(took, 0.9),
        }), flush=True)
    over.set()
    for thread in threads:
        thread.join()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
