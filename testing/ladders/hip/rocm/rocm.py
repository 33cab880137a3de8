#!/usr/bin/env python3
"""AMD's own libraries of a newer ROCm, on the software runtime: the same return codes and the same calls, bare and scheduled.

    rocm.py --bin DIR --runtime DIR --rocm DIR --work DIR [--site DIR] [--json FILE] [--only NAME,…] [--modes MODE,…] [--seed N]

--rocm is what `cargo xtask rocm DIR` has made, --runtime what `cargo xtask hip-runtime DIR` has laid out. First the audit: each
HIP function that a library imports is exported by the runtime in that version, and hooked by libxsched or known to do nothing
on the device. Then a C++ program for each library, in the modes of ladder.py: output (every call's return code), exit status,
launches (libxsched's and the runtime's own count) and the number of calls of each HIP function as bare. Last the two errors of
hip-errors.md: by the bindings that make them, and with the same two copies of the runtime under `xsched run`.

The kernels are AMD's machine code, which nothing here can run: results of products and convolutions are not looked at.

Exit codes: 0 all well, 1 a difference, 2 bad arguments, 3 nothing could run.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "lib")]

import amd  # noqa: E402
import errors  # noqa: E402
import harness  # noqa: E402
import ladder  # noqa: E402
import programs  # noqa: E402

LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
# Source, library, name in versions.txt.
PROGRAMS = (
    ("rocblas", "librocblas.so", "rocBLAS"),
    ("hipblas", "libhipblas.so", "hipBLAS"),
    ("hipblaslt", "libhipblaslt.so", "hipBLASLt"),
    ("miopen", "libMIOpen.so", "MIOpen"),
    ("rocfft", "librocfft.so", "rocFFT"),
    ("hipfft", "libhipfft.so", "hipFFT"),
    ("rccl", "librccl.so", "RCCL"),
)
# Seconds of one run: the first compiles kernels.
ladder.TIMEOUT = amd.TIMEOUT = 600
ONNXRUNTIME = "onnxruntime/capi/libonnxruntime_providers_rocm.so"
# What libxsched calls itself, in the runtime that a program uses: more of these than bare are no difference.
OWN = {
    "hipDeviceGetName", "hipDeviceGetPCIBusId", "hipGetDevice", "hipGetDeviceCount", "hipGetLastError",
    "hipHostGetDevicePointer", "hipHostRegister", "hipHostUnregister", "hipPeekAtLastError", "hipStreamGetDevice",
    "hipStreamGetFlags", "hipStreamGetPriority", "hipStreamIsCapturing", "hipStreamWaitValue32", "hipStreamWriteValue32",
    "hipThreadExchangeStreamCaptureMode",
}  # fmt: skip
# How often a library asks whether something is done depends on time.
POLLS = {"hipEventQuery", "hipStreamQuery"}
# The architecture that all of the libraries have code for.
ARCHITECTURE = "gfx90a:sramecc+:xnack-"


class Rocm:
    """A folder of `cargo xtask rocm`."""

    def __init__(self, folder):
        self.folder, self.root = folder, folder / "root"
        self.libraries = self.root / LIBRARIES
        self.versions, self.skipped = {}, []
        for line in (folder / "versions.txt").read_text().splitlines():
            if line.startswith("skipped "):
                self.skipped.append(line.removeprefix("skipped "))
            elif line and not line.startswith("#"):
                name, package, version = line.split()
                self.versions[name] = (package, version)
        # libamdhip64-6
        self.major = int(self.versions["HIP"][0].rpartition("-")[2])

    def compile(self, source, output, runtime, *libraries):
        """Against the folder's headers, started with its loader and its C library."""
        flags = ["-std=c++17", "-D__HIP_PLATFORM_AMD__", "-isystem", self.root / "usr/include"]
        flags += [self.libraries / name for name in libraries]
        flags += [f"-L{runtime}", f"-l:libamdhip64.so.{self.major}", "-ldl"]
        # DT_RPATH, not DT_RUNPATH: what the libraries need themselves is found by it, too.
        flags += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{self.libraries}", f"-Wl,-rpath-link,{self.libraries}"]
        flags += ["-Wl,--unresolved-symbols=ignore-in-shared-libs"]
        flags += [f"-Wl,--dynamic-linker={self.libraries / LOADER}"]
        return harness.compile_c(source, output, *map(str, flags))


class Ladder(ladder.Ladder):
    """The HIP ladder, with more to compare: how often each HIP function was called."""

    def __init__(self, options, rocm):
        super().__init__(options)
        self.rocm, self.calls, self.details = rocm, {}, {}
        self.env |= self.surroundings()

    def surroundings(self):
        """What the libraries are told by their own variables, so that they keep to this folder and do the same each time."""
        work, root = self.options.work, self.rocm.root
        link, home = work / "link", work / "home"
        for folder in (link, home):
            folder.mkdir(parents=True, exist_ok=True)
        # AMD's compiler library opens the runtime by this name.
        name = link / "libamdhip64.so"
        name.unlink(missing_ok=True)
        name.symlink_to(self.options.runtime / f"libamdhip64.so.{self.rocm.major}")
        return {
            "LD_LIBRARY_PATH": f"{self.options.runtime}:{link}",
            "FAKEHIP_ARCH": ARCHITECTURE,
            "HOME": str(home),
            # MIOpen: what it has timed before is not asked; kernels in assembler are not in Debian's packages.
            "MIOPEN_DEBUG_DISABLE_FIND_DB": "1",
            "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM": "0",
            "MIOPEN_DEBUG_CONV_WINOGRAD": "0",
            "MIOPEN_LOG_LEVEL": "1",
            "ROCM_CLANG": str(self.rocm.folder / "bin/clang"),
            "CPATH": str(root / "usr/include"),
            # rocFFT: compiled in the process, not by a program that would start with the machine's own loader.
            "ROCFFT_RTC_PROCESS": "0",
            "ROCFFT_RTC_CACHE_PATH": str(home / "rocfft.db"),
            # RCCL: buffers that a simulated device has room for.
            "NCCL_CUMEM_ENABLE": "0",
            "RCCL_MSCCL_ENABLE": "0",
            "NCCL_MAX_NCHANNELS": "2",
            "NCCL_NCHANNELS_PER_PEER": "1",
            "NCCL_BUFFSIZE": "65536",
            "NCCL_LL_BUFFSIZE": "65536",
            "NCCL_LL128_BUFFSIZE": "65536",
            "NCCL_SOCKET_IFNAME": "lo",
        }

    def chosen(self):
        """The programs, for the libraries that there are."""
        found = []
        for name, library, title in PROGRAMS:
            if title not in self.rocm.versions:
                continue
            output = self.options.work / f"built-{self.rocm.major}" / name
            path = self.rocm.compile(HERE / f"{name}.cpp", output, self.options.runtime, library)
            found.append(programs.Program(name, [path], self.topology() if name == "rccl" else {}))
        return found + (self.framework() if self.options.site else [])

    def framework(self):
        """onnxruntime from PyPI, in the machine's own Python, started with the folder's loader and C library."""
        site, rocm = self.options.site, self.rocm
        linked = subprocess.run(["readelf", "-d", str(site / ONNXRUNTIME)], capture_output=True, text=True).stdout
        if f"libamdhip64.so.{rocm.major}" not in linked:
            self.rocm.skipped.append(f"onnxruntime: {site} has none for HIP {rocm.major}")
            return []
        aliases = self.options.work / "aliases"
        aliases.mkdir(exist_ok=True)
        # Names of other releases: two functions of the first are used, nothing of the second.
        for name, source in (("librocm_smi64.so.1", "librocm_smi64.so.7"),):
            (aliases / name).unlink(missing_ok=True)
            (aliases / name).symlink_to(rocm.libraries / source)
        harness.compile_c(HERE / "nothing.c", aliases / "libroctracer64.so.4", shared=True)
        paths = [self.options.runtime, self.options.work / "link", rocm.libraries, aliases, Path(sys.base_prefix) / "lib"]
        python = Path(sys.base_prefix) / f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
        command = [rocm.libraries / LOADER, "--library-path", ":".join(map(str, paths)), "--argv0", python, python]
        env = {"PYTHONPATH": str(site), "PYTHONHOME": sys.base_prefix, "PYTHONDONTWRITEBYTECODE": "1"}
        return [programs.Program("onnxruntime", [*command, HERE / "model.py"], env)]

    def topology(self):
        """RCCL looks for its GPU in /sys, by address: the simulated device's."""
        kfd, work = HERE.parents[2] / "stand-ins/kfd", self.options.work
        library = harness.compile_c(
            kfd / "fakekfd.c", work / "fakekfd.so", f"-I{kfd / 'include'}", str(kfd / "more.c"), "-ldl", "-lpthread",
            shared=True,
        )  # fmt: skip
        sysfs = work / "sysfs"
        shutil.rmtree(sysfs, ignore_errors=True)
        shutil.copytree(kfd / "sysfs", sysfs)
        properties = sysfs / "class/kfd/kfd/topology/nodes/1/properties"
        properties.write_text(re.sub(r"location_id \d+", f"location_id {0x0A00}", properties.read_text()))
        return {"LD_PRELOAD": str(library), "FAKEKFD_SYSFS": str(sysfs)}

    def bare(self, program):
        # What is compiled while it runs is kept for the next run, which calls otherwise.
        self.execute(program, "warm")
        super().bare(program)
        lines = self.references.get(program.name, {"lines": []})["lines"]
        if refused := [line for line in lines if ")" in line and not line.endswith(" 0")]:
            self.note(program, "codes", "not 0 where nothing is scheduled:\n" + "\n".join(refused), 0.0)

    def noted(self, program, counts):
        first, second = map(calls_of, counts)
        varied = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
        self.calls[program.name] = (first, varied)
        kernels, misused = (sum(line[key] for line in counts[0]) for key in ("kernels", "misuse"))
        missing = {name for line in counts[0] for name in line["unsupported_calls"]}
        self.details[program.name] = {
            "functions": len(first), "calls": sum(first.values()), "kernels": kernels, "varied": varied,
            "misuse": misused, "unsupported": sorted(missing),
        }  # fmt: skip

    def further(self, program, counts):
        (expected, varied), found = self.calls[program.name], calls_of(counts)
        wrong = []
        for name in sorted(expected.keys() | found.keys()):
            before, now = expected.get(name, 0), found.get(name, 0)
            if before == now or name in POLLS or name in varied or (name in OWN and now > before):
                continue
            wrong.append(f"{name}: {before} calls bare, {now} now")
        return "\n".join(wrong) or None

    def audit(self, name, library):
        """Which of the runtime's functions a library imports; wrong where one is not exported, or in no class."""
        imported = imports(self.rocm.libraries / library)
        exported = exports(self.options.runtime / f"libamdhip64.so.{self.rocm.major}")
        hooks = {name for name, _ in exports(self.options.bin / "libxsched.so")}
        problems = [f"{name}@{version} is not exported by the runtime" for name, version in imported - exported]
        scheduled = {name for name, _ in imported if name in hooks}
        harmless = set((HERE.parents[3] / "crates/xsched-shim/src/platform/hip/no_device_work.txt").read_text().split())
        problems += [f"{name} is neither hooked nor known" for name, _ in imported if name not in hooks | harmless]
        self.note(programs.Program(name, []), "audit", "\n".join(sorted(problems)) or None, 0.0)
        self.results[-1] |= {"imports": len(imported), "hooked": sorted(scheduled)}
        print(f"     {len(imported)} imported, {len(scheduled)} of them hooked", flush=True)


def calls_of(lines):
    """Calls by function, of all processes. A copy of the runtime that got no command is not the one that the libraries use."""
    total = {}
    for line in (line for line in lines if line["commands"]):
        for name, count in line["calls"].items():
            total[name] = total.get(name, 0) + count
    return total


def symbols(path):
    """`(name, version, defined)` of a library's dynamic symbols."""
    done = subprocess.run(["readelf", "-W", "--dyn-syms", str(path)], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) >= 8 and words[0].endswith(":"):
            name, _, version = words[7].partition("@")
            yield name, version.lstrip("@").split(" ")[0], words[6] != "UND"


def imports(path):
    """What a library wants of the HIP runtime: its symbols of a version `hip_…`."""
    return {(name, version) for name, version, defined in symbols(path) if not defined and version.startswith("hip_")}


def exports(path):
    return {(name, version) for name, version, defined in symbols(path) if defined}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder with xsched and libxsched.so")
    parser.add_argument("--runtime", type=Path, required=True, help="folder with libamdhip64.so.6 and .7")
    parser.add_argument("--rocm", type=Path, required=True, help="folder of cargo xtask rocm")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is built and said")
    parser.add_argument("--site", type=Path, help="pip install --target DIR onnxruntime-rocm numpy onnx: one program more")
    parser.add_argument("--json", type=Path, help="results")
    parser.add_argument("--only", help="names of programs, with commas between")
    parser.add_argument("--modes", help="modes besides audit and bare, with commas between")
    parser.add_argument("--seed", type=int, default=1, help="of the chaos policy [%(default)s]")
    options = parser.parse_args()
    for path in ("bin", "runtime", "rocm", "work"):
        setattr(options, path, getattr(options, path).resolve())
    options.site = options.site and options.site.resolve()
    options.backend, options.driver = "cpu", None
    for needed in (options.bin / "xsched", options.runtime / "libamdhip64.so.7", options.rocm / "versions.txt"):
        if not needed.exists():
            parser.error(f"{needed} is not there")
    known = [*ladder.MODES, "errors", "amd"]
    options.modes = options.modes.split(",") if options.modes else known
    if unknown := set(options.modes) - set(known):
        parser.error(f"no such mode: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    names = [name for name, *_ in PROGRAMS] + ["onnxruntime"] * (options.site is not None)
    options.only = options.only.split(",") if options.only else names
    if unknown := set(options.only) - set(names):
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    return options


def main():
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    rocm = Rocm(options.rocm)
    climb = Ladder(options, rocm)
    try:
        chosen = [program for program in climb.chosen() if program.name in options.only]
    except harness.Skip as reason:
        print(f"SKIPPED: the ROCm ladder: {reason}")
        return 3
    for name, library, title in PROGRAMS:
        if title in rocm.versions and name in options.only:
            climb.audit(name, library)
    for mode in ladder.MODES:
        if mode == "bare" or mode in options.modes:
            climb.mode(mode, chosen)
    if "errors" in options.modes:
        errors.show(climb, chosen)
    if "amd" in options.modes:
        amd.show(climb, chosen)
    if options.json:
        said = {"version": 1, "versions": rocm.versions, "details": climb.details, "results": climb.results,
                "skipped": rocm.skipped}  # fmt: skip
        options.json.write_text(json.dumps(said, indent=1))
    for reason in rocm.skipped:
        print(f"SKIPPED: {reason}")
    failed = sum(not entry["ok"] for entry in climb.results)
    print(f"{len(climb.results) - failed} of {len(climb.results)} as they must be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
