#!/usr/bin/env python3
"""kill -9 of best-effort programs that share one MPS server with an urgent one: how often that takes the urgent one along.

  yields.py [--bin DIR] [--out FILE] [--gpu N] [--quick] [CASE ...]

Cases, all of them under one MPS server of its own (`run --share spatial`), differ in what the daemon does with best-effort gates:
  open       nothing: they stand open
  closed     they close while the urgent program is at work (XSCHED_YIELD=0)
  yields     they yield while it keeps up (XSCHED_YIELD=1)

The urgent program asks for a short kernel every 5 ms. Best-effort programs run kernels of 100 us; what they have in flight when they are
killed is at most one budget. A record tells the kills, and how many took the urgent program along; it is started anew then.
"""

import random
import sys
import time

import records
import units
from pool import Failed, Urgent, require
from systems import Trouble, Variant, Worker

CASES = {
    "open": "--share spatial",
    "closed": "daemon:XSCHED_YIELD=0 --share spatial",
    "yields": "daemon:XSCHED_YIELD=1 --share spatial",
}
KILLS, AT_ONCE = 50, 5
SETTLES_S = 0.5  # a server that waits for what is executed of a client that is gone gives up within 0.3 s
PATIENCE_S = 30


class Kills:
    """The programs of one case."""

    def __init__(self, site, case):
        self.site, self.system, self.started = site, f"yields {case}", []
        site.variants[self.system] = Variant(CASES[case])

    def start(self, name, kind, *arguments):
        words, env = self.site.command(self.system, kind, [self.site.bin / name, *arguments])
        worker = Worker(name, words, env, self.site.work / f"{time.monotonic_ns()}.err", patience=2)
        self.started.append(worker)
        return worker

    def urgent(self):
        program = self.start("pooled", "high")
        program.expect("context 0", PATIENCE_S)
        return Urgent(program)

    def batch(self):
        """Best-effort programs, each of which has run something."""
        programs = [self.start("steady", "low", 100, 4) for _ in range(AT_ONCE)]
        for program in programs:
            program.expect("ready", PATIENCE_S)
        for program in programs:
            require(program.lines.get(timeout=PATIENCE_S) is not None, f"a program ended: {program.last_words()}")
        return programs

    def run(self, kills, draw):
        found = {"kills": 0, "took_urgent": 0, "served": 0, "longest_ms": 0.0}
        urgent = self.urgent()
        while found["kills"] < kills:
            for victim in self.batch():
                time.sleep(draw.uniform(0.01, 0.1))
                victim.process.kill()
                victim.process.wait()
                found["kills"] += 1
                time.sleep(SETTLES_S)
                if urgent.trouble:
                    found["took_urgent"] += 1
                    found.setdefault("why", urgent.trouble[:200])
                    break
            if urgent.trouble:
                self.end()
                urgent = self.urgent()
        ended = urgent.end()
        return found | {"served": ended["urgent_served"], "longest_ms": ended["urgent_longest_ms"]}

    def end(self):
        for program in self.started:
            program.process.kill()
            program.process.wait()
        self.started.clear()


def main():
    parser = units.parser(__doc__, "yields.jsonl")
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    args = parser.parse_args()
    unknown = [c for c in args.cases if c not in CASES]
    if unknown:
        parser.error(f"{unknown[0]!r} is unknown: use {', '.join(CASES)}")

    def body(site, unit):
        for case in args.cases:
            kills = Kills(site, case)

            def one(kills=kills, case=case):
                try:
                    return kills.run(AT_ONCE if args.quick else KILLS, random.Random(f"kills {case}"))
                except (Failed, Trouble) as why:
                    return {"failed": str(why)}
                finally:
                    kills.end()

            unit.run("yields", case, 0, 120, one)

    status = units.conduct(args, body)
    failed = [r for r in records.load(args.out) if r.get("bench") == "yields" and "failed" in r]
    return status or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
