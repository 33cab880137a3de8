#!/usr/bin/env python3
"""Measures xsched and writes what it saw as JSON.

  bench.py --bin target/release [--out DIR] [--quick] [--against BIN] NAME [NAME ...]

Names:
  launch    what interposition costs per enqueue: bare, alone (open gate), beside another program (gating active)
  cost      launches beside a look-up by dladdr at each call, with domains reported, and with pass-through rules
  cold      cuLaunchKernel where caches are cold: after so many KiB of other data and code
  alloc     allocations with their frees on a driver that does nothing: bare, counted, and under a limit
  scale     first launch of a more urgent program until the other's gate is closed, beside up to 990 programs that are idle, with 16
            queues each; memory and processor time of the daemon
  flood     the same while another user floods the daemon with groups, jobs, requests or answers not read (as root)
  observed  how long answers of a monitor, ps, usage and trace take with 1,000 programs, and decisions meanwhile
  observing a launch, and an urgent program's requests on the simulated device, with and without top, a monitor, usage and trace
  opencl    latency-critical beside best-effort on the OpenCL device: alone, native, under xsched
  sim       the same on the simulated device, by level, and with long best-effort kernels
  shares    weighted fair share between two best-effort programs on the simulated device

The systems compared alternate within one run; ratios are taken round by round, then their median. --quick makes few
short rounds, to try the script itself: its figures mean nothing. Needs gcc, the OpenCL headers and a built workspace;
`launch` also counts instructions if valgrind is there.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "testing/lib"))
from harness import Background, Daemon, compile_c, run  # noqa: E402

median = statistics.median


def machine():
    """What these figures were taken on."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0]}


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def spread(values):
    return {"median": round(median(values), 4), "min": round(min(values), 4), "max": round(max(values), 4)}


class Bench:
    def __init__(self, binaries, work, quick):
        self.bin, self.work, self.quick = Path(binaries).resolve(), Path(work), quick
        self.xsched = self.bin / "xsched"
        self.env = dict(os.environ, SIMDEV_SOCKET=str(self.work / "sim.sock"), SIMDEV_SERVER=str(self.xsched))

    def under(self, daemon, *options):
        return [self.xsched, "run", "--require", "--socket", daemon.socket, *options, "--"]

    def json_of(self, command, timeout=300):
        done = run(command, self.env, timeout)
        if done.status != 0:
            raise RuntimeError(f"{command}: exit status {done.status}\n{done.stdout}{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    # ---- launch ------------------------------------------------------------------------------------------------

    def launch_against(self, other):
        """A launch with this build and another one, in turns: bare, alone, and beside another program. The ratio is taken round by
        round."""
        folder = self.work / "against"
        null = compile_c(ROOT / "benches/nullcl.c", folder / "libOpenCL.so.1", "-Wl,-soname,libOpenCL.so.1", shared=True)
        program = compile_c(ROOT / "benches/launch.c", folder / "launch", str(null), f"-Wl,-rpath,{folder}")
        n, rounds = (100_000, 2) if self.quick else (1_000_000, 25)
        benches = {"this": self, "other": Bench(other, folder, self.quick)}
        daemons, rows = {}, {(k, name): [] for k in ("bare", "alone", "gated") for name in benches}
        try:
            for name, bench in benches.items():
                daemons[name] = Daemon(bench.xsched, bench.work, "hpf")
            for number in range(rounds):
                for name in sorted(benches, reverse=number % 2 == 1):
                    bench, daemon = benches[name], daemons[name]
                    rows["bare", name] += self.json_of([program, n, 1])
                    rows["alone", name] += self.json_of([*bench.under(daemon), program, n, 1])
                    holder = subprocess.Popen([str(w) for w in [*bench.under(daemon, "--priority", "high"), program, "hold"]],
                                              env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                    holder.stdout.readline()
                    rows["gated", name] += self.json_of([*bench.under(daemon, "--priority", "low"), program, n, 1])
                    holder.communicate("")
            result = {"instructions_added": {name: bench.instructions(program) for name, bench in benches.items()}}
        finally:
            for daemon in daemons.values():
                daemon.stop()
        for kind in ("alone", "gated"):
            added = {name: {unit: spread([a[unit] - b[unit] for a, b in zip(rows[kind, name], rows["bare", name])])
                            for unit in ("ns", "cycles")} for name in benches}
            ratio = spread([a["cycles"] / b["cycles"] for a, b in zip(rows[kind, "this"], rows[kind, "other"])])
            result[kind] = {"added": added, "this_to_other": ratio}
        return result

    def launch(self):
        null = compile_c(ROOT / "benches/nullcl.c", self.work / "libOpenCL.so.1", "-Wl,-soname,libOpenCL.so.1", shared=True)
        program = compile_c(ROOT / "benches/launch.c", self.work / "launch", str(null), f"-Wl,-rpath,{self.work}")
        n, rounds = (100_000, 2) if self.quick else (2_000_000, 9)
        rows = {"bare": [], "alone": [], "gated": []}
        daemon = Daemon(self.xsched, self.work, "hpf")
        try:
            for _ in range(rounds):
                rows["bare"] += self.json_of([program, n, 1])
                rows["alone"] += self.json_of([*self.under(daemon), program, n, 1])
                holder = subprocess.Popen([str(w) for w in [*self.under(daemon, "--priority", "high"), program, "hold"]],
                                          env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                holder.stdout.readline()
                rows["gated"] += self.json_of([*self.under(daemon, "--priority", "low"), program, n, 1])
                holder.communicate("")
            instructions = self.instructions(program)
        finally:
            daemon.stop()
        result = {name: {unit: spread([r[unit] for r in found]) for unit in ("ns", "cycles")} for name, found in rows.items()}
        for name in ("alone", "gated"):
            result[name]["added"] = {
                unit: spread([a[unit] - b[unit] for a, b in zip(rows[name], rows["bare"])]) for unit in ("ns", "cycles")}
        result["instructions_added"] = instructions
        return result

    def instructions(self, program):
        """Instructions added to one enqueue, counted by callgrind on the calling thread: (many - few) / difference.
        With a scheduler in the process, since valgrind may lack the system calls to reach a daemon."""
        counts = {}
        few, many = 20_000, 120_000
        local = dict(self.env, LD_PRELOAD=str(self.bin / "libxsched.so"), XSCHED_POLICY="hpf")
        for name, env in (("bare", self.env), ("alone", local)):
            for n in (few, many):
                out = self.work / f"callgrind.{name}.{n}"
                for old in self.work.glob(f"{out.name}*"):
                    old.unlink()
                command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}", program, n, 1]
                try:
                    run(command, env, 300)
                    found = next(self.work.glob(f"{out.name}-01")).read_text()
                except (FileNotFoundError, StopIteration):
                    return "valgrind is not there"
                counts[name, n] = int(re.search(r"^(?:summary|totals): (\d+)", found, re.M).group(1))
        each = {name: (counts[name, many] - counts[name, few]) / (many - few) for name in ("bare", "alone")}
        return round(each["alone"] - each["bare"], 1)

    # ---- cold --------------------------------------------------------------------------------------------------

    def cold(self):
        """TSC cycles of one launch, or of an allocation with its free, into a driver that does nothing, bare and alone under xsched, in
        turns. The median over rounds of each round's figure; `added` = of the rounds' differences."""
        folder = self.work / "cuda"
        null = compile_c(ROOT / "benches/nullcuda.c", folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1", shared=True)
        program = compile_c(ROOT / "benches/cold.c", folder / "cold", str(null), f"-Wl,-rpath,{folder}")
        rounds, result = (2 if self.quick else 15), {}
        daemon = Daemon(self.xsched, self.work, "hpf")
        try:
            for kib, launches in ((0, 20_000), (512, 10_000), (2048, 3_000), (16384, 400)):
                for stream, handle in (("own stream", "1230"), ("default stream", "0"), ("allocation", "alloc")):
                    rows = {"bare": [], "alone": []}
                    for _ in range(rounds):
                        command = [program, launches // (10 if self.quick else 1), kib, handle]
                        rows["bare"] += self.json_of(command)
                        rows["alone"] += self.json_of([*self.under(daemon), *command])
                    found = {name: {u: spread([r[u] for r in mine]) for u in mine[0]} for name, mine in rows.items()}
                    pairs = list(zip(rows["alone"], rows["bare"]))
                    found["added"] = {u: spread([a[u] - b[u] for a, b in pairs]) for u in rows["bare"][0]}
                    result[f"{kib} KiB, {stream}"] = found
        finally:
            daemon.stop()
        return result

    # ---- alloc -------------------------------------------------------------------------------------------------

    def alloc(self, other=None):
        """ns of an allocation with its free, by way and size. The programs take turns of some ms, so that a machine that is busy
        or changes its clock does so for all; with `other`, those of another build too."""
        folder = self.work / "alloc"
        compile_c(ROOT / "benches/nullcuda.c", folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1", shared=True)
        program = compile_c(ROOT / "benches/cuda/alloc.c", folder / "alloc", "-ldl", "-lm")
        builds = {"": self, **({"other ": Bench(other, folder, self.quick)} if other else {})}
        env, daemons, running = dict(self.env, LD_LIBRARY_PATH=str(folder)), [], {}
        try:
            commands = {"bare": []}
            for name, bench in builds.items():
                daemons.append(Daemon(bench.xsched, bench.work, "hpf"))
                commands[f"{name}counted"] = bench.under(daemons[-1])
                commands[f"{name}limited"] = bench.under(daemons[-1], "--memory-limit", "20GiB")
            for name, before in commands.items():
                words = [str(word) for word in [*before, program, "pairs", "--count", 20_000]]
                running[name] = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                running[name].stdout.readline()
            rows = {name: [] for name in running}
            for _ in range(3 if self.quick else 100):
                for name, process in running.items():
                    print(file=process.stdin, flush=True)
                    rows[name].append(json.loads(process.stdout.readline()))
            return {name: {way: spread([row[way] for row in found]) for way in found[0]} for name, found in rows.items()}
        finally:
            for process in running.values():
                process.communicate()
            for daemon in daemons:
                daemon.stop()

    # ---- cost --------------------------------------------------------------------------------------------------

    def cost(self):
        """Cycles added to one enqueue, all in one run: how call sites are told, and what a launch costs at all. Short rounds,
        of which some are undisturbed also on a machine that others use: the least of each is told beside the median."""
        null = compile_c(ROOT / "benches/nullcl.c", self.work / "libOpenCL.so.1", "-Wl,-soname,libOpenCL.so.1", shared=True)
        program = compile_c(ROOT / "benches/launch.c", self.work / "launch", str(null), f"-Wl,-rpath,{self.work}")
        looks_up = compile_c(ROOT / "benches/dladdr.c", self.work / "dladdr.so", shared=True)
        n, rounds = (100_000, 2) if self.quick else (200_000, 31)
        daemon = Daemon(self.xsched, self.work, "hpf")

        def run_with(*options, **env):
            return self.json_of(["env", *(f"{k}={v}" for k, v in env.items()), *self.under(daemon, *options), program, n, 1])

        systems = {
            "bare": lambda: self.json_of([program, n, 1]),
            "dladdr and string match per call": lambda: self.json_of(["env", f"LD_PRELOAD={looks_up}", program, n, 1]),
            "default path, alone": run_with,
            "with domains reported (cached call site)": lambda: run_with(XSCHED_DOMAINS="report"),
            "with pass-through rules, not hit": lambda: run_with(XSCHED_PASSTHROUGH_LIBS="no-such-library"),
            "with pass-through rules, hit": lambda: run_with(XSCHED_PASSTHROUGH_LIBS="launch"),
        }
        rows = {name: [] for name in [*systems, "default path, under contention"]}
        try:
            for _ in range(rounds):
                for name, measure in systems.items():
                    rows[name] += measure()
                holder = subprocess.Popen([str(w) for w in [*self.under(daemon, "--priority", "high"), program, "hold"]],
                                          env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                holder.stdout.readline()
                rows["default path, under contention"] += run_with("--priority", "low")
                holder.communicate("")
        finally:
            daemon.stop()

        def added(name, to):
            one, other = ([row["cycles"] for row in rows[n]] for n in (name, to))
            return {"undisturbed": round(min(one) - min(other), 1), "median": round(median(one) - median(other), 1)}

        table = {name: added(name, "bare") for name in rows if name != "bare"}
        table["cached call-site domain by itself"] = added("with domains reported (cached call site)", "default path, alone")
        table["level 3 (time slices, queue priorities)"] = {"undisturbed": 0, "median": 0, "why": "set once for a context; no call passes it"}
        reports = {"dladdr whitelist": "150-650 (350)", "cached domain": "5-15", "driver path": "1-4"}
        return {"cycles_added_per_call": table, "bare_cycles": spread([r["cycles"] for r in rows["bare"]]),
                "reports_cycles": reports}

    # ---- decisions ---------------------------------------------------------------------------------------------

    def scale(self):
        samples = 50 if self.quick else 500
        command = ["cargo", "run", "--quiet", "--release", "-p", "xsched-decisions", "--bin", "scale", samples]
        done = run(command, dict(os.environ), 900, cwd=ROOT)
        if done.status != 0:
            raise RuntimeError(done.stderr)
        return {"samples": samples, "programs": [json.loads(line) for line in done.stdout.splitlines()]}

    def flood(self):
        samples = 100 if self.quick else 2_000
        command = ["cargo", "run", "--quiet", "--release", "-p", "xsched-decisions", "--bin", "flood", samples]
        done = run(command, dict(os.environ), 600, cwd=ROOT)
        if done.status != 0:
            raise RuntimeError(done.stderr)
        return {"samples": samples, "said": done.stdout.splitlines()}

    def observed(self):
        rounds, samples, programs = (1, 20, 100) if self.quick else (10, 100, 1_000)
        command = ["cargo", "run", "--quiet", "--release", "-p", "xsched-decisions", "--bin", "observed", rounds, samples, programs]
        done = run(command, dict(os.environ), 900, cwd=ROOT)
        if done.status != 0:
            raise RuntimeError(done.stderr)
        return {"ways": [json.loads(line) for line in done.stdout.splitlines()]}

    @contextlib.contextmanager
    def looked_at(self, daemon, metrics):
        """Meanwhile top and a monitor look each second, usage and trace each five."""
        over = threading.Event()
        top = Background([self.xsched, "top", "--batch", "--interval", "1s", "--socket", daemon.socket], self.env, self.work, "top")

        def look():
            second = 0
            while not over.wait(1):
                with socket.socket(socket.AF_UNIX) as stream:
                    stream.connect(str(metrics))
                    stream.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                    while stream.recv(65536):
                        pass
                second += 1
                if second % 5 == 0:
                    for words in (["usage"], ["trace", "--last", "5s", "-o", "/dev/null"]):
                        subprocess.run([self.xsched, *words, "--socket", daemon.socket], env=self.env, check=True, capture_output=True)
        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            top.stop()

    def observing(self):
        metrics, config = self.work / "metrics.sock", self.work / "metrics.toml"
        config.write_text(f'[metrics]\nlisten = "unix:{metrics}"\n')
        null = compile_c(ROOT / "benches/nullcl.c", self.work / "libOpenCL.so.1", "-Wl,-soname,libOpenCL.so.1", shared=True)
        launch = compile_c(ROOT / "benches/launch.c", self.work / "launch", str(null), f"-Wl,-rpath,{self.work}")
        program = self.simload()
        n, requests, rounds = (100_000, 100, 1) if self.quick else (100_000_000, 300, 6)
        latency = [program, "lc", "--kernels", 5, "--us", 1000, "--period-us", 20000, "--requests", requests]
        best = [program, "be", "--us", 200, "--batch", 64, "--secs", requests * 0.02 + 2]
        rows = {name: {"launch": [], "requests": []} for name in ("alone", "observed")}
        daemon = Daemon(self.xsched, self.work, "hpf", "--config", config)
        try:
            for number in range(rounds):
                for name in sorted(rows, reverse=number % 2 == 1):
                    with contextlib.nullcontext() if name == "alone" else self.looked_at(daemon, metrics):
                        rows[name]["launch"] += self.json_of([*self.under(daemon), launch, n, 1])
                        rows[name]["requests"].append(self.pair(latency, best, self.under(daemon, "--priority", "high"),
                                                                self.under(daemon, "--priority", "low")))
        finally:
            daemon.stop()
        ratio = lambda of: spread([of(b) / of(a) for a, b in zip(rows["alone"]["requests"], rows["observed"]["requests"])])  # noqa: E731
        return {
            "rounds": rounds,
            "launch_cycles": {name: spread([r["cycles"] for r in row["launch"]]) for name, row in rows.items()},
            "requests_ms": {name: {q: spread([r["lc"][f"{q}_ms"] for r in row["requests"]]) for q in ("p50", "p99")}
                            for name, row in rows.items()},
            "best_effort_per_s": {name: spread([r["be_per_s"] for r in row["requests"]]) for name, row in rows.items()},
            "p99_to_unobserved": ratio(lambda r: r["lc"]["p99_ms"]),
            "best_effort_to_unobserved": ratio(lambda r: r["be_per_s"]),
        }

    # ---- co-location -------------------------------------------------------------------------------------------

    def pair(self, latency, best_effort, high=(), low=()):
        """One latency-critical run beside a best-effort one (or none)."""
        if best_effort is None:
            return {"lc": self.json_of([*high, *latency])[0]}
        beside = Background([*low, *best_effort], self.env, self.work, "be")
        try:
            time.sleep(1.0)  # let it fill the device: the measurement begins in its midst
            result = {"lc": self.json_of([*high, *latency])[0]}
            status = beside.process.wait(120)
        finally:
            beside.stop()
        if status != 0:
            raise RuntimeError(f"best-effort program: exit status {status}: {beside.stderr.read_text()}")
        result["be_per_s"] = json.loads(beside.stdout.read_text().splitlines()[-1])["per_s"]
        return result

    def mix(self, systems, rounds):
        """Rounds of every system in turn; ratios to `alone` and `native` of the same round."""
        seen = {name: [] for name in systems}
        for number in range(rounds):
            for name, start in systems.items():
                seen[name].append(start())
                print(f"  round {number + 1}/{rounds} {name}: {json.dumps(seen[name][-1])}", file=sys.stderr)
        table = {}
        for name, runs in seen.items():
            row = {q: round(median(r["lc"][f"{q}_ms"] for r in runs), 3) for q in ("p50", "p99")}
            if "be_per_s" in runs[0]:
                row["best_effort_per_s"] = round(median(r["be_per_s"] for r in runs), 1)
            for q in ("p50", "p99"):
                pairs = zip(runs, seen["alone"])
                row[f"{q}_to_alone"] = spread([r["lc"][f"{q}_ms"] / a["lc"][f"{q}_ms"] for r, a in pairs])
            if "be_per_s" in runs[0] and "native" in seen:
                row["best_effort_to_native"] = spread([r["be_per_s"] / n["be_per_s"] for r, n in zip(runs, seen["native"])])
            table[name] = row
        return {"rounds": rounds, "table": table, "runs": seen}

    def opencl(self):
        program = compile_c(ROOT / "testing/ladders/opencl/clload.c", self.work / "clload", "-lOpenCL", "-lm")
        cal = ["--calibrate-file", self.work / "calibration"]
        run([program, "calibrate", *cal], self.env, 120)
        requests, rounds = (50, 1) if self.quick else (500, 5)
        lc = ["--kernels", 5, "--period-us", 20000]
        # The calibration knows a device that is kept busy. After a pause processors are slower to join in: the length
        # asked for is such that a kernel of this program takes about 1 ms when it is alone.
        tried = self.json_of([program, "lc", *lc, "--us", 1000, "--requests", 50 if self.quick else 200, *cal])[0]
        us = round(1000 * 5 / tried["p50_ms"])
        latency = [program, "lc", *lc, "--us", us, "--requests", requests, *cal]
        best = [program, "be", "--us", 200, "--batch", 64, "--secs", requests * 0.02 + 2, *cal]
        daemon = Daemon(self.xsched, self.work, "hpf")
        try:
            return self.mix({
                "alone": lambda: self.pair(latency, None),
                "native": lambda: self.pair(latency, best),
                "xsched": lambda: self.pair(latency, best, self.under(daemon, "--priority", "high"),
                                            self.under(daemon, "--priority", "low")),
            }, rounds)
        finally:
            daemon.stop()

    def simload(self):
        return compile_c(ROOT / "testing/programs/sim/simload.c", self.work / "simload", f"-I{ROOT}/crates/xsched-simdev/include",
                         f"-L{self.bin}", f"-Wl,-rpath,{self.bin}", "-lsimdev", "-lm", "-lpthread")

    def sim(self):
        program = self.simload()
        daemon = Daemon(self.xsched, self.work, "hpf")
        results = {}
        try:
            for us, batch, requests, rounds, levels in ((200, 64, 500, 5, ()), (20_000, 4, 250, 2, (1, 2, 3))):
                if self.quick:
                    requests, rounds = 50, 1
                latency = [program, "lc", "--kernels", 5, "--us", 1000, "--period-us", 20000, "--requests", requests]
                best = [program, "be", "--us", us, "--batch", batch, "--secs", requests * 0.02 + 2]

                def under(*options, latency=latency, best=best):
                    return lambda: self.pair(latency, best, self.under(daemon, "--priority", "high", *options),
                                             self.under(daemon, "--priority", "low", *options))
                results[f"best-effort kernels of {us} us"] = self.mix({
                    "alone": lambda latency=latency: self.pair(latency, None),
                    "native": lambda latency=latency, best=best: self.pair(latency, best),
                    "xsched": under(), **{f"level {n}": under("--level", n) for n in levels}}, rounds)
        finally:
            daemon.stop()
        return results

    # ---- shares ------------------------------------------------------------------------------------------------

    def shares(self):
        """Completed identical work over 20 s, the first 2 s left out: the programs run longer than they are looked at."""
        program = self.simload()
        rounds, seconds = (1, 3) if self.quick else (3, 20)
        rows = []
        for weights in ((75, 25), (30, 70)):
            daemon = Daemon(self.xsched, self.work, "up")
            try:
                for _ in range(rounds):
                    command = [program, "be", "--us", 200, "--batch", 64, "--secs", seconds + 6]
                    both = [Background([*self.under(daemon, "--weight", w), *command], self.env, self.work, f"share{i}")
                            for i, w in enumerate(weights)]
                    try:
                        time.sleep(3)
                        first = self.launches(daemon, both)
                        time.sleep(seconds)
                        second = self.launches(daemon, both)
                    finally:
                        for one in both:
                            one.stop()
                    done = [b - a for a, b in zip(first, second)]
                    rows.append({"weights": weights, "share": round(100 * done[0] / sum(done), 2),
                                 "launches_per_s": round(sum(done) / seconds)})
                    print(f"  {rows[-1]}", file=sys.stderr)
            finally:
                daemon.stop()
        alone = self.json_of([program, "be", "--us", 200, "--batch", 64, "--secs", 5])[0]["per_s"]
        return {"one_program_alone_per_s": alone, "rounds": rows}

    @staticmethod
    def launches(daemon, programs):
        by_pid = {p["pid"]: sum(g["launches"] for g in p["groups"]) for p in daemon.ps()["programs"]}
        return [by_pid[p.process.pid] for p in programs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=ROOT / "target/release", help="folder of xsched, libxsched.so and libsimdev.so")
    parser.add_argument("--out", type=Path, help="folder for one JSON file per name (default: standard output)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--against", metavar="BIN", help="`launch`, `alloc`: a folder of another build, measured in turns with this one")
    names = ["launch", "cost", "cold", "alloc", "scale", "flood", "observed", "observing", "opencl", "sim", "shares"]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME")
    args = parser.parse_args()
    for name in args.names:
        with tempfile.TemporaryDirectory(prefix="xsched-bench-") as work:
            print(f"{name} …", file=sys.stderr)
            bench = Bench(args.bin, work, args.quick)
            against = {"launch": bench.launch_against, "alloc": bench.alloc}.get(name) if args.against else None
            found = against(args.against) if against else getattr(bench, name)()
            result = {"machine": machine(), **found}
        text = json.dumps(result, indent=1)
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / f"{name}.json").write_text(text + "\n")
        else:
            print(text)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
