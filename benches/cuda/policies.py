#!/usr/bin/env python3
"""What each policy promises, on a GPU: parts of the device, bursts before endless work, a P99 that is held.

  policies.py [--bin DIR] [--out FILE] [--quick] [NAME ...]

Names (all of them if none is given):
  parts   75:25 and 50:30:20 of the kernels by utilization under up, pup and spup
  alone   what a program with a quarter has of its native rate under spup and pup, alone and beside one that wants nothing
  cfs     two programs of priorities 26 and 0, two steps of nice apart: 61.0 to 39.0
  mlfq    bursts of 1 ms beside two programs without end, none of them with a hint
  slo     requests of 5 ms, 50 a second, beside a program without end: natively, under hpf (classes high and low), and under slo
          with targets for their P99 (both of class normal, so that nothing but the policy protects them)
  bert    the same with two BERTs: one that serves requests, one flat out

Targets of slo are fractions of what lies between the P99 alone and the native one, measured first in the same run.
"""

import json
import sys
import time

import micro
import records
import roles
import systems
import units
from systems import HERE, Variant, Worker

NAMES = ("parts", "alone", "cfs", "mlfq", "slo", "bert")
PARTS = ((75, 25), (50, 30, 20))
POLICIES = ("up", "pup", "spup", "cfs", "mlfq", "slo")
# Where between the P99 alone and the native one.
TARGETS = (0.3, 0.6)
# Requests before those that count: the allowance is found within some hundred.
LEARNING = 700
COUNTED = 2000


class Bench(micro.Bench):
    def rates(self, programs, seconds):
        """Kernels a second of programs that go on and on, which it ends."""
        try:
            for program in programs:
                program.expect('{"t"', micro.START_S)
            begin = time.monotonic() + 1.5
            time.sleep(1.5 + seconds + 0.2)
            return [micro.rate_of(micro.finish(p), begin, begin + seconds) for p in programs]
        finally:
            systems.end_all(programs)

    def flat(self, system, *options, kind="normal"):
        return self.start(system, kind, ["flat", "run", *self.spin(200)], *options)

    def shares(self, programs, seconds, aims):
        rates = self.rates(programs, seconds)
        shares = [round(100 * r / sum(rates), 3) for r in rates]
        return {"aims": aims, "shares": shares, "per_s": [round(r, 1) for r in rates], "secs": seconds}

    # ---- parts -------------------------------------------------------------------------------------------------------

    def parts(self):
        seconds, rounds = (1, 1) if self.quick else (6, 2)
        for number in range(rounds):
            for policy in ("up", "pup", "spup"):
                for aims in PARTS:
                    case = f"{policy} {':'.join(map(str, aims))}"
                    self.unit.run(
                        "parts",
                        case,
                        number,
                        seconds + 10,
                        lambda p=policy, a=aims: self.shares(
                            [self.flat(p, "--utilization", u) for u in a], seconds, a
                        ),
                    )

    def alone(self):
        seconds = 1 if self.quick else 6
        self.unit.run("alone", "a quarter", 0, 5 * seconds + 20, lambda: self.quarters(seconds))

    def quarters(self, seconds):
        """Percent of the native rate."""
        native = self.rates([self.flat("native")], seconds)[0]
        found = {}
        for policy in ("pup", "spup"):
            found[policy] = self.rates([self.flat(policy, "--utilization", 25)], seconds)[0]
            found[f"{policy}, beside"] = self.beside_idle(policy, seconds)
        return {name: round(100 * rate / native, 2) for name, rate in found.items()}

    def beside_idle(self, policy, seconds):
        # All together must not make more than 100 %, or each is scaled down.
        rival = self.start(policy, "normal", ["launch", "hold"], "--utilization", 75)
        try:
            rival.expect('{"ready"', micro.START_S)
            return self.rates([self.flat(policy, "--utilization", 25)], seconds)[0]
        finally:
            rival.process.terminate()
            rival.end()

    # ---- cfs, mlfq ---------------------------------------------------------------------------------------------------

    def cfs(self):
        seconds, rounds = (1, 1) if self.quick else (6, 2)
        for number in range(rounds):
            self.unit.run(
                "cfs",
                "priorities 26 and 0",
                number,
                seconds + 10,
                lambda: self.shares(
                    [self.flat("cfs", kind=26), self.flat("cfs", kind=0)],
                    seconds,
                    (61.0, 39.0),
                ),
            )

    def mlfq(self):
        requests, rounds = (40, 1) if self.quick else (400, 2)
        for number in range(rounds):
            for system in ("native", "mlfq"):
                self.unit.run("mlfq", system, number, 25, lambda s=system: self.bursts(s, requests))

    def bursts(self, system, requests):
        programs = [self.flat(system), self.flat(system)]
        try:
            for program in programs:
                program.expect('{"t"', micro.START_S)
            begin = time.monotonic()
            latencies = self.paced(system, 1000, 10, 20_000, requests)
            rates = [micro.rate_of(micro.finish(p), begin, time.monotonic()) for p in programs]
        finally:
            systems.end_all(programs)
        found = {k: v for k, v in records.latencies(latencies).items()}
        return {"system": system, "burst_us": 1000, "per_s": rates, "latency_us": latencies, **found}

    def paced(self, system, us, kernels, period_us, requests, *options, kind="normal"):
        """Latencies of requests in µs."""
        words = ["flat", "paced", *self.spin(us / kernels), "--kernels", kernels]
        words += ["--period-us", period_us, "--requests", requests]
        program = self.start(system, kind, words, *options)
        try:
            program.expect('{"ready"', micro.START_S)
            return json.loads("{" + program.expect("{", requests * period_us / 1e6 + 120))["latency_us"]
        finally:
            program.end()

    # ---- slo ---------------------------------------------------------------------------------------------------------

    def slo(self):
        counted = 100 if self.quick else COUNTED
        learning = 20 if self.quick else LEARNING
        known = {}

        def serve(system, target_us=None):
            options = ["--slo", f"{target_us:.0f}us"] if target_us else []
            requests = counted if target_us is None else counted + learning
            if system == "alone":
                latencies = self.paced("xsched", 5000, 25, 20_000, 200, kind="lc")
                return self.row(system, None, latencies, None)
            kinds = ("normal", "normal") if target_us else ("lc", "be")
            beside = self.flat(system, kind=kinds[1])
            try:
                beside.expect('{"t"', micro.START_S)
                latencies = self.paced(system, 5000, 25, 20_000, requests, *options, kind=kinds[0])[-counted:]
                end = time.monotonic()
                rate = micro.rate_of(micro.finish(beside), end - counted * 0.02, end)
            finally:
                beside.end()
            return self.row(system, target_us, latencies, rate)

        def case(name, number, system, target=None):
            seconds = 20 + 0.021 * (counted + learning)
            self.unit.run("slo", name, number, seconds, lambda: known.setdefault(name, serve(system, target)))

        case("alone", 0, "alone")
        case("native", 0, "native")
        case("hpf", 0, "xsched")
        if {"native", "alone"} <= known.keys():
            for part in TARGETS:
                case(f"slo at {part}", 0, "slo", self.target(known["alone"], known["native"], part))

    @staticmethod
    def target(alone, native, part):
        """Between what two systems do, in µs."""
        low, high = (found["p99"] for found in (alone, native))
        return low + part * (high - low)

    @staticmethod
    def row(system, target_us, latencies, rate):
        found = {"system": system, "target_us": target_us, "latency_us": latencies, **records.latencies(latencies)}
        if rate is not None:
            found["beside_per_s"] = round(rate, 1)
        if target_us:
            found["off_percent"] = round(100 * (found["p99"] / target_us - 1), 2)
        return found

    def bert(self):
        counted = 40 if self.quick else COUNTED
        learning = 20 if self.quick else LEARNING
        rate = roles.RATES["bert-lc"]
        known = {}

        def serve(system, target_us=None):
            options = ["--slo", f"{target_us:.0f}us"] if target_us else []
            start = lambda role, kind, *more: self.role(system, role, kind, *more)  # noqa: E731
            kinds = ("normal", "normal") if target_us else ("lc", "be")
            workers = [start("bert-lc", kinds[0], *options)]
            if system != "alone":
                workers.append(start("bert-be", kinds[1]))
            try:
                for worker in workers:
                    worker.expect("IMPORTED", 300)
                systems.warm(workers, (), 300)
                requests = counted + (learning if target_us else 100)
                begin, seconds = time.monotonic() + 0.5, requests / rate
                for worker, mode in zip(workers, ("paced", "flat")):
                    worker.send(f"go {mode} {begin:.6f} {begin + seconds:.6f} {rate:.4f}")
                served, *work = (json.loads(w.expect("RESULT", seconds + 120)) for w in workers)
            finally:
                systems.end_all(workers)
            latencies = [1000 * ms for ms in served["latency_ms"][-counted:]]
            return self.row(system, target_us, latencies, work[0]["per_s"] if work else None)

        def case(name, system, target=None):
            seconds = 60 + (counted + learning) / rate
            self.unit.run("bert", name, 0, seconds, lambda: known.setdefault(name, serve(system, target)))

        case("alone", "alone")
        case("native", "native")
        case("hpf", "xsched")
        if {"native", "alone"} <= known.keys():
            for part in TARGETS:
                case(f"slo at {part}", "slo", self.target(known["alone"], known["native"], part))

    def role(self, system, role, kind, *options):
        under = "xsched" if system == "alone" else system
        command, env = self.site.command(under, kind, [sys.executable, HERE / "roles.py", role], *options)
        return Worker(f"{role} ({system})", command, env, self.site.work / f"{time.monotonic_ns()}.err")


def main():
    parser = units.parser(__doc__, "policies.jsonl")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        parser.error(f"{unknown[0]!r} is unknown: use {', '.join(NAMES)}")

    def body(site, unit):
        bench = Bench(site, unit, args.quick)
        for name in args.names or NAMES:
            getattr(bench, name)()

    return units.conduct(args, body, {policy: Variant(f"policy:{policy}") for policy in POLICIES})


if __name__ == "__main__":
    sys.exit(main())
