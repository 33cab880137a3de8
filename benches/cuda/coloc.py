#!/usr/bin/env python3
"""Co-locates programs on one GPU, as people run them, and compares what schedulers make of it.

  coloc.py [--bin DIR] [--out FILE] [--systems A,B] [--rounds N] [--secs S] [--quick] [--gpus N] [--deadline SECS]
           [MIX ...]

A MIX is roles joined by `+`, such as llm+train or bert-lc+bert-be*5; every role is a process of its own (roles.py says
what each does). Latency-critical roles serve requests at random times (Poisson; --arrivals regular: at a fixed rate),
at the same ones under all systems of a round. llm-low serves too, at class normal. Best-effort roles run flat out.
Systems:

  alone            the latency-critical role by itself    best-effort      all others by themselves
  native           all of them, nothing done              xsched           xsched run --priority high / normal / low
  xsched-time      the same, --share time                 xsched-pool      --share pool for all but the urgent one
  mps              a private CUDA MPS daemon              mps-prio         the same, with client priorities
  xsched-spatial   xsched run --share spatial             xsched-inside    the urgent one in the inner pool, too
  xsched-noflags   the same, no program with --priority   xsched-noyield   xsched-inside, XSCHED_YIELD=0: gates close

Under the last three the daemon has pool.urgent = "inside" and pool.proven_minutes = 0, so that every program is in the
inner pool that is not known as unsuitable; gemm shares by time, as programs do whose kernels were seen to be that long. Any
other program that is elsewhere is trouble: its windows are no result. Under the other systems an urgent program in a pool is
trouble: daemons begin with nothing learned, so that the default places none there. Not measured unless --systems asks for it: these three; xsched-spatial; xsched-pool, since xsched
chooses the pool by itself where it can be had; mps but for two mixes. sides.py measures the inside beside the outside.

--variant NAME='WORDS' adds one that is xsched with changes: options of `xsched run` (--level 1), environment
(NAME=VALUE, before options), the daemon's configuration (@budget_us=300, @pool.urgent=inside), its policy (policy:up), its
environment (daemon:NAME=VALUE), no priorities (class:none), an option of the urgent program alone (urgent:--slo=1.1x) or of
one role (of:llm-be:--level=2), a role that may be outside the inner pool (anywhere:llm-be), or another build in turns with
this one (bin:DIR). Programs of one MPS server that run side by side, ungated: --variant open='daemon:XSCHED_YIELD=0 --share
spatial'.

All processes of a mix, of all systems, are started at once and load in parallel; those that choose their algorithms by
measuring warm up one after the other, while nobody else works. Then the systems take turns, round by round, each in a
window of S seconds in which all others are idle; windows are such that all rounds of a system come to 1,000 requests,
or to 400 with their first tokens and 31 gaps between tokens each. --quick: a quarter of that. Best-effort programs by
themselves need no more than 10 s. An idle process keeps its memory: so all of a mix must fit at once. Before the start
it is said how much memory and how long each mix needs, about.

Windows are appended to FILE as they end, with every latency; those that are there already, of the same build, length
and arrivals, are not measured again. With --gpus N, N mixes run at a time, each on its own GPU. With --deadline, no
round is begun that would end later, and the exit status is 75: the same command goes on from there. --first-round N:
rounds with other random arrivals, to be put together with those that came before.

Figures are of all rounds together, with 95 % intervals (intervals.py says how), beside the median of the rounds. Rounds
whose `alone` is unlike that of the others, and windows in which the host took longer than alone for no reason of scheduling,
are marked as noisy and left out of the figures (figures.py says when); the tables tell how many, and why. FILE keeps all, and
--noisy shows all. So each round needs its own `alone`. Limits are those of limits.py: met if the interval ends within the limit, missed if it
begins beyond it, undecided else.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import limits
import machine
import records
import systems
from figures import BARE, pooled, rates, relative, summaries, summary, table  # noqa: F401: taken from here elsewhere
from limits import MIXES, PLAIN_MPS
from roles import AUTOTUNED, LOWER, RATES, ROLES, STREAMED
from systems import Deadline, Site, Trouble, Worker

DEFAULT_SYSTEMS = ("alone", "best-effort", "native", "mps-prio", "xsched-time", "xsched")
LEAD_S = 0.5  # best-effort work begins so much earlier than the window, which then opens in its midst
DRAIN_S = 0.7  # about how long what is queued at the end of a window takes
START_S = 300  # longest wait for a process to load or to warm up
REQUESTS = 1000  # for a P99, over all rounds
FIRST_TOKENS = 400  # the same of requests that are answered in tokens: each has many gaps between these
MARGIN = 1.03  # random arrivals: some may not be begun when the window ends
LEAST_S = 6.0  # of a window
LEAST_QUICK_S = 3.0
BEST_EFFORT_S = 10.0  # longest window of best-effort programs by themselves
QUICK = 4  # windows are so many times shorter
# GiB that a warm process keeps on the device, about, its context of half a GiB included.
MEMORY_GIB = {
    "rn18": 0.7,
    "bert-lc": 0.9,
    "decode": 0.8,
    "gen": 3.4,
    "llm": 2.6,
    "llm-low": 2.6,
    "rn50": 8.0,
    "gemm": 8.6,
    "bert-be": 0.9,
    "llm-be": 5.0,
    "train": 7.5,
    "jax": 1.5,
}


def parse_mix(spec):
    """Roles of a mix, in order."""
    roles = []
    for part in spec.split("+"):
        name, star, count = part.partition("*")
        if name not in ROLES or (star and not (count.isdigit() and int(count) > 0)):
            raise ValueError(f"{part!r} is no role: use {', '.join(ROLES)}, or ROLE*N for several")
        roles += [name] * int(count or 1)
    return roles


def kind(role):
    """`lc`, `be`, or the class of a role that serves requests without being the urgent one."""
    return LOWER.get(role) or ("lc" if role in RATES else "be")


def window_seconds(roles, rounds, arrivals="regular"):
    """Long enough for REQUESTS, or FIRST_TOKENS, of the slowest role that serves over all rounds, and to settle."""
    needed = [(FIRST_TOKENS if r in STREAMED else REQUESTS) / (RATES[r] * rounds) for r in roles if r in RATES]
    return max(LEAST_S, max(needed, default=0) * (MARGIN if arrivals == "poisson" else 1))


def length(name, roles, secs):
    """Seconds of one system's window: the others' length tells nothing more of what only runs flat out."""
    flat = name == "best-effort" and not any(kind(r) not in ("lc", "be") for r in roles)
    return min(secs, BEST_EFFORT_S) if flat else secs


def default_systems(mix, variants=()):
    """What is measured of a mix unless the user says otherwise."""
    return [*DEFAULT_SYSTEMS, *(("mps",) if mix in PLAIN_MPS else ()), *variants]


def started(names):
    """The systems that need processes of their own."""
    return list(dict.fromkeys("native" if name in BARE else name for name in names))


def start_seconds(roles, names):
    """About how long it takes until all processes of a mix are warm."""
    sets = len(started(names))
    return 25 + sets * sum(3 if role in AUTOTUNED else 1 for role in roles)


def round_seconds(roles, names, secs):
    """About how long a round takes: what is queued when a window ends has to end, too."""
    return sum(length(name, roles, secs) + LEAD_S + DRAIN_S for name in names)


def memory_gib(roles, names):
    """About how much memory the processes of all systems of a mix keep."""
    return len(started(names)) * sum(MEMORY_GIB[role] for role in roles)


def applicable(roles, names):
    """The systems that say something about this mix."""
    kinds = {kind(r) for r in roles}
    skip = {"alone"} if "lc" not in kinds else set() if kinds - {"lc"} else {"best-effort", "native"}
    return [n for n in names if n not in skip]


def open_windows(mix, names, numbers, recorded):
    """(round, system) still to be measured, in the order of measuring: every round begins with another system."""
    order = []
    for number in numbers:
        turned = names[number % len(names) :] + names[: number % len(names)]
        order += [(number, name) for name in turned if (mix, name, number) not in recorded]
    return order


class Set:
    """The processes of a mix as one system starts them."""

    def __init__(self, site, system, mix, worker, log):
        self.site, self.system, self.workers = site, system, []
        try:
            for index, role in enumerate(parse_mix(mix)):
                command, env = site.command(system, kind(role), [sys.executable, *worker, role])
                self.workers.append(Worker(role, command, env, log / f"{system}-{index}-{role}.err", kind=kind(role)))
        except BaseException:
            self.close()
            raise

    def imported(self):
        for worker in self.workers:
            worker.expect("IMPORTED", START_S)

    def warm(self, tuned=True, others=True):
        """Both kinds, or one: those that choose their algorithms by measuring, and the others."""
        chosen = [w for w in self.workers if (tuned if w.name in AUTOTUNED else others)]
        systems.warm(chosen, AUTOTUNED, START_S)

    def memory(self):
        """What each process says that it keeps, in short."""
        return ", ".join(f"{w.name} {w.memory_mib / 1024:.1f}" for w in self.workers if w.memory_mib)

    def window(self, secs, only=None, arrivals="regular", number=0):
        """One window, of all kinds or only these; what each process says of it. Random arrivals follow from the number
        of the round and the place of the role in the mix."""
        working = [(i, w) for i, w in enumerate(self.workers) if only is None or kind(w.name) in only]
        before = self.site.gate_waits(self.system)
        start = time.monotonic() + LEAD_S
        for index, worker in working:
            order = f"flat {start:.6f} {start + secs:.6f} 0"
            if worker.name in RATES:
                mode, seed = ("poisson", f" {1000 * number + index}") if arrivals == "poisson" else ("paced", "")
                order = f"{mode} {start:.6f} {start + secs:.6f} {RATES[worker.name]}{seed}"
            worker.send(f"go {order}")
        found = [json.loads(worker.expect("RESULT", secs + 120)) for _, worker in working]
        self.site.require_seen(self.system, [worker for _, worker in working])
        after = self.site.gate_waits(self.system)
        for said, (_, worker) in zip(found, working):
            said["kind"] = worker.kind
            if worker.process.pid in after:
                pid = worker.process.pid
                said["gate_ms"] = round(after[pid] - before.get(pid, 0.0), 3)
            if worker.memory_mib:
                said["memory_mib"] = worker.memory_mib
        return found

    def close(self):
        systems.end_all(self.workers)


def plan(mix, args):
    """Roles, systems and length of the windows of a mix."""
    roles = parse_mix(mix)
    names = applicable(roles, args.names or default_systems(mix, args.variants))
    secs = window_seconds(roles, args.rounds, args.arrivals)
    secs = max(LEAST_QUICK_S, secs / QUICK) if args.quick else secs
    return roles, names, args.secs or round(secs, 2)


def still_open(mix, args):
    """(round, system) of a mix still to be measured."""
    _, names, secs = plan(mix, args)
    key = (secs, args.build, args.arrivals)
    recorded = {
        (r["mix"], r["system"], r["round"])
        for r in records.load(args.out)
        if r.get("bench") == "coloc" and (r["secs"], r["build"], r.get("arrivals", "regular")) == key
    }
    return open_windows(mix, names, range(args.first_round, args.first_round + args.rounds), recorded)


def estimate(mix, args):
    """About how many seconds what is open of a mix will take."""
    roles, _, secs = plan(mix, args)
    order = still_open(mix, args)
    names = [name for _, name in order]
    return start_seconds(roles, names) + round_seconds(roles, names, secs) if order else 0


def spread_over(seconds, gpus):
    """How long jobs take that are begun in this order, each as soon as a GPU is free."""
    busy = [0] * gpus
    for one in seconds:
        busy[busy.index(min(busy))] += one
    return max(busy)


def announce(args):
    """Says what will be measured, and about how long it takes."""
    seconds = []
    for mix in args.mixes:
        roles, names, secs = plan(mix, args)
        order = still_open(mix, args)
        seconds.append(estimate(mix, args))
        print(
            f"coloc: {mix}: {len(order)} windows of {secs:g} s ({', '.join(names)}): about {seconds[-1]:.0f} s, "
            f"{memory_gib(roles, names):.0f} GiB",
            file=sys.stderr,
        )
        if "alone" not in names and any(kind(r) == "lc" for r in roles):
            print(f"coloc: {mix}: without `alone` no round can be told from a noisy one", file=sys.stderr)
    total = spread_over(seconds, args.gpus)
    print(f"coloc: about {total:.0f} s in all, {args.gpus} mixes at a time", file=sys.stderr, flush=True)


def measure(mix, args, site, log, deadline):
    """Measures what is missing of one mix. Gives whether there was time for all, and what went wrong."""
    roles, names, secs = plan(mix, args)
    order = still_open(mix, args)
    if not order:
        return True, []
    by_round = {number: [name for n, name in order if n == number] for number, _ in order}
    first = next(iter(by_round.values()))
    if not deadline.allows(start_seconds(roles, [n for _, n in order]) + round_seconds(roles, first, secs)):
        return False, []
    sets, troubles = {}, {}

    def each(step):
        """One step for every system; one that fails is left out, the others are measured all the same."""
        for name in started(n for _, n in order):
            if name not in troubles:
                try:
                    step(name)
                except (Trouble, RuntimeError, OSError) as error:
                    troubles[name] = f"{mix}, {name}: {error}"
                    print(f"coloc: {troubles[name]}", file=sys.stderr, flush=True)
                    if name in sets:
                        sets[name].close()

    def start(name):
        sets[name] = Set(site, name, mix, args.worker, log)

    begun = time.monotonic()
    try:
        each(start)
        each(lambda name: sets[name].imported())
        each(lambda name: sets[name].warm(others=False))
        each(lambda name: sets[name].warm(tuned=False))
        held = "; ".join(f"{name}: {said}" for name, said in ((n, one.memory()) for n, one in sets.items()) if said)
        held = f", GiB without contexts: {held}" if held else ""
        print(f"{mix}: warm after {time.monotonic() - begun:.0f} s{held}", file=sys.stderr, flush=True)
        for number, turn in by_round.items():
            # Systems are compared within a round: one that cannot be ended is not begun.
            if not deadline.allows(round_seconds(roles, turn, secs)):
                return False, list(troubles.values())
            for name in turn:
                of = "native" if name in BARE else name
                if of in troubles:
                    continue
                try:
                    said = sets[of].window(length(name, roles, secs), BARE.get(name), args.arrivals, number)
                except (Trouble, RuntimeError, OSError) as error:
                    troubles[of] = f"{mix}, {name}: {error}"
                    print(f"coloc: {troubles[of]}", file=sys.stderr, flush=True)
                    sets[of].close()
                    continue
                record = dict(
                    bench="coloc",
                    mix=mix,
                    system=name,
                    round=number,
                    secs=secs,
                    window_s=length(name, roles, secs),
                    arrivals=args.arrivals,
                    run=args.run,
                    gpu=site.gpu or 0,
                    at=round(time.time(), 1),
                    build=args.build,
                    roles=said,
                    seen=site.seen(name),
                )
                records.append(args.out, record)
                print(f"{mix} {name} {number - args.first_round + 1}/{args.rounds}: {brief(said)}", file=sys.stderr, flush=True)
        return True, list(troubles.values())
    finally:
        for one in sets.values():
            one.close()
        if args.stats:
            keep_stats(mix, args, sets)


def keep_stats(mix, args, sets):
    """What each program of xsched said of itself at its end."""
    for name, one in sets.items():
        for worker in one.workers:
            for said in records.load(worker.stats) if worker.stats else ():
                records.append(args.out, dict(bench="stats", mix=mix, system=name, role=worker.name, run=args.run, build=args.build, said=said))


def brief(roles):
    """One window in a line."""
    parts = []
    for role in roles:
        if "latency_ms" in role and role["latency_ms"]:
            found = records.latencies(role["latency_ms"])
            text = f"{role['role']} {found['p50']:.2f}/{found['p99']:.2f} ms"
            if role.get("gap_ms"):
                gaps, first = records.latencies(role["gap_ms"]), records.latencies(role["first_ms"])
                text += f" (token gap {gaps['p50']:.2f}/{gaps['p99']:.2f}"
                text += f", first token P90 {first['p90']:.1f})"
            parts.append(text)
        elif "per_s" in role:
            parts.append(f"{role['role']} {role['per_s']:.1f}/s")
    return ", ".join(parts)


# ---- command ---------------------------------------------------------------------------------------------------------


def run_all(args):
    """All mixes, as many at a time as there are GPUs."""
    todo, lock, outcome = list(args.mixes), threading.Lock(), {"finished": True, "trouble": []}
    deadline = Deadline(args.deadline)

    def serve(index):
        gpu = None if args.gpus == 1 and args.first_gpu == 0 else args.first_gpu + index
        while True:
            with lock:
                if not todo:
                    return
                mix = todo.pop(0)
            try:
                with tempfile.TemporaryDirectory(prefix="xsched-coloc-") as work, Site(
                    args.bin, work, gpu, args.variants
                ) as site:
                    finished, troubles = measure(mix, args, site, Path(work), deadline)
                with lock:
                    outcome["finished"] &= finished
                    outcome["trouble"] += troubles
            except (Trouble, RuntimeError, OSError) as error:
                outcome["trouble"].append(f"{mix}: {error}")

    threads = [threading.Thread(target=serve, args=(i,), daemon=True) for i in range(args.gpus)]
    if args.gpus == 1:
        serve(0)  # in this thread, where signals arrive
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return outcome


def natural(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("a number from 1 on is needed")
    return value


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=systems.default_bin(), help="folder of xsched and libxsched.so")
    parser.add_argument("--out", type=Path, default=Path("coloc.jsonl"), help="JSON lines to add to [%(default)s]")
    usual = f"{','.join(DEFAULT_SYSTEMS)}, and mps for {' and '.join(PLAIN_MPS)}"
    parser.add_argument("--systems", help=f"separated by commas [{usual}]")
    systems.add_variants(parser)
    parser.add_argument("--rounds", type=natural, default=5)
    parser.add_argument("--first-round", type=int, default=0, metavar="N", help="number of the first of them")
    parser.add_argument("--secs", type=float, help=f"of a window [so that there are {REQUESTS} requests, at least 6]")
    parser.add_argument("--quick", action="store_true", help="windows of a quarter of that length")
    parser.add_argument("--arrivals", choices=("poisson", "regular"), default="poisson", help="[%(default)s]")
    parser.add_argument("--gpus", type=natural, default=1)
    parser.add_argument("--first-gpu", type=int, default=0)
    parser.add_argument("--deadline", type=float, metavar="SECS", help="end after so long, to be continued")
    parser.add_argument("--stats", action="store_true", help="also record what each program of xsched says of itself at its end")
    parser.add_argument("--worker", default=str(systems.HERE / "roles.py"), help=argparse.SUPPRESS)
    parser.add_argument("--summary", action="store_true", help="only print the tables of what FILE holds")
    parser.add_argument("--noisy", action="store_true", help="show windows that are marked as noisy, too")
    parser.add_argument("mixes", nargs="*", default=list(limits.ALL), metavar="MIX")
    args = parser.parse_args(words)
    args.worker = [args.worker]
    args.build = machine.build(args.bin)
    args.run = f"{time.time():.0f}-{os.getpid()}"
    args.variants = systems.variants_of(parser, args)
    known = dict.fromkeys(("alone", "best-effort", *systems.KNOWN, *args.variants))
    args.names = args.systems.split(",") if args.systems else None
    unknown = [n for n in args.names or () if n not in known]
    if unknown:
        parser.error(f"--systems: {unknown[0]!r} is unknown: use {', '.join(known)}")
    try:
        for mix in args.mixes:
            parse_mix(mix)
    except ValueError as error:
        parser.error(str(error))
    return args


def main():
    args = arguments()
    systems.end_on_signals()
    outcome = {"finished": True, "trouble": []}
    if not args.summary:
        machine.record(args.out, args.bin)
        announce(args)
        outcome = run_all(args)
    for mix, found in summaries(args.out, leave_out=not args.noisy).items():
        arrivals = f", {found['arrivals']} arrivals" if "arrivals" in found else ""
        print(f"\n{mix}: time left {found['time_left']}{arrivals}\n\n{table(found)}")
    for line in outcome["trouble"]:
        print(f"coloc: {line}", file=sys.stderr)
    if outcome["trouble"]:
        return 3
    if not outcome["finished"]:
        print("coloc: time is up; the same command goes on from here", file=sys.stderr)
        return systems.UNFINISHED
    return 0


if __name__ == "__main__":
    sys.exit(main())
