#!/usr/bin/env python3
"""What xsched costs a program that has the device to itself.

  alone.py [--bin DIR] [--out FILE] [--quick] [ROLE ...]

For every role, sets of three processes are started, one bare, another one bare as a control, and one under xsched (with a
daemon of its own, so that it is alone there). They work in turns of 0.12 s, one request after the other, on the same
processor cores, while all others are idle. A neighbour on the host slows down one turn by more than xsched ever could, and
processes of the same program differ by some percent as long as they live (where their memory lies, how they hash): so what
counts is the median of the ratios of turns that follow each other, with the range in which it lies in 95 of 100
resamplings of sets, and of turns in each. What the control comes to says how much of that is chance. Afterwards all are
left alone for five seconds: the processor time that each process and each daemon then uses.
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
SETS = 6
BLOCKS = 5
TURNS = 7  # of each system in a block
TURN_S = 0.12
CORES = 4  # of each set, shared with others where there are not enough
SYSTEMS = ("native", "control", "xsched")
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


def pinned(number):
    """Words before a command that keep it on the cores of its set."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < CORES or not shutil.which("taskset"):
        return []
    first = number % (len(cores) // CORES) * CORES
    return ["taskset", "-c", ",".join(map(str, cores[first : first + CORES]))]


def start(site, role, sets, worker):
    """system -> its processes of this role."""
    found = {system: [] for system in SYSTEMS}
    for number in range(sets):
        for system in found:
            name = f"xsched {role} {number}" if system == "xsched" else "native"
            site.variants.setdefault(name, Variant())
            command, env = site.command(name, "lc", [*pinned(number), sys.executable, *worker, role])
            log = site.work / f"{system}-{role}-{number}.err"
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


def block(member, workers, turns, number):
    """Latencies in ms of turns: [{system: [...]}, ...]. Who begins changes from turn to turn."""
    found = []
    for turn in range(turns):
        first = (number + turn) % len(SYSTEMS)
        order = SYSTEMS[first:] + SYSTEMS[:first]
        found.append({system: window(workers[system][member][1], TURN_S)["latency_ms"] for system in order})
    return found


def ratios(turns, system="xsched", share=0.5):
    """A system to native, of each turn."""
    return [records.percentile(t[system], share) / records.percentile(t["native"], share) for t in turns]


def median_range(by_set, resamplings=1000):
    """The median of all, and the range that holds it in 95 of 100 resamplings of sets, and of the turns of each."""
    draw = random.Random(0)
    medians = []
    for _ in range(resamplings):
        sets = draw.choices(by_set, k=len(by_set))
        medians.append(records.percentile([v for mine in sets for v in draw.choices(mine, k=len(mine))], 0.5))
    medians.sort()
    low, high = medians[int(0.025 * resamplings)], medians[int(0.975 * resamplings) - 1]
    median = records.percentile([v for mine in by_set for v in mine], 0.5)
    return {"median": round(median, 5), "low": round(low, 5), "high": round(high, 5)}


def measure(site, unit, role, args):
    sets, blocks, turns = (1, 1, 2) if args.quick else (SETS, BLOCKS, TURNS)
    todo = [(b, n) for b in range(blocks) for n in range(sets) if unit.missing("alone", f"{role} {n}", b)]
    rest = unit.missing("idle", role)
    if not todo and not rest:
        return
    if not unit.deadline.allows(40 + len(todo) * turns * len(SYSTEMS) * (TURN_S + 0.03)):
        unit.finished = False
        return
    workers = start(site, role, sets, args.worker)
    everyone = [w for mine in workers.values() for _, w in mine]
    try:
        for worker in everyone:
            worker.expect("IMPORTED", START_S)
        systems.warm(everyone, [w.name for w in everyone], START_S)
        for number, member in todo:

            def body(number=number, member=member):
                found = block(member, workers, turns, number)
                name, worker = workers["xsched"][member]
                site.require_seen(name, [worker])
                seen = [g for p in site.seen(name) for g in p["groups"]]
                return {
                    "role": role,
                    "set": member,
                    "ratio": round(records.percentile(ratios(found), 0.5), 5),
                    "launches": sum(g["launches"] for g in seen),
                    "turns": found,
                }

            unit.run("alone", f"{role} {member}", number, 0, body)
        unit.run("idle", role, 0, 0, lambda: {"role": role, "found": idle(site, workers, 1 if args.quick else 5)})
    finally:
        systems.end_all(everyone)


def summary(found):
    """Role -> ratio of the medians of turns, and of their quickest tenths, beside the control's; its spread over sets; idle
    processor time."""
    result = {}
    for role in dict.fromkeys(r["role"] for r in found):
        mine = [r for r in found if r["role"] == role and r["bench"] == "alone"]
        row = {}
        if mine:
            sets = [[t for r in mine if r["set"] == n for t in r["turns"]] for n in sorted({r["set"] for r in mine})]
            pooled = {s: [v for turns in sets for t in turns for v in t[s]] for s in SYSTEMS}

            def over_sets(system, share, sets=sets):
                return median_range([ratios(turns, system, share) for turns in sets])

            row = {
                "native_ms": records.percentile(pooled["native"], 0.5),
                "xsched_ms": records.percentile(pooled["xsched"], 0.5),
                "n": len(pooled["xsched"]),
                "turns": sum(map(len, sets)),
                "ratio": over_sets("xsched", 0.5),
                "control": over_sets("control", 0.5),
                "ratio_of_quickest_tenths": over_sets("xsched", 0.1),
                "control_of_quickest_tenths": over_sets("control", 0.1),
                "ratio_by_set": records.spread([records.percentile(ratios(turns), 0.5) for turns in sets]),
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
