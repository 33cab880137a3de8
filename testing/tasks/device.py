"""The simulated device, called as a framework calls a vendor's library."""
import ctypes
import os


class Kernel(ctypes.Structure):
    _fields_ = [("op", ctypes.c_uint32), ("count", ctypes.c_uint32), ("duration_ns", ctypes.c_uint64),
                ("x", ctypes.c_void_p), ("y", ctypes.c_void_p), ("a", ctypes.c_float)]


sim = ctypes.CDLL(os.environ["SIMDEV_LIBRARY"])


def launch(us, n):
    """Gives the device n kernels of so many microseconds."""
    kernel = Kernel(0, 1, us * 1000, None, None, 0)
    for _ in range(n):
        assert sim.simLaunchKernel(ctypes.byref(kernel), None) == 0


def wait():
    """Until they are complete."""
    assert sim.simStreamSynchronize(None) == 0
