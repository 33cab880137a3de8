#!/usr/bin/env python3
"""What xsched costs a program that has the device to itself.

  alone.py [--bin DIR] [--out FILE] [--quick] [ROLE ...]

For every role, pairs of processes are started, one bare and one under xsched (with a daemon of its own, so that it is
alone there), and work in turns, one request after the other, while all others are idle. Reported are the medians'
ratios. Between, all are left alone for five seconds: the processor time that each process and each daemon then uses.
"""

import json
import sys
import time
from pathlib import Path

import records
import systems
import units
from systems import Variant, Worker

ROLES = ("rn18", "bert-lc", "decode")
PAIRS = 3
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


def start(site, role, pairs, worker):
    """system -> its processes of this role."""
    found = {"native": [], "xsched": []}
    for pair in range(pairs):
        for system in found:
            name = "native" if system == "native" else f"xsched {role} {pair}"
            site.variants.setdefault(name, Variant())
            command, env = site.command(name, "lc", [sys.executable, *worker, role])
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
    begin = time.monotonic() + 0.05
    worker.send(f"go closed {begin:.6f} {begin + seconds:.6f} 0")
    return json.loads(worker.expect("RESULT", seconds + 60))


def measure(site, unit, role, args):
    pairs, rounds, seconds = (1, 1, 0.5) if args.quick else (PAIRS, 6, 1.5)
    todo = [(r, p) for r in range(rounds) for p in range(pairs) if unit.missing("alone", f"{role} {p}", r)]
    rest = unit.missing("idle", role)
    if not todo and not rest:
        return
    if not unit.deadline.allows(60 + len(todo) * 2 * (seconds + 0.2)):
        unit.finished = False
        return
    workers = start(site, role, pairs, args.worker)
    everyone = [w for mine in workers.values() for _, w in mine]
    try:
        for worker in everyone:
            worker.expect("IMPORTED", START_S)
        systems.warm(everyone, [w.name for w in everyone], START_S)
        for number, pair in todo:
            order = ("native", "xsched") if (number + pair) % 2 == 0 else ("xsched", "native")

            def body(pair=pair, order=order):
                found = {system: window(workers[system][pair][1], seconds) for system in order}
                site.require_seen(workers["xsched"][pair][0], [workers["xsched"][pair][1]])
                seen = [g for p in site.seen(workers["xsched"][pair][0]) for g in p["groups"]]
                medians = {s: records.percentile(f["latency_ms"], 0.5) for s, f in found.items()}
                return {
                    "role": role,
                    "pair": pair,
                    "ratio": round(medians["xsched"] / medians["native"], 5),
                    "launches": sum(g["launches"] for g in seen),
                    "latency_ms": {s: f["latency_ms"] for s, f in found.items()},
                }

            unit.run("alone", f"{role} {pair}", number, 0, body)
        unit.run("idle", role, 0, 0, lambda: {"role": role, "found": idle(site, workers, 1 if args.quick else 5)})
    finally:
        systems.end_all(everyone)


def summary(found):
    """Role -> ratio of the medians of all latencies, its spread over rounds and pairs, idle processor time."""
    result = {}
    for role in dict.fromkeys(r["role"] for r in found):
        mine = [r for r in found if r["role"] == role and r["bench"] == "alone"]
        row = {}
        if mine:
            pooled = {s: [v for r in mine for v in r["latency_ms"][s]] for s in ("native", "xsched")}
            medians = {s: records.percentile(v, 0.5) for s, v in pooled.items()}
            row = {
                "native_ms": medians["native"],
                "xsched_ms": medians["xsched"],
                "n": len(pooled["xsched"]),
                "ratio_of_medians": round(medians["xsched"] / medians["native"], 5),
                "ratio_by_round": records.spread([r["ratio"] for r in mine]),
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
