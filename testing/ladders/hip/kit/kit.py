#!/usr/bin/env python3
"""Tries xsched on an AMD GPU and measures it. One file of JSON comes out, with the machine's description.

  kit.sh [--out FILE] [--only STEP,…] [--quick]

  minimal     devices, memory, copies, sets: seven checks               (a C compiler)
  blas        ones times ones through hipBLAS: 256 everywhere           (hipcc, hipBLAS)
  conv        a convolution through MIOpen, compared with the host's    (hipcc, MIOpen)
  torch       PyTorch: tensors, models, training, streams, graphs       (PyTorch for ROCm)
  suspend     how long the driver takes to suspend a kernel             (hipcc)
  coloc       ResNet and BERT beside best-effort work: latency, P99, throughput; native, all scheduled, level 3, and
              with the vendor's libraries let through                   (PyTorch, torchvision, transformers)

Programs run bare, then under `xsched run`, then under a daemon that suspends and resumes them at random (at level 1, and
at level 3 through the driver): the same output is wanted, every launch counted, none unscheduled. What this machine lacks
is left out and said. Nothing is installed, no setting of the GPU is touched, nothing is sent anywhere.

Exit codes: 0 all well, 1 something differed or failed, 2 bad arguments, 3 nothing could run.
"""

import argparse
import glob
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
for folder in ("testing/lib", "testing/ladders/cuda", "benches/cuda"):
    sys.path.insert(0, str(ROOT / folder))

import harness  # noqa: E402
import judge  # noqa: E402
import machine  # noqa: E402

STEPS = ("minimal", "blas", "conv", "torch", "suspend", "coloc")
MODES = ("xsched", "chaos-1", "chaos-3")
TORCH = ("torch_basic", "torch_vision", "torch_text", "torch_train", "torch_streams", "torch_graphs")
PASSED = "hipblas,hipblaslt,rocblas,miopen,rocfft,hipfft,hipsparse,rocsparse,rccl"
MIXES = ("rn18+rn50", "bert-lc+bert-be*5")
VARIANTS = {"whitelist": f"XSCHED_PASSTHROUGH_LIBS={PASSED}", "level3": "--level 3"}
TIMEOUT_S = 600


def text_of(path):
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def first_of(*patterns):
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return text_of(found[0]) if found else None


def kfd_nodes():
    """What the driver tells of its GPUs."""
    nodes = []
    for folder in sorted(Path(os.environ.get("XSCHED_SYSFS", "/sys"), "class/kfd/kfd/topology/nodes").glob("*")):
        pairs = (line.split(maxsplit=1) for line in (text_of(folder / "properties") or "").splitlines())
        properties = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].lstrip("-").isdigit()}
        gpu = text_of(folder / "gpu_id")
        if gpu and gpu != "0":
            for serial in ("unique_id", "hive_id"):
                properties.pop(serial, None)
            nodes.append(dict(node=folder.name, gpu_id=int(gpu), name=text_of(folder / "name"), **properties))
    return nodes


def architectures():
    """The GPUs' instruction sets as compilers name them; the driver tells them as numbers."""
    numbers = {node.get("gfx_target_version", 0) for node in kfd_nodes()}
    return sorted(f"gfx{n // 10000}{n // 100 % 100:x}{n % 100:x}" for n in numbers if n)


def torch_says(python):
    ask = "import json,torch;print(json.dumps([torch.__version__,torch.version.hip,torch.cuda.is_available()]))"
    done = harness.run([python, "-c", ask], timeout=120)
    try:
        version, hip, available = json.loads(done.stdout.strip().splitlines()[-1])
        return {"version": version, "hip": hip, "available": available}
    except (ValueError, IndexError):
        return None


def describe(binaries, python):
    """The machine: nothing in it names its owner or its host."""
    found = machine.describe(binaries)
    parameters = ("cwsr_enable", "sched_policy", "hws_max_conc_proc", "mes", "queue_preemption_timeout_ms")
    return found | {
        "os": next((l.split("=", 1)[1].strip('"') for l in (text_of("/etc/os-release") or "").splitlines()
                    if l.startswith("PRETTY_NAME=")), platform.system()),  # fmt: skip
        "rocm": first_of("/opt/rocm/.info/version", "/opt/rocm*/.info/version"),
        "amdgpu": text_of("/sys/module/amdgpu/version"),
        "amdgpu_parameters": {p: text_of(f"/sys/module/amdgpu/parameters/{p}") for p in parameters},
        "kfd": kfd_nodes(),
        "hipcc": machine.first_line(["hipcc", "--version"]) if shutil.which("hipcc") else None,
        "torch": torch_says(python),
        "container": Path("/.dockerenv").exists() or Path("/run/.containerenv").exists(),
    }


class Kit:
    def __init__(self, options, work):
        self.options, self.work = options, Path(work)
        self.xsched = options.bin / "xsched"
        self.results = []
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("XSCHED_", "LD_PRELOAD"))}
        self.env |= {k: v for k, v in os.environ.items() if k == "XSCHED_SYSFS"}
        self.env["PYTHONDONTWRITEBYTECODE"] = "1"
        if options.preload:
            self.env["LD_PRELOAD"] = str(options.preload.resolve())

    def note(self, name, status, **more):
        self.results.append(dict(name=name, status=status, **more))
        why = more.get("why") or ""
        print(f"{status:8} {name}{': ' + why.splitlines()[0] if why else ''}", flush=True)

    # -- programs

    def hipcc(self, name, *flags):
        """A program of this folder, compiled here. Skip where there is no compiler."""
        compiler = shutil.which("hipcc") or shutil.which("hipcc", path="/opt/rocm/bin")
        if not compiler:
            raise harness.Skip("hipcc is missing (package hipcc, or rocm-hip-sdk)")
        output = self.work / name
        flags = [*flags, *(f"--offload-arch={name}" for name in architectures())]
        done = harness.run([compiler, "-O2", "-o", output, HERE / f"{name}.cpp", *flags], env=self.env, timeout=300)
        if done.status != 0:
            missing = next((line for line in done.stderr.splitlines() if "file not found" in line), None)
            if missing:
                raise harness.Skip(missing.split("error:")[-1].strip())
            raise RuntimeError(f"{name}.cpp does not compile: {done.stderr[-2000:]}")
        return output

    def minimal(self):
        source = ROOT / "testing/programs/hip/minimal.c"
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "/opt/rocm/llvm/bin/clang"))), None)
        if not compiler:
            raise harness.Skip("no C compiler (apt-get install gcc)")
        folders = [f for f in ("/opt/rocm/lib", "/usr/lib/x86_64-linux-gnu") if glob.glob(f"{f}/libamdhip64.so*")]
        if not folders:
            raise harness.Skip("libamdhip64.so is neither in /opt/rocm/lib nor in the system's folder")
        library = sorted(glob.glob(f"{folders[0]}/libamdhip64.so*"))[0]
        output = self.work / "minimal"
        words = [compiler, "-std=gnu11", "-O1", "-o", output, source, library, f"-Wl,-rpath,{folders[0]}", "-lpthread"]
        done = harness.run([*words, "-lm"], env=self.env)
        if done.status != 0:
            raise RuntimeError(f"minimal.c does not compile: {done.stderr[-2000:]}")
        return output

    # -- bare and scheduled, compared

    def compare(self, name, command):
        """A program bare, twice or three times, and in each mode."""
        runs = [harness.run(command, env=self.env, timeout=TIMEOUT_S) for _ in range(2)]
        if runs[0].status == 3:
            return self.note(name, "skipped", why=judge.tail(runs[0]))
        if judge.needs_third(runs):
            runs.append(harness.run(command, env=self.env, timeout=TIMEOUT_S))
        reference, problem = judge.reference(runs)
        if problem is None and reference["status"] != 0:
            problem = f"exit status {reference['status']} without xsched\n{judge.tail(runs[0])}"
        seconds = round(min(r.seconds for r in runs), 2)
        self.note(f"{name} bare", "failed" if problem else "ok", why=problem, seconds=seconds)
        if problem is None:
            for mode in MODES if not self.options.quick else MODES[:2]:
                self.scheduled(name, command, mode, reference)

    def scheduled(self, name, command, mode, reference):
        stats = self.work / f"stats-{len(self.results)}"
        policy, options, level = "hpf", (), ()
        if mode.startswith("chaos"):
            policy, options, level = "chaos", ("--seed", "1"), ("--level", mode[-1])
        with tempfile.TemporaryDirectory(prefix="kit-") as folder:  # sockets have short names
            daemon = harness.Daemon(self.xsched, folder, policy, *options)
            try:
                prefix = [self.xsched, "run", "--require", "--socket", daemon.socket, *level, "--"]
                env = self.env | {"XSCHED_STATS": str(stats)}
                outcome = harness.run([*prefix, *command], env=env, timeout=TIMEOUT_S)
            finally:
                daemon.stop()
        lines = harness.json_lines(stats)
        said = judge.scheduler_lines(outcome.stderr)
        problems = [judge.differences(reference, outcome), judge.unscheduled(lines)]
        if not any(line["launches"] for line in lines):
            problems.append("libxsched reports no launch: was it loaded?")
        why = "\n".join(filter(None, problems)) or None
        launches = sum(line["launches"] for line in lines)
        self.note(f"{name} {mode}", "failed" if why else "ok", why=why, seconds=round(outcome.seconds, 2),
                  launches=launches, said=said[:5])  # fmt: skip

    # -- steps

    def step_minimal(self):
        self.compare("minimal", [self.minimal()])

    def step_blas(self):
        self.compare("blas", [self.hipcc("sgemm", "-lhipblas")])

    def step_conv(self):
        self.compare("conv", [self.hipcc("conv", "-lMIOpen")])

    def step_torch(self):
        said = torch_says(self.options.python)
        if not said or not said["hip"]:
            raise harness.Skip(f"{self.options.python} has no PyTorch for ROCm ({said})")
        for name in TORCH[:1] if self.options.quick else TORCH:
            self.compare(name, [self.options.python, ROOT / f"testing/ladders/cuda/programs/{name}.py"])

    def step_suspend(self):
        """Alone, and beside a program whose kernel runs all the time: what the suspensions cost it."""
        program = self.hipcc("suspend", "-rdynamic", "-ldl", "-lpthread")
        options = ["--rounds", "20"] if self.options.quick else []
        if self.options.requests_only:
            options.append("--requests-only")
        alone = harness.run([program, *options], env=self.env, timeout=TIMEOUT_S)
        if alone.status == 3:
            raise harness.Skip(judge.tail(alone))
        if alone.status != 0:
            raise RuntimeError(f"exit status {alone.status}: {judge.tail(alone)}")
        found = {"alone": json.loads(alone.stdout.splitlines()[-1])}
        if not self.options.requests_only:
            found["beside"], found["bystander"] = self.beside(program, options)
        self.note("suspend", "ok", figures=found)

    def beside(self, program, options):
        other = subprocess.Popen(
            [program, "--bystander"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env
        )
        try:
            if other.stdout.readline().strip() != "ready":
                raise RuntimeError("the bystander did not start")
            outcome = harness.run([program, *options], env=self.env, timeout=TIMEOUT_S)
            said, _ = other.communicate("", timeout=60)
        finally:
            other.kill()
        if outcome.status != 0:
            raise RuntimeError(f"exit status {outcome.status}: {judge.tail(outcome)}")
        return json.loads(outcome.stdout.splitlines()[-1]), json.loads(said.splitlines()[-1])

    def step_coloc(self):
        """Latency, P99 and throughput: native, all scheduled, the vendor's libraries let through, level 3."""
        said = torch_says(self.options.python)
        if not said or not said["available"]:
            raise harness.Skip(f"{self.options.python} has no PyTorch that sees a GPU ({said})")
        out = self.work / "coloc.jsonl"
        command = [self.options.python, ROOT / "benches/cuda/coloc.py", "--bin", self.options.bin, "--out", out]
        command += ["--systems", ",".join(("alone", "best-effort", "native", "xsched", *VARIANTS))]
        for name, words in VARIANTS.items():
            command += ["--variant", f"{name}={words}"]
        command += ["--rounds", "2", "--secs", "4"] if self.options.quick else ["--rounds", "5"]
        outcome = harness.run([*command, *(MIXES[:1] if self.options.quick else MIXES)], env=self.env, timeout=3600)
        windows = harness.json_lines(out)
        problem = judge.tail(outcome) if outcome.status != 0 or not windows else None
        self.note("coloc", "failed" if problem else "ok", why=problem, tables=outcome.stdout, windows=windows)

    def run(self):
        for step in self.options.only:
            try:
                getattr(self, f"step_{step}")()
            except harness.Skip as reason:
                self.note(step, "skipped", why=str(reason))
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                self.note(step, "failed", why=str(error))


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bundled = ROOT / "bin"
    usual = bundled if (bundled / "xsched").exists() else ROOT / "target/release"
    parser.add_argument("--bin", type=Path, default=usual, help="folder of xsched and libxsched.so [%(default)s]")
    parser.add_argument("--out", type=Path, default=Path("amd-kit.json"), help="file to write [%(default)s]")
    parser.add_argument("--only", default=",".join(STEPS), help="steps, separated by commas [all]")
    parser.add_argument("--quick", action="store_true", help="little of everything: does it work here?")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch [%(default)s]")
    # For trying the kit itself where no kernel really runs.
    parser.add_argument("--requests-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--preload", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    options.only = options.only.split(",")
    unknown = [s for s in options.only if s not in STEPS]
    if unknown:
        parser.error(f"--only: {unknown[0]!r} is no step: use {', '.join(STEPS)}")
    options.bin = options.bin.resolve()
    return options


def main():
    options = arguments()
    if not (options.bin / "xsched").exists():
        print(f"kit: {options.bin}/xsched is missing: use the bundle's kit.sh, or give --bin", file=sys.stderr)
        return 3
    begin = time.time()
    with tempfile.TemporaryDirectory(prefix="xsched-kit-") as work:
        kit = Kit(options, work)
        described = describe(options.bin, options.python)
        try:
            kit.run()
        except KeyboardInterrupt:
            kit.note("kit", "failed", why="interrupted")
            harness.end_all()
        report = dict(kit=1, at=round(begin), seconds=round(time.time() - begin), machine=described, results=kit.results)
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    counts = {s: sum(r["status"] == s for r in kit.results) for s in ("ok", "failed", "skipped")}
    print(f"{counts['ok']} ok, {counts['failed']} failed, {counts['skipped']} skipped; all of it is in {options.out}")
    return 1 if counts["failed"] else 0 if counts["ok"] else 3


if __name__ == "__main__":
    sys.exit(main())
