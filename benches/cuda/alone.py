#!/usr/bin/env python3
"""What xsched costs a program that has the device to itself.

  alone.py [--bin DIR] [--out FILE] [--quick] [ROLE ...]

For every role, pairs of processes are started, one bare and one under xsched (with a daemon of its own, so that it is
alone there), and work in turns of 0.12 s, one request after the other, on the same processor cores, while all others are
idle. A neighbour on the host slows down one turn by more than xsched ever could: so what counts is the median of the ratios
of turns that follow each other, with the range in which it lies in 95 of 100 resamplings. Afterwards all are left alone for
five seconds: the processor time that each process and each daemon then uses.
"""

import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

import records
import systems
import units
from systems import Variant, Worker

ROLES = ("rn18", "bert-lc", "decode")
PAIRS = 3
BLOCKS = 5
TURNS = 20  # of both systems in a block
TURN_S = 0.12
CORES = 4  # of each pair
START_S = 300


def cpu_ns(pid):
    """Processor time used by all threads of a process so far, in ns."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            return cpu_ticks(pid)
    return total


def cpu_ticks(pid):
    """The same where the kernel keeps no finer account: in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 10_000_000


def pinned(pair):
    """Words before a command that keep it on the cores of its pair, where there are enough of them for that."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < CORES * PAIRS or not shutil.which("taskset"):
        return []
    return ["taskset", "-c", ",".join(map(str, cores[CORES * pair : CORES * (pair + 1)]))]


def start(site, role, pairs, worker):
    """system -> its processes of this role."""
    found = {"native": [], "xsched": []}
    for pair in range(pairs):
        for system in found:
            name = "native" if system == "native" else f"xsched {role} {pair}"
            site.variants.setdefault(name, Variant())
            command, env = site.command(name, "lc", [*pinned(pair), sys.executable, *worker, role])
            log = site.work / f"{system}-{role}-{pair}.err"
            found[system].append((name, Worker(f"{role} ({system})", command, env, log)))
    return found


def idle(site, workers, seconds):
    """ms of processor time in `seconds` for every process that should do nothing, and for its daemon."""
    pids = {(system, "program"): [w.process.pid for _, w in mine] for system, mine in workers.items()}
    pids["xsched", "daemon"] = [site.daemon(name).process.pid for name, _ in workers["xsched"]]
    before = {key: [cpu_ns(p) for p in mine] for key, mine in pids.items()}
    time.sleep(seconds)
    return [
        {
            "system": key[0],
            "what": key[1],
            "secs": seconds,
            "cpu_ms": [round((cpu_ns(p) - b) / 1e6, 3) for p, b in zip(mine, before[key])],
        }
        for key, mine in pids.items()
    ]


def window(worker, seconds):
    begin = time.monotonic() + 0.01
    worker.send(f"go closed {begin:.6f} {begin + seconds:.6f} 0")
    return json.loads(worker.expect("RESULT", seconds + 60))


def block(pair, workers, turns, number):
    """Latencies in ms of turns: [{system: [...]}, ...]. Who begins changes from turn to turn."""
    found = []
    for turn in range(turns):
        order = ("native", "xsched") if (number + turn) % 2 == 0 else ("xsched", "native")
        found.append({system: window(workers[system][pair][1], TURN_S)["latency_ms"] for system in order})
    return found


def ratios(turns, share=0.5):
    """xsched to native of each turn."""
    return [records.percentile(t["xsched"], share) / records.percentile(t["native"], share) for t in turns]


def median_range(values, resamplings=2000):
    """The median and the range that holds it in 95 of 100 resamplings."""
    draw = random.Random(0)
    medians = sorted(records.percentile(draw.choices(values, k=len(values)), 0.5) for _ in range(resamplings))
    low, high = medians[int(0.025 * resamplings)], medians[int(0.975 * resamplings) - 1]
    return {"median": round(records.percentile(values, 0.5), 5), "low": round(low, 5), "high": round(high, 5)}


def measure(site, unit, role, args):
    pairs, blocks, turns = (1, 1, 2) if args.quick else (PAIRS, BLOCKS, TURNS)
    todo = [(b, p) for b in range(blocks) for p in range(pairs) if unit.missing("alone", f"{role} {p}", b)]
    rest = unit.missing("idle", role)
    if not todo and not rest:
        return
    if not unit.deadline.allows(60 + len(todo) * turns * 2 * (TURN_S + 0.05)):
        unit.finished = False
        return
    workers = start(site, role, pairs, args.worker)
    everyone = [w for mine in workers.values() for _, w in mine]
    try:
        for worker in everyone:
            worker.expect("IMPORTED", START_S)
        systems.warm(everyone, [w.name for w in everyone], START_S)
        for number, pair in todo:

            def body(number=number, pair=pair):
                found = block(pair, workers, turns, number)
                site.require_seen(workers["xsched"][pair][0], [workers["xsched"][pair][1]])
                seen = [g for p in site.seen(workers["xsched"][pair][0]) for g in p["groups"]]
                return {
                    "role": role,
                    "pair": pair,
                    "ratio": round(records.percentile(ratios(found), 0.5), 5),
                    "launches": sum(g["launches"] for g in seen),
                    "turns": found,
                }

            unit.run("alone", f"{role} {pair}", number, 0, body)
        unit.run("idle", role, 0, 0, lambda: {"role": role, "found": idle(site, workers, 1 if args.quick else 5)})
    finally:
        systems.end_all(everyone)


def summary(found):
    """Role -> ratio of the medians of turns, and of their quickest tenths; its spread over pairs; idle processor time."""
    result = {}
    for role in dict.fromkeys(r["role"] for r in found):
        mine = [r for r in found if r["role"] == role and r["bench"] == "alone"]
        row = {}
        if mine:
            turns = [t for r in mine for t in r["turns"]]
            pooled = {s: [v for t in turns for v in t[s]] for s in ("native", "xsched")}
            by_pair = [
                records.percentile(ratios([t for r in mine if r["pair"] == pair for t in r["turns"]]), 0.5)
                for pair in sorted({r["pair"] for r in mine})
            ]
            row = {
                "native_ms": records.percentile(pooled["native"], 0.5),
                "xsched_ms": records.percentile(pooled["xsched"], 0.5),
                "n": len(pooled["xsched"]),
                "turns": len(turns),
                "ratio": median_range(ratios(turns)),
                "ratio_of_quickest_tenths": median_range(ratios(turns, 0.1)),
                "ratio_by_pair": records.spread(by_pair),
                "launches_scheduled": max(r["launches"] for r in mine),
            }
        for record in found:
            if record["role"] == role and record["bench"] == "idle":
                row["idle_cpu_ms"] = {f"{f['system']} {f['what']}": f["cpu_ms"] for f in record["found"]}
        result[role] = row
    return result


def main():
    parser = units.parser(__doc__, "alone.jsonl")
    parser.add_argument("--worker", default=str(systems.HERE / "roles.py"), help="the program that plays the roles")
    parser.add_argument("roles", nargs="*", default=list(ROLES), metavar="ROLE")
    args = parser.parse_args()
    unknown = [r for r in args.roles if r not in ROLES]
    if unknown:
        parser.error(f"{unknown[0]!r} is unknown: use {', '.join(ROLES)}")
    args.worker = [args.worker]

    def body(site, unit):
        for role in args.roles:
            measure(site, unit, role, args)

    return units.conduct(args, body)


if __name__ == "__main__":
    sys.exit(main())
