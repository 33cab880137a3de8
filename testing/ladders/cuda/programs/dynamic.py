#!/usr/bin/env python3
"""What the device launches itself: see dynamic.cu, which is compiled here."""

import subprocess
import tempfile
from pathlib import Path

import catalog
import checks


@checks.check
def device_launches():
    nvcc = catalog.find_tool("nvcc")
    if not Path(nvcc).exists():
        checks.absent("nvcc is not installed")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "dynamic"
        source = catalog.HERE / "dynamic.cu"
        command = [nvcc, "-arch=native", "-rdc=true", "-o", program, source, "-lcudadevrt"]
        made = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if made.returncode:
            checks.absent(f"nvcc does not compile it: {made.stderr.strip()[-200:]}")
        done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    checks.show("status", done.returncode)
    for line in done.stdout.splitlines():
        checks.show("said", line.replace(" ", "_"))


if __name__ == "__main__":
    checks.main()
