#!/usr/bin/env python3
"""The OpenCL compatibility ladder: every program gives the same results and errors, whatever the scheduler does.

    ladder.py --work DIR                    bare runs only: are the programs and the counting layer themselves sound?
    ladder.py --work DIR --bin target/release    also under xsched, alone, contended and under the chaos policy

The rungs:
  bare       without anything, then with the counting layer: same output (so the program is repeatable and the layer
             harmless), and the layer's counts equal those worked out by hand where a program has them
  scheduled  under `xsched run`, nobody else on the device
  contended  the same at low priority beside a program of high priority that wants the device every 10 ms
  chaos      under a daemon that suspends and resumes everybody at random, at each level given

On every rung but the first: exit status and normalised output as bare, and the launches that the library counted equal
those that the layer below it saw. Exit codes: 0 all well, 1 a difference, 2 bad arguments, 3 nothing could run.
"""

import argparse
import difflib
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lib"))

import harness  # noqa: E402
import programs  # noqa: E402

HERE = Path(__file__).resolve().parent
RUNGS = ("bare", "scheduled", "contended", "chaos")


def build(work):
    """Compiles the layer, the own programs and the load program; gives reasons for what could not be built."""
    built, reasons = work / "built", []
    loader = "-lOpenCL"
    jobs = [(HERE / "count_layer.c", built / "count_layer.so", [], True), (HERE / "clload.c", built / "clload", [loader, "-lm"], False)]
    for source in sorted([*programs.OWN.glob("*.c"), *programs.OWN.glob("*.cpp")]):
        jobs.append((source, built / source.stem, [loader, "-lpthread"], False))
    for source, output, flags, shared in jobs:
        if source.stem == "viennacl" and not Path("/usr/include/viennacl").exists():
            reasons.append("viennacl: its headers are missing (libviennacl-dev)")
            continue
        harness.compile_c(source, output, *flags, shared=shared)
    return built, reasons


class Ladder:
    def __init__(self, options, work, built):
        self.options, self.work, self.built = options, work, built
        self.failures, self.results = [], []
        self.files = itertools.count(1)
        # Counts and statistics of this run only: the files are appended to.
        self.results_folder = work / "results"
        shutil.rmtree(self.results_folder, ignore_errors=True)
        self.results_folder.mkdir()
        # A home of its own: driver and PyOpenCL caches are shared by all rungs and by nothing else.
        home = work / "home"
        home.mkdir(exist_ok=True)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("XSCHED_", "OPENCL_LAYERS", "LD_PRELOAD"))}
        self.env |= {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "POCL_CACHE_DIR": str(home / "pocl"),
            "PYOPENCL_CTX": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
        }

    def fresh(self, name):
        """A file name not used before."""
        return self.results_folder / f"{next(self.files)}-{name}"

    def note(self, rung, program, problem, seconds=0.0, counted=None):
        """Records and prints one result; `problem` is None when all is well."""
        self.results.append(
            {"rung": rung, "program": program, "ok": problem is None, "seconds": round(seconds, 2), "launches": counted, "problem": problem}
        )
        launches = "" if counted is None else f"  {counted} launches"
        print(f"{'ok  ' if problem is None else 'FAIL'} {rung:12} {program:32} {seconds:6.1f} s{launches}", flush=True)
        if problem is not None:
            self.failures.append((rung, program))
            print("     " + problem.replace("\n", "\n     "), flush=True)

    def counting(self):
        """An environment with the counting layer, and the files of the layer's and of the library's counts."""
        counts, stats = self.fresh("counts.jsonl"), self.fresh("stats.jsonl")
        layer = str(self.built / "count_layer.so")
        return self.env | {"OPENCL_LAYERS": layer, "CL_COUNT_OUT": str(counts), "XSCHED_STATS": str(stats)}, counts, stats

    def execute(self, program, prefix=()):
        """One run with the counting layer; gives the outcome, the layer's lines and the library's lines."""
        env, counts, stats = self.counting()
        outcome = harness.run([*prefix, *program.command], env=env, timeout=program.timeout, cwd=self.env["HOME"])
        return outcome, harness.json_lines(counts), harness.json_lines(stats)

    def bare(self, program):
        """The first rung. Gives the output that later ones must match, or None when the program is no use here."""
        plain = harness.run(program.command, env=self.env, timeout=program.timeout, cwd=self.env["HOME"])
        layered, counts, _ = self.execute(program)
        problem = failed(plain) or differences(program, plain, layered) or wrong_counts(program, counts)
        self.note("bare", program.name, problem, plain.seconds + layered.seconds, sum(c["total"] for c in counts))
        return plain if problem is None else None

    def under(self, rung, program, reference, prefix):
        outcome, counts, stats = self.execute(program, prefix)
        problem = differences(program, reference, outcome) or miscounted(counts, stats)
        self.note(rung, program.name, problem, outcome.seconds, sum(c["total"] for c in counts))
        return stats

    def rung(self, rung, chosen, policy, prefix_options, rival=False, daemon_options=()):
        """All programs under one daemon."""
        xsched = self.options.bin / "xsched"
        # Sockets have short names: not below the work folder, which may lie deep.
        with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
            failures, daemon, other = len(self.failures), None, None
            try:
                daemon = harness.Daemon(xsched, folder, policy, *daemon_options)
                under = [xsched, "run", "--socket", daemon.socket]
                if rival:
                    other = self.rival([*under, "--priority", "high", "--"])
                lines = []
                for program, reference in chosen:
                    lines += self.under(rung, program, reference, [*under, *prefix_options, "--"])
                if other is not None:
                    self.rival_ended_well(rung, other, daemon)
                if not daemon.running():
                    self.note(rung, "(the daemon)", "ended early")
                # A rung on which nothing was ever suspended would prove nothing.
                waits = [line["gate_waits"] for line in lines if "gate_waits" in line]
                if rung != "scheduled" and waits:
                    problem = None if sum(waits) > 0 else "nothing was ever suspended"
                    self.note(rung, f"({sum(waits)} waits at a gate)", problem)
            except RuntimeError as error:
                self.note(rung, "(starting it)", str(error))
            finally:
                for process in filter(None, (other, daemon)):
                    process.stop()
            if daemon is not None and len(self.failures) > failures:
                print("     the daemon said: " + "\n     ".join(daemon.stderr.read_text().splitlines()[-10:]))

    def rival(self, prefix):
        """Starts the program that wants the device every 10 ms."""
        load = [self.built / "clload", "lc", "--kernels", "2", "--us", "500", "--period-us", "10000"]
        load += ["--requests", "1000000", "--calibrate-file", self.built / "calibration.json"]
        env, self.rival_counts, self.rival_stats = self.counting()
        other = harness.Background([*prefix, *load], env, self.results_folder, "rival")
        other.wait_for("clload: ready")
        return other

    def rival_ended_well(self, rung, other, daemon):
        """Ends the rival, which must still run and be listed, and checks its results (by its exit status) and counts."""
        early = not other.running()
        listed = any(listed_pid == other.process.pid for listed_pid in pids(daemon.ps()))
        status = other.stop()
        counts = harness.json_lines(self.rival_counts)
        if early:
            problem = f"ended early: {other.stderr.read_text()}"
        elif status != 0:
            problem = f"exit status {status}: {other.stderr.read_text()}"
        elif not listed:
            problem = "`xsched ps --json` did not list it"
        else:
            problem = miscounted(counts, harness.json_lines(self.rival_stats))
        self.note(rung, "(the rival)", problem, counted=sum(c["total"] for c in counts))


def pids(listing):
    """The processes that `xsched ps --json` lists."""
    return [program["pid"] for program in (listing or {}).get("programs", [])]


def failed(outcome):
    """Why a run is no success, or None."""
    if outcome.timed_out:
        return f"did not end within {outcome.seconds:.0f} s\n{tail(outcome)}"
    if outcome.status != 0:
        return f"exit status {outcome.status}\n{tail(outcome)}"
    return None


def tail(outcome):
    return "\n".join((outcome.stdout + outcome.stderr).splitlines()[-12:])


def differences(program, reference, outcome):
    """How a run differs from the reference run, or None."""
    if outcome.timed_out or outcome.status != reference.status:
        return failed(outcome) or f"exit status {outcome.status} instead of {reference.status}\n{tail(outcome)}"
    for stream in ("stdout", "stderr"):
        expected, found = (without_remarks(program.normalise(getattr(run, stream))) for run in (reference, outcome))
        if expected != found:
            shown = list(difflib.unified_diff(expected, found, "bare", "now", lineterm="", n=0))
            return f"{stream} differs:\n" + "\n".join(line[:200] for line in shown[:20])
    return None


def without_remarks(text):
    """Lines, but for what PoCL's compiler says only when a kernel is not in its cache yet, on processors without AVX-512."""
    return [line for line in text.splitlines() if not re.fullmatch(r"\d+ warnings? generated\.", line)]


def wrong_counts(program, counts):
    """How the layer's counts differ from those worked out by hand, or None."""
    if program.counts is None:
        return None
    if len(counts) != 1 or counts[0]["calls"] != program.counts or counts[0]["failed"]:
        return f"the layer counted {json.dumps(counts)}, by hand it is {json.dumps(program.counts)}"
    return None


def miscounted(counts, stats):
    """How the library's launches differ from what the layer below it saw, or None.

    What the library itself added is taken off first. A call that the driver refused may or may not count as a launch.
    """
    by_pid = {line["pid"]: line for line in stats}
    problems = []
    for seen in counts:
        line = by_pid.get(seen["pid"])
        if line is None:
            problems.append(f"pid {seen['pid']}: {seen['total']} launches reached the driver, the library reports none")
            continue
        added, calls, refused = line.get("added", {}), seen["calls"], sum(seen["failed"].values())
        for name, number in added.items():
            if calls.get(name, 0) < number:
                problems.append(f"pid {seen['pid']}: the library added {number} {name}, the driver saw {calls.get(name, 0)}")
        expected = seen["total"] - sum(added.values())
        if not expected - refused <= line["launches"] <= expected:
            problems.append(
                f"pid {seen['pid']}: the library counted {line['launches']} launches, the driver saw {expected}"
                f" ({refused} of them refused; {json.dumps(calls)}; added {json.dumps(added)})"
            )
        if any(line["unscheduled"].values()):
            problems.append(f"pid {seen['pid']}: unscheduled {json.dumps(line['unscheduled'])}")
    return "\n".join(problems) or None


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for what is built and written")
    parser.add_argument("--bin", type=Path, help="folder with xsched and libxsched.so; without it only the bare rung")
    parser.add_argument("--rungs", default=",".join(RUNGS), help="which rungs, by comma (default: all)")
    parser.add_argument("--levels", default="auto", help="levels for the chaos rung, by comma (default: auto)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the chaos policy (default: 1)")
    parser.add_argument("--only", help="only programs whose name contains this")
    parser.add_argument("--examples", type=Path, default=programs.EXAMPLES, help="PyOpenCL's examples")
    parser.add_argument("--full", action="store_true", help="also the long programs")
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    options.rungs = options.rungs.split(",")
    unknown = set(options.rungs) - set(RUNGS)
    if unknown:
        parser.error(f"unknown rung {', '.join(sorted(unknown))}; there are {', '.join(RUNGS)}")
    if options.bin is not None:
        options.bin = options.bin.resolve()
        if not (options.bin / "xsched").exists() or not (options.bin / "libxsched.so").exists():
            parser.error(f"{options.bin} does not hold xsched and libxsched.so: cargo build --release")
    return options


def main():
    options = parse()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    try:
        built, skipped = build(work)
    except harness.Skip as reason:
        print(f"SKIPPED: the OpenCL ladder: {reason}")
        return 3
    ladder = Ladder(options, work, built)
    # The load program's calibration is made once, bare, so that all rungs do the same work.
    calibrate = [built / "clload", "calibrate", "--calibrate-file", built / "calibration.json"]
    outcome = harness.run(calibrate, env=ladder.env)
    if outcome.status == 3:
        print(f"SKIPPED: the OpenCL ladder: {outcome.stderr.strip()} (apt-get install pocl-opencl-icd)")
        return 3
    if outcome.status != 0:
        print(f"clload calibrate: {failed(outcome)}")
        return 1

    able = []
    for program in programs.all_programs(built, options.examples):
        if options.only and options.only not in program.name or program.long and not options.full:
            continue
        missing = program.missing()
        if missing:
            skipped.append(f"{program.name}: {missing}")
            continue
        able.append(program)
    # Most of the first rung is PoCL's compiler, which uses one processor, and no rung has its code yet. Two at a time here;
    # the other rungs are about who has the device.
    with ThreadPoolExecutor(2) as pool:
        references = pool.map(ladder.bare, able)
        chosen = [(program, reference) for program, reference in zip(able, references) if reference is not None]

    if options.bin is None:
        skipped.append("the rungs under xsched: no --bin given")
    else:
        if "scheduled" in options.rungs:
            ladder.rung("scheduled", chosen, "hpf", [])
        if "contended" in options.rungs:
            ladder.rung("contended", chosen, "hpf", ["--priority", "low"], rival=True)
        if "chaos" in options.rungs:
            for level in options.levels.split(","):
                seed = ["--seed", options.seed]
                ladder.rung(f"chaos {level}", chosen, "chaos", ["--level", level], daemon_options=seed)
    for reason in skipped:
        print(f"SKIPPED: {reason}")
    foreign = len({p.origin for p, _ in chosen} - {"own"})
    print(
        f"OpenCL ladder: {len(ladder.results)} checks, {len(ladder.failures)} failed, {len(skipped)} skipped;"
        f" {len(chosen)} programs, {foreign} foreign projects; {time.monotonic() - begin:.0f} s"
    )
    if options.json:
        options.json.write_text(json.dumps({"version": 1, "results": ladder.results, "skipped": skipped}, indent=1))
    return 1 if ladder.failures else 0


if __name__ == "__main__":
    sys.exit(main())
