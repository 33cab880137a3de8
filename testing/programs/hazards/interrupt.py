"""A Python program whose Ctrl-C must work while it is held: interrupt.py LIBSIMDEV [TICKS].

With TICKS a handler of its own runs each so many seconds, and "ticked" is a line for each fifth time.
"""
import ctypes
import signal
import sys

sim = ctypes.CDLL(sys.argv[1])


class Kernel(ctypes.Structure):
    _fields_ = [("op", ctypes.c_uint32), ("count", ctypes.c_uint32), ("duration_ns", ctypes.c_uint64),
                ("x", ctypes.c_void_p), ("y", ctypes.c_void_p), ("a", ctypes.c_float)]


def call(name, *args):
    error = getattr(sim, name)(*args)
    assert error == 0, (name, error)


stream = ctypes.c_void_p()
call("simStreamCreate", ctypes.byref(stream))
nothing = Kernel(0, 0, 200_000, None, None, 0)
handled = 0


def tick(number, frame):
    global handled
    handled += 1
    if handled % 5 == 0:
        print("ticked", flush=True)


if len(sys.argv) > 2:
    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]), float(sys.argv[2]))
print("ready", flush=True)
try:
    while True:
        call("simLaunchKernel", ctypes.byref(nothing), stream)
        call("simStreamSynchronize", stream)
except KeyboardInterrupt:
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("interrupted", flush=True)
