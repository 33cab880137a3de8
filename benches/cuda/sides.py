#!/usr/bin/env python3
"""The urgent program inside the pool beside the same outside of it, MPS and nothing done: one mix, one table.

  sides.py MIX [--bin DIR] [--out FILE] [--deadline SECS] [--rounds N] [--secs S] [--first-gpu N] [--svg PICTURE]
           [--systems A,B] [--variant NAME='WORDS'] [--plan] [--summary]

Measures by coloc.py (its windows, records and words) the systems alone, best-effort, native, mps-prio, xsched (outside) and
xsched-inside; for some mixes xsched-noflags, and for bert-lc+bert-be*5 xsched-noyield. Rounds and the length of windows are such that
all of it ends within --deadline (540 s), 5 rounds where these have 3 s at least. What FILE has of this build is kept, and its length
of windows, so that the same command goes on after exit status 75. --plan says what would be measured, and measures nothing.

All programs of all systems of a run keep their memory. Where those of a mix do not fit on one GPU, there are two runs one after the
other, each with `alone` and `best-effort` and with rounds of its own: a system is compared with `alone` of its own rounds.

A row for each system, of all rounds but those that are marked as noisy (figures.py says when):

  device wait beyond alone         of requests; P99 of a sum of waits where an answer comes in tokens
  request to alone, host's part    beside it: the host's part is no work of a scheduler
  token gap, first token           relative to alone; gaps also by nothing but the wait that comes to alone's
  best-effort work                 per s, relative to that without the urgent program (the mean of the roles), to that under MPS with
                                   priorities, to that with the urgent program outside, and with classes (xsched-inside)

then what the targets of limits.py (SIDES) come to, and what was left out. --svg draws work against wait (curve.py).
"""

import argparse
import sys
import time
from pathlib import Path

import coloc
import curve
import figures
import limits
import machine
import records
import systems

# First those that are compared most: they are in the same run where not all fit.
COMPARED = ("xsched", "xsched-inside", "mps-prio")
MORE = {mix: ("xsched-noflags",) for mix, by in limits.SIDES.items() if "xsched-noflags" in by}
MORE["bert-lc+bert-be*5"] = (*MORE["bert-lc+bert-be*5"], "xsched-noyield")
BASES = ("alone", "best-effort")  # in every run
MOST_GIB = 66  # of all processes of a run, by coloc.py's estimate, on a GPU of 80 GB
ROUNDS, LEAST_ROUNDS = 5, 3
SPARE = 0.95  # of the deadline: estimates are rough


def runs(mix, names):
    """The systems of each run: as many at once as fit."""
    roles = coloc.parse_mix(mix)
    names = coloc.applicable(roles, names)
    bases = [n for n in names if n in BASES]
    rest, found = [n for n in names if n not in BASES], []
    while rest:
        mine = list(bases)
        for name in list(rest):
            # The bases have processes of their own, which `native` shares.
            if not mine[len(bases) :] or coloc.memory_gib(roles, [*mine, name]) <= MOST_GIB:
                mine.append(name)
                rest.remove(name)
        found.append(mine)
    return found or [bases]


def schedule(mix, groups, deadline, rounds=None):
    """Rounds and seconds of a window with which all runs of a mix end in time; None where none do."""
    roles = coloc.parse_mix(mix)
    starts = sum(coloc.start_seconds(roles, names) for names in groups)
    windows = sum(len(names) for names in groups)
    for number in [rounds] if rounds else range(ROUNDS, LEAST_ROUNDS - 1, -1):
        secs = (SPARE * deadline - starts) / (number * windows) - coloc.LEAD_S - coloc.DRAIN_S
        if secs >= coloc.LEAST_QUICK_S:
            return number, round(min(secs, coloc.window_seconds(roles, number, "poisson")), 1)
    return None


def known(path, mix, build):
    """Rounds and seconds of a window that a file has of this build, as the last command planned them; None if it has none."""
    mine = [r for r in records.load(path) if r.get("bench") == "sides" and (r["mix"], r["build"]) == (mix, build)]
    return (mine[-1]["rounds"], mine[-1]["secs"]) if mine else None


def report(args):
    """Prints the table, and draws the picture."""
    found = figures.summaries(args.out).get(args.mix)
    if not found:
        print(f"sides: {args.out} has nothing of {args.mix}", file=sys.stderr)
        return
    print(f"\n{args.mix}: time left {found['time_left']}\n\n{figures.sides_table(found)}")
    if args.svg:
        try:
            args.svg.write_text(curve.picture(args.mix, found))
        except ValueError as error:
            print(f"sides: no picture: {error}", file=sys.stderr)


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mix", metavar="MIX", help=", ".join(limits.SIDES))
    parser.add_argument("--bin", default=systems.default_bin(), help="folder of xsched and libxsched.so")
    parser.add_argument("--out", type=Path, default=Path("sides.jsonl"), help="JSON lines to add to [%(default)s]")
    parser.add_argument("--deadline", type=float, default=540, metavar="SECS", help="[%(default)s]")
    parser.add_argument("--rounds", type=coloc.natural, help=f"[{ROUNDS}]")
    parser.add_argument("--secs", type=float, help="of a window [as long as there is time for]")
    parser.add_argument("--first-gpu", type=int, default=0)
    parser.add_argument("--systems", help="separated by commas, instead of the usual ones")
    systems.add_variants(parser)
    parser.add_argument("--svg", type=Path, metavar="PICTURE")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--summary", action="store_true", help="only print the table of what FILE holds")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    try:
        coloc.parse_mix(args.mix)
    except ValueError as error:
        parser.error(str(error))
    usual = [*BASES, "native", *COMPARED, *MORE.get(args.mix, ())]
    names = args.systems.split(",") if args.systems else usual
    names += [n for n in systems.variants_of(parser, args) if n not in names]
    args.groups = runs(args.mix, names)
    args.build = machine.build(args.bin)
    # What was asked for counts, else what was begun with, else what there is time for.
    old = known(args.out, args.mix, args.build) or (None, None)
    args.rounds = args.rounds or old[0]
    args.secs = args.secs or (old[1] if args.rounds == old[0] else None)
    if not (args.rounds and args.secs):
        found = schedule(args.mix, args.groups, args.deadline, args.rounds)
        if not found and not args.summary:
            parser.error(f"--deadline {args.deadline:g}: too short for {args.mix}")
        args.rounds, args.secs = found[0] if found else args.rounds, args.secs or (found and found[1])
    return args


def of_run(args, number, names, left):
    """The arguments of coloc.py for one run."""
    words = [args.mix, "--bin", args.bin, "--out", args.out, "--systems", ",".join(names), "--rounds", args.rounds]
    words += ["--first-round", number * args.rounds, "--secs", args.secs, "--deadline", f"{left:.0f}", "--first-gpu", args.first_gpu]
    for variant in args.variant:
        words += ["--variant", variant]
    return coloc.arguments([str(w) for w in (*words, *(["--worker", args.worker] if args.worker else []))])


def main():
    args, begin = arguments(), time.monotonic()
    if args.summary:
        report(args)
        return 0
    systems.end_on_signals()
    found = [of_run(args, n, names, args.deadline) for n, names in enumerate(args.groups)]
    for one in found:
        coloc.announce(one)
    if args.plan:
        return 0
    machine.record(args.out, args.bin)
    if known(args.out, args.mix, args.build) != (args.rounds, args.secs):
        records.append(args.out, dict(bench="sides", mix=args.mix, build=args.build, rounds=args.rounds, secs=args.secs))
    trouble, finished = [], True
    for number, names in enumerate(args.groups):
        outcome = coloc.run_all(of_run(args, number, names, args.deadline - (time.monotonic() - begin)))
        trouble += outcome["trouble"]
        finished &= outcome["finished"]
    report(args)
    for line in trouble:
        print(f"sides: {line}", file=sys.stderr)
    if not trouble and not finished:
        print("sides: time is up; the same command goes on from here", file=sys.stderr)
    return 3 if trouble else 0 if finished else systems.UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
