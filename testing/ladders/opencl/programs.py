"""The OpenCL programs of the compatibility ladder: most of them nobody here wrote.

Each is run bare and under the scheduler; what it prints, after `normalise`, must be the same.
"""

import re
import shutil
import subprocess
from pathlib import Path

OWN = Path(__file__).resolve().parents[2] / "programs/opencl"
# Debian's interpreter, for which the packages bring PyOpenCL; another one may come first in PATH.
PYTHON = "/usr/bin/python3"
EXAMPLES = Path("/usr/share/doc/python-pyopencl-doc/examples")

ANSI = re.compile(r"\x1b\[[0-9;]*m")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.\d*(?:e[-+]?\d+)?|(?<![\w.])[-+]?\d+e[-+]?\d+", re.IGNORECASE)


def exact(text):
    """Keeps everything but terminal colours."""
    return ANSI.sub("", text)


def without_decimals(text):
    """Drops times and rates: every number with a decimal point or exponent."""
    return NUMBER.sub("#", exact(text))


def without_sizes(text):
    """Drops sizes of memory: PoCL derives them from what the machine has free at the moment."""
    text = re.sub(r"\d+ \([\d.]+[KMGT]?iB\)|[\d.]+[KMGT]iB", "#", exact(text))
    return re.sub(r"(1D images from buffer\s+)\d+", r"\1#", text)


class Program:
    """One program: how to start it, what it needs, what of its output is stable.

    `counts` is the truth about what it enqueues, worked out by hand, for holding the counting layer against.
    `origin` says who wrote it: "own" or where it comes from. `long` ones run with --full only.
    """

    def __init__(self, name, command, origin, normalise=exact, counts=None, needs=(), long=False, timeout=120):
        self.name, self.command, self.origin, self.normalise = name, command, origin, normalise
        self.counts, self.needs, self.long, self.timeout = counts, needs, long, timeout

    def missing(self):
        """Why it cannot run here, or None."""
        if not shutil.which(str(self.command[0])):
            return f"{self.command[0]} is missing"
        for need in self.needs:
            if need.startswith("python:"):
                module = need.removeprefix("python:")
                probe = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True)
                if probe.returncode != 0:
                    return f"{PYTHON} has no {module}"
            elif not Path(need).exists():
                return f"{need} is missing"
        return None


def example(name, examples, **options):
    """One of PyOpenCL's own examples."""
    script = examples / f"{name}.py"
    needs = (str(script), "python:pyopencl")
    return Program(f"pyopencl {name}", [PYTHON, script], "pyopencl", needs=needs, **options)


def pyopencl_tests(name, examples, **options):
    """One file of PyOpenCL's own tests."""
    script = examples / f"{name}.py"
    needs = (str(script), "python:pyopencl", "python:pytest")
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", script]
    return Program(f"pyopencl {name}", command, "pyopencl", normalise=without_decimals, needs=needs, **options)


def clblast(routine, **options):
    """One of CLBlast's test clients: a routine at many sizes against a reference."""
    return Program(f"clblast {routine}", [f"clblast_test_{routine}"], "clblast", **options)


# What the own programs enqueue, read off their sources.
COUNTS = {
    "buffers": {
        "clEnqueueWriteBuffer": 2, "clEnqueueReadBuffer": 5, "clEnqueueNDRangeKernel": 6, "clEnqueueCopyBuffer": 2,
        "clEnqueueFillBuffer": 1, "clEnqueueWriteBufferRect": 1, "clEnqueueCopyBufferRect": 1,
        "clEnqueueReadBufferRect": 1, "clEnqueueMapBuffer": 2, "clEnqueueUnmapMemObject": 2,
        "clEnqueueMigrateMemObjects": 2,
    },
    "contexts": {"clEnqueueFillBuffer": 8, "clEnqueueNDRangeKernel": 528, "clEnqueueReadBuffer": 9},
    "images": {
        "clEnqueueWriteImage": 1, "clEnqueueCopyImage": 1, "clEnqueueReadImage": 2, "clEnqueueCopyImageToBuffer": 1,
        "clEnqueueFillImage": 1, "clEnqueueCopyBufferToImage": 1, "clEnqueueMapImage": 1,
        "clEnqueueUnmapMemObject": 1,
    },
    "native": {
        "clEnqueueFillBuffer": 10, "clEnqueueNativeKernel": 20, "clEnqueueNDRangeKernel": 20, "clEnqueueTask": 10,
        "clEnqueueReadBuffer": 10,
    },
    "out_of_order": {
        "clEnqueueFillBuffer": 16, "clEnqueueNDRangeKernel": 384, "clEnqueueMarkerWithWaitList": 1,
        "clEnqueueMarker": 1, "clEnqueueBarrier": 12, "clEnqueueBarrierWithWaitList": 13, "clEnqueueReadBuffer": 16,
    },
    "queue_lifetime": {"clEnqueueFillBuffer": 1, "clEnqueueNDRangeKernel": 500, "clEnqueueReadBuffer": 1},
    "svm": {
        "clEnqueueSVMMemFill": 1, "clEnqueueNDRangeKernel": 2, "clEnqueueSVMMemcpy": 2, "clEnqueueSVMMigrateMem": 1,
        "clEnqueueSVMMap": 1, "clEnqueueSVMUnmap": 1, "clEnqueueSVMFree": 1,
    },
    "user_events": {"clEnqueueFillBuffer": 2, "clEnqueueNDRangeKernel": 302, "clEnqueueReadBuffer": 3},
}


def all_programs(built, examples):
    """Every program; `built` holds the compiled own ones, `examples` PyOpenCL's."""
    own = [
        Program(source.stem, [built / source.stem], "own", counts=COUNTS.get(source.stem))
        for source in sorted(OWN.glob("*.c"))
    ]
    load = built / "clload"
    calibration = ["--calibrate-file", built / "calibration.json"]
    return own + [
        Program("clload lc", [load, "lc", "--requests", "20", "--us", "500", *calibration], "own", without_decimals),
        Program("viennacl", [built / "viennacl"], "viennacl"),
        Program("clinfo", ["clinfo"], "clinfo", without_sizes),
        Program("clpeak latency", ["clpeak", "--kernel-latency"], "clpeak", without_decimals),
        Program("clpeak", ["clpeak"], "clpeak", without_decimals, long=True, timeout=600),
        clblast("xaxpy"),
        clblast("xdot"),
        clblast("xger"),
        clblast("xgemv", long=True),
        clblast("xtrsv", long=True),
        clblast("xsyrk", long=True),
        clblast("xgemm", long=True, timeout=600),
        example("demo", examples, normalise=without_decimals),
        example("demo_array", examples, normalise=without_decimals),
        example("demo_array_svm", examples),
        example("demo_elementwise", examples, normalise=without_decimals),
        example("demo_elementwise_complex", examples, normalise=without_decimals),
        example("demo-struct-reduce", examples),
        example("narray", examples),
        example("svm", examples),
        example("n-body", examples, normalise=without_decimals, long=True),
        pyopencl_tests("test_enqueue_copy", examples),
        pyopencl_tests("test_arrays_in_structs", examples),
        pyopencl_tests("test_wrapper", examples),
        pyopencl_tests("test_clmath", examples, long=True, timeout=600),
    ]
