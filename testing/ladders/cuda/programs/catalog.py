"""The programs of the CUDA ladder: how each is started, what it needs, how long it takes."""

import glob
import hashlib
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
OWN = HERE.parents[2] / "programs/cuda"  # programs of the shim's own tests, each a list of checks


def exact(text):
    return text


@dataclass
class Program:
    """One program. `seconds` is its usual time alone, `timeout` when it is given up; `env` is added to the ladder's.

    `counted`: its launches are compared with CUPTI's count. `reports`: it ends in a way that lets the library write its
    statistics. `modes`: only these (None: all). `gpus`: how many it needs. `stdout` turns what it prints into lines to
    compare, for programs that are not ours. `refusable`: that it fails bare is no failure of the ladder. `faults`: it makes a
    kernel fault, which ends whatever shares a pool with it. `fills`: it takes all of the device's memory for a while.
    """

    name: str
    command: list
    seconds: float
    timeout: float = 150
    env: dict = field(default_factory=dict)
    counted: bool = True
    reports: bool = True
    modes: tuple = None
    gpus: int = 1
    status: int = 0
    stdout: callable = exact
    refusable: bool = False
    faults: bool = False
    fills: bool = False

    def source(self):
        """Digest of what it is made of: a result of another version of it is not a result of this one."""
        stems = [Path(str(word)).stem for word in self.command if "/" in str(word)]
        names = [f"{stem}{kind}" for stem in stems for kind in (".py", ".c", ".cu")]
        digest = hashlib.sha256(" ".join(stems + list(map(str, self.command[2:]))).encode())
        files = [folder / name for folder in (HERE, OWN) for name in names]
        files += [HERE / name for name in ("checks.py", "cu.py", "cuda_driver.h")]
        files += [OWN / "cu.h"] if any((OWN / name).exists() for name in names) else []
        for file in files:
            if file.exists():
                digest.update(file.read_bytes())
        return digest.hexdigest()[:12]


def python(name, seconds, *arguments, script=None, **options):
    command = [sys.executable, str(HERE / f"{script or name}.py"), *arguments]
    return Program(name, command, seconds, **options)


def find_tool(name):
    """A tool of the CUDA toolkit, wherever it lies; its bare name where it is nowhere."""
    places = [shutil.which(name), f"/usr/local/cuda/bin/{name}", *glob.glob(f"/opt/nvidia/nsight-compute/*/{name}")]
    return next((place for place in places if place and Path(place).exists()), name)


def tool_lines(text):
    """What stays the same of a tool's report: the program's own line, the verdict, which kernels were looked at."""
    kept = [line for line in text.splitlines() if re.match(r"steps |=+ ERROR|=+ .*ERROR SUMMARY", line)]
    return "\n".join([*kept, *re.findall(r'Profiling "\w+', text)])


def tool(name, seconds, binaries, *options):
    """One of NVIDIA's tools on a small program. Such a tool may refuse to work on a machine; then it is skipped."""
    command = [find_tool(name), *options, str(binaries("steps")), "5"]
    modes = ("bare", "xsched", "chaos-1")
    return Program(name, command, seconds, counted=False, reports=False, modes=modes, stdout=tool_lines, refusable=True)


# Those of `OWN` that are written for any driver.
CHECKED = (
    "basics", "streams", "events", "memops", "hostfuncs", "capture", "graphs", "graph_nodes", "errors", "contexts",
    "multithread", "graph_threads",
)  # fmt: skip

# Chosen by measuring, JAX's algorithms would differ from run to run.
JAX = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true",
}


def programs(binaries):
    """All of them; `binaries` gives the path of a C program by its name."""
    return [
        python("driver", 3),
        python("driver_streams", 4),
        python("driver_launches", 4),
        python("driver_memory", 6),
        python("runtime", 3),
        python("sticky", 5, faults=True),
        Program("streamkinds", [str(binaries("streamkinds"))], 2),
        Program("steps", [str(binaries("steps")), "2000"], 2),
        *(Program(f"c_{name}", [str(binaries(name))], 3, timeout=60, faults=name == "errors", fills=name == "errors") for name in CHECKED),
        Program("c_residency", [str(binaries("residency"))], 5, timeout=60),
        Program("c_residency_answers", [str(binaries("residency_answers"))], 5, timeout=60, reports=False),  # it only asks
        *(Program(f"c_residency_{name}", [str(binaries(f"residency_{name}"))], 5, timeout=60) for name in ("ways", "ipc")),
        *(Program(f"c_groups_{way}", [str(binaries("groups")), way], 5, timeout=60) for way in ("cycle", "mix")),
        python("torch_basic", 12),
        python("torch_vision", 15),
        python("torch_text", 20),
        python("torch_train", 30),
        python("torch_graphs", 12),
        python("torch_streams", 12),
        python(
            "torch_malloc_async", 12, script="torch_streams", env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
        ),
        python(
            "torch_expandable", 12, script="torch_streams", env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        ),
        python("torch_compile", 40, timeout=200),
        python("torch_assert", 8, status=1, faults=True),
        # Its process is another's child, and theirs: launches of both are counted by neither alone.
        python("torch_ipc", 20, counted=False),
        python("dynamic", 25, counted=False),
        python("triton_kernels", 10),
        python("cupy_arrays", 10),
        python("jax_jit", 20, env=JAX),
        python("numba_kernels", 10),
        python("nccl", 20, gpus=2),
        tool("compute-sanitizer", 5, binaries, "--tool", "memcheck"),
        tool("cuda-gdb", 10, binaries, "-batch", "-ex", "run", "--args"),
        tool("ncu", 8, binaries, "--clock-control", "none"),
    ]
