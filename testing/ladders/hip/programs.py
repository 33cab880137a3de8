"""The programs of the HIP ladder, and how each is built."""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import harness

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "programs/hip"
MAJORS = (5, 6, 7)
# Every check program runs on the newest major, the most telling ones on all.
CHECKS = """minimal kernels streams events capture modes graphs nodes ipc memops memory errors spt module library multithread
    procaddress""".split()
ON_ALL = ("minimal", "kernels", "procaddress", "deep")
# These make mistakes on purpose, so that a strict runtime would end them.
MISTAKEN = ("errors", "module", "library", "memops", "graphs", "nodes", "modes", "ipc")
CHAIN = ("plugin", "framework", "operators", "dispatch", "planning", "vendors")
ROUNDS = "5"  # of the deep chain
REAL = ("rocrand", "hiprand", "rocsparse", "hipsparse")


@dataclass
class Program:
    name: str
    command: list
    env: dict = field(default_factory=dict)


class Builder:
    """Builds programs into a folder, against the runtime laid out in another. A bundle brings them along, `ready`."""

    def __init__(self, runtime, folder, ready=False):
        self.runtime, self.folder, self.ready = runtime, folder, ready

    def compile_c(self, source, output, *flags, **options):
        return output if self.ready else harness.compile_c(source, output, *flags, **options)

    def flags(self, major):
        return [f"-L{self.runtime}", f"-l:libamdhip64.so.{major}", "-lpthread", "-ldl"]

    def check(self, name, major):
        return self.compile_c(SOURCES / f"{name}.c", self.folder / f"{name}-{major}", *self.flags(major))

    def copies(self):
        """A program with two copies of the runtime, and where they are."""
        second = self.folder / "second"
        second.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.runtime / "libamdhip64.so.7", second)
        return [self.check("copies", 7), self.runtime / "libamdhip64.so.7", second / "libamdhip64.so.7"]

    def deep(self, major):
        """The chain of seven libraries and its program."""
        folder, source = self.folder / f"chain-{major}", HERE / "libs"
        link = [f"-L{folder}", "-Wl,-rpath,$ORIGIN"]
        self.compile_c(source / "fakeblas.c", folder / "libfakeblas.so", *self.flags(major), shared=True)
        vendors = folder / "libvendors.so"
        self.compile_c(source / "vendors.c", vendors, *link, "-lfakeblas", *self.flags(major), shared=True)
        for step, below in reversed(list(zip(CHAIN, CHAIN[1:]))):
            names = [f"-DFROM={step}", f"-DTO={below}"]
            self.compile_c(source / "step.c", folder / f"lib{step}.so", *names, *link, f"-l{below}", shared=True)
        rest = ["-lplugin", f"-Wl,-rpath-link,{folder}", f"-Wl,-rpath-link,{self.runtime}"]
        return self.compile_c(source / "deep.c", folder / "deep", *link, *rest, *self.flags(major))

    def hipcc(self, source, output, *flags):
        """By AMD's compiler; it needs no GPU."""
        output = self.folder / output
        if output.exists() and output.stat().st_mtime > source.stat().st_mtime:
            return output
        command = ["hipcc", "--offload-arch=gfx906", "-w", "-o", output, "-x", "hip", source, *flags]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{source}: does not compile\n{done.stderr}")
        return output

    def compiled(self, major):
        """A program of the real compiler. Debian's is of major 5: for others its object is linked against their library."""
        source = HERE / "real/compiled.hip"
        if major == 5:
            return self.hipcc(source, "compiled-5")
        made = self.hipcc(source, "compiled.o", "-c", "-fPIE")
        output = self.folder / f"compiled-{major}"
        done = subprocess.run(["g++", "-o", output, made, *self.flags(major)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"compiled.hip: does not link against major {major}\n{done.stderr}")
        return output


STRICT = {"FAKEHIP_STRICT": "1"}


def own_programs(builder):
    """Those of this project, which need nothing but a C compiler."""
    found = []
    for major in MAJORS:
        for name in (*CHECKS, "deep"):
            if major != MAJORS[-1] and name not in ON_ALL:
                continue
            if name == "procaddress" and major == 5:  # it came with 6.1
                continue
            path = builder.deep(major) if name == "deep" else builder.check(name, major)
            words = [path, ROUNDS] if name == "deep" else [path]
            found.append(Program(f"{name}-{major}", words, {} if name in MISTAKEN else STRICT))
    found.append(Program("copies", builder.copies()))
    # The runtime calls itself through its exported symbols, as real ones do.
    for name in ("kernels", "memory", "deep"):
        path = builder.deep(7) if name == "deep" else builder.check(name, 7)
        words = [path, ROUNDS] if name == "deep" else [path]
        found.append(Program(f"{name}-reenter", words, {"FAKEHIP_REENTER": "1"}))
    return found


def all_programs(builder):
    """`(programs, reasons)`: what can run here, and a line for what cannot."""
    found, reasons = own_programs(builder), []
    if builder.ready:
        reasons.append("AMD's compiler and libraries: not in a bundle")
    elif shutil.which("hipcc"):
        for name in REAL:
            if not Path(f"/usr/include/{name}").exists():
                reasons.append(f"{name} is not installed: apt-get install lib{name}-dev")
                continue
            path = builder.hipcc(HERE / f"real/{name}.c", f"real-{name}", f"-l{name}")
            found.append(Program(name, [path], STRICT))
        for major in (5, 6):
            found.append(Program(f"compiled-{major}", [builder.compiled(major)], STRICT))
    else:
        reasons.append("AMD's compiler and libraries: hipcc is not installed: apt-get install hipcc")
    return found, reasons
