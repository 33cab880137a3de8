"""The programs of the CUDA ladder: how each is started, what it needs, how long it takes."""

import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent


def exact(text):
    return text


@dataclass
class Program:
    """One program. `seconds` is its usual time alone, `timeout` when it is given up; `env` is added to the ladder's.

    `counted`: its launches are compared with CUPTI's count. `reports`: it ends in a way that lets the library write its
    statistics. `modes`: only these (None: all). `gpus`: how many it needs. `stdout` turns what it prints into lines to
    compare, for programs that are not ours.
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

    def source(self):
        """Digest of what it is made of: a result of another version of it is not a result of this one."""
        stems = [Path(str(word)).stem for word in self.command if "/" in str(word)]
        names = [f"{stem}{kind}" for stem in stems for kind in (".py", ".c")]
        digest = hashlib.sha256(" ".join(stems + list(map(str, self.command[2:]))).encode())
        for name in [*names, "checks.py", "cu.py", "cuda_driver.h"]:
            if (HERE / name).exists():
                digest.update((HERE / name).read_bytes())
        return digest.hexdigest()[:12]


def python(name, seconds, *arguments, script=None, **options):
    command = [sys.executable, str(HERE / f"{script or name}.py"), *arguments]
    return Program(name, command, seconds, **options)


def programs(binaries):
    """All of them; `binaries` finds the path of a C program by its name."""
    return [
        python("driver", 3),
        python("runtime", 3),
        python("torch_basic", 12),
        python("torch_vision", 15),
        python("torch_graphs", 12),
    ]
