#!/usr/bin/env python3
"""Stands in for benches/cuda/roles.py in the kit's tests: the same orders and the same loops, but a step is a few kernels
of the software HIP runtime."""

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[5] / "benches/cuda"))
from roles import Role, say, serve  # noqa: E402

KERNELS, NS = 5, 200_000
IMAGE = b"fakehip kernels: spin"


class Value(float):
    """As much of a tensor as Role looks at."""

    def float(self):
        return self

    def abs(self):
        return self

    mean = abs


class StandIn(Role):
    def warm(self):
        self.items, self.last = 1, Value(0.5)
        self.hip = ctypes.CDLL("libamdhip64.so.5")
        module, self.function, self.stream = (ctypes.c_void_p() for _ in range(3))
        self.check(self.hip.hipModuleLoadData(ctypes.byref(module), IMAGE))
        self.check(self.hip.hipModuleGetFunction(ctypes.byref(self.function), module, b"spin"))
        self.check(self.hip.hipStreamCreateWithFlags(ctypes.byref(self.stream), 1))
        self.step = self.kernels
        self.step()
        self.wait()

    def check(self, result):
        if result:
            sys.exit(f"stand-in: the HIP runtime says {result}")

    def kernels(self):
        ns = ctypes.c_uint64(NS)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
        for _ in range(KERNELS):
            self.check(self.hip.hipModuleLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, self.stream, arguments, None))
        return self.last

    def wait(self):
        self.check(self.hip.hipStreamSynchronize(self.stream))


say("IMPORTED")
serve(StandIn(None, sys.argv[1], None), sys.stdin, say)
