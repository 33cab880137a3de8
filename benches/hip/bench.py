#!/usr/bin/env python3
"""Co-locates HIP programs on the software HIP runtime and compares what schedulers make of it.

  bench.py ladder|coloc|groups|all [--backend cpu|cuda] [--runtime DIR] [--driver DIR] [--bin DIR] [--out FILE] [--quick]
  bench.py report [--out FILE]

ladder: testing/ladders/hip/ladder.py, once. coloc: a latency-critical program (requests of 20 kernels, 2 ms) beside one best-effort program, and beside five (kernels
of 0.1 to 1 ms, eight queued before each wait). groups: three groups of two latency-critical ones, as six processes and
as six threads with streams of three priorities, at 80 % load. Systems:

  alone        the latency-critical one (of groups: one of the six) by itself
  best-effort  the best-effort programs by themselves
  native       all of them, nothing done
  xsched       xsched run, everything scheduled
  whitelist    the same, but what the BLAS-like library launches passes by a pass-through rule: all that takes long

Systems take turns, round by round, in windows in which all others are idle. Programs of a set live through all rounds;
when they end, their results are checked, and every command is looked for: launches counted by libxsched against those
counted by the runtime itself, none unscheduled but by the rule, none counted as CUDA's.

--backend cpu: the runtime's own simulated device. --backend cuda: libcuda.so.1 of this machine, or, with --driver, the
one in that folder (a stand-in). Exit status: 0, 1 where a check fails, 2 bad arguments, 3 something could not run, 75
time is up (--deadline): the same command goes on from there.
"""

import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cuda"), str(HERE.parent.parent / "testing/lib")]

import coloc  # noqa: E402
import groups  # noqa: E402
import harness  # noqa: E402
import place  # noqa: E402
import records  # noqa: E402
import roles  # noqa: E402
import systems  # noqa: E402
import units  # noqa: E402
from systems import Trouble, Variant, Worker  # noqa: E402

LADDER = HERE.parent.parent / "testing/ladders/hip/ladder.py"
LADDER_S = 240  # it may take
STEPS = ("ladder", "coloc", "groups")
MIXES = {"1 high + 1 low": ["lc", "be"], "1 high + 5 low": ["lc"] + ["be"] * 5}
SYSTEMS = ("alone", "best-effort", "native", "xsched", "whitelist")
ONLY = {"alone": "lc", "best-effort": "be"}  # served by the native processes
VARIANTS = {
    "xsched": Variant("XSCHED_PLATFORMS=hip"),
    "whitelist": Variant("XSCHED_PLATFORMS=hip XSCHED_PASSTHROUGH_LIBS=fakeblas"),
}
RATE = 50.0  # requests per second of coloc: a tenth of the device, less than a sixth, or native would only queue
GROUP_RATE = 66.0  # of each of the six of groups: together four fifths of the device
REQUESTS = 1000  # behind each P99
ROUNDS = 5
LEAD_S = 0.5  # best-effort work begins so much earlier
QUICK_S = 1.0  # of a window
LEAST_S = 2.0
START_S = 120


def turns(names, rounds):
    """(round, system) in the order of measuring: every round begins with another system."""
    return [(r, name) for r in range(rounds) for name in names[r % len(names) :] + names[: r % len(names)]]


def window_s(rate, rounds, share=1):
    """Seconds of a window, so that REQUESTS come from `share` programs at this rate over all rounds."""
    return max(LEAST_S, 1.02 * REQUESTS / (rate * rounds * share))


# ---- checks ----------------------------------------------------------------------------------------------------------


def wrong_counts(system, counted, commands, library, platforms):
    """What a program's counts say that should not be: libxsched's line, the runtime's commands, those of them that the
    library gave, and launches by platform as the daemon saw them. A list of sentences."""
    found = []
    if counted["launches"] != commands:
        found.append(f"{counted['launches']} launches counted, {commands} commands reached the device")
    passing = library if system == "whitelist" else 0
    wanted = {"attach": 0, "passthrough": passing, "error": 0}
    if counted["unscheduled"] != wanted:
        found.append(f"unscheduled {json.dumps(counted['unscheduled'])} instead of {json.dumps(wanted)}")
    others = {name: n for name, n in platforms.items() if name != "hip" and n}
    if not platforms.get("hip"):
        found.append("the daemon knows of no launch of HIP's")
    if others:
        found.append(f"launches of other platforms than HIP: {json.dumps(others)}")
    return found


def by_platform(program):
    """Launches by platform of a program in `xsched ps --json`."""
    found = {"cuda": 0}
    for group in program["groups"]:
        found[group["platform"]] = found.get(group["platform"], 0) + group["launches"]
    return found


class Set:
    """The programs of one kind as one system starts them: (class of xsched, group or role, words of the program)."""

    def __init__(self, bench, system, wanted):
        self.bench, self.system, self.members = bench, system, []
        try:
            for priority, name, words in wanted:
                self.start(priority, name, words)
        except BaseException:
            self.close()
            raise

    def start(self, priority, name, words):
        bench = self.bench
        command, env = bench.site.command(self.system, priority, [bench.place.load, *words])
        bench.started += 1
        counts = bench.site.work / f"runtime{bench.started}"
        log = bench.site.work / f"{self.system}{bench.started}.err"
        worker = Worker(f"{name or words[0]} ({self.system})", command, bench.place.environment(env, counts), log)
        self.members.append((name, worker, counts))

    def workers(self):
        return [worker for _, worker, _ in self.members]

    def window(self, mode_of, seconds, rate, most=None):
        """One window; what each member says that `mode_of(name)` has a mode for, with its name; of `most` at most."""
        working = [(name, worker, mode_of(name)) for name, worker, _ in self.members[:most] if mode_of(name)]
        begin = time.monotonic() + LEAD_S
        for _, worker, order in working:
            worker.send(f"go {order} {begin:.6f} {begin + seconds:.6f} {rate:.4f}")
        said = [(name, json.loads(worker.expect("RESULT", seconds + 60))) for name, worker, _ in working]
        self.bench.site.require_seen(self.system, [worker for _, worker, _ in working])
        return [(name, finished(answer, begin, begin + seconds)) for name, answer in said]

    def check(self):
        """Ends the programs; their counts, and what is wrong with them."""
        seen = {p["pid"]: by_platform(p) for p in self.bench.ps(self.system)}
        found, wrong = [], []
        for name, worker, counts in self.members:
            worker.send("quit")
            library = json.loads(worker.expect("DONE", START_S))["library"]
            status = worker.end()
            commands = sum(line["commands"] for line in harness.json_lines(counts))
            entry = {"name": name, "status": status, "commands": commands, "library": library}
            problems = [] if status == 0 else [f"exit status {status}: {worker.last_words()}"]
            if worker.stats:
                lines = [line for line in harness.json_lines(worker.stats) if line["pid"] == worker.process.pid]
                platforms = seen.get(worker.process.pid, {})
                entry |= {"counted": lines, "platforms": platforms}
                problems += (
                    wrong_counts(self.system, lines[0], commands, library, platforms)
                    if len(lines) == 1
                    else [f"{len(lines)} lines of statistics instead of one"]
                )
            found.append(entry)
            wrong += [f"{self.system}, {name or 'program'}: {problem}" for problem in problems]
        return found, wrong

    def close(self):
        systems.end_all(self.workers())


def finished(answer, start, end):
    """An answer with its rate instead of its marks."""
    if "marks" not in answer:
        return answer
    flat = answer["marks"]
    marks = list(zip(flat[::2], flat[1::2]))
    rest = {k: v for k, v in answer.items() if k != "marks"}
    return rest | roles.rate_between(marks, start, end)


# ---- measuring -------------------------------------------------------------------------------------------------------


class Bench:
    """One run: where, with what, and what went wrong."""

    def __init__(self, args, site, unit):
        self.args, self.site, self.unit = args, site, unit
        self.place = place.Place(args.bin, args.runtime, args.backend, args.driver, site.work)
        self.where, self.digest = self.place.label(), self.place.digest()
        self.rounds = 1 if args.quick else args.rounds
        self.started, self.kernel = 0, None

    def ps(self, system):
        daemon = self.site.daemons.get(system)
        return (daemon.ps() or {}).get("programs", []) if daemon else []

    def kernels(self):
        """The word that tells the programs what to run; on a real device, measured once for all systems and rounds."""
        if self.place.simulated:
            return "spin"
        if self.kernel is None:
            known = [
                r for r in records.load(self.args.out) if r["bench"] == "hip-kernel" and r["digest"] == self.digest
            ]
            found = known[-1] if known else self.calibrate()
            self.kernel = f"gemm:{found['base_ns']}:{found['ns_per_k']}"
        return self.kernel

    def calibrate(self):
        command, env = self.site.command("native", "lc", [self.place.load, "calibrate"])
        env = self.place.environment(env, self.site.work / "calibrate")
        worker = Worker("calibrate", command, env, self.site.work / "calibrate.err")
        try:
            found = json.loads(worker.expect("RESULT", START_S))
        finally:
            status = worker.end()
        if status != 0:
            raise Trouble(f"calibrate ended with {status}: {worker.last_words()}")
        record = {"bench": "hip-kernel", "digest": self.digest, **found}
        records.append(self.args.out, record)
        return record

    def case(self, what, system):
        return f"{self.where}, {self.digest}: {what} / {system}"

    def about(self, what, system):
        return {"what": what, "where": self.where, "digest": self.digest, "system": system}

    def measure(self, bench, what, names, wanted, body, seconds):
        """All windows of one mix or kind that are missing. `wanted` lists a set's programs, `body(set, system)` measures
        a window, `seconds(system)` is how long that takes."""
        order = [(r, s) for r, s in turns(names, self.rounds) if self.unit.missing(bench, self.case(what, s), r)]
        of = {s: "native" if s in ONLY else s for _, s in order}
        if not order:
            return
        if not self.unit.deadline.allows(20 + seconds(order[0][1])):
            self.unit.finished = False
            return
        sets = {}
        try:
            for system in dict.fromkeys(of.values()):
                sets[system] = Set(self, system, wanted)
            everyone = [w for one in sets.values() for w in one.workers()]
            for worker in everyone:
                worker.expect("IMPORTED", START_S)
            systems.warm(everyone, (), START_S)
            for number, system in order:
                self.unit.run(
                    bench,
                    self.case(what, system),
                    number,
                    seconds(system) + LEAD_S + 1,
                    lambda system=system: self.about(what, system) | body(sets[of[system]], system),
                )
            for system, one in sets.items():
                self.check(bench, what, system, one)
        except (Trouble, RuntimeError, OSError) as error:
            # The other mixes and kinds are measured all the same.
            self.unit.troubles.append(f"{what}: {error}")
        finally:
            for one in sets.values():
                one.close()

    def check(self, bench, what, system, one):
        found, wrong = one.check()
        record = {"bench": f"{bench}-check", "build": self.unit.build, **self.about(what, system)}
        records.append(self.args.out, record | {"programs": found, "wrong": wrong})

    def wrong(self):
        """What checks and the ladder found, of this build here, also in runs before."""
        found, mine = [], (self.unit.build, self.digest, self.where)
        for record in records.load(self.args.out):
            if (record.get("build"), record.get("digest"), record.get("where")) == mine:
                found += [f"{record['what']}: {line}" for line in record.get("wrong", [])]
                failed = [e for e in record.get("results", []) if not e["ok"]]
                found += [f"ladder, {e['mode']}, {e['program']}: {e.get('problem')}" for e in failed]
        return found

    def ladder(self):
        """Every program of the compatibility ladder on this back end, bare and scheduled."""
        args, out = self.args, self.site.work / "ladder.json"
        command = [sys.executable, LADDER, "--bin", args.bin, "--runtime", self.place.runtime, "--json", out]
        command += ["--work", self.site.work / "ladder", "--backend", args.backend]
        command += ["--driver", args.driver] if args.driver else []
        command += ["--modes", "xsched"] if args.quick else []

        def body():
            done = harness.run(command, timeout=LADDER_S)
            if not out.exists() or not (done.timed_out or done.status in (0, 1)):
                raise Trouble(f"the ladder ends with {done.status}: {(done.stdout + done.stderr)[-500:]}")
            said = json.loads(out.read_text())
            if done.timed_out:  # what it had finished counts
                last = (done.stdout.splitlines() or ["nothing"])[-1]
                problem = f"did not end within {LADDER_S} s, after: {last}"
                said["results"].append({"program": "(all)", "mode": "left", "ok": False, "problem": problem})
            return {"where": self.where, "digest": self.digest, "modes": by_mode(said["results"])} | said

        self.unit.run("hip-ladder", f"{self.where}, {self.digest}", 0, LADDER_S, body)

    def coloc(self):
        names = [s for s in SYSTEMS if s in self.args.systems]

        def length(system):
            if self.args.quick:
                return QUICK_S
            return LEAST_S if system == "best-effort" else window_s(RATE, self.rounds)

        def body(one, system):
            said = [answer for _, answer in one.window(lambda kind: mode(kind, system), length(system), RATE)]
            return {"secs": length(system), "brief": coloc.brief(said), "roles": said}

        for mix, kinds in MIXES.items():
            wanted = [(kind, kind, [kind, self.kernels()]) for kind in kinds]
            self.measure("hip-coloc", mix, names, wanted, body, length)

    def groups(self):
        names = [s for s in SYSTEMS if s in self.args.systems and s != "best-effort"]
        secs = QUICK_S if self.args.quick else window_s(GROUP_RATE, self.rounds, 2)

        def length(system):
            return 2 * secs if system == "alone" else secs  # half as many are at work

        def body(one, system):
            if system == "alone":
                found = {"alone": one.window(lambda _: "alone", length(system), GROUP_RATE, 1)[0][1]["latency_ms"]}
            else:
                found = groups.together(one.window(lambda _: "paced", length(system), GROUP_RATE))
            if not all(found.values()):
                raise Trouble("a group completed no request in its window")
            shown = {g: records.latencies(v)["p99"] for g, v in found.items()}
            return {"rate": GROUP_RATE, "secs": length(system), "p99": shown, "latency_ms": found}

        for kind in self.args.kinds:
            processes = [(priority, group, ["lc", self.kernels()]) for group, priority in groups.PRIORITIES]
            threads = [("normal", None, ["threads", self.kernels()])]
            self.measure("hip-groups", kind, names, processes if kind == "processes" else threads, body, length)


def by_mode(results):
    """Mode of the ladder -> runs that went well, runs, launches."""
    found = {}
    for entry in results:
        row = found.setdefault(entry["mode"], {"well": 0, "runs": 0, "launches": 0})
        row["well"] += entry["ok"]
        row["runs"] += 1
        row["launches"] += entry.get("launches", 0)
    return found


def mode(kind, system):
    """What a program of a mix does in a system's window; nothing if it is idle."""
    return {"lc": "paced", "be": "flat"}[kind] if ONLY.get(system, kind) == kind else None


# ---- report ----------------------------------------------------------------------------------------------------------


def newest(found):
    """Of records of one kind and place, those of the build and programs measured last."""
    return [r for r in found if (r["build"], r["digest"]) == (found[-1]["build"], found[-1]["digest"])] if found else []


def by_round(found, values_of):
    """P99 of each round, by round; `values_of(record)` are a record's latencies."""
    return {r["round"]: records.percentile(values_of(r), 0.99) for r in found if values_of(r)}


def relative_rounds(mine, alone):
    """Median and range of the rounds' P99, each relative to the same round of `alone`: a round in which the machine stood
    still counts as one of them."""
    ratios = [mine[r] / alone[r] for r in mine if r in alone]
    return f"{records.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else None


def row_of(values, rounds, alone):
    """What both tables say of latencies in ms: all rounds together, and the rounds' P99s."""
    found = records.latencies(values)
    median = round(records.median(rounds.values()), 2)
    return *(round(found[k], 2) for k in ("p50", "p90", "p99")), median, relative_rounds(rounds, alone), found["n"]


LATENCY_HEAD = ("P50 ms", "P90 ms", "P99 ms", "P99 ms, median of rounds", "to alone, by round (range)", "n")
MIX_HEAD = ("system", *LATENCY_HEAD, "best effort per s", "of the time left")
GROUP_HEAD = ("system", "group", *LATENCY_HEAD)


def mix_rows(found):
    """Rows of one mix, by system."""
    summed, rows = coloc.summary(found)["systems"], []
    rounds = {s: by_round([r for r in found if r["system"] == s], lambda r: coloc.pooled([r])) for s in SYSTEMS}
    for system in [s for s in SYSTEMS if s in summed]:
        values = coloc.pooled([r for r in found if r["system"] == system])
        latency = row_of(values, rounds[system], rounds["alone"]) if values else (None,) * len(LATENCY_HEAD)
        per_s, left = summed[system].get("best_effort_per_s", {}).get("be"), None
        if system not in ONLY and "best_effort_of_time_left" in summed[system]:
            left = f"{100 * summed[system]['best_effort_of_time_left']:.1f} %"
        rows.append((system, *latency, per_s, left))
    return rows


def group_rows(found):
    """Rows of one kind of groups, by system and group."""
    rows, alone = [], by_round(found, lambda r: r["latency_ms"].get("alone"))
    for system in SYSTEMS:
        mine = [r for r in found if r["system"] == system]
        for group in ("alone", "high", "middle", "low"):
            values = [v for r in mine for v in r["latency_ms"].get(group, [])]
            if values:
                rounds = by_round(mine, lambda r, group=group: r["latency_ms"].get(group))
                rows.append((system, group, *row_of(values, rounds, alone)))
    return rows


CHECK_HEAD = ("system", "programs", "commands", "scheduled", "passed by the rule", "CUDA's", "wrong")


def check_rows(found):
    """Rows of the checks of one mix or kind: sums over each system's programs, which a run that was continued started
    more than once."""
    rows = []
    for system in dict.fromkeys(r["system"] for r in found):
        mine = [r for r in found if r["system"] == system]
        programs, wrong = [p for r in mine for p in r["programs"]], sum(len(r["wrong"]) for r in mine)
        commands = sum(p["commands"] for p in programs)
        if not any("counted" in p for p in programs):
            rows.append((system, len(programs), commands, None, None, None, wrong))
            continue
        lines = [line for p in programs for line in p["counted"]]
        passing = sum(line["unscheduled"]["passthrough"] for line in lines)
        launches, cuda = sum(line["launches"] for line in lines), sum(p["platforms"].get("cuda", 0) for p in programs)
        rows.append((system, len(programs), commands, launches - passing, passing, cuda, wrong))
    return rows


LADDER_HEAD = ("mode", "runs", "as they must be", "launches")


def ladder_tables(everything):
    """A table for each place that the ladder ran at, of its last run there."""
    parts = []
    for where, record in {r["where"]: r for r in everything if r["bench"] == "hip-ladder"}.items():
        rows = [(m, row["runs"], row["well"], row["launches"] or None) for m, row in record["modes"].items()]
        skipped = "".join(f"\n\nNot run: {reason}" for reason in record["skipped"])
        parts.append(f"### ladder ({where})\n\n{records.table(LADDER_HEAD, rows)}{skipped}\n")
    return parts


def markdown(path):
    """All tables that a file of results makes."""
    everything = records.load(path)
    parts = ladder_tables(everything)
    places = dict.fromkeys((r["bench"], r["where"], r["what"]) for r in everything if "what" in r)
    for bench, where, what in places:
        if bench not in ("hip-coloc", "hip-groups"):
            continue
        mine = [r for r in everything if r.get("where") == where and r.get("what") == what]
        windows = newest([r for r in mine if r["bench"] == bench])
        checks = newest([r for r in mine if r["bench"] == f"{bench}-check"])
        title = f"{what} ({where})" if bench == "hip-coloc" else f"three groups of two, {what} ({where})"
        if bench == "hip-coloc":
            figures = records.table(MIX_HEAD, mix_rows(windows))
        else:
            figures = records.table(GROUP_HEAD, group_rows(windows))
        parts.append(f"### {title}\n\n{figures}\n\n{records.table(CHECK_HEAD, check_rows(checks))}\n")
    return "\n".join(parts)


# ---- command ---------------------------------------------------------------------------------------------------------


def arguments(words=None):
    parser = units.parser(__doc__, "hip.jsonl")
    parser.add_argument("what", choices=(*STEPS, "all", "report"))
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu", help="[%(default)s]")
    parser.add_argument("--runtime", type=Path, default=place.default_runtime(), help="folder of libamdhip64.so.6")
    parser.add_argument("--driver", type=Path, help="folder of a stand-in for libcuda.so.1")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="separated by commas [%(default)s]")
    parser.add_argument("--kinds", default="processes,threads", help="of groups [%(default)s]")
    parser.add_argument("--rounds", type=coloc.natural, default=ROUNDS, help="[%(default)s]")
    args = parser.parse_args(words)
    for name, known in (("systems", SYSTEMS), ("kinds", ("processes", "threads"))):
        setattr(args, name, getattr(args, name).split(","))
        if unknown := [word for word in getattr(args, name) if word not in known]:
            parser.error(f"--{name}: {unknown[0]!r} is unknown: use {', '.join(known)}")
    if args.quick:
        args.out = args.out.parent / "quick" / args.out.name  # never among the others
    if args.driver and args.backend != "cuda":
        parser.error("--driver is for --backend cuda")
    return args


def measure_all(args):
    """Measures what is missing; gives the exit status."""
    wrong = []

    def body(site, unit):
        bench = Bench(args, site, unit)
        try:
            for name in STEPS if args.what == "all" else (args.what,):
                getattr(bench, name)()
        finally:
            wrong.extend(bench.wrong())

    try:
        status = units.conduct(args, body, VARIANTS)
    except (Trouble, harness.Skip, RuntimeError, OSError) as error:
        print(f"bench.py: {error}", file=sys.stderr)
        status = 3
    for line in wrong:
        print(f"WRONG {line}", file=sys.stderr)
    return 1 if wrong else status


def main():
    args = arguments()
    status = 0 if args.what == "report" else measure_all(args)
    print(markdown(args.out))
    return status


if __name__ == "__main__":
    sys.exit(main())
