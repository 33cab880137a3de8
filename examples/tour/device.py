"""The simulated device, called as a framework calls a vendor's library."""
import ctypes
import os
import shutil
import sys
from pathlib import Path


class Kernel(ctypes.Structure):
    _fields_ = [("op", ctypes.c_uint32), ("count", ctypes.c_uint32), ("duration_ns", ctypes.c_uint64),
                ("x", ctypes.c_void_p), ("y", ctypes.c_void_p), ("a", ctypes.c_float)]


def library():
    """Path of libsimdev.so: SIMDEV_LIBRARY, else that of the xsched command in PATH."""
    named, command = os.environ.get("SIMDEV_LIBRARY"), shutil.which("xsched")
    if named:
        return named
    if command is None:
        sys.exit("device.py: the xsched command is not in PATH: put its folder there")
    folder = Path(command).resolve().parent
    for path in (folder / "libsimdev.so", folder.parent / "lib/xsched/libsimdev.so"):
        if path.is_file():
            return str(path)
    sys.exit(f"device.py: libsimdev.so is neither beside {folder / 'xsched'} nor in ../lib/xsched: set SIMDEV_LIBRARY to its path")


sim = ctypes.CDLL(library())


def launch(us, n):
    """Gives the device n kernels of so many microseconds."""
    kernel = Kernel(0, 1, us * 1000, None, None, 0)
    for _ in range(n):
        assert sim.simLaunchKernel(ctypes.byref(kernel), None) == 0


def wait():
    """Until they are complete."""
    assert sim.simStreamSynchronize(None) == 0
