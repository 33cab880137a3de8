#!/usr/bin/env python3
"""What `xsched usage` charges, against the GPU's own clock.

  accounting.py [--bin DIR] [--out FILE] [--gpu N] [--secs S] [--quick]

Programs give requests of kernels that fill the GPU and note its clock (%globaltimer) at their begin and end: 20, 50 and 90 % of each
20 ms. The union of what the kernels of all programs have noted is the time that the GPU was busy. Beside it: what `xsched usage` says
of each program, which sums to the busy time as the daemon knows it, and the mean of NVML's utilization, ten samples a second.

  alone      one program, nothing else registered: not followed, so that what is charged rests on the driver's figure
  followed   one program beside one that has nothing to do: each completion is known
  together   two programs at once, each under its load, by turns (50 and 50 %: they want all of it; 20 and 20 %)
  pool       the same 50 and 50 % side by side in a pool

Each for --secs (60; with --quick 4, some 70 s in all). A summary is printed; records are lines of JSON.
"""

import ctypes
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import micro
import units
from systems import Trouble, Variant, end_all

PERIOD_US, KERNEL_US = 20_000, 1_000
LOADS = (20, 50, 90)
START_S = 60
SETTLE_S = 1.2  # a driver's figure covers up to a second
VARIANTS = {"time": Variant("--share time"), "pool": Variant("--share pool")}
# Name, variant, loads of the programs in %, whether another one is registered that does nothing.
CASES = (
    *((f"alone {load} %", "time", (load,), False) for load in LOADS),
    *((f"followed {load} %", "time", (load,), True) for load in LOADS),
    ("together 20 + 20 %", "time", (20, 20), False),
    ("together 50 + 50 %", "time", (50, 50), False),
    ("pool 50 + 50 %", "pool", (50, 50), False),
)


class Samples(threading.Thread):
    """NVML's utilization of a GPU, in %, ten times a second while it lives; none where there is no NVML."""

    class Rates(ctypes.Structure):
        _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]

    def __init__(self, uuid):
        super().__init__(daemon=True)
        self.found, self.ended, self.nvml, self.device = [], threading.Event(), None, ctypes.c_void_p()
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if nvml.nvmlInit_v2():
            return
        if uuid:
            bad = nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.device))
        else:
            bad = nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))
        self.nvml = None if bad else nvml

    def run(self):
        rates = self.Rates()
        while self.nvml and not self.ended.wait(0.1):
            if self.nvml.nvmlDeviceGetUtilizationRates(self.device, ctypes.byref(rates)) == 0:
                self.found.append(rates.gpu)

    def mean(self):
        self.ended.set()
        if self.is_alive():
            self.join()
        return sum(self.found) / len(self.found) if self.found else None


def union_s(spans):
    """Seconds covered by spans in ns, and how much of that is covered by more than one."""
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    covered = shared = depth = since = 0
    for at, step in edges:
        if depth > 0:
            covered += at - since
        if depth > 1:
            shared += at - since
        depth, since = depth + step, at
    return covered / 1e9, shared / 1e9


def charged(site, system):
    """What `xsched usage` says, by job."""
    daemon = site.daemon(system)
    command = [str(site.xsched), "usage", "--since", "1h", "--by", "job", "--json", "--socket", str(daemon.socket)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise Trouble(f"xsched usage: {done.stderr.strip()}")
    return {row["key"]: row for row in json.loads(done.stdout)["rows"]}


class Bench(micro.Bench):
    def case(self, name, system, loads, beside, secs):
        jobs = [f"{name} / {n}" for n in range(len(loads))]
        workers, idle = [], []
        try:
            if beside:
                idle = [self.start(system, "be", ["stamp", "idle", "--secs", secs + START_S], "--job", "idle")]
                idle[0].expect("READY", START_S)
            for job, load in zip(jobs, loads):
                kernels = load * PERIOD_US // 100 // KERNEL_US
                words = ["--kernels", kernels, "--period-us", PERIOD_US, "--secs", secs]
                workers.append(self.start(system, "be", ["stamp", "run", *self.spin(KERNEL_US), *words], "--job", job))
            for worker in workers:
                worker.expect("READY", START_S)
            self.site.require_seen(system, workers)
            before = charged(self.site, system)
            samples = Samples(self.site.env.get("CUDA_VISIBLE_DEVICES"))
            samples.start()
            for worker in workers:
                worker.send("go")
            told = lambda worker, key, limit: json.loads(f'{{"{key}"' + worker.expect(f'{{"{key}"', limit))  # noqa: E731
            ran = [told(worker, "kernels", secs * 4 + START_S) for worker in workers]
            spans = [told(worker, "spans", START_S)["spans"] for worker in workers]
            nvml = samples.mean()
            time.sleep(SETTLE_S)
            after = charged(self.site, system)
        finally:
            end_all([*workers, *idle])
        return figures(jobs, ran, spans, before, after, nvml)


def figures(jobs, ran, spans, before, after, nvml):
    """Times in seconds."""
    busy, shared = union_s([tuple(span) for one in spans for span in one])
    programs = []
    for job, one in zip(jobs, spans):
        row = {key: after[job][key] - before.get(job, {}).get(key, 0) for key in after[job] if key.endswith("_seconds")}
        own, _ = union_s([tuple(span) for span in one])
        programs.append(dict(job=job, own_s=own, **row))
    wall = max(r["end"] for r in ran) - min(r["begin"] for r in ran)
    total = sum(p["gpu_seconds"] for p in programs)
    return dict(
        wall_s=wall,
        busy_s=busy,
        shared_s=shared,
        charged_s=total,
        error_percent=100 * (total / busy - 1) if busy else None,
        nvml_s=None if nvml is None else wall * nvml / 100,
        by_driver_s=sum(p["by_driver_seconds"] for p in programs),
        at_most_s=sum(p["at_most_seconds"] for p in programs),
        programs=programs,
    )


def table(found):
    """The figures in one picture."""
    lines = [f"{'':<20} {'busy':>9} {'charged':>9} {'error':>8} {'NVML':>9} {'by driver':>9} {'at most':>9}  each (GPU time / own kernels)"]
    for name, f in found:
        each = ", ".join(f"{p['gpu_seconds']:.2f} / {p['own_s']:.2f}" for p in f["programs"])
        nvml = "-" if f["nvml_s"] is None else f"{f['nvml_s']:.3f} s"
        error = "-" if f["error_percent"] is None else f"{f['error_percent']:+.1f} %"
        columns = [f"{f['busy_s']:.3f} s", f"{f['charged_s']:.3f} s", error, nvml, f"{f['by_driver_s']:.3f} s", f"{f['at_most_s']:.3f} s"]
        widths = (9, 9, 8, 9, 9, 9)
        lines.append(f"{name:<20} " + " ".join(f"{c:>{w}}" for c, w in zip(columns, widths)) + f"  {each}")
    return "\n".join(lines)


def main():
    parser = units.parser(__doc__, "accounting.jsonl")
    parser.add_argument("--secs", type=float, default=60, help="of each case [%(default)s]")
    parser.add_argument("--only", metavar="WORD", help="cases whose names begin with this")
    args = parser.parse_args()
    secs = min(args.secs, 4.0) if args.quick else args.secs
    found = []

    def body(site, unit):
        bench = Bench(site, unit, args.quick)
        for name, system, loads, beside in CASES:
            if args.only and not name.startswith(args.only):
                continue

            def one(name=name, system=system, loads=loads, beside=beside):
                figures = bench.case(name, system, loads, beside, secs)
                found.append((name, figures))
                return figures

            unit.run("accounting", name, 0, secs + 10, one)

    status = units.conduct(args, body, VARIANTS)
    print(table(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
