#!/usr/bin/env python3
"""A program that is urgent for a while by its own word: P99 of its requests before, inside and after the block.

  blocks.py [--bin DIR] [--out FILE] [--gpu N] [--quick] [--packages DIR] [WAY ...]

Ways are those of blocks_program.py: scheduler, queue, manual. --packages: where xsched and torch_xsched are, beside each
other. For `scheduler` a best-effort program of the same class (matrix products of 100 ms) works beside it, in a context of its own.
"""

import json
import sys
import time
from pathlib import Path

import records
import systems
import units
from systems import Variant, Worker

WAYS = ("scheduler", "queue", "manual")
SECONDS = 10.0
START_S = 120


def main():
    parser = units.parser(__doc__, "blocks.jsonl")
    parser.add_argument("--packages", type=Path, default=systems.HERE / "../../python", help="[%(default)s]")
    parser.add_argument("ways", nargs="*", default=list(WAYS), metavar="WAY")
    args = parser.parse_args()
    unknown = [way for way in args.ways if way not in WAYS]
    if unknown:
        parser.error(f"{unknown[0]!r} is unknown: use {', '.join(WAYS)}")
    seconds = 1.0 if args.quick else SECONDS

    def start(site, way, name, *command):
        words, env = site.command(way, "low", [sys.executable, *map(str, command)])
        env["PYTHONPATH"] = str(args.packages.resolve())
        return Worker(name, words, env, site.work / f"{way}-{name}.err", patience=10)

    def one(site, way):
        served = start(site, way, "served", systems.HERE / "blocks_program.py", way, seconds)
        running = [served]
        try:
            if way == "scheduler":
                beside = start(site, way, "gemm", systems.HERE / "roles.py", "gemm")
                running.append(beside)
                beside.expect("IMPORTED", START_S)
                systems.warm([beside], (), START_S)
            served.expect("READY", START_S)
            if way == "scheduler":
                # Longer than all phases together; it ends with this unit.
                now = time.monotonic()
                beside.send(f"go flat {now:.3f} {now + 5 * seconds:.3f} 0")
            served.send("go")
            found = json.loads(served.expect("FOUND", 4 * seconds + START_S))
        finally:
            systems.end_all(running)
        return {phase: records.latencies(values) for phase, values in found.items()} | {"raw": found}

    def body(site, unit):
        for way in args.ways:
            unit.run("blocks", way, 0, 60, lambda way=way: one(site, way))

    return units.conduct(args, body, {way: Variant("--share time") for way in args.ways})


if __name__ == "__main__":
    sys.exit(main())
