#!/usr/bin/env python3
"""All measurements, in parts that each take less than eight minutes.

  bench.py --results DIR [--part K/N] [--only NAME,…] [--gpus N] [--quick] [--rounds N]

Names: coloc, preempt, launch, alone, shares, classes, groups, held, startup, faults.

Each is one or more jobs; --part K/N does every job that falls to part K of N (--list shows which) and stops to begin
more after --limit seconds. Exit status 75: not all is done, the same command goes on from there; what is measured
already is not measured again. With --gpus N, N jobs run at a time, each on a GPU of its own. Results are JSON lines in
DIR; in the end report.py puts everything together. --quick does everything in shortened form, into DIR/quick: it shows
that the scripts work on this machine, its figures mean nothing.
"""

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path

import alone
import coloc
import startup
import systems
from micro import SYSTEMS
from systems import HERE, UNFINISHED

LIMIT_S = 460  # of a part
NAMES = ("coloc", "preempt", "launch", "alone", "shares", "classes", "groups", "held", "startup", "faults")


class Job:
    """One command; `seconds` is about what it takes, full and quick."""

    def __init__(self, name, what, script, words, seconds, quick_seconds):
        self.name, self.what, self.script, self.words = name, what, script, words
        self.seconds, self.quick_seconds = seconds, quick_seconds

    def __str__(self):
        return f"{self.name} {self.what}".strip()

    def command(self, args, results, gpu, left):
        words = [sys.executable, HERE / self.script, "--bin", args.bin, "--deadline", f"{left:.0f}"]
        words += ["--out", results / f"{self.name}.jsonl"]
        if self.script == "coloc.py":
            words += ["--rounds", 1, "--secs", 2] if args.quick else ["--rounds", args.rounds]
            words += ["--first-gpu", gpu or 0]
        else:
            words += ["--quick"] if args.quick else []
            words += [] if gpu is None else ["--gpu", gpu]
        return [str(w) for w in (*words, *self.words)]


def jobs():
    """All there is to do, the longest first in each kind."""
    found = [Job("coloc", mix, "coloc.py", [mix], 440, 60) for mix in coloc.MIXES]
    # Those that may have to wait for the end of kernels of 100 ms.
    long_kernels = dict.fromkeys(("1", "2", "mps", "mps-prio", "xsched-spatial"), 160)
    for system in SYSTEMS:
        found.append(
            Job("preempt", system, "micro.py", ["--systems", system, "preempt"], long_kernels.get(system, 90), 25)
        )
    found += [
        Job("launch", "", "micro.py", ["launch"], 130, 15),
        *(Job("alone", role, "alone.py", [role], 170, 30) for role in alone.ROLES),
        Job("shares", "", "micro.py", ["shares"], 260, 20),
        Job("classes", "", "micro.py", ["classes"], 210, 30),
        Job("groups", "processes", "groups.py", ["--kinds", "processes"], 200, 60),
        Job("groups", "threads", "groups.py", ["--kinds", "threads"], 150, 50),
        Job("held", "", "micro.py", ["held"], 90, 15),
        Job("startup", "", "startup.py", startup.JOB, 440, 70),
        *(Job("faults", f"daemon {mix}", "faults.py", ["--mixes", mix, "daemon"], 90, 50) for mix in coloc.MIXES),
        Job("faults", "kills", "faults.py", ["kills"], 250, 20),
        Job("faults", "gate", "faults.py", ["gate"], 150, 15),
        Job("faults", "rest", "faults.py", ["stopped", "ends"], 150, 80),
    ]
    return found


def divide(found, parts):
    """The jobs of each part: the longest job goes to the part that has the least to do so far."""
    result = [[] for _ in range(parts)]
    for job in sorted(found, key=lambda j: -j.seconds):
        min(result, key=lambda part: sum(j.seconds for j in part)).append(job)
    return result


def part_of(text):
    """`K/N` as (K, N)."""
    k, slash, n = text.partition("/")
    if not (slash and k.isdigit() and n.isdigit() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"{text!r}: use K/N, with K from 1 to N")
    return int(k), int(n)


def run(todo, args, results):
    """Runs jobs, as many at a time as there are GPUs; gives their exit statuses."""
    begin, queue, statuses, lock = time.monotonic(), list(todo), {}, threading.Lock()
    running = []

    def serve(gpu):
        while True:
            with lock:
                if not queue:
                    return
                job = queue.pop(0)
            left = args.limit - (time.monotonic() - begin)
            if left < 5:
                statuses[str(job)] = UNFINISHED
                continue
            print(f"== {job}", file=sys.stderr, flush=True)
            process = subprocess.Popen(job.command(args, results, gpu, left), cwd=results)
            with lock:
                running.append(process)
            try:
                statuses[str(job)] = process.wait(left + 120)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
                statuses[str(job)] = "hangs"

    threads = [
        threading.Thread(target=serve, args=(g if args.gpus > 1 else None,), daemon=True) for g in range(args.gpus)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.wait()
    return statuses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--bin", type=Path, default=systems.default_bin(), help="folder of xsched, libxsched.so and the C programs"
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="[%(default)s]")
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="K/N")
    parser.add_argument("--only", help="names separated by commas")
    parser.add_argument("--gpus", type=coloc.natural, default=1)
    parser.add_argument("--rounds", type=coloc.natural, default=5, help="of coloc [%(default)s]")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECS", help="of a part [%(default)s]")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true", help="only say what would be done")
    args = parser.parse_args()
    only = args.only.split(",") if args.only else NAMES
    unknown = [n for n in only if n not in NAMES]
    if unknown:
        parser.error(f"--only: {unknown[0]!r} is unknown: use {', '.join(NAMES)}")
    todo = divide([j for j in jobs() if j.name in only], args.part[1])[args.part[0] - 1]
    if args.list:
        for job in todo:
            print(f"{job}: about {job.quick_seconds if args.quick else job.seconds} s")
        return 0
    systems.end_on_signals()
    args.bin = args.bin.resolve()
    results = (args.results / "quick" if args.quick else args.results).resolve()
    results.mkdir(parents=True, exist_ok=True)
    statuses = run(todo, args, results)
    # A report that fails for want of data must not hide what the jobs said.
    subprocess.run([sys.executable, HERE / "report.py", results])
    for job, status in statuses.items():
        print(f"{job}: {'done' if status == 0 else 'not finished' if status == UNFINISHED else f'FAILED ({status})'}")
    bad = [s for s in statuses.values() if s not in (0, UNFINISHED)]
    if bad:
        return 1 if 1 in bad or "hangs" in bad else 3
    if UNFINISHED in statuses.values():
        print("time is up; the same command goes on from here")
        return UNFINISHED
    return 0


if __name__ == "__main__":
    sys.exit(main())
