#!/usr/bin/env python3
"""The CUDA compatibility ladder: every program gives the same results and errors, whatever the scheduler does.

    ladder.py --bin DIR --work DIR [--json FILE] [--part K/N] [--only NAME,…] [--modes MODE,…]

Every program runs in these modes:
  bare       without anything, twice; a third time if the two differ: what the libraries themselves vary by
  xsched     under `xsched run`, each program alone under a daemon of its own
  counted    the same, with CUPTI counting what reaches the device: equal to what libxsched counted
  behind     at low priority, beside a rival of high priority that takes half of the device's time
  ahead      at high priority, beside a rival of low priority that takes all it gets
  inside     the same in the inner pool, with the rival in the same MPS server; a program of long kernels may be elsewhere,
             one that makes a kernel fault is left out; the JSON file tells where each was
  swap       under `xsched run`, with device memory that leaves for the host and comes back at random times
  chaos-1, chaos-2, chaos-3
             under a daemon that suspends and resumes the program at random, at this level

In each but the first: exit status, output and errors as bare, to the bit or within what the bare runs differ by, and no
command unscheduled. Finished runs are remembered in the JSON file and not repeated unless the scheduler or the program
has changed; --again repeats those that failed.

Exit codes: 0 all well, 1 a difference, 2 bad arguments, 3 nothing could run, 75 out of time: run the same again.
"""

import argparse
import ctypes
import glob
import json
import os
import shutil
import signal
import site
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
for folder in ("testing/ladders/cuda/programs", "testing/lib", "benches/cuda"):
    sys.path.insert(0, str(ROOT / folder))

import catalog  # noqa: E402
import harness  # noqa: E402
import judge  # noqa: E402
import machine  # noqa: E402
import plan  # noqa: E402

HERE = Path(__file__).resolve().parent
OUT_OF_TIME = 75
SEED = "1"  # of the chaos policy, and of moves of memory
PRIORITIES = {"behind": ("low", "high"), "ahead": ("high", "low"), "inside": ("high", "low")}  # of the program and of its rival
# Of the rival: µs a kernel, kernels a batch, µs a period.
RIVALS = {"behind": ("500", "10", "10000"), "ahead": ("500", "4", "0"), "inside": ("100", "4", "0")}
# Every program that is not known as unsuitable is in the inner pool.
INSIDE = '[pool]\nurgent = "inside"\nproven_minutes = 0\n'
TOOLS = f"{os.environ.get('PATH', '')}:/usr/local/nvidia/bin:/usr/bin"  # folders in which the MPS daemon may be
PLACES_S = 0.2  # between two looks at where programs are
SPARE_S = 30  # kept back from --budget for ending things


class OutOfTime(Exception):
    pass


class Tools:
    """The C programs and the counting library: taken from --bin, or built into the work folder."""

    def __init__(self, binaries, work):
        self.binaries, self.built = binaries, work / "built"
        self.reasons = {}

    def program(self, name):
        carried = self.binaries / name
        if carried.exists():
            return carried
        sources = [folder / f"{name}.c" for folder in (HERE / "programs", catalog.OWN)]
        source = next((file for file in sources if file.exists()), sources[0])
        return harness.compile_c(source, self.built / name, "-ldl", "-lpthread", "-lm")

    def counting(self):
        """Environment that counts by CUPTI, or None and the reason."""
        cupti = find_cupti()
        if cupti is None:
            return None, "no libcupti.so (toolkit, or the nvidia-cuda-cupti package)"
        library = self.binaries / "count.so"
        try:
            if not library.exists():
                library = harness.compile_c(
                    HERE / "count/count.c", self.built / "count.so", "-ldl", "-lpthread", shared=True
                )
        except harness.Skip as reason:
            return None, str(reason)
        return {"CUDA_INJECTION64_PATH": str(library), "COUNT_CUPTI": str(cupti)}, None


def find_cupti():
    """CUPTI of the Python packages, which PyTorch uses too, else of the toolkit."""
    folders = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    patterns = [f"{f}/nvidia/{kind}/lib/libcupti.so.*" for f in folders for kind in ("cu13", "cuda_cupti")]
    patterns += ["/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*", "/usr/local/cuda*/lib64/libcupti.so*"]
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return found[0] if found else None


class Places(threading.Thread):
    """Records where the programs of a daemon are: process id -> `inner`, `outer`, or how it shares its GPU otherwise."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.source, self.found, self.reasons, self.over = daemon, {}, {}, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(PLACES_S):
            self.look()

    def look(self):
        for program in (self.source.ps() or {"programs": []})["programs"]:
            where = program.get("pool") or program.get("share")
            if where:
                self.found[program["pid"]] = where
                self.reasons[program["pid"]] = program.get("pool_why")

    def of(self, pids):
        return sorted({self.found[pid] for pid in pids if pid in self.found})

    def end(self):
        self.over.set()
        self.join()


class Ladder:
    def __init__(self, options, results, tools, deadline):
        self.options, self.results, self.tools, self.deadline = options, results, tools, deadline
        self.work, self.xsched = options.work, options.bin / "xsched"
        self.lock = threading.Lock()
        self.stopped, self.places = False, None
        self.left, self.files = 0, 0
        self.logs = self.work / "runs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.env = environment(self.work)
        self.count_env, self.no_count = tools.counting()

    def stop(self, *_):
        """On SIGTERM and SIGINT: nothing is left running, what is finished is remembered."""
        self.stopped, self.deadline = True, 0.0
        harness.end_all()

    # -- one run

    def fresh(self, name):
        """A file name not used before."""
        with self.lock:
            self.files += 1
            return self.logs / f"{self.files}-{name}"

    def execute(self, program, prefix=(), extra=None):
        """Runs a program to its end, or raises OutOfTime when there is none left for it."""
        left = self.deadline - time.monotonic()
        if left < program.seconds:
            raise OutOfTime
        folder = self.fresh(program.name)
        folder.mkdir()
        env = self.env | program.env | (extra or {})
        limit = min(program.timeout, left + SPARE_S / 2)
        outcome = harness.run([*prefix, *program.command], env=env, timeout=limit, cwd=folder)
        # Results say nothing of where the checkout lies.
        outcome.stdout, outcome.stderr = (text.replace(f"{ROOT}/", "") for text in (outcome.stdout, outcome.stderr))
        if self.stopped or (outcome.timed_out and limit < program.timeout):
            raise OutOfTime
        return outcome

    def bare(self, program):
        runs = [self.execute(program), self.execute(program)]
        if not runs[0].timed_out and runs[0].status == 3 != program.status:
            return self.skip(program, (runs[0].stdout + runs[0].stderr).strip().removeprefix("skip: "))
        if program.refusable and runs[0].status != program.status:
            return self.skip(program, f"it refuses to work here, without xsched too: {judge.tail(runs[0])}")
        for run in runs:
            run.stdout = program.stdout(run.stdout)
        if judge.needs_third(runs):
            runs.append(self.execute(program))
            runs[-1].stdout = program.stdout(runs[-1].stdout)
        reference, problem = judge.reference(runs)
        if problem is None and reference["status"] != program.status:
            problem = f"exit status {reference['status']}\n{judge.tail(runs[0])}"
        self.note(program, "bare", problem, seconds=min(r.seconds for r in runs), reference=reference, runs=len(runs))

    def scheduled(self, program, mode, daemon=None):
        """One run under xsched: under the daemon given, or one of its own."""
        bare = self.results.find(program.name, "bare")
        if bare is None or bare["source"] != program.source() or bare.get("reference") is None:
            return
        reference = bare["reference"]
        with tempfile.TemporaryDirectory(prefix="lad-") as folder:  # sockets have short names
            own = None
            try:
                if daemon is None:
                    daemon = own = self.daemon(folder, mode)
                self.judged(program, mode, reference, daemon)
                if not daemon.running():
                    raise RuntimeError(f"the daemon ended: {daemon.stderr.read_text()[-2000:]}")
            except RuntimeError as error:
                self.note(program, mode, str(error))
            finally:
                if own is not None:
                    own.stop()

    def daemon(self, folder, mode):
        if mode.startswith("chaos"):
            return harness.Daemon(self.xsched, folder, "chaos", "--seed", SEED)
        if mode == "inside":
            config = Path(folder) / "config.toml"
            config.write_text(INSIDE)
            return harness.Daemon(self.xsched, folder, "hpf", "--config", config, env={"PATH": TOOLS})
        return harness.Daemon(self.xsched, folder, "hpf")

    def judged(self, program, mode, reference, daemon):
        stats_file, counts_file = self.fresh("stats"), self.fresh("counts")
        extra = {"XSCHED_STATS": str(stats_file)}
        if mode == "swap":
            extra |= {"XSCHED_MEMORY": "swap"}
            # Memory that is away would leave room where the program expects none.
            extra |= {} if program.fills else {"XSCHED_MEMORY_MOVES": SEED}
        if mode == "counted":
            extra |= self.count_env | {"COUNT_OUT": str(counts_file)}
        prefix = [self.xsched, "run", "--socket", daemon.socket, *self.options_of(mode), "--"]
        outcome = self.execute(program, prefix, extra)
        outcome.stdout = program.stdout(outcome.stdout)
        stats, counts = harness.json_lines(stats_file), harness.json_lines(counts_file)
        problems = [judge.differences(reference, outcome), judge.unscheduled(stats)]
        if program.reports and not any(s["launches"] for s in stats):
            problems.append("libxsched reports no command: was it loaded?")
        if mode == "counted":
            if not sum(c["total"] for c in counts):
                problems.append("CUPTI counted nothing")
            problems.append(judge.miscounted(counts, stats))
        # Programs side by side may have all of the device's room for a moment, and memory then stays on the host.
        moved, reasons = [s["residency"] for s in stats if s.get("residency")], Counter()
        for each in moved:
            reasons.update(each.get("why", {}))
        if failed := {why: count for why, count in reasons.items() if not why.startswith("no room")}:
            problems.append(f"moves of memory failed: {json.dumps(failed)}")
        self.note(
            program,
            mode,
            "\n".join(filter(None, problems)) or None,
            seconds=outcome.seconds,
            launches=sum(s["launches"] for s in stats),
            gate_waits=sum(s.get("gate_waits", 0) for s in stats),
            counted=sum(c["total"] for c in counts) if mode == "counted" else None,
            moves=sum(m["moves"] for m in moved) if mode == "swap" else None,
            places=self.places.of([s["pid"] for s in stats]) if self.places else None,
            said=judge.scheduler_lines(outcome.stderr)[:5],
        )

    def options_of(self, mode):
        if mode.startswith("chaos"):
            return ["--level", mode.removeprefix("chaos-")]
        return ["--priority", PRIORITIES[mode][0]] if mode in PRIORITIES else []

    # -- what is recorded

    def note(self, program, mode, problem, seconds=0.0, **facts):
        """Records and prints one result; `problem` is None when all is well."""
        facts = {name: value for name, value in facts.items() if value not in (None, [])}
        with self.lock:
            if self.stopped:  # what has just ended was ended by us
                self.left += 1
                return
            self.results.record(
                program.name,
                mode,
                problem is None,
                seconds=round(seconds, 2),
                problem=problem,
                source=program.source(),
                **facts,
            )
            launches = f"  {facts['launches']} launches" if "launches" in facts else ""
            print(
                f"{'ok  ' if problem is None else 'FAIL'} {mode:8} {program.name:20} {seconds:6.1f} s{launches}",
                flush=True,
            )
            for line in facts.get("said", []):
                print(f"     {line}", flush=True)
            if problem is not None:
                print("     " + problem.replace("\n", "\n     "), flush=True)

    def skip(self, program, reason):
        with self.lock:
            self.results.skip(program.name, reason)
            print(f"skip {program.name}: {reason}", flush=True)

    # -- all runs of a mode

    def mode(self, mode, programs):
        if mode == "counted" and self.count_env is None:
            print(f"skip counted: {self.no_count}")
            self.results.skip("counted", self.no_count)
            return
        if mode == "inside" and not shutil.which("nvidia-cuda-mps-control", path=TOOLS):
            print("skip inside: nvidia-cuda-mps-control is missing")
            self.results.skip("inside", "nvidia-cuda-mps-control is missing")
            return
        todo = [
            p
            for p in programs
            if mode in plan.modes_of(p, self.options.modes) and p.name not in self.results.content["skipped"]
        ]
        todo = [p for p in todo if not self.results.finished(p.name, mode, p.source(), self.options.again)]
        if not todo:
            return
        if time.monotonic() > self.deadline:
            self.left += len(todo)
        elif mode in PRIORITIES:
            self.contended(mode, todo)
        elif mode == "bare":
            self.parallel(self.bare, todo)
        else:
            self.parallel(lambda program: self.scheduled(program, mode), todo)

    def parallel(self, work, programs):
        """The long ones first, a few at a time; then those that take all of the device's memory, one by one."""

        def one(program):
            try:
                work(program)
            except OutOfTime:
                with self.lock:
                    self.left += 1
            except OSError as error:  # a program that cannot be started at all
                self.skip(program, str(error))

        longest_first = sorted(programs, key=lambda p: -p.seconds)
        with ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(one, [p for p in longest_first if not p.fills]))
        for program in longest_first:
            if program.fills:
                one(program)

    def contended(self, mode, programs):
        """All programs under one daemon, with a rival of the priority that the mode says."""
        rival = catalog.Program("(rival)", [self.tools.program("rival"), *RIVALS[mode]], 0)
        stats = self.fresh("rival-stats")
        with tempfile.TemporaryDirectory(prefix="lad-") as folder:
            daemon = other = None
            try:
                daemon = self.daemon(folder, mode)
                prefix = [self.xsched, "run", "--socket", daemon.socket, "--priority", PRIORITIES[mode][1], "--"]
                other = harness.Background(
                    [*prefix, *rival.command], self.env | {"XSCHED_STATS": str(stats)}, self.logs, f"rival-{mode}"
                )
                other.wait_for("rival: ready")
                if mode == "inside":
                    self.places = Places(daemon)
                    self.places.look()
                    where = self.places.found.get(other.process.pid)
                    if where != "inner":
                        why = self.places.reasons.get(other.process.pid) or "the daemon does not tell why"
                        raise RuntimeError(f"it is not in the inner pool but in {where}: {why}")
                # All best-effort programs of this daemon share a pool: those that make a kernel fault are alone in it.
                self.parallel(lambda program: self.scheduled(program, mode, daemon), [p for p in programs if not p.faults])
                for program in (p for p in programs if p.faults):
                    self.parallel(lambda program: self.scheduled(program, mode, daemon), [program])
                self.rival_ended_well(rival, mode, other, stats)
            except RuntimeError as error:
                self.note(rival, mode, str(error))
            finally:
                if self.places:
                    self.places.end()
                    self.places = None
                for process in filter(None, (other, daemon)):
                    process.stop()

    def rival_ended_well(self, rival, mode, other, stats_file):
        """Ends the rival, which must still run, find its own results right, and have been scheduled."""
        early = not other.running()
        status, said = other.stop(), other.stdout.read_text().strip()
        stats = harness.json_lines(stats_file)
        problem = judge.unscheduled(stats)
        if early or status != 0:
            problem = (
                f"{'ended early, ' if early else ''}exit status {status}: {said} {other.stderr.read_text()[-1000:]}"
            )
        self.note(rival, mode, problem, launches=sum(s["launches"] for s in stats),
                  gate_waits=sum(s.get("gate_waits", 0) for s in stats))  # fmt: skip


def environment(work):
    """The environment of all programs: caches are theirs alone and survive, so that compilers run once."""
    home = work / "home"
    home.mkdir(parents=True, exist_ok=True)
    dropped = ("XSCHED_", "LD_PRELOAD", "CUDA_INJECTION", "COUNT_", "PYTORCH_", "XLA_")
    env = {k: v for k, v in os.environ.items() if k == "XSCHED_JOURNAL" or not k.startswith(dropped)}
    return env | {
        "HOME": str(home),
        "PYTHONUSERBASE": site.getuserbase(),  # packages may lie in the real home
        "XDG_CACHE_HOME": str(home / "cache"),
        "CUDA_CACHE_PATH": str(home / "cuda"),
        "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
        "TRITON_CACHE_DIR": str(home / "triton"),
        "CUPY_CACHE_DIR": str(home / "cupy"),
        "NUMBA_CACHE_DIR": str(home / "numba"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "LC_ALL": "C.UTF-8",
    }


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, help="folder with xsched and libxsched.so")
    parser.add_argument("--work", type=Path, help="folder for what is built and written")
    parser.add_argument("--json", type=Path, help="results, added to what is there")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="only the K-th of N parts of the programs")
    parser.add_argument("--only", metavar="NAME,…", help="only these programs")
    parser.add_argument("--modes", default=",".join(plan.MODES), metavar="MODE,…", help="only these, and bare")
    parser.add_argument(
        "--jobs", type=int, default=max(1, min(6, (os.cpu_count() or 2) // 2)), help="programs at a time"
    )
    parser.add_argument(
        "--budget", type=float, default=450, metavar="S", help="seconds after which it stops (default: 450)"
    )
    parser.add_argument("--again", action="store_true", help="repeat what failed")
    parser.add_argument(
        "--list", action="store_true", help="list the programs of the part and their modes, run nothing"
    )
    options = parser.parse_args(arguments)
    try:
        options.part = plan.parse_part(options.part)
    except ValueError as error:
        parser.error(f"--part {error}")
    options.modes = options.modes.split(",")
    unknown = [mode for mode in options.modes if mode not in plan.MODES]
    if unknown:
        parser.error(f"unknown mode {', '.join(unknown)}; there are {', '.join(plan.MODES)}")
    if options.jobs < 1 or options.budget <= SPARE_S:
        parser.error(f"--jobs must be 1 or more, --budget more than {SPARE_S}")
    if not options.list and (options.bin is None or options.work is None):
        parser.error("--bin and --work are needed")
    options.bin = (options.bin or Path("bin")).resolve()
    missing = [name for name in ("xsched", "libxsched.so") if not (options.bin / name).exists()]
    if not options.list and missing and options.modes != ["bare"]:
        parser.error(f"{options.bin} does not hold {' and '.join(missing)}")
    return parser, options


def choose(parser, options, everything):
    """The programs of this call."""
    if options.only:
        wanted = options.only.split(",")
        unknown = [name for name in wanted if name not in [p.name for p in everything]]
        if unknown:
            parser.error(f"no program {', '.join(unknown)}; there are {', '.join(p.name for p in everything)}")
        everything = [p for p in everything if p.name in wanted]
    return plan.part(everything, *options.part, options.modes)


def list_programs(programs, modes):
    for program in programs:
        print(f"{program.name:20} {plan.cost(program, modes):6.0f} s  {' '.join(plan.modes_of(program, modes))}")


def sum_up(ladder, programs):
    """Prints what this call's programs came to; gives the exit code."""
    names = ["(rival)", *[p.name for p in programs]]
    known = [(name, mode, ladder.results.find(name, mode)) for name in names for mode in plan.MODES]
    runs = {f"{name}/{mode}": run for name, mode, run in known if run is not None}
    failed = [name for name, run in runs.items() if not run["ok"]]
    for mode in plan.MODES:
        ended = [run for name, run in runs.items() if name.endswith("/" + mode)]
        waits = sum(run.get("gate_waits", 0) for run in ended)
        if mode.startswith("chaos") and ended and not waits:
            failed.append(mode)
            print(f"FAIL {mode}: nothing was ever suspended")
        moving = [runs[f"{p.name}/swap"] for p in programs if not p.fills and f"{p.name}/swap" in runs]
        if mode == "swap" and moving and not any(run.get("moves") for run in moving):
            failed.append(mode)
            print("FAIL swap: no memory ever moved")
        told = [run for name, run in runs.items() if name.endswith("/inside") and "places" in run]
        if mode == "inside" and told:
            inner = sum("inner" in run["places"] for run in told)
            print(f"inside: {inner} of {len(told)} programs were in the inner pool")
            if not inner:
                failed.append(mode)
                print("FAIL inside: nothing was ever in the inner pool")
    skipped = ladder.results.content["skipped"]
    for name, reason in skipped.items():
        print(f"SKIPPED: {name}: {reason}")
    print(
        f"CUDA ladder: {len(programs)} programs, {len(runs)} runs, {len(failed)} failed"
        f"{': ' + ', '.join(failed) if failed else ''}; {len(skipped)} skipped, {ladder.left} left for want of time"
    )
    if ladder.left:
        return OUT_OF_TIME
    if failed:
        return 1
    return 0 if runs else 3


def main():
    parser, options = parse()
    begin = time.monotonic()
    if options.list:
        list_programs(choose(parser, options, catalog.programs(lambda name: options.bin / name)), options.modes)
        return 0
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    facts = machine.describe(options.bin)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(f"SKIPPED: the CUDA ladder: no driver: {error}")
        return 3
    try:
        results = plan.Results(options.json, facts["build"], facts)
        tools = Tools(options.bin, options.work)
        everything = catalog.programs(tools.program)
    except (harness.Skip, ValueError) as reason:
        print(f"SKIPPED: the CUDA ladder: {reason}")
        return 3
    ladder = Ladder(options, results, tools, begin + options.budget - SPARE_S)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ladder.stop)
    programs = choose(parser, options, everything)
    for program in programs:
        results.content["skipped"].pop(program.name, None)  # what was missing may be there now
        if program.gpus > max(1, len(facts["gpus"])):
            ladder.skip(program, f"needs {program.gpus} GPUs, here is {len(facts['gpus'])}")
    for mode in plan.MODES:
        if mode == "bare" or mode in options.modes:
            ladder.mode(mode, programs)
    return sum_up(ladder, programs)


if __name__ == "__main__":
    sys.exit(main())
