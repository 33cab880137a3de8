"""A Python program whose Ctrl-C must work while it is held: interrupt.py LIBSIMDEV."""
import ctypes
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
print("ready", flush=True)
try:
    while True:
        call("simLaunchKernel", ctypes.byref(nothing), stream)
        call("simStreamSynchronize", stream)
except KeyboardInterrupt:
    print("interrupted", flush=True)
