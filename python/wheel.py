#!/usr/bin/env python3
"""Builds the wheel: wheel.py --bin FOLDER --out FOLDER --version VERSION. `cargo xtask wheel DIR` builds and strips what goes in.

FOLDER has the command and its libraries. In an environment they come to lie as an installation by hand has them: `bin/xsched`,
`lib/xsched/*.so`, `include/xsched/*.h`, `share/pkgconfig/*.pc`, `share/doc/xsched/examples/tour`. The wheel is the same for the same files.
"""

import argparse
import base64
import hashlib
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TAG = "py3-none-manylinux_2_28_x86_64"
LIBRARIES = ("libxsched.so", "libsimdev.so", "libpreempt.so", "libhalcuda.so", "libhalhip.so", "libhalopencl.so")
PACKAGES = ("xsched", "torch_xsched")
# The command by another name, which it looks at: a wheel holds no links. The installer puts its interpreter in.
NAMES = ("xserver", "xcli")
BY_NAME = b"""#!python
import os
import sys

from xsched._library import command

os.execv(command(), sys.argv)
"""
# The first time that a zip archive can hold.
EPOCH = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.4
Name: xsched
Version: {version}
Summary: Preemptive scheduling of GPUs: the xsched command, its libraries, and Python packages over them
License-Expression: Apache-2.0
License-File: LICENSE
Keywords: GPU,CUDA,HIP,OpenCL,scheduler,priority,preemption,PyTorch
Requires-Python: >=3.10
Classifier: Development Status :: 4 - Beta
Classifier: Environment :: Console
Classifier: Environment :: GPU
Classifier: Intended Audience :: Developers
Classifier: Intended Audience :: System Administrators
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Rust
Classifier: Topic :: System :: Hardware
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{about}"""

ABOUT = """\
# xsched

Two programs share one GPU. One must answer in milliseconds; the other wants every idle cycle. xsched puts the first one first, without
changing either.

```sh
xsched doctor                                     # what there is on this machine, and what to do next
xsched demo --device sim                          # the effect on a simulated device, without a GPU
xsched run --priority high -- python serve.py     # runs whenever it wants the GPU
xsched run --priority low -- python train.py      # takes what is left
xsched ps                                         # which runs, which waits
```

Two programs to try that with lie in `share/doc/xsched/examples/tour` of the environment; they need no GPU.

The wheel brings the `xsched` command, which is the daemon too, the library that it preloads into programs, the libraries and headers of
the C API, a simulated device, and two Python packages: `xsched`, for programs that say themselves what is urgent, and `torch_xsched`, the
same for PyTorch. CUDA, HIP and OpenCL are scheduled, on Linux, x86-64, glibc 2.28 or newer. No service is started and no setting of the
machine changes; `pip uninstall xsched` removes all of it.

```python
import xsched

xsched.ensure(["--priority", "low"])     # starts the program again under `xsched run`, unless it is there already
with xsched.raised("high"):              # the process is urgent in here
    ...
print(xsched.usage())                    # launches, and microseconds of device and of waiting
```

A gate is cooperative, no security boundary, and both programs must fit into the GPU's memory together. Apache-2.0.
"""

WHEEL = f"""\
Wheel-Version: 1.0
Generator: xsched
Root-Is-Purelib: false
Tag: {TAG}
"""


def contents(bin_folder, version):
    """Name in the archive, bytes, whether it is a program."""
    for package in PACKAGES:
        for file in sorted((HERE / package).rglob("*")):
            if file.is_file() and file.suffix in (".py", ".typed"):
                yield str(file.relative_to(HERE)), file.read_bytes(), False
    data, info = f"xsched-{version}.data", f"xsched-{version}.dist-info"
    yield f"{data}/scripts/xsched", (bin_folder / "xsched").read_bytes(), True
    for name in NAMES:
        yield f"{data}/scripts/{name}", BY_NAME, True
    for name in LIBRARIES:
        yield f"{data}/data/lib/xsched/{name}", (bin_folder / name).read_bytes(), True
    include = HERE.parent / "include"
    for header in sorted(include.rglob("*.h")):
        yield f"{data}/data/include/{header.relative_to(include)}", header.read_bytes(), False
    for file in sorted((HERE.parent / "dist/pkgconfig").glob("*.pc")):
        text = file.read_text().replace("@VERSION@", version)
        # An environment may lie anywhere.
        yield f"{data}/data/share/pkgconfig/{file.name}", text.replace("prefix=/usr\n", "prefix=${pcfiledir}/../..\n", 1).encode(), False
    for file in sorted((HERE.parent / "examples/tour").glob("*.py")):
        yield f"{data}/data/share/doc/xsched/examples/tour/{file.name}", file.read_bytes(), False
    yield f"{info}/licenses/LICENSE", (HERE.parent / "LICENSE").read_bytes(), False
    yield f"{info}/METADATA", METADATA.format(version=version, about=ABOUT).encode(), False
    yield f"{info}/WHEEL", WHEEL.encode(), False


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build(bin_folder, out, version):
    """Writes the wheel and returns its path."""
    path = out / f"xsched-{version}-{TAG}.whl"
    record, record_name = [], f"xsched-{version}.dist-info/RECORD"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:

        def add(name, data, program):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)

        for name, data, program in contents(bin_folder, version):
            add(name, data, program)
            record.append(f"{name},{digest(data)},{len(data)}\n")
        add(record_name, "".join([*record, f"{record_name},,\n"]).encode(), False)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--version", required=True)
    options = parser.parse_args()
    missing = [name for name in ("xsched", *LIBRARIES) if not (options.bin / name).is_file()]
    if missing:
        sys.exit(f"{options.bin} lacks {', '.join(missing)}: `cargo xtask wheel DIR` builds them")
    options.out.mkdir(parents=True, exist_ok=True)
    print(build(options.bin, options.out, options.version))


if __name__ == "__main__":
    main()
