#!/usr/bin/env python3
"""Shows what a scheduler from outside does to unmodified programs: examples/reverse-scheduler turns priorities round,
and with them the latencies of two programs alike, one of high and one of low priority.

  reverse.py [--bin DIR] [--runtime DIR] [--rounds N] [--quick] [--out FILE] [opencl] [hip] [streams] [torch]

opencl: two programs on the OpenCL device, with requests of 4 kernels of about 1 ms, each 15 ms and each 16 ms: so they
ask at the same moment now and then, whenever they were started.
hip: two programs on the software HIP runtime, each with requests of 20 kernels of 100 us and a small one, 200 a second.

streams: one program on the simulated device, six threads with a stream each, two of them of each of three priorities; the
scheduler is examples/reverse-scheduler/streams.c, which decides for streams.
torch: one PyTorch program (testing/programs/python/two_streams.py), two threads with a stream of each priority; the same scheduler.

The pairs ask for 55 and 80 % of their device, streams for more than all of it. Systems take turns: native, xsched with its default policy,
xsched with the reversing scheduler. The table shows P50 and P99 in ms, medians of the rounds with their range. --out
gets all figures as JSON. Needs gcc, a built workspace, for opencl an OpenCL device and its headers, for hip what
`cargo xtask hip-runtime DIR` laid out, for torch PyTorch and a GPU.

Exit codes: 0 done, 2 bad arguments, 3 something could not run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("testing/lib", "benches/cuda", "benches/hip")]

import harness  # noqa: E402
import place  # noqa: E402
import records  # noqa: E402
import systems  # noqa: E402

SYSTEMS = ("native", "hpf", "reversed")
CLASSES = ("high", "low")
START_S = 60


class Pair:
    """The daemons, and how a program is started under each."""

    SCHEDULER = "reverse"

    def __init__(self, options, work):
        self.options, self.work, self.xsched = options, Path(work), options.bin / "xsched"
        library = self.work / f"lib{self.SCHEDULER}.so"
        source = ROOT / f"examples/reverse-scheduler/{self.SCHEDULER}.c"
        harness.compile_c(source, library, f"-I{ROOT}/include", shared=True)
        self.daemons = {
            "hpf": harness.Daemon(self.xsched, self.work, "hpf"),
            "reversed": harness.Daemon(self.xsched, self.work, "external", "--scheduler", library),
        }

    def close(self):
        for daemon in self.daemons.values():
            daemon.stop()

    def command(self, system, priority, words):
        if system == "native":
            return [str(word) for word in words]
        prefix = [self.xsched, "run", "--require", "--socket", self.daemons[system].socket, "--priority", priority]
        return [str(word) for word in [*prefix, "--", *words]]


class OpenCl(Pair):
    """Programs that print their own figures."""

    PERIODS_US = {"high": 15_000, "low": 16_000}

    def __init__(self, options, work):
        super().__init__(options, work)
        self.program = harness.compile_c(ROOT / "testing/ladders/opencl/clload.c", self.work / "clload", "-lOpenCL", "-lm")
        self.calibration = self.work / "calibration"
        done = harness.run([self.program, "calibrate", "--calibrate-file", self.calibration])
        if done.status != 0:
            raise RuntimeError(f"clload calibrate ends with {done.status}: {done.stderr.strip()}")

    def window(self, system):
        words = [self.program, "lc", "--kernels", 4, "--us", 1000, "--calibrate-file", self.calibration]
        words += ["--requests", 60 if self.options.quick else 400, "--period-us"]
        started = [
            subprocess.Popen(
                self.command(system, name, [*words, self.PERIODS_US[name]]),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in CLASSES
        ]
        found = {}
        for name, process in zip(CLASSES, started):
            out, err = process.communicate(timeout=START_S)
            if process.returncode != 0:
                raise RuntimeError(f"clload, {name}, {system}: exit status {process.returncode}: {err.strip()}")
            said = json.loads(out.splitlines()[-1])
            found[name] = {"p50": said["p50_ms"], "p99": said["p99_ms"], "n": said["n"]}
        return found


class Hip(Pair):
    """Programs that work when they are told to, all alive throughout."""

    RATE = 200

    def __init__(self, options, work):
        super().__init__(options, work)
        self.place = place.Place(options.bin, options.runtime, "cpu", None, work)
        self.workers = {}

    def close(self):
        systems.end_all([worker for both in self.workers.values() for worker in both])
        super().close()

    def start(self, system):
        self.workers[system] = []
        for name in CLASSES:
            command = self.command(system, name, [self.place.load, "lc", "spin"])
            env = self.place.environment(dict(os.environ), self.work / f"counts-{system}-{name}")
            worker = systems.Worker(f"{name} ({system})", command, env, self.work / f"{system}-{name}.err")
            self.workers[system].append(worker)
        for worker in self.workers[system]:
            worker.expect("IMPORTED", START_S)
        systems.warm(self.workers[system], (), START_S)

    def window(self, system):
        if system not in self.workers:
            self.start(system)
        begin, seconds = time.monotonic() + 0.5, 1 if self.options.quick else 6
        for worker in self.workers[system]:
            worker.send(f"go paced {begin:.6f} {begin + seconds:.6f} {self.RATE}")
        said = [json.loads(worker.expect("RESULT", seconds + START_S)) for worker in self.workers[system]]
        figures = [records.latencies(answer["latency_ms"]) for answer in said]
        return {name: {k: f[k] for k in ("p50", "p99", "n")} for name, f in zip(CLASSES, figures)}


class Streams(Pair):
    """One program whose streams differ in priority. It prints a line a request: the stream's priority, greater is more
    urgent, and the latency in ms."""

    SCHEDULER = "streams"
    PRIORITIES = {"high": "1", "low": "-1"}

    def __init__(self, options, work):
        super().__init__(options, work)
        self.env = dict(os.environ, SIMDEV_SOCKET=str(self.work / "sim.sock"), SIMDEV_SERVER=str(self.xsched))
        self.words = self.program()

    def program(self):
        flags = [f"-I{ROOT}/crates/xsched-simdev/include", f"-L{self.options.bin}", "-lsimdev", "-lpthread", "-lm"]
        flags.append(f"-Wl,-rpath,{self.options.bin}")
        return [harness.compile_c(ROOT / "testing/programs/hazards/groups.c", self.work / "groups", *flags)]

    def window(self, system):
        seconds = 2 if self.options.quick else 8
        # Its priority is the default: only its streams differ.
        command = self.command(system, "normal", [*self.words, seconds])
        done = harness.run(command, self.env, START_S + seconds)
        if done.status != 0:
            raise RuntimeError(f"{self.words[-1]}, {system}: exit status {done.status}: {done.stderr.strip()}")
        lines = [line.split() for line in done.stdout.splitlines()]
        found = {}
        for name, priority in self.PRIORITIES.items():
            values = [float(words[1]) for words in lines if len(words) == 2 and words[0] == priority]
            if not values:
                raise RuntimeError(f"{self.words[-1]}, {system}: no request of priority {priority}")
            figures = records.latencies(values)
            found[name] = {k: figures[k] for k in ("p50", "p99", "n")}
        return found


class Torch(Streams):
    """PyTorch knows two priorities."""

    PRIORITIES = {"high": "1", "low": "0"}

    def program(self):
        return [sys.executable, ROOT / "testing/programs/python/two_streams.py"]


def measure(kind, options):
    """All windows of one device: (round, system) -> figures by class."""
    found = []
    with tempfile.TemporaryDirectory(prefix="reverse-") as work:
        pair = kind(options, work)
        try:
            for number in range(1 if options.quick else options.rounds):
                for system in SYSTEMS[number % 3 :] + SYSTEMS[: number % 3]:
                    found.append({"round": number, "system": system, "ms": pair.window(system)})
                    print(f"  {found[-1]}", file=sys.stderr)
        finally:
            pair.close()
    return found


def cell(windows, name, quantile):
    values = [w["ms"][name][quantile] for w in windows]
    return f"{records.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def table(found):
    rows = []
    for system in SYSTEMS:
        mine = [w for w in found if w["system"] == system]
        cells = (cell(mine, name, quantile) for name in CLASSES for quantile in ("p50", "p99"))
        rows.append((system, *cells, sum(w["ms"]["high"]["n"] for w in mine)))
    return records.table(("system", "high P50 ms", "high P99 ms", "low P50 ms", "low P99 ms", "n"), rows)


KINDS = {"opencl": OpenCl, "hip": Hip, "streams": Streams, "torch": Torch}
# What runs where nothing is asked for.
DEFAULT_KINDS = ("opencl", "hip")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "target/release", help="folder of xsched [%(default)s]")
    parser.add_argument("--runtime", type=Path, default=place.default_runtime(), help="folder of libamdhip64.so.6")
    parser.add_argument("--rounds", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--quick", action="store_true", help="one short round: does it work?")
    parser.add_argument("--out", type=Path, help="file for all figures, as JSON")
    parser.add_argument("kinds", nargs="*", metavar="opencl|hip|streams|torch")
    options = parser.parse_args()
    if options.rounds < 1 or any(kind not in KINDS for kind in options.kinds):
        parser.error("use --rounds from 1 on, and some of " + ", ".join(KINDS))
    options.bin = options.bin.resolve()
    if not (options.bin / "xsched").exists():
        print(f"reverse.py: {options.bin}/xsched is missing: cargo build --release, or give --bin", file=sys.stderr)
        return 3
    everything = {}
    try:
        for kind in options.kinds or DEFAULT_KINDS:
            everything[kind] = measure(KINDS[kind], options)
            print(f"### {kind}\n\n{table(everything[kind])}\n", flush=True)
    except (systems.Trouble, harness.Skip, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        print(f"reverse.py: {error}", file=sys.stderr)
        return 3
    if options.out:
        options.out.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
