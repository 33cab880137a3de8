#!/usr/bin/env python3
"""Three groups of two BERTs, high, middle and low: as six processes, and as six threads of one PyTorch program.

  groups.py [--bin DIR] [--out FILE] [--batch 1,32] [--load 0.8] [--quick]

Every BERT serves requests at a fixed rate, chosen so that all six together would keep one device busy for `load` of the
time if they came one after the other: rate = load / (6 x P50 of one alone), measured first in the same run. Processes
get their priority by `xsched run --priority high|normal|low`; the threads by nothing but torch.cuda.Stream(priority=…),
the program being started by plain `xsched run`. Native and xsched take turns, round by round.
"""

import json
import sys
import time

import records
import systems
import units
from systems import Worker

PRIORITIES = (
    ("high", "high"),
    ("high", "high"),
    ("middle", "normal"),
    ("middle", "normal"),
    ("low", "low"),
    ("low", "low"),
)
START_S = 300
REQUESTS = 1000  # of each group over all rounds


def start(site, kind, batch, programs):
    """system -> [(group or None, process)], loaded and warm."""
    found = {"native": [], "xsched": []}
    for system, mine in found.items():
        wanted = PRIORITIES if kind == "processes" else ((None, "normal"),)
        for i, (group, priority) in enumerate(wanted):
            program = [programs[0], "bert-lc"] if kind == "processes" else [programs[1]]
            command, env = site.command(system, priority, [sys.executable, *program, "--batch", batch])
            name = f"{kind} {group or ''} ({system})"
            mine.append((group, Worker(name, command, env, site.work / f"{system}-{kind}-{batch}-{i}.err")))
    everyone = [w for mine in found.values() for _, w in mine]
    try:
        for worker in everyone:
            worker.expect("IMPORTED", START_S)
        systems.warm(everyone, (), START_S)
    except BaseException:
        systems.end_all(everyone)
        raise
    return found


def order(mine, mode, seconds, rate):
    """Gives the same order to all; their answers."""
    begin = time.monotonic() + 0.3
    for _, worker in mine:
        worker.send(f"go {mode} {begin:.6f} {begin + seconds:.6f} {rate:.4f}")
    return [(group, json.loads(worker.expect("RESULT", seconds + 120))) for group, worker in mine]


def together(answers):
    """Group -> latencies in ms, whether they come from processes or from one program's threads."""
    found = {}
    for group, said in answers:
        for name, values in ({group: said["latency_ms"]} if group else said["groups"]).items():
            found.setdefault(name, []).extend(values)
    return found


def measure(site, unit, kind, batch, args):
    rounds = 1 if args.quick else 5
    case = f"{kind}, batch {batch}"
    todo = [(r, s) for r in range(rounds) for s in (("native", "xsched"), ("xsched", "native"))[r % 2]]
    todo = [(r, s) for r, s in todo if unit.missing("groups", f"{case} / {s}", r)]
    if not todo:
        return
    if not unit.deadline.allows(100):
        unit.finished = False
        return
    workers = start(site, kind, batch, args.programs)
    try:
        alone = order(workers["native"][:1], "closed", 0.5 if args.quick else 2, 0)[0][1]["latency_ms"]
        p50 = records.percentile(alone, 0.5)
        rate = args.load / (len(PRIORITIES) * p50 / 1e3)
        seconds = 1 if args.quick else max(3.0, REQUESTS / (2 * rate * rounds))
        for number, system in todo:

            def body(system=system):
                answers = order(workers[system], "paced", seconds, rate)
                site.require_seen(system, [w for _, w in workers[system]])
                found = together(answers)
                return {
                    "kind": kind,
                    "batch": batch,
                    "system": system,
                    "rate": round(rate, 3),
                    "load": args.load,
                    "alone_p50_ms": p50,
                    "secs": round(seconds, 2),
                    "streams": answers[0][1].get("streams"),
                    "latency_ms": found,
                    "seen": site.seen(system),
                    "p99": {g: records.latencies(v)["p99"] for g, v in found.items()},
                }

            unit.run("groups", f"{case} / {system}", number, seconds + 1, body)
    finally:
        systems.end_all([w for mine in workers.values() for _, w in mine])


def summary(found):
    """kind, batch -> system -> group -> P50 and P99 of all rounds together."""
    pools = {}
    for record in found:
        where = pools.setdefault(f"{record['kind']}, batch {record['batch']}", {}).setdefault(record["system"], {})
        for group, values in record["latency_ms"].items():
            where.setdefault(group, []).extend(values)
    return {
        k: {s: {g: records.latencies(v) for g, v in by.items()} for s, by in pool.items()} for k, pool in pools.items()
    }


def main():
    parser = units.parser(__doc__, "groups.jsonl")
    parser.add_argument(
        "--batch", default="1,32", help="sequences of a request, several separated by commas [%(default)s]"
    )
    parser.add_argument("--load", type=float, default=0.8, help="[%(default)s]")
    parser.add_argument("--kinds", default="processes,threads", help="[%(default)s]")
    parser.add_argument(
        "--worker", default=str(systems.HERE / "roles.py"), help="the program that is started six times"
    )
    args = parser.parse_args()
    args.programs = (args.worker, str(systems.HERE / "groups_program.py"))
    if not all(b.isdigit() and int(b) for b in args.batch.split(",")):
        parser.error("--batch: numbers from 1 on, separated by commas")
    if not set(args.kinds.split(",")) <= {"processes", "threads"}:
        parser.error("--kinds: processes, threads, or both separated by a comma")
    if not 0 < args.load <= 2:
        parser.error("--load: more than 0, 2 at most")

    def body(site, unit):
        for kind in args.kinds.split(","):
            for batch in args.batch.split(","):
                measure(site, unit, kind, int(batch), args)

    return units.conduct(args, body)


if __name__ == "__main__":
    sys.exit(main())
