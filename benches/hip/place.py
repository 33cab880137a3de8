#!/usr/bin/env python3
"""Where the HIP benchmark runs: the software HIP runtime, the driver below it, the programs built for it.

  place.py DIR     builds all that the benchmark and the ladder run, beside the runtime in DIR: so bundles are made

In a bundle everything is there already, in `hip/`; elsewhere it is built when it is needed, against the runtime that
`cargo xtask hip-runtime DIR` laid out.
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "benches/cuda"), str(ROOT / "testing/lib"), str(ROOT / "testing/ladders/hip")]

import harness  # noqa: E402
import programs  # noqa: E402
from systems import Trouble  # noqa: E402

MAJOR = 6  # of the runtime that the program is linked against
RUNTIME = f"libamdhip64.so.{MAJOR}"
BLAS = "libfakeblas.so"


def default_runtime():
    """The bundle's runtime, else the workspace's."""
    bundled = ROOT / "hip"
    return bundled if (bundled / RUNTIME).exists() else ROOT / "target/hip-runtime"


def build(runtime, folder):
    """The program and its BLAS-like library, in `folder`; gives the program."""
    runtime, folder = Path(runtime).resolve(), Path(folder).resolve()
    flags = [f"-L{runtime}", f"-l:{RUNTIME}", "-lpthread", "-ldl"]
    blas, spin = ROOT / "testing/ladders/hip/libs/fakeblas.c", HERE / "spin.c"
    harness.compile_c(blas, folder / BLAS, spin, f"-Wl,-soname,{BLAS}", *flags, shared=True)
    link = [f"-L{folder}", f"-l:{BLAS}", "-Wl,-rpath,$ORIGIN", f"-Wl,-rpath-link,{runtime}"]
    return harness.compile_c(HERE / "load.c", folder / "load", *link, *flags)


class Place:
    """The programs' environment. `backend` is `cpu`, or `cuda` with the machine's driver or a stand-in's folder."""

    def __init__(self, binaries, runtime, backend, driver, work):
        self.runtime, self.backend, self.driver = Path(runtime).resolve(), backend, driver
        if not (self.runtime / RUNTIME).exists():
            raise Trouble(
                f"{self.runtime / RUNTIME} is missing: cargo xtask hip-runtime {self.runtime}, or give --runtime"
            )
        prebuilt = self.runtime / "load"
        self.load = prebuilt if prebuilt.exists() else build(self.runtime, Path(work) / "built")
        self.simulated = backend == "cpu" or driver is not None
        # Behind them what was there: the machine's driver may be found by it.
        folders = [self.runtime, driver and Path(driver).resolve(), os.environ.get("LD_LIBRARY_PATH")]
        self.env = {
            "LD_LIBRARY_PATH": ":".join(str(folder) for folder in folders if folder),
            "FAKEHIP_BACKEND": backend,
            # The device of this run alone; a real device ignores it.
            "SIMDEV_SOCKET": str(Path(work) / "device"),
            "SIMDEV_SERVER": str(Path(binaries).resolve() / "xsched"),
        }
        if driver and not (Path(driver) / "libcuda.so.1").exists():
            raise Trouble(f"{driver}/libcuda.so.1 is missing: --driver is the folder of a stand-in for the driver")

    def label(self):
        """What the figures are of."""
        if self.backend == "cpu":
            return "simulated device"
        return "simulated device by CUDA" if self.driver else "CUDA"

    def digest(self):
        """Names the runtime and the program by their content."""
        digest = hashlib.sha256()
        for path in (self.runtime / RUNTIME, self.load, self.load.parent / BLAS):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

    def environment(self, env, counts):
        """`env` without what somebody set up around us, with the device of this place; counts go to a file."""
        kept = {k: v for k, v in env.items() if not k.startswith(("FAKEHIP_", "FAKECUDA_", "SIMDEV_", "HIP_", "ROCR_"))}
        return kept | self.env | {"FAKEHIP_STATS": str(counts)}


def main():
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / RUNTIME).exists():
        print(f"place.py: use place.py DIR, a folder with {RUNTIME}", file=sys.stderr)
        return 2
    runtime = Path(sys.argv[1]).resolve()
    build(runtime, runtime)
    ladders = programs.Builder(runtime, runtime / "built")
    programs.own_programs(ladders)
    ladders.check("rival", programs.MAJORS[-1])
    # The second copy of the runtime is made where it is used: it is large.
    shutil.rmtree(ladders.folder / "second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
