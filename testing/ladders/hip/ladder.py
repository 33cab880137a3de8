#!/usr/bin/env python3
"""The HIP compatibility ladder on the software runtime: every program gives the same results, whatever the scheduler does.

    ladder.py --bin DIR --runtime DIR --work DIR [--backend cpu|cuda] [--json FILE] [--only NAME,…]
              [--modes MODE,…] [--seed N]

--runtime is what `cargo xtask hip-runtime DIR` has laid out. Every program runs in these modes:
  bare       without anything, twice
  xsched     under `xsched run`, alone
  behind     at low priority, beside a rival of high priority that keeps the device busy
  chaos-1, chaos-2
             under a daemon that suspends and resumes the program at random, at this level

In each but the first: exit status and output as bare, as many commands seen by libxsched as the runtime itself gave to the
device, and none unscheduled. The device is simulated: this shows that calls, order and results survive, not preemption.
With --backend cuda the runtime stands on libcuda.so.1: a real device of another vendor, unless --driver names a stand-in.

Exit codes: 0 all well, 1 a difference, 2 bad arguments, 3 nothing could run.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "lib")]

import harness  # noqa: E402
import judge  # noqa: E402
import programs  # noqa: E402

MODES = ("bare", "xsched", "behind", "chaos-1", "chaos-2")
TIMEOUT = 120  # of one run, in seconds
JOBS = max(2, min(8, (os.cpu_count() or 2) // 4))  # programs at a time


class Ladder:
    def __init__(self, options):
        self.options, self.xsched = options, options.bin / "xsched"
        self.logs = options.work / "runs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.results, self.references = [], {}
        # A short name: sockets have little room.
        self.sockets = tempfile.TemporaryDirectory(prefix="hip-")
        self.env = environment(options, Path(self.sockets.name) / "device")

    def execute(self, program, mode, prefix=()):
        """Runs a program; gives its outcome and the lines of both statistics."""
        files = [self.logs / f"{program.name}-{mode}.{kind}" for kind in ("xsched", "runtime")]
        for file in files:
            file.unlink(missing_ok=True)
        env = self.env | program.env | {"XSCHED_STATS": str(files[0]), "FAKEHIP_STATS": str(files[1])}
        outcome = harness.run([*prefix, *program.command], env=env, timeout=TIMEOUT)
        return outcome, *(harness.json_lines(file) for file in files)

    def bare(self, program):
        both = [self.execute(program, "bare") for _ in range(2)]
        runs = [outcome for outcome, *_ in both]
        self.noted(program, [counts for _, _, counts in both])
        reference, problem = judge.reference(runs)
        if problem is None and reference["status"] != 0:
            problem = f"exit status {reference['status']}\n{judge.tail(runs[0])}"
        if problem is None:
            self.references[program.name] = reference
        self.note(program, "bare", problem, runs[0].seconds)

    def noted(self, program, counts):
        """Takes in what the runtime counted in the bare runs, for ladders that compare more."""

    def further(self, program, counts):
        """What else is wrong with what the runtime counted in a scheduled run, or None."""

    def scheduled(self, program, mode, daemon):
        reference = self.references.get(program.name)
        if reference is None:
            return
        options = {"behind": ["--priority", "low"]}.get(mode, [])
        if mode.startswith("chaos"):
            options = ["--level", mode.removeprefix("chaos-")]
        prefix = [self.xsched, "run", "--socket", daemon.socket, *options, "--"]
        outcome, stats, counts = self.execute(program, mode, prefix)
        problems = [judge.differences(reference, outcome), judge.unscheduled(stats)]
        problems.append(judge.miscounted(as_counts(counts), stats))
        problems.append(self.further(program, counts))
        launches = sum(line["launches"] for line in stats)
        if not launches:
            problems.append("libxsched reports no command: was it loaded?")
        self.note(program, mode, "\n".join(filter(None, problems)) or None, outcome.seconds, launches)

    def note(self, program, mode, problem, seconds, launches=None):
        entry = {"program": program.name, "mode": mode, "ok": problem is None, "seconds": round(seconds, 2)}
        entry |= {"launches": launches} if launches is not None else {}
        entry |= {"problem": problem} if problem else {}
        self.results.append(entry)
        shown = "" if launches is None else f"  {launches} launches"
        line = f"{'ok  ' if problem is None else 'FAIL'} {mode:8} {program.name:16} {seconds:5.1f} s{shown}"
        print(line if problem is None else line + "\n     " + problem.replace("\n", "\n     "), flush=True)

    def mode(self, mode, chosen):
        if mode == "bare":
            return self.parallel(self.bare, chosen)
        with tempfile.TemporaryDirectory(prefix="hip-") as folder:
            policy = ["chaos", "--seed", str(self.options.seed)] if mode.startswith("chaos") else ["hpf"]
            daemon = harness.Daemon(self.xsched, folder, *policy)
            try:
                if mode == "behind":
                    self.behind(daemon, chosen)
                else:
                    self.parallel(lambda program: self.scheduled(program, mode, daemon), chosen)
                if not daemon.running():
                    raise RuntimeError(f"the daemon ended: {daemon.stderr.read_text()[-2000:]}")
            finally:
                daemon.stop()

    def behind(self, daemon, chosen):
        path = builder(self.options).check("rival", 7)
        prefix = [self.xsched, "run", "--socket", daemon.socket, "--priority", "high", "--"]
        rival = harness.Background([*prefix, path], self.env, self.logs, "rival")
        try:
            rival.wait_for("rival: ready")
            # The rival leaves gaps only between its batches: one program at a time.
            for program in chosen:
                self.scheduled(program, "behind", daemon)
            early = not rival.running()
        finally:
            status = rival.stop()
        problem = f"exit status {status}\n{rival.stdout.read_text()}" if early or status != 0 else None
        self.note(programs.Program("(rival)", []), "behind", problem, 0.0)

    def parallel(self, work, chosen):
        with ThreadPoolExecutor(JOBS) as pool:
            list(pool.map(work, chosen))


def as_counts(lines):
    """The runtime's statistics as counts a process: two copies in one process are two lines."""
    merged = {}
    for line in lines:
        entry = merged.setdefault(line["pid"], {"pid": line["pid"], "total": 0, "calls": {}, "failed": {}})
        entry["total"] += line["commands"]
        for name, count in line["commands_of"].items():
            entry["calls"][name] = entry["calls"].get(name, 0) + count
    return list(merged.values())


def environment(options, socket):
    """The environment of all programs: the software runtime, and a simulated device that is this ladder's own."""
    dropped = ("XSCHED_", "FAKEHIP_", "FAKECUDA_", "SIMDEV_", "LD_PRELOAD", "HIP_", "ROCR_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    folders = [options.runtime]
    if options.backend == "cuda":
        # What is counted then is HIP's alone: calls of the driver's would come on top.
        env |= {"FAKEHIP_BACKEND": "cuda", "XSCHED_PLATFORMS": "hip"}
        folders += [options.driver, env.get("LD_LIBRARY_PATH")]
    return env | {
        "LD_LIBRARY_PATH": ":".join(str(folder) for folder in folders if folder),
        "SIMDEV_SOCKET": str(socket),
        "SIMDEV_SERVER": str(options.bin / "xsched"),
        "LC_ALL": "C.UTF-8",
    }


def builder(options):
    """Of the programs; a bundle has them beside the runtime."""
    ready = options.runtime / "built"
    return programs.Builder(options.runtime, ready if ready.exists() else options.work / "built", ready.exists())


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder with xsched and libxsched.so")
    parser.add_argument("--runtime", type=Path, required=True, help="folder with libamdhip64.so.5, .6 and .7")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is built and said")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu", help="below the runtime [%(default)s]")
    parser.add_argument("--driver", type=Path, help="folder of a stand-in for libcuda.so.1, for --backend cuda")
    parser.add_argument("--json", type=Path, help="results")
    parser.add_argument("--only", help="names of programs, with commas between")
    parser.add_argument("--modes", help="modes besides bare, with commas between")
    parser.add_argument("--seed", type=int, default=1, help="of the chaos policy [%(default)s]")
    options = parser.parse_args(arguments)
    for path in ("bin", "runtime", "work"):
        setattr(options, path, getattr(options, path).resolve())
    options.driver = options.driver and options.driver.resolve()
    for needed in (options.bin / "xsched", options.bin / "libxsched.so", options.runtime / "libamdhip64.so.7"):
        if not needed.exists():
            parser.error(f"{needed} is not there")
    options.modes = options.modes.split(",") if options.modes else list(MODES)
    if unknown := set(options.modes) - set(MODES):
        parser.error(f"no such mode: {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")
    return options


def main():
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        chosen, reasons = programs.all_programs(builder(options))
    except harness.Skip as reason:
        print(f"SKIPPED: the HIP ladder: {reason}")
        return 3
    if options.only:
        wanted = options.only.split(",")
        if unknown := set(wanted) - {program.name for program in chosen}:
            print(f"ladder.py: no such program: {', '.join(sorted(unknown))}", file=sys.stderr)
            return 2
        chosen = [program for program in chosen if program.name in wanted]
    ladder = Ladder(options)
    for mode in MODES:
        if mode == "bare" or mode in options.modes:
            ladder.mode(mode, chosen)
            if options.json:  # also what there is if the next mode hangs
                said = {"version": 1, "results": ladder.results, "skipped": reasons}
                options.json.write_text(json.dumps(said, indent=1))
    for reason in reasons:
        print(f"SKIPPED: {reason}")
    failed = sum(not entry["ok"] for entry in ladder.results)
    print(f"{len(ladder.results) - failed} of {len(ladder.results)} runs as they must be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
