#!/usr/bin/env python3
"""Stands in for roles.py in the tests of the conductors: the same orders and the same loops, but a step is a few
kernels of the stand-in driver (driver.c), or a pause where no driver is found."""

import ctypes
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from roles import Role, say, serve  # noqa: E402

KERNELS, STEPS = 5, 10_000  # of 0.2 ms each


class Value:
    """As much of a tensor as Role looks at: what the device holds."""

    def __init__(self, number):
        self.number = number

    def __float__(self):
        return float(self.number)

    def float(self):
        return self

    abs = mean = float


class StandIn(Role):
    def warm(self):
        self.items, self.last = 1, Value(0.5)
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            self.step = lambda: time.sleep(0.001) or self.last
            return
        self.context, self.function, self.stream, self.sums = (ctypes.c_void_p() for _ in range(4))
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        self.check(self.cuda.cuCtxSetCurrent(self.context))
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(self.function), b"spin", b"spin"))
        self.check(self.cuda.cuStreamCreate(ctypes.byref(self.stream), 1))
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(self.sums), ctypes.c_size_t(4)))
        self.step = self.kernels
        self.step()
        self.wait()

    def check(self, result):
        if result:
            sys.exit(f"stand-in: the driver says {result}")

    def kernels(self):
        steps = ctypes.c_uint32(STEPS)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(self.sums), ctypes.addressof(steps))
        for _ in range(KERNELS):
            self.check(self.cuda.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, self.stream, parameters, None))
        return self.last

    def wait(self):
        if self.step == self.kernels:
            self.check(self.cuda.cuStreamSynchronize(self.stream))


say("IMPORTED")
serve(StandIn(None, sys.argv[1], None), sys.stdin, say)
