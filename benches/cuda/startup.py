#!/usr/bin/env python3
"""How long PyTorch programs of low priority take, start to end, when several start at once beside an urgent one.

  startup.py [--bin DIR] [--out FILE] [--systems A,B] [--variant NAME=WORDS] [--programs A,B] [--no-rival] [--limit S]

The programs are those of testing/ladders/cuda/programs: they load code, allocate, copy and compile more than they compute. The
urgent one serves a request of ten kernels of 500 µs every 10 ms. Each system has its turn with caches of its
own. Of programs that have not ended after --limit seconds it is recorded what their threads are at and what the daemon says;
they are killed. Systems: native, xsched, and variants as coloc.py has them, such as --variant l2='--level 2'.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path

import micro
import records
import units
from systems import ROOT, Trouble, Variant, Worker, end_all

PROGRAMS = ("torch_compile", "torch_text", "torch_vision", "torch_train", "torch_basic")
FOLDER = ROOT / "testing/ladders/cuda/programs"
KERNELS, KERNEL_US, PERIOD_US = 10, 500, 10_000  # of the urgent one
LIMIT_S = 120
# As a part of all measurements.
JOB = ("--variant", "level1=--level 1", "--variant", "level2=--level 2", "--limit", 90)
LOOKS = 50  # at a program that has not ended


def threads(pid):
    """Of each thread: name, processor time so far in ms, and where it is: running, or the system call it is in."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, ms = (task / "comm").read_text().strip(), int((task / "schedstat").read_text().split()[0]) // 1_000_000
            call = (task / "syscall").read_text().split()
        except OSError:
            continue  # it has ended, or the kernel does not tell
        # The arguments tell which device and what of it was asked.
        where = " ".join(["call", call[0], *call[2:3]]) if call[0].isdigit() else call[0]
        found[task.name] = (name, ms, where)
    return found


def stuck(pid):
    """Where the threads of a process are for a second, the busiest first: one line each."""
    first, where = threads(pid), {}
    for _ in range(LOOKS):
        time.sleep(1 / LOOKS)
        for task, (_, _, place) in (last := threads(pid)).items():
            where.setdefault(task, Counter())[place] += 1
    rows = [(ms - first[task][1], task == str(pid), name, task) for task, (name, ms, _) in last.items() if task in first]
    rows.sort(key=lambda row: (not row[1], -row[0]))
    tell = lambda counts: ", ".join(f"{place} {n}" for place, n in counts.most_common(4))  # noqa: E731
    return [f"{name}: {ms} ms of the last second; of {LOOKS} looks: {tell(where[t])}" for ms, _, name, t in rows[:6]]


class Startup(micro.Bench):
    def __init__(self, site, unit, args):
        super().__init__(site, unit, args.quick)
        self.args = args

    def program(self, system, name):
        words, env = self.site.command(system, "be", [sys.executable, self.args.folder / f"{name}.py"])
        caches = self.site.work / f"caches-{system}"
        env = dict(env, HF_HUB_OFFLINE="1", XDG_CACHE_HOME=str(caches), CUDA_CACHE_PATH=str(caches / "cuda"))
        env |= {"TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "TRITON_CACHE_DIR": str(caches / "triton")}
        return Worker(name, words, env, self.site.work / f"{system}-{name}.err", patience=2)

    def urgent(self, system):
        most = int(2 * self.args.limit * 1e6 / PERIOD_US)
        paced = ["flat", "paced", *self.spin(KERNEL_US), "--kernels", KERNELS, "--period-us", PERIOD_US]
        urgent = self.start(system, "lc", [*paced, "--requests", most])
        urgent.expect('{"ready"', micro.START_S)
        return urgent

    def measure(self, system):
        urgent = None if self.args.no_rival else self.urgent(system)
        began, workers, ended, where, stats, latency = time.monotonic(), [], {}, {}, {}, []
        try:
            for name in self.args.programs:
                workers.append(self.program(system, name))
            left = list(workers)
            while left and time.monotonic() < began + self.args.limit:
                for worker in [w for w in left if w.process.poll() is not None]:
                    left.remove(worker)
                    ended[worker.name] = round(time.monotonic() - began, 2)
                    if worker.process.returncode != 0:
                        raise Trouble(f"{worker.name}: exit {worker.process.returncode}: {worker.last_words()}")
                time.sleep(0.02)
            where = {w.name: stuck(w.process.pid) for w in left}
            stats = {w.name: records.load(w.stats) for w in workers if w.stats and w not in left}
            seen = self.site.seen(system)
            if urgent:
                urgent.process.terminate()
                latency = json.loads("{" + urgent.expect("{", micro.START_S))["latency_us"]
        finally:
            for worker in workers:
                if worker.process.poll() is None:
                    worker.process.kill()
            end_all([*workers, *filter(None, [urgent])])
        found = {"system": system, "ended_s": ended, "not_ended": where, "seen": seen, "stats": stats}
        found["limit_s"] = self.args.limit
        return found | {"latency_us": latency, "p99_us": records.percentile(latency, 0.99) if latency else None}


def main():
    parser = units.parser(__doc__, "startup.jsonl")
    parser.add_argument("--systems", help="separated by commas [native,xsched and each --variant]")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=WORDS")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="separated by commas [%(default)s]")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where they are [%(default)s]")
    parser.add_argument("--no-rival", action="store_true", help="nobody urgent is there")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="[%(default)s]")
    args = parser.parse_args()
    if any("=" not in v for v in args.variant):
        parser.error("--variant: use NAME='WORDS'")
    variants = {name: Variant(words) for name, words in (v.split("=", 1) for v in args.variant)}
    args.programs = args.programs.split(",")
    known = ("native", "xsched", *variants)
    chosen = args.systems.split(",") if args.systems else known
    if wrong := [s for s in chosen if s not in known]:
        parser.error(f"--systems: {wrong[0]!r} is unknown: use {', '.join(known)}")
    if missing := [p for p in args.programs if not (args.folder / f"{p}.py").exists()]:
        parser.error(f"--programs: {args.folder} has no {missing[0]}.py")
    if args.quick:
        args.limit = min(args.limit, 20)

    def body(site, unit):
        startup = Startup(site, unit, args)
        beside = " alone" if args.no_rival else ""
        for system in chosen:
            case = f"{len(args.programs)}{beside} / {system}"
            unit.run("startup", case, 0, args.limit + 15, lambda s=system: startup.measure(s))

    return units.conduct(args, body, variants)


if __name__ == "__main__":
    sys.exit(main())
