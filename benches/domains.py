#!/usr/bin/env python3
"""What an operator's choice does to a program whose vendor's library works while a more urgent program has the device.

  domains.py [--bin DIR] [--rounds N] [--secs S] [--quick] [--out FILE] [sim] [opencl] [cuda]

Two programs. One is of class low: it asks a vendor's library for 4 kernels of 250 us each 10 ms and waits for them, and
another thread of it keeps a stream full. The other is of class high: 5 kernels of 1 ms each 17 ms. Systems take turns:
native, and xsched whose rule for the first program is domains = "report", "ahead" or "exempt".

The table shows the latencies of the library's requests and of the high program's, in ms, and what the first program does
beside: medians of the rounds with their range. Under exempt, `passed` counts launches that went past a closed gate. --out
gets all figures as JSON. Needs gcc and a built workspace; for opencl a device and its headers, for cuda an NVIDIA GPU.

Exit codes: 0 done, 2 bad arguments, 3 something could not run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("testing/lib", "benches/cuda")]

import harness  # noqa: E402
import records  # noqa: E402

MODES = ("report", "ahead", "exempt")
SYSTEMS = ("native", *MODES)
QUANTILES = ("p50", "p90", "p99")
# What the library is called, and what both need.
KINDS = {
    "sim": ("libcublas.so.12", ["-DSIM", f"-I{ROOT}/crates/xsched-simdev/include", "-lsimdev", "-lm"]),
    "opencl": ("libclblast.so.1", ["-DOPENCL", "-lOpenCL"]),
    "cuda": ("libcublas.so.12", ["-DCUDA", "-ldl", "-lm"]),
}


class Programs:
    """The programs of a device, and a daemon for each mode."""

    def __init__(self, kind, options, work):
        self.options, self.xsched, work = options, options.bin / "xsched", Path(work)
        self.env = dict(os.environ, SIMDEV_SOCKET=str(work / "sim.sock"), SIMDEV_SERVER=str(self.xsched))
        self.stats = work / "stats"
        name, flags = KINDS[kind]
        if kind == "sim":
            flags = [*flags, f"-L{options.bin}", f"-Wl,-rpath,{options.bin}"]
        source = ROOT / "benches/domains.c"
        library = harness.compile_c(
            source, work / name, "-DVENDOR", f"-Wl,-soname,{name}", *flags, shared=True
        )
        self.program = harness.compile_c(
            source, work / "domains", str(library), f"-Wl,-rpath,{work}", *flags, "-lpthread"
        )
        done = harness.run([self.program, "calibrate"], self.env)
        if done.status != 0:
            raise RuntimeError(f"domains calibrate ends with {done.status}: {done.stderr.strip()}")
        self.rate = done.stdout.strip()
        self.daemons = {}
        for mode in MODES:
            folder = work / mode
            folder.mkdir()
            config = folder / "config.toml"
            config.write_text(f'[[rule]]\nexe = "*/domains"\ndomains = "{mode}"\n')
            self.daemons[mode] = harness.Daemon(self.xsched, folder, "hpf", "--config", config)

    def close(self):
        for daemon in self.daemons.values():
            daemon.stop()

    def start(self, system, role, priority):
        command = [self.program, role, self.options.secs, self.rate]
        if system != "native":
            prefix = [self.xsched, "run", "--require", "--socket", self.daemons[system].socket]
            command = [*prefix, "--priority", priority, "--", *command]
        env = dict(self.env, XSCHED_STATS=str(self.stats))
        return subprocess.Popen(
            [str(word) for word in command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def window(self, system):
        self.stats.write_text("")
        started = {"library": self.start(system, "library", "low"), "high": self.start(system, "paced", "high")}
        found = {}
        for name, process in started.items():
            out, err = process.communicate(timeout=self.options.secs + 60)
            if process.returncode != 0:
                raise RuntimeError(f"{name}, {system}: exit status {process.returncode}: {err.strip()}")
            found[name] = json.loads(out)
        window = {name: records.latencies(said["latency_ms"]) for name, said in found.items()}
        window["own_per_s"] = found["library"]["own_per_s"]
        lines = [json.loads(line) for line in self.stats.read_text().splitlines()]
        window["passed"] = sum(line.get("exempt", 0) for line in lines)
        window["system_launches"] = sum(line.get("domains", {}).get("system", 0) for line in lines)
        if system != "native" and not window["system_launches"]:
            raise RuntimeError(f"{system}: no launch was found to be the library's")
        return window


def measure(kind, options):
    """All windows of one device."""
    found = []
    with tempfile.TemporaryDirectory(prefix="domains-") as work:
        programs = Programs(kind, options, work)
        try:
            for number in range(options.rounds):
                for system in SYSTEMS[number % len(SYSTEMS) :] + SYSTEMS[: number % len(SYSTEMS)]:
                    found.append({"round": number, "system": system, **programs.window(system)})
                    print(f"  {found[-1]}", file=sys.stderr)
        finally:
            programs.close()
    return found


def cell(values):
    return f"{records.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def table(found):
    rows = []
    for system in SYSTEMS:
        mine = [w for w in found if w["system"] == system]
        cells = [cell([w[who][q] for w in mine]) for who in ("library", "high") for q in QUANTILES]
        rows.append((system, *cells, cell([w["own_per_s"] for w in mine]), sum(w["passed"] for w in mine)))
    of = [f"{who} {q.upper()} ms" for who in ("library", "high") for q in QUANTILES]
    head = ("system", *of, "own kernels/s", "passed")
    return records.table(head, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "target/release", help="folder of xsched [%(default)s]")
    parser.add_argument("--rounds", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--secs", type=float, default=8, help="length of a window [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="one short round: does it work?")
    parser.add_argument("--out", type=Path, help="file for all figures, as JSON")
    parser.add_argument("kinds", nargs="*", metavar="sim|opencl|cuda")
    options = parser.parse_args()
    if options.rounds < 1 or options.secs <= 0 or any(kind not in KINDS for kind in options.kinds):
        parser.error("use --rounds from 1 on, --secs above 0, and sim, opencl or cuda")
    if options.quick:
        options.rounds, options.secs = 1, 1.0
    options.bin = options.bin.resolve()
    if not (options.bin / "xsched").exists():
        print(f"domains.py: {options.bin}/xsched is missing: cargo build --release, or give --bin", file=sys.stderr)
        return 3
    everything = {}
    try:
        for kind in options.kinds or ["sim"]:
            everything[kind] = measure(kind, options)
            print(f"### {kind}\n\n{table(everything[kind])}\n", flush=True)
    except (harness.Skip, RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"domains.py: {error}", file=sys.stderr)
        return 3
    if options.out:
        options.out.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
