#!/usr/bin/env python3
"""Small measurements with C programs: no PyTorch needed.

  micro.py [--bin DIR] [--out FILE] [--systems A,B] [--variant NAME=WORDS] [--quick] NAME [NAME ...]

Names:
  preempt   from the urgent launch to its kernel's first store, beside kernels of 10 µs to 100 ms and graphs, by level
  launch    what a launch costs its thread: bare, alone under xsched, beside an idle program, beside a more urgent one
  hosts     what it costs host-bound programs, an urgent one and three others, while all of them work
  shares    two flat-out programs under the fair policy, 75:25 and 30:70, beside what they do without xsched
  classes   five programs of the five classes at once; two by their cgroup alone; three lengths of a turn
  held      what commands behind a gate on the device cost others, and what waits for them there (without xsched)

--systems restricts preempt and hosts: native, mps, mps-prio, auto (the best-effort program in a pool), pool-1 (the same at
level 1), 1, 2, 3 (by time, at that level), 2-whole (level 2 without gates inside of graphs; beside graphs only). What those gates do: --systems 2,2-whole preempt.
--variant adds one that is auto with changes, as in coloc.py.
"""

import json
import sys
import time
from pathlib import Path

import records
import units
from systems import Trouble, Variant, Worker, add_variants, end_all, variants_of

SYSTEMS = ("native", "mps", "mps-prio", "auto", "pool-1", "1", "2", "3", "2-whole")
LEVELS = ("1", "2", "3")
KERNELS = {"none": 0, "10 us": 10, "100 us": 100, "1 ms": 1_000, "10 ms": 10_000, "100 ms": 100_000}
KERNELS |= {"graph": 10, "graph, 100 us": 100}
GRAPHS = {"graph": 1000, "graph, 100 us": 100}  # kernels of each: 10 ms
# What not every system is measured with.
ONLY_FOR = {"none": ("native", "auto"), "graph, 100 us": ("native", "auto", "2", "2-whole")}
LOW_ONLY = {"pool-1": ("--level", "1")}  # options of the best-effort program alone
CLASSES = ("system", "realtime", "high", "normal", "low")
WEIGHTS = ((75, 25), (30, 70))
TURNS_US = (1_000, 5_000, 20_000)
# What each of so many programs holds at a gate.
HELD = (("nothing", 1), ("gate", 1), ("gate", 4), ("event", 1), ("event", 2), ("barrier", 1), ("load", 1), ("load", 2))
START_S = 60
PREEMPT_S = 60  # of one case of preempt; beside long kernels it is left with fewer requests

VARIANTS = {
    "2-whole": Variant("XSCHED_GRAPH_GATES=0 --share time --level 2"),
    "auto": Variant(),
    "pool-1": Variant("--share pool"),
    **{level: Variant(f"--share time --level {level}") for level in LEVELS},
    "pup": Variant("policy:pup"),
    "up": Variant("policy:up"),
    "cgroup": Variant(),
}


class Bench:
    def __init__(self, site, unit, quick):
        self.site, self.unit, self.quick = site, unit, quick
        self._calibration = None

    def start(self, system, kind, command, *options):
        command = [self.site.bin / command[0], *command[1:]]
        words, env = self.site.command(system, kind, command, *options)
        return Worker(command[0].name, words, env, self.site.work / f"{time.monotonic_ns()}.err", patience=2)

    def spin(self, us):
        """Options of flat for kernels of so many µs."""
        if self._calibration is None:
            one = self.start("native", "be", ["flat", "calibrate"])
            try:
                self._calibration = json.loads("{" + one.expect("{", START_S))
            finally:
                one.end()
        found = self._calibration
        return ["--us", us, "--base-us", found["base_us"], "--steps-per-us", found["steps_per_us"]]

    # ---- preempt -----------------------------------------------------------------------------------------------------

    def preempt(self, only):
        count = 30 if self.quick else 500
        for kernel, us in KERNELS.items():
            for system in only:
                if not is_measured(system, kernel):
                    continue
                seconds = 8 + min(PREEMPT_S, count * (0.012 + 2e-6 * us * GRAPHS.get(kernel, 1)))
                self.unit.run(
                    "preempt",
                    f"{system} / {kernel}",
                    0,
                    seconds,
                    lambda s=system, k=kernel: self.one_preempt(s, k, count),
                )

    def one_preempt(self, system, kernel, count):
        low, us = None, KERNELS[kernel]
        try:
            if us:
                more = ["--graph", GRAPHS[kernel]] if kernel in GRAPHS else []
                low = self.start(system, "be", ["flat", "run", *self.spin(us), *more], *LOW_ONLY.get(system, ()))
                low.expect('{"t"', START_S)
            urgent = ["preempt", "run", "--count", count, "--secs", PREEMPT_S, "--period-us", 12000]
            high = self.start(system, "lc", urgent)
            try:
                high.expect('{"ready"', START_S)
                begin = time.monotonic()
                high.send("go")
                found = json.loads("{" + high.expect("{", PREEMPT_S + 60))
                end = time.monotonic()
            finally:
                high.end()
            high.require_counted()
            result = dict(system=system, kernel=kernel, kernel_us=us, **found, seen=self.site.seen(system))
            if low:
                result["beside_per_s"] = round(rate_of(finish(low), begin, end), 2)
            return dict(result, **{f"{k}_us": v for k, v in records.latencies(found["latency_us"]).items() if k != "n"})
        finally:
            if low:
                low.end()

    # ---- launch ------------------------------------------------------------------------------------------------------

    def launch(self):
        count, rounds = (20_000, 1) if self.quick else (200_000, 7)
        for number in range(rounds):
            for stream in ("own", "legacy"):
                for case in ("bare", "alone", "idle rival", "gated"):
                    body = lambda c=case, s=stream: self.one_launch(c, s, count)  # noqa: E731
                    self.unit.run("launch", f"{case} / {stream} stream", number, 8, body)

    def one_launch(self, case, stream, count):
        system = "native" if case == "bare" else "xsched"
        rival = None
        try:
            if case == "idle rival":
                rival = self.start(system, "lc", ["launch", "hold"])
            elif case == "gated":
                # Works for a moment every millisecond and is more urgent.
                rival = self.start(system, "lc", ["preempt", "run", "--count", 10**6, "--period-us", 1000])
            if rival:
                rival.expect('{"ready"', START_S)
                rival.send("go") if case == "gated" else None
            legacy = ["--legacy"] if stream == "legacy" else []
            one = self.start(system, "be", ["launch", "run", "--count", count, *legacy])
            try:
                found = dict(json.loads('{"ns"' + one.expect('{"ns"', 120)), stream=stream)
            finally:
                one.end()
            one.require_counted()
            return found
        finally:
            if rival:
                rival.process.terminate()
                rival.end()

    # ---- hosts -------------------------------------------------------------------------------------------------------

    def hosts(self, only):
        """An urgent program and three best-effort ones, all of them bound by their hosts: a launch of 10 µs each 30 µs."""
        for number in range(1 if self.quick else 3):
            for system in only:
                self.unit.run("hosts", system, number, 6, lambda s=system: self.one_of_hosts(s))

    def one_of_hosts(self, system):
        programs = []
        try:
            for kind in ("lc", "be", "be", "be"):
                paced = ["--steps", self.spin(10)[-1] * 10, "--pace-us", 30, "--count", 20_000]
                programs.append(self.start(system, kind, ["launch", "run", "--rounds", 10_000, *map(int_of, paced)]))
                programs[-1].expect('{"ns"', START_S)
            found = [[json.loads('{"ns"' + p.expect('{"ns"', 60))["ns"] for _ in range(3)][-1] for p in programs]
            return dict(urgent_ns=found[0], low_ns=found[1:], seen=self.site.seen(system))
        finally:
            for program in programs:
                program.process.terminate()
                program.end()

    # ---- shares ------------------------------------------------------------------------------------------------------

    def shares(self):
        seconds, rounds = (2, 1) if self.quick else (20, 3)
        for number in range(rounds):
            for case in ("native", *(f"{a}:{b}" for a, b in WEIGHTS)):
                self.unit.run("shares", case, number, seconds + 8, lambda c=case: self.one_share(c, seconds))

    def one_share(self, case, seconds):
        weights = [None, None] if case == "native" else [int(w) for w in case.split(":")]
        system = "native" if case == "native" else "pup"
        programs = []
        try:
            for weight in weights:
                options = ["--weight", weight] if weight else []
                programs.append(self.start(system, "normal", ["flat", "run", *self.spin(200)], *options))
            for program in programs:
                program.expect('{"t"', START_S)
            begin = time.monotonic() + 2
            time.sleep(2 + seconds + 0.2)
            rates = [rate_of(finish(p), begin, begin + seconds) for p in programs]
        finally:
            end_all(programs)
        return {
            "weights": weights,
            "per_s": [round(r, 2) for r in rates],
            "share": round(100 * rates[0] / sum(rates), 3),
            "total_per_s": round(sum(rates), 2),
            "secs": seconds,
        }

    # ---- classes -----------------------------------------------------------------------------------------------------

    def classes(self):
        seconds, rounds = (2, 1) if self.quick else (10, 3)
        for number in range(rounds):
            for system in ("native", "xsched"):
                self.unit.run(
                    "classes", f"five / {system}", number, seconds + 15, lambda s=system: self.five(s, seconds)
                )
        for number in range(rounds):
            self.unit.run("classes", "two by cgroup", number, seconds + 15, lambda: self.by_cgroup(seconds))
        for number in range(rounds):
            for turn in TURNS_US:
                self.unit.run(
                    "classes", f"turns of {turn} us", number, seconds + 10, lambda t=turn: self.turns(t, seconds)
                )

    def paced(self, system, kinds, seconds, load, prefix=None):
        """Programs that together take `load` of the device: each serves requests of ten kernels, about 100 a second;
        their periods differ by little, so that no order among them stays. Class -> latencies."""
        us = 1000 * load / len(kinds)
        programs = {}
        try:
            for i, kind in enumerate(kinds):
                period = 10_000 + 200 * (i - len(kinds) // 2)
                command = [
                    "flat",
                    "paced",
                    *self.spin(us),
                    "--kernels",
                    10,
                    "--period-us",
                    period,
                    "--requests",
                    int(seconds * 1e6 / period),
                ]
                programs[kind] = self.start(system, kind, command) if prefix is None else prefix(kind, command)
            for program in programs.values():
                program.expect('{"ready"', START_S)
            found = {k: json.loads("{" + p.expect("{", seconds + 120))["latency_us"] for k, p in programs.items()}
        finally:
            end_all(programs.values())
        for program in programs.values():
            program.require_counted()
        return found

    def five(self, system, seconds):
        found = self.paced(system, CLASSES, seconds, 0.9)
        return {"latency_us": found, "load": 0.9, **{kind: records.latencies(v) for kind, v in found.items()}}

    def by_cgroup(self, seconds):
        """Priorities by an operator's rules on cgroups, nothing said by the programs or their starter."""
        groups = {kind: own_cgroup(f"xsched-bench-{kind}") for kind in ("high", "low")}
        missing = next((why for _, why in groups.values() if why), None)
        if missing:
            for path, _ in groups.values():
                path.rmdir() if path else None
            return {"skipped": missing}
        rules = [f'[[rule]]\ncgroup = "*xsched-bench-{kind}"\npriority = "{kind}"' for kind in groups]
        self.site.variants["cgroup"].config = rules

        def enter(kind, command):
            words, env = self.site.command("cgroup", "normal", [self.site.bin / command[0], *command[1:]])
            at = words.index("--priority")
            del words[at : at + 2]
            script = 'echo $$ > "$0" && exec "$@"'
            words = ["sh", "-c", script, str(groups[kind][0] / "cgroup.procs"), *words]
            return Worker(command[0], words, env, self.site.work / f"cgroup-{kind}.err")

        try:
            found = self.paced("cgroup", list(groups), seconds, 0.9, enter)
        finally:
            for path, _ in groups.values():
                path.rmdir()
        return {"latency_us": found, "load": 0.9, **{kind: records.latencies(v) for kind, v in found.items()}}

    def turns(self, turn_us, seconds):
        """How often two flat-out programs change places."""
        programs = []
        try:
            for _ in range(2):
                programs.append(self.start("up", "normal", ["flat", "run", *self.spin(200)], "--timeslice", turn_us))
            for program in programs:
                program.expect('{"t"', START_S)
            time.sleep(1)
            before, begin = self.suspensions(), time.monotonic()
            time.sleep(seconds)
            after, end = self.suspensions(), time.monotonic()
            for program in programs:
                finish(program)
        finally:
            end_all(programs)
        return {"turn_us": turn_us, "switches_per_s": round((after - before) / (end - begin), 2)}

    def suspensions(self):
        return sum(g["suspensions"] for p in self.site.seen("up") for g in p["groups"])


    # ---- held --------------------------------------------------------------------------------------------------------

    def held(self):
        requests = 20 if self.quick else 200
        for what, count in HELD:
            body = lambda w=what, n=count: self.one_held(w, n, requests)  # noqa: E731
            self.unit.run("held", f"{what} x {count}", 0, 6 + requests * 0.02, body)

    def one_held(self, what, count, requests):
        """Requests of ten kernels of 500 µs, one every 20 ms, beside programs that hold something."""
        holders = []
        try:
            for _ in range(count):
                holders.append(self.start("native", "be", ["held", what]))
            returned = [json.loads('{"ready"' + h.expect('{"ready"', START_S))["returned"] for h in holders]
            paced = [*self.spin(500), "--kernels", 10, "--period-us", 20_000, "--requests", requests]
            urgent = self.start("native", "lc", ["flat", "paced", *paced])
            try:
                urgent.expect('{"ready"', START_S)
                found = json.loads("{" + urgent.expect("{", 120))["latency_us"]
            finally:
                urgent.end()
        finally:
            end_all(holders)
        return {"held": what, "programs": count, "returned": all(returned), "latency_us": found}


def is_measured(system, kernel):
    if system not in SYSTEMS:
        system = "auto"
    if system == "2-whole" and kernel not in GRAPHS:
        return False
    return system in ONLY_FOR.get(kernel, (system,))


def own_cgroup(name):
    """A new cgroup below our own, and why there is none."""
    try:
        line = next((t for t in Path("/proc/self/cgroup").read_text().splitlines() if t.startswith("0::")), None)
        if line is None:
            return None, "no unified cgroup hierarchy"
        own = Path("/sys/fs/cgroup" + line[3:])
        (own / "cgroup.procs").read_text()  # else this is no such hierarchy
        (own / name).mkdir(exist_ok=True)
        return own / name, None
    except OSError as error:
        return None, f"no cgroup can be made here: {error}"


def int_of(word):
    return round(word) if isinstance(word, float) else word


def finish(program, timeout=60):
    """Ends a flat program and gives its lines {"t", "done"}; wrong results or a bad end are trouble."""
    program.process.terminate()
    lines = []
    deadline = time.monotonic() + timeout
    while not lines or "wrong" not in lines[-1]:
        lines.append(json.loads("{" + program.expect("{", max(0.1, deadline - time.monotonic()))))
    if lines[-1]["wrong"]:
        raise Trouble(f"{lines[-1]['wrong']} words on the device are wrong after {lines[-1]['done']} kernels")
    status = program.end()
    if status:
        raise Trouble(f"{program.name}: exit status {status}: {program.last_words()}")
    program.require_counted()
    return lines


def done_at(lines, when):
    """Kernels done at a time, between two lines in proportion."""
    before = [x for x in lines if x["t"] <= when][-1:] or lines[:1]
    after = [x for x in lines if x["t"] > when][:1] or lines[-1:]
    (a,), (b,) = before, after
    if b["t"] <= a["t"]:
        return a["done"]
    return a["done"] + (b["done"] - a["done"]) * (when - a["t"]) / (b["t"] - a["t"])


def rate_of(lines, begin, end):
    return (done_at(lines, end) - done_at(lines, begin)) / (end - begin)


def main():
    parser = units.parser(__doc__, "micro.jsonl")
    add_variants(parser)
    parser.add_argument("--systems", help=f"for preempt [{','.join(SYSTEMS)}]")
    parser.add_argument("names", nargs="+", choices=["preempt", "launch", "hosts", "shares", "classes", "held"], metavar="NAME")
    args = parser.parse_args()
    variants = variants_of(parser, args)
    known = (*SYSTEMS, *variants)
    only = args.systems.split(",") if args.systems else known
    unknown = [s for s in only if s not in known]
    if unknown:
        parser.error(f"--systems: {unknown[0]!r} is unknown: use {', '.join(known)}")

    def body(site, unit):
        bench = Bench(site, unit, args.quick)
        for name in args.names:
            getattr(bench, name)(*([only] if name in ("preempt", "hosts") else []))

    return units.conduct(args, body, VARIANTS | variants)


if __name__ == "__main__":
    sys.exit(main())
