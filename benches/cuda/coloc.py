#!/usr/bin/env python3
"""Co-locates PyTorch programs on one GPU and compares what schedulers make of it.

  coloc.py [--bin DIR] [--out FILE] [--systems A,B] [--rounds N] [--secs S] [MIX ...]

A MIX is roles joined by `+`, such as rn18+rn50 or bert-lc+bert-be*5; every role is a process of its own.
Latency-critical roles serve requests at a fixed rate, best-effort roles run flat out. Systems:

  alone            the latency-critical role by itself           best-effort     the best-effort roles by themselves
  native           all of them, nothing done                     xsched          xsched run --priority high / low
  mps              a private CUDA MPS daemon                     mps-prio        the same, with client priorities
  xsched-spatial   xsched run --share spatial

--variant NAME='WORDS' adds one that is xsched with changes: options of `xsched run` (--level 1), environment
(NAME=VALUE, before options), the daemon's configuration (@budget_us=300), its policy (policy:up), or another build in
turns with this one (bin:DIR).

All processes of a mix, of all systems, are started at once and load in parallel; those that choose their algorithms by
measuring warm up one after the other, while nobody else works. Then the systems take turns, round by round, each in a window of
S seconds in which all others are idle. Windows are appended to FILE as they end, with every latency; those that are
there already, of the same build and length, are not measured again. With --gpus N, N mixes run at a time, each on its
own GPU. With --deadline, no window is begun that would end later, and the exit status is 75: the same command goes on
from there.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import machine
import records
import systems
from roles import AUTOTUNED, RATES, ROLES
from systems import Deadline, Site, Trouble, Variant, Worker

MIXES = ("rn18+rn50", "rn18+gemm", "bert-lc+bert-be*5", "bert-lc+rn50+gemm")
DEFAULT_SYSTEMS = ("alone", "best-effort", "native", "xsched", "mps", "mps-prio", "xsched-spatial")
BARE = {"alone": "lc", "best-effort": "be", "native": None}  # served by the same processes; which kind of them works
LEAD_S = 0.5  # best-effort work begins so much earlier than the window, which then opens in its midst
START_S = 300  # longest wait for a process to load or to warm up
REQUESTS = 1000  # for a P99, over all rounds


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
    return "lc" if role in RATES else "be"


def window_seconds(roles, rounds):
    """Long enough for REQUESTS of the slowest latency-critical role over all rounds, and to settle."""
    rates = [RATES[r] for r in roles if r in RATES]
    return max(6.0, REQUESTS / (min(rates) * rounds) if rates else 0)


def applicable(roles, names):
    """The systems that say something about this mix."""
    kinds = {kind(r) for r in roles}
    skip = {"alone"} if "lc" not in kinds else set() if "be" in kinds else {"best-effort", "native"}
    return [n for n in names if n not in skip]


def open_windows(mix, names, rounds, recorded):
    """(round, system) still to be measured, in the order of measuring: every round begins with another system."""
    order = []
    for number in range(rounds):
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
                self.workers.append(Worker(role, command, env, log / f"{system}-{index}-{role}.err"))
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

    def window(self, secs, only=None):
        """One window; what each process says of it."""
        working = [w for w in self.workers if only in (None, kind(w.name))]
        start = time.monotonic() + LEAD_S
        for worker in working:
            mode, rate = ("paced", RATES[worker.name]) if worker.name in RATES else ("flat", 0)
            worker.send(f"go {mode} {start:.6f} {start + secs:.6f} {rate}")
        found = [json.loads(worker.expect("RESULT", secs + 120)) for worker in working]
        self.site.require_seen(self.system, working)
        return found

    def close(self):
        systems.end_all(self.workers)


def measure(mix, names, args, site, log, deadline):
    """Measures what is missing of one mix. Gives whether there was time for all, and what went wrong."""
    rounds, roles = args.rounds, parse_mix(mix)
    names = applicable(roles, names)
    secs = args.secs or window_seconds(roles, rounds)
    recorded = records.done(args.out, "mix", "system", "round", "secs", "build")
    recorded = {key[:3] for key in recorded if key[3:] == (secs, args.build)}
    order = open_windows(mix, names, rounds, recorded)
    if not order:
        return True, []
    if not deadline.allows(60 + secs):
        return False, []
    sets, troubles = {}, {}

    def each(step):
        """One step for every system; one that fails is left out, the others are measured all the same."""
        for name in dict.fromkeys("native" if n in BARE else n for _, n in order):
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

    try:
        each(start)
        each(lambda name: sets[name].imported())
        each(lambda name: sets[name].warm(others=False))
        each(lambda name: sets[name].warm(tuned=False))
        for number, name in order:
            of = "native" if name in BARE else name
            if of in troubles:
                continue
            if not deadline.allows(secs + 2):
                return False, list(troubles.values())
            try:
                said = sets[of].window(secs, BARE.get(name))
            except (Trouble, RuntimeError, OSError) as error:
                troubles[of] = f"{mix}, {name}: {error}"
                sets[of].close()
                continue
            record = dict(
                bench="coloc",
                mix=mix,
                system=name,
                round=number,
                secs=secs,
                gpu=site.gpu or 0,
                at=round(time.time(), 1),
                build=args.build,
                roles=said,
                seen=site.seen(name),
            )
            records.append(args.out, record)
            print(f"{mix} {name} {number + 1}/{rounds}: {brief(record['roles'])}", file=sys.stderr, flush=True)
        return True, list(troubles.values())
    finally:
        for one in sets.values():
            one.close()


def brief(roles):
    """One window in a line."""
    parts = []
    for role in roles:
        if "latency_ms" in role and role["latency_ms"]:
            found = records.latencies(role["latency_ms"])
            parts.append(f"{role['role']} {found['p50']:.2f}/{found['p99']:.2f} ms")
        elif "per_s" in role:
            parts.append(f"{role['role']} {role['per_s']:.1f}/s")
    return ", ".join(parts)


# ---- summary ---------------------------------------------------------------------------------------------------------


def pooled(windows, what="latency_ms"):
    """All latencies of the latency-critical roles of these windows, or what else is known of each request, in ms."""
    return [v for w in windows for r in w["roles"] for v in r.get(what, [])]


def parts(windows):
    """What requests consist of, host and wait: P50 and P99 of the time in which their commands were given, and of that in
    which the device was waited for afterwards. Older records do not tell."""
    whole, waits = pooled(windows), pooled(windows, "wait_ms")
    if not waits or len(waits) != len(whole):
        return {}
    found = {"host": [a - b for a, b in zip(whole, waits)], "wait": waits}
    return {k: {f"p{p}": round(records.percentile(v, p / 100), 4) for p in (50, 99)} for k, v in found.items()}


def rates(windows):
    """Best-effort role -> items per second of its processes together, median of the windows."""
    found = {}
    for window in windows:
        sums = {}
        for role in window["roles"]:
            if "per_s" in role:
                sums[role["role"]] = sums.get(role["role"], 0.0) + role["per_s"]
        for name, value in sums.items():
            found.setdefault(name, []).append(value)
    return {name: records.median(values) for name, values in found.items()}


def relative(now, base):
    """Mean of the roles' rates, each relative to its base."""
    parts = [now[r] / base[r] for r in now if base.get(r)]
    return sum(parts) / len(parts) if parts else None


def rounded(value, digits=4):
    return None if value is None else round(value, digits)


def summary(windows):
    """The figures of one mix, by system, with what they are derived from."""
    by = {}
    for window in windows:
        by.setdefault(window["system"], []).append(window)
    alone, base = pooled(by.get("alone", [])), rates(by.get("best-effort", []))
    busy = None
    if alone:
        rate = sum(r["rate"] for r in by["alone"][0]["roles"])
        busy = rate * records.percentile(alone, 0.5) / 1e3
    result = {"time_left": rounded(None if busy is None else 1 - busy), "best_effort_alone_per_s": base, "systems": {}}
    alone_by_round = {w["round"]: pooled([w]) for w in by.get("alone", [])}
    for name, mine in by.items():
        row = {"windows": len(mine)}
        found = pooled(mine)
        if found:
            row.update(records.latencies(found), **parts(mine))
            if alone:
                row["p99_to_alone"] = rounded(records.percentile(found, 0.99) / records.percentile(alone, 0.99))
                row["p50_to_alone"] = rounded(records.percentile(found, 0.5) / records.percentile(alone, 0.5))
            pairs = [(pooled([w]), alone_by_round[w["round"]]) for w in mine if alone_by_round.get(w["round"])]
            pairs = [records.percentile(a, 0.99) / records.percentile(b, 0.99) for a, b in pairs if a]
            if pairs:
                row["p99_to_alone_by_round"] = records.spread(pairs)
        now = rates(mine)
        if now:
            row["best_effort_per_s"] = {k: rounded(v, 2) for k, v in now.items()}
            kept = relative(now, base)
            if kept is not None and busy is not None and busy < 1:
                row["best_effort_of_time_left"] = rounded(kept / (1 - busy))
                row["best_effort_of_target"] = rounded(kept / (0.95 * (1 - busy)))
            for other in ("native", "mps-prio"):
                if other in by:
                    row[f"best_effort_to_{other}"] = rounded(relative(now, rates(by[other])))
        result["systems"][name] = row
    return result


HEAD = (
    "system",
    "P50 ms",
    "P99 ms",
    "max ms",
    "n",
    "P99 to alone",
    "by round",
    "host's part, P50 / P99",
    "waiting, P50 / P99",
    "best-effort per s",
    "of the time left",
)


def table(found):
    """A summary as Markdown."""
    rows = []
    for name, row in found["systems"].items():
        by_round = row.get("p99_to_alone_by_round")
        by_round = f"{by_round['min']:.2f}–{by_round['max']:.2f}" if by_round else None
        per_s = ", ".join(f"{k} {v:.1f}" for k, v in row.get("best_effort_per_s", {}).items()) or None
        host, wait = ("{p50:.2f} / {p99:.2f}".format(**row[k]) if k in row else None for k in ("host", "wait"))
        left = row.get("best_effort_of_time_left")
        rows.append(
            (
                name,
                row.get("p50"),
                row.get("p99"),
                row.get("max"),
                row.get("n"),
                row.get("p99_to_alone"),
                by_round,
                host,
                wait,
                per_s,
                None if left is None or name in BARE and name != "native" else f"{100 * left:.1f} %",
            )
        )
    return records.table(HEAD, rows)


def summaries(path):
    """Mix -> summary of what a file holds of the build and window length measured last."""
    by = {}
    for record in records.load(path):
        if record.get("bench") == "coloc":
            by.setdefault(record["mix"], []).append(record)
    same = ("build", "secs")
    by = {mix: [w for w in found if all(w[k] == found[-1][k] for k in same)] for mix, found in by.items()}
    return {mix: summary(found) for mix, found in by.items()}


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
                    finished, troubles = measure(mix, args.names, args, site, Path(work), deadline)
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
    parser.add_argument("--systems", default=None, help=f"separated by commas [{','.join(DEFAULT_SYSTEMS)}]")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=WORDS")
    parser.add_argument("--rounds", type=natural, default=5)
    parser.add_argument("--secs", type=float, help=f"of a window [so that there are {REQUESTS} requests, at least 6]")
    parser.add_argument("--gpus", type=natural, default=1)
    parser.add_argument("--first-gpu", type=int, default=0)
    parser.add_argument("--deadline", type=float, metavar="SECS", help="end after so long, to be continued")
    parser.add_argument("--worker", default=str(systems.HERE / "roles.py"), help=argparse.SUPPRESS)
    parser.add_argument("--summary", action="store_true", help="only print the tables of what FILE holds")
    parser.add_argument("mixes", nargs="*", default=list(MIXES), metavar="MIX")
    args = parser.parse_args(words)
    args.worker = [args.worker]
    args.build = machine.build(args.bin)
    try:
        args.variants = {n: Variant(w) for n, w in (v.split("=", 1) for v in args.variant)}
    except ValueError:
        parser.error("--variant: use NAME='WORDS'")
    args.names = (args.systems or ",".join((*DEFAULT_SYSTEMS, *args.variants))).split(",")
    unknown = [n for n in args.names if n not in (*DEFAULT_SYSTEMS, *args.variants)]
    if unknown:
        parser.error(f"--systems: {unknown[0]!r} is unknown: use {', '.join((*DEFAULT_SYSTEMS, *args.variants))}")
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
        outcome = run_all(args)
    for mix, found in summaries(args.out).items():
        print(f"\n{mix}: time left {found['time_left']}\n\n{table(found)}")
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
