"""The same programs on AMD's own HIP runtime, over the pretended kernel driver of testing/stand-ins/kfd: no software runtime in between.

There the device takes packets and completes them without running anything. Output (each call's return code) is as bare, no
launch goes unscheduled, and libxsched counts the same number of launches in each mode: alone, and under a daemon that suspends
and resumes at random, on the host (level 1) and through the driver's requests (level 3).
"""

import os
import tempfile
from pathlib import Path

import harness
import judge
import programs

KFD = Path(__file__).resolve().parents[3] / "stand-ins/kfd"
MODES = ("xsched", "chaos-1", "chaos-3")
# RCCL waits for what its own kernels and copies write; onnxruntime is started with the software runtime's path.
LEFT_OUT = ("rccl", "onnxruntime")
TIMEOUT = 120  # of one run, in seconds; its caller may set another
UPDATE_QUEUE = 7  # number of the driver's request


def show(climb, chosen):
    """Runs every program bare and in all modes; notes each."""
    env = surroundings(climb)
    references, counts = {}, {}
    for program in chosen:
        if program.name in LEFT_OUT:
            continue
        # What is compiled while it runs is kept for the next run.
        outcomes = [run(climb, program, "warm", env)[0] for _ in range(3)][1:]
        reference, problem = judge.reference(outcomes)
        if problem is None and reference["status"] != 0:
            problem = f"exit status {reference['status']}\n{judge.tail(outcomes[0])}"
        if problem is None:
            references[program.name] = reference
        climb.note(program, "amd", problem, outcomes[0].seconds)
        refused = [line for line in (reference or {"lines": []})["lines"] if ")" in line and not line.endswith(" 0")]
        climb.results[-1] |= {"refused": refused}
    for mode in MODES:
        policy = ["chaos", "--seed", str(climb.options.seed)] if mode.startswith("chaos") else ["hpf"]
        level = ["--level", mode.removeprefix("chaos-")] if mode.startswith("chaos") else []
        with tempfile.TemporaryDirectory(prefix="hip-") as folder:
            daemon = harness.Daemon(climb.xsched, folder, *policy)
            try:
                for program in (program for program in chosen if program.name in references):
                    prefix = [climb.xsched, "run", "--socket", daemon.socket, *level, "--"]
                    outcome, stats = run(climb, program, mode, env, prefix)
                    launches = sum(line["launches"] for line in stats)
                    problems = [judge.differences(references[program.name], outcome), judge.unscheduled(stats)]
                    expected = counts.setdefault(program.name, launches)
                    if launches != expected or not launches:
                        problems.append(f"{launches} launches, {expected} in the first mode")
                    problem = "\n".join(filter(None, problems)) or None
                    climb.note(program, f"amd:{mode}", problem, outcome.seconds, launches)
                    climb.results[-1] |= {"suspensions": suspensions(trace(climb, program, mode))}
            finally:
                daemon.stop()
    through_driver = sum(entry["suspensions"] for entry in climb.results if entry["mode"] == "amd:chaos-3")
    print(f"     {through_driver} suspensions through the driver", flush=True)
    if references and not through_driver:
        climb.note(programs.Program("(all)", []), "amd:chaos-3", "nothing was suspended through the driver", 0.0)


def trace(climb, program, mode):
    return climb.logs / f"amd-{program.name}-{mode}.kfd"


def suspensions(path):
    """Requests for no part of the device, UPDATE_QUEUE with percentage 0, that the driver granted."""
    def percentage(line):
        return int.from_bytes(bytes.fromhex(line["in"])[16:20], "little")

    return sum(line["number"] == UPDATE_QUEUE and line["rc"] == 0 and percentage(line) == 0
               for line in harness.json_lines(path))  # fmt: skip


def run(climb, program, mode, env, prefix=()):
    """One run; gives its outcome, without what the runtime says on stderr about times and leaks, and libxsched's counts."""
    stats = climb.logs / f"amd-{program.name}-{mode}.xsched"
    stats.unlink(missing_ok=True)
    requests = trace(climb, program, mode)
    requests.unlink(missing_ok=True)
    env = env | {"XSCHED_STATS": str(stats), "FAKEKFD_TRACE": str(requests)}
    outcome = harness.run([*prefix, *program.command], env=env, timeout=TIMEOUT)
    (climb.logs / f"amd-{program.name}-{mode}.err").write_text(outcome.stderr)
    outcome.stderr = ""
    return outcome, harness.json_lines(stats)


def surroundings(climb):
    """The environment with the pretended driver, its /sys, and AMD's runtime."""
    flags = [f"-I{KFD / 'include'}", str(KFD / "more.c"), str(KFD / "drm.c"), "-ldl", "-lpthread"]
    kernel = harness.compile_c(KFD / "fakekfd.c", climb.options.work / "kernel.so", *flags, shared=True)
    return climb.env | {
        "LD_LIBRARY_PATH": str(climb.rocm.folder / "amd"),
        "LD_PRELOAD": os.fspath(kernel),
        "FAKEKFD_SYSFS": str(KFD / "sysfs"),
        "XSCHED_SYSFS": str(KFD / "sysfs"),
        "HIP_VISIBLE_DEVICES": "0",
    }
