#!/usr/bin/env python3
"""What figures were taken on: GPU, driver, processor, versions. Printed as JSON when run."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import records

PACKAGES = ("torch", "torchvision", "transformers", "triton", "jax", "cupy-cuda13x", "cupy-cuda12x", "numba-cuda")
GPU_FIELDS = (
    "name",
    "uuid",
    "pci.bus_id",
    "driver_version",
    "memory.total",
    "compute_mode",
    "mig.mode.current",
    "persistence_mode",
    "clocks.max.sm",
    "power.limit",
)


def first_line(command, cwd=None):
    try:
        done = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=30, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip().splitlines() or [None])[0] if done.returncode == 0 else None


def gpus():
    """What the driver's own tool says of each GPU; nothing where there is none."""
    tool = shutil.which("nvidia-smi", path=os.environ.get("PATH", "") + ":/usr/local/nvidia/bin")
    if not tool:
        return []
    command = [tool, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else []
    return [dict(zip(GPU_FIELDS, (field.strip() for field in line.split(",")))) for line in lines]


def package_versions():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def cpu_model():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")


def commit(root):
    """The commit of the sources: a bundle carries it in a file."""
    carried = root / "COMMIT"
    return (
        carried.read_text().strip()
        if carried.exists()
        else first_line(["git", "describe", "--always", "--dirty"], root)
    )


def build(binaries):
    """Names the build by its content: figures of different builds are never mixed."""
    digest = hashlib.sha256()
    for name in ("xsched", "libxsched.so"):
        path = Path(binaries) / name
        digest.update(path.read_bytes() if path.exists() else b"none")
    return digest.hexdigest()[:12]


def describe(binaries):
    return {
        "bench": "machine",
        "gpus": gpus(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
        "python": platform.python_version(),
        "packages": package_versions(),
        "xsched": first_line([Path(binaries) / "xsched", "--version"]),
        "build": build(binaries),
        "commit": commit(Path(__file__).resolve().parent.parent.parent),
    }


def record(path, binaries):
    """Writes the description into a file of results unless it ends with the same one."""
    now = describe(binaries)
    known = [r for r in records.load(path) if r.get("bench") == "machine"]
    if not known or known[-1] != now:
        records.append(path, now)


if __name__ == "__main__":
    json.dump(describe(sys.argv[1] if len(sys.argv) > 1 else "bin"), sys.stdout, indent=1)
    print()
