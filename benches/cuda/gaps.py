#!/usr/bin/env python3
"""What the slice and the budgets of a pool do to the gap between the tokens of a language model that serves.

  gaps.py [--bin DIR] [--out FILE] [--gpu N] [--quick] [--beside ROLE,…] [--rate N] [--seconds S] [--variant NAME=WORDS ...]

Each variant has a daemon and programs of its own; all load at once. Then, variant by variant, the model serves alone,
and beside the best-effort roles that work flat out; then each of these by itself. Without --variant: `time` (--share time), `pool` (as it is), and pools
with other slices and budgets. --variant is as that of coloc.py. Where the graphs of a best-effort role got no gates, the
record says why: their whole length is then in flight.
"""

import json
import sys
import time

import records
import systems
import units
from systems import Variant, Worker

VARIANTS = {
    "time": "--share time",
    "pool": "",
    "pool, slice 250": "@pool.timeslice_us=250",
    "pool, slice 500": "@pool.timeslice_us=500",
    "pool, slice 2000": "@pool.timeslice_us=2000",
    "pool, budget 500": "@pool.budget_us=500",
}
SERVES = "llm"
START_S = 200
SEED = 7


class Set:
    """The programs of one variant."""

    def __init__(self, site, name, beside):
        self.site, self.name, self.workers = site, name, []
        for index, role in enumerate((SERVES, *beside)):
            kind = "lc" if role == SERVES else "be"
            command, env = site.command(name, kind, [sys.executable, systems.HERE / "roles.py", role])
            self.workers.append(Worker(role, command, env, site.work / f"{name}-{index}.err"))

    def window(self, rate, seconds, beside):
        """Figures of one window of the model, and items per second of those beside it."""
        start = time.monotonic() + 1.5
        working = self.workers[1:] if beside else []
        for worker in working:
            worker.send(f"go flat {start - 1.2:.3f} {start + seconds:.3f} 0")
        self.workers[0].send(f"go poisson {start:.3f} {start + seconds:.3f} {rate} {SEED}")
        if working:
            time.sleep(max(start + 0.1 * seconds - time.monotonic(), 0))
        before = self.counts()
        time.sleep(max(start + 0.9 * seconds - time.monotonic(), 0))
        after = self.counts()
        said = json.loads(self.workers[0].expect("RESULT", seconds + 60))
        found = {name: records.latencies(flat(said[name])) for name in ("gap_ms", "first_ms", "latency_ms")}
        found["raw"] = {name: said[name] for name in ("gap_ms", "first_ms", "latency_ms", "queued_ms")}
        found["speed"] = {w.name: speed(before[w.process.pid], after[w.process.pid]) for w in working}
        found["per_s"] = {w.name: json.loads(w.expect("RESULT", seconds + 60))["per_s"] for w in working}
        return found

    def alone(self, worker, seconds):
        """Items per second of one best-effort program that nothing works beside, and µs for a command of it."""
        start = time.monotonic() + 0.3
        worker.send(f"go flat {start:.3f} {start + seconds:.3f} 0")
        time.sleep(max(start + 0.3 * seconds - time.monotonic(), 0))
        began, first = self.counts()[worker.process.pid]
        time.sleep(max(start + 0.9 * seconds - time.monotonic(), 0))
        ended, last = self.counts()[worker.process.pid]
        per_s = json.loads(worker.expect("RESULT", seconds + 60))["per_s"]
        launches = last["launches"] - first["launches"]
        return {"per_s": per_s, "command_us": round((ended - began) / max(launches, 1) * 1e6, 2)}

    def counts(self):
        """When what the daemon says of each program was asked for, and its group."""
        return {p["pid"]: (time.monotonic(), p["groups"][0]) for p in self.site.seen(self.name) if p["groups"]}

    def end(self):
        """Ends all; what became of their graphs."""
        systems.end_all(self.workers)
        stats = {worker.name: records.load(worker.stats) for worker in self.workers}
        return {name: line["graphs"] for name, lines in stats.items() for line in lines if "graphs" in line}


def speed(before, after):
    """Of what a program in a pool would do alone, as the daemon knows it: the part, and µs for a command alone."""
    (began, first), (ended, last) = before, after
    alone_us = last.get("alone_us")
    done = last["completed"] - first["completed"]
    return {"commands": done, "alone_us": alone_us, "part": alone_us and round(done * alone_us / (ended - began) / 1e6, 3)}


def flat(values):
    """A list of lists as one list."""
    return [v for entry in values for v in (flat(entry) if isinstance(entry, list) else [entry])]


def main():
    parser = units.parser(__doc__, "gaps.jsonl")
    parser.add_argument("--beside", default="train,llm-be", metavar="ROLE,…", help="best-effort roles [%(default)s]")
    parser.add_argument("--rate", type=float, default=8.0, help="requests per second [%(default)s]")
    parser.add_argument("--seconds", type=float, default=6.0, help="of a window [%(default)s]")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=WORDS")
    args = parser.parse_args()
    try:
        chosen = dict(v.split("=", 1) for v in args.variant) or VARIANTS
    except ValueError:
        parser.error("--variant: use NAME='WORDS'")
    beside, seconds = args.beside.split(","), 1.0 if args.quick else args.seconds

    def body(site, unit):
        sets = {name: Set(site, name, beside) for name in chosen}
        for one in sets.values():
            for worker in one.workers:
                worker.expect("IMPORTED", START_S)
        for one in sets.values():
            systems.warm(one.workers, (), START_S)
        for name, one in sets.items():
            found = {"alone": one.window(args.rate, min(seconds, 12), False), "beside": one.window(args.rate, seconds, True)}
            found["each_alone"] = {worker.name: one.alone(worker, seconds / 2) for worker in one.workers[1:]}
            graphs = one.end()
            unit.run("gaps", f"{name} / {args.beside}", 0, 0, lambda f=found, g=graphs: dict(f, graphs=g))

    return units.conduct(args, body, {name: Variant(words) for name, words in chosen.items()})


if __name__ == "__main__":
    sys.exit(main())
