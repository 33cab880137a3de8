#!/usr/bin/env python3
"""An error of the device stays: every later call says so, a new process works."""

import subprocess
import sys
from ctypes import byref, c_size_t, c_uint64

import checks
import cu

gpu = cu.Device()


@checks.check
def illegal_address():
    pointer, fill = gpu.allocate(16), gpu.kernel("fill")
    gpu.launch(gpu.kernel("crash"), c_uint64(8), threads=1)
    raw, room = gpu.cu.library, c_uint64()
    checks.show("synchronize", raw.cuCtxSynchronize())
    checks.show("again", raw.cuCtxSynchronize())
    checks.show("allocate", raw.cuMemAlloc_v2(byref(room), c_size_t(64)))
    checks.show("copy", raw.cuMemcpyDtoH_v2(byref(room), pointer, c_size_t(8)))
    checks.show("set", raw.cuMemsetD32Async(pointer, 0, c_size_t(1), None))
    checks.show("launch", raw.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, None, cu.parameters(pointer), None))


@checks.check
def a_new_process_works():
    script = "import cu; gpu = cu.Device(); p = gpu.allocate(4); gpu.cu.cuMemsetD32_v2(p, 9, cu.c_size_t(4));"
    script += " print(gpu.read(p, 4))"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=cu.HERE, timeout=100)
    checks.show("child", child.stdout.strip().replace(" ", "") + child.stderr.strip()[-200:])


if __name__ == "__main__":
    checks.main()
