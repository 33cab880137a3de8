#!/usr/bin/env python3
"""What `xsched simulate` predicts of the mixes of the results pages, beside what was measured.

  calibrate.py [--xsched FILE] [--keep FOLDER] [--write | --check]

Makes a scenario of each mix and system, plays it, and prints the table of docs/results/calibration.md. --write puts the table there, --check
fails if the page has another one. --keep leaves the scenarios in FOLDER.

Inputs are figures of the programs by themselves (systems `alone` and `best-effort` of coloc.py's raw files) and of the device (preempt of
micro.py). Nothing that is predicted is an input, and no parameter was fitted to it. The form of the model of host and wake-up was chosen while
looking at the table:

  requests                 `alone`: quantiles of the host's time, of the wait for the device, and of gaps between tokens, all rounds
  launches                 of a request or step, as the library counted them; they do not depend on the system
  device time of a step    `best-effort`: from its rate; beside another program by slices of 2,048 µs each and the switches
  kernels of a step        eight kinds, whose times are quantiles of an exponential distribution
  kernels at batch 1       6 µs each: 1 ms in a request of 5 ms, as measured on an H200
  save                     urgent launches beside kernels in a pool (preempt): P50, without that of no rival, half a slice of the pool and the
                           50 µs of a plain switch, which the simulated device has
"""

import argparse
import concurrent.futures
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import coloc
import readme
import records

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/results/calibration.md"
BENCHMARKS = ROOT / "docs/benchmarks"
MADE = re.compile(r"(<!-- made by: python3 benches/cuda/calibrate\.py -->\n)((?:\|.*\n)+)")
SLICE_MS, POOL_SLICE_MS = 2.048, 0.12  # the driver's, and the one of a pool's server
WAKE_MS = 0.07  # of a thread, where records do not tell: as on an H100
BASE_MS = 0.05  # a switch with nothing to save or restore
SMALL_US = 6.0  # a kernel of a model at batch 1
LAUNCH_US = 4.0  # of the host, where the device is the slow part
SECONDS = 12  # of virtual time
DEVICES = {
    "H100": dict(
        files=("h100/coloc.jsonl.xz", "h100/coloc-gemms-mps.jsonl.xz"),
        preempt="h100/preempt.jsonl",
        modes=("native", "xsched", "xsched-inside"),
    ),
    "H200": dict(files=("h200/coloc.jsonl.xz",), preempt="h200/preempt-aa3bcd1.jsonl", modes=("xsched-time",)),
}
MIXES = ("llm+train", "llm+train+llm-be", "rn18+rn50", "rn18+rn50+gemm", "bert-lc+bert-be*5", "bert-lc+rn50+gemm")
MODES = {"native": "nothing done", "xsched-time": "by time (H200)", "xsched": "in a pool", "xsched-inside": "inside"}
# Launches of a request, of a step's round of eight, and items of a step.
LAUNCHES = {
    "H100": {"llm": 382, "rn18": 162, "bert-lc": 165, "bert-be": 165, "train": 879, "rn50": 410, "llm-be": 1, "gemm": 2},
    "H200": {"llm": 388, "rn18": 162, "bert-lc": 177, "bert-be": 177, "train": 879, "rn50": 410, "llm-be": 1, "gemm": 2},
}
ITEMS = {"train": 16 * 512, "rn50": 1024, "llm-be": 64, "gemm": 1, "bert-be": 1}
TOKENS = 31  # after the first
GRAPH_PART_MS = 0.4  # between two gates inside of a graph
KINDS = 8  # of kernels in a step
STEPS = 8  # given before each wait
APART = 0.15  # of rounds of an `alone` that repeats


def quantile(values, part):
    return records.percentile(values, part)


def load(device):
    """Mix -> system -> windows. Where two files have a system of a mix, each keeps its own rounds with their own `alone`."""
    found = {}
    for file in DEVICES[device]["files"]:
        for record in records.load(BENCHMARKS / file):
            if record.get("bench") == "coloc":
                found.setdefault((file, record["mix"]), {}).setdefault(record["system"], []).append(record)
    return found


def switch_ms(device):
    """Time from one context to another."""
    cases = {}
    for record in records.load(BENCHMARKS / DEVICES[device]["preempt"]):
        if record.get("bench") == "preempt":
            cases.setdefault(record["case"], []).extend(record["latency_us"])
    alone = quantile(cases["auto / none"], 0.5)
    beside = [quantile(v, 0.5) - alone for case, v in cases.items() if case.startswith("auto / ") and "none" not in case]
    return round(records.median(beside) / 1000 - POOL_SLICE_MS / 2, 3)


def urgent(windows):
    """The urgent role's values of all windows, by name."""
    found = {}
    for window in windows:
        for role in window["roles"]:
            if role.get("kind", "lc") == "lc" and "latency_ms" in role:
                for what in ("latency_ms", "wait_ms", "queued_ms", "gap_ms", "gap_wait_ms", "first_ms"):
                    found.setdefault(what, []).extend(role.get(what, []))
                found["role"], found["rate"] = role["role"], role["rate"]
    return found


def shown(windows):
    """P50 and P99 of what users wait for, in ms: token gaps, else the wait for the device."""
    values = urgent(windows)
    values = values["gap_ms"] or values["wait_ms"]
    return quantile(values, 0.5), quantile(values, 0.99)


def repeats(windows):
    """True if P50 and P99 of `alone` lie within 15 % of the median of rounds, or 0.1 ms."""
    rounds = [shown([window]) for window in windows]
    for at in (0, 1):
        values = [one[at] for one in rounds]
        middle = records.median(values)
        if any(abs(value - middle) > max(APART * middle, 0.1) for value in values):
            return False
    return True


def work(windows):
    """Best-effort role -> items per s of each of its programs, median of the windows that tell."""
    rates = {}
    for window in windows:
        for role in window["roles"]:
            if role.get("per_s"):
                rates.setdefault(role["role"], []).append(role["per_s"])
    return {role: records.median(values) for role, values in rates.items()}


# ---- Scenarios -----------------------------------------------------------------------------------------------------------


def ms(value):
    return f"{max(value, 0.0) * 1000:.1f}us"


def spread(values, steps=40):
    """Quantiles of measured times, as a list of a scenario. The last one is such that P99 is right."""
    parts = [quantile(values, n / steps) for n in range(steps)]
    before = parts[-1]
    parts.append(before + max(quantile(values, 0.99) - before, 0.0) / ((0.99 - (steps - 1) / steps) * steps))
    return "[" + ", ".join(f'"{ms(part)}"' for part in parts) + "]"


def kernels(*groups):
    return "kernels = [\n" + "".join(f"    {{ {group} }},\n" for group in groups) + "]\n"


def serving(alone, device):
    """An urgent program of the figures of its windows alone."""
    role = alone["role"]
    launches = LAUNCHES[device][role]
    head = f'name = "{role}"\nclass = "high"\narrivals = {{ poisson = "{ms(1000 / alone["rate"])}" }}\n'
    if alone["gap_ms"]:
        return head + tokens(alone, launches)
    hosts = [whole - queued - wait for whole, queued, wait in zip(alone["latency_ms"], alone["queued_ms"], alone["wait_ms"])]
    # A host is slow or fast in all of a request; what a tenth takes longer is a pause in it.
    most = quantile(hosts, 0.9)
    half = launches // 2
    launch = f'time = "{SMALL_US}us", launch = {spread([min(host, most) / launches for host in hosts])}, steady = true'
    pause = f'time = "{SMALL_US}us", launch = {spread([max(host - most, 0.0) for host in hosts])}'
    wake = f"wake = {spread(alone['wait_ms'])}\n"
    return head + wake + kernels(f"count = {half}, {launch}", pause, f"count = {launches - half - 1}, {launch}")


def tokens(alone, launches):
    """A request that is answered in tokens: an eager first one, and a graph for each that follows."""
    # Older records do not tell waits for tokens from the host's 10 µs.
    is_old = not alone["gap_wait_ms"]
    if is_old:
        alone["gap_wait_ms"] = [gap - 0.01 for gap in alone["gap_ms"]]
    waits = [sum(alone["gap_wait_ms"][at : at + TOKENS]) for at in range(0, len(alone["gap_wait_ms"]), TOKENS)]
    first = [a - b for a, b in zip(alone["first_ms"], alone["queued_ms"])]
    wait = WAKE_MS if is_old else quantile([a - b for a, b in zip(alone["wait_ms"], waits)], 0.5)
    eager = launches - TOKENS
    # The prompt's kernels take as long as a token's: both read all weights.
    prompt = quantile(alone["gap_wait_ms"], 0.5)
    host = quantile([a - b for a, b in zip(alone["gap_ms"], alone["gap_wait_ms"])], 0.5)
    launch = spread([(one - wait) / eager for one in first])
    # A wait after eager launches is that of the thread which wakes up.
    graph = [gap - wait - host for gap in alone["gap_ms"]]
    return f'wake = "{ms(wait)}"\n' + kernels(
        f'count = {eager}, time = "{ms(prompt / eager)}", launch = {launch}, steady = true, wait = true',
        f'count = {TOKENS}, time = {spread(graph)}, launch = "{ms(host)}", each = true',
    )


def step_ms(role, rate, others, switch):
    """Device time of a step, from its rate beside so many others by time slices."""
    return 1000 * ITEMS[role] / rate * (SLICE_MS / ((1 + others) * (SLICE_MS + 2 * switch - BASE_MS)) if others else 1.0)


def working(role, count, took, device, share):
    """A best-effort program."""
    launches = LAUNCHES[device][role]
    head = f'name = "{role}"\nclass = "low"\ncount = {count}\n{share}'
    if role.startswith("bert"):
        # The host is the slow part: `took` is its time.
        return head + kernels(f'count = {launches}, time = "{SMALL_US}us", launch = "{ms(took / launches)}"')
    if role == "llm-be":
        # One graph, which has gates inside.
        parts = round(took / GRAPH_PART_MS)
        graph = (f'count = {parts - 1}, time = "{ms(took / parts)}", launch = "0us"', f'time = "{ms(took / parts)}", launch = "20us"')
        return head + kernels(*(graph * STEPS))
    if role == "gemm":
        return head + kernels(f'count = {STEPS}, time = "{ms(took)}", launch = "20us"')
    # Each kernel has its own time: as if drawn from an exponential distribution.
    places = [-math.log(1 - (n + 0.5) / KINDS) for n in range(KINDS)]
    times = [took / launches * place * KINDS / sum(places) for place in places]
    count = f"count = {round(launches / KINDS)}"
    return head + kernels(*(f'{count}, time = "{ms(time)}", launch = "{LAUNCH_US}us"' for time in times))


def scenario(mix, device, by, mode, seconds, steps):
    """Text of the scenario of a mix under a system."""
    names = coloc.parse_mix(mix)
    switch = switch_ms(device)
    pool = mode in ("xsched", "xsched-inside")
    text = f'question = "{readme.title(mix)}: {MODES[mode]}?"\ntime = "{seconds}s"\npolicy = "{"native" if mode == "native" else "hpf"}"\n'
    text += f'\n[[device]]\ntimeslice = "{ms(SLICE_MS)}"\nswitch = "{ms(BASE_MS)}"\nsave = "{ms(switch - BASE_MS)}"\npool = {str(pool).lower()}\n'
    if mode == "xsched-inside":
        text += "inside = true\n"
    if by is not None:
        text += "\n[[program]]\n" + serving(by, device)
    for role in dict.fromkeys(names[1:]):
        share = "outside = true\n" if role == "gemm" and mode == "xsched-inside" else ""
        text += "\n[[program]]\n" + working(role, names[1:].count(role), steps[role], device, share)
    return text


def alone_rates(device, every):
    """Best-effort role -> device time of its step (host time, where the host is the slow part), in ms."""
    switch, found = switch_ms(device), {}
    for (_, mix), systems in every.items():
        names = coloc.parse_mix(mix)[1:]
        roles = dict.fromkeys(names)
        for role, rate in work(systems.get("best-effort", [])).items():
            bert = role.startswith("bert")
            took = step_ms(role, rate, 0 if bert else len(roles) - 1, switch)
            # Where it was alone counts most.
            found.setdefault(role, []).append((len(roles), took))
    return {role: records.median([took for n, took in values if n == min(values)[0]]) for role, values in found.items()}


def play(xsched, folder, name, text):
    path = folder / f"{name}.toml"
    path.write_text(text)
    out = folder / f"{name}.json"
    subprocess.run([xsched, "simulate", path, "--json", out], check=True, stdout=subprocess.DEVNULL)
    programs = json.loads(out.read_text())["runs"][0]["programs"]
    out.unlink()
    return {program["name"]: program for program in programs}


# ---- Table ---------------------------------------------------------------------------------------------------------------


class Row:
    """A mix under a system: predicted and measured."""

    def __init__(self, device, mix, mode, systems, steps):
        self.device, self.mix, self.mode, self.systems, self.steps = device, mix, mode, systems, steps
        self.roles = list(dict.fromkeys(coloc.parse_mix(mix)[1:]))

    def name(self, end):
        return f"{self.device}-{self.mix}-{end}".lower().replace("+", "-").replace("*", "x")

    def play_base(self, xsched, folder):
        """The best-effort programs by themselves."""
        text = scenario(self.mix, self.device, None, "native", SECONDS, self.steps)
        return play(xsched, folder, self.name("base"), text)

    def play(self, xsched, folder, base):
        """Predicts waits, and work relative to that without the urgent program."""
        self.alone = urgent(self.systems["alone"])
        # The rule for others inside is learned from each burst: it sees as many as when this was measured.
        seconds = round(sum(w["secs"] for w in self.systems[self.mode])) if self.mode == "xsched-inside" else SECONDS
        text = scenario(self.mix, self.device, self.alone, self.mode, seconds, self.steps)
        mine = play(xsched, folder, self.name(self.mode), text)
        times = mine[self.alone["role"]]["gap_us" if self.alone["gap_ms"] else "wait_us"]
        self.waits = times["p50"] / 1000, times["p99"] / 1000
        self.work = [mine[role]["share_percent"] / base[role]["share_percent"] for role in self.roles]

    def cells(self):
        """Cells of the table, and of each of its figures whether it is near enough."""
        measured = shown(self.systems[self.mode])
        now, then = work(self.systems[self.mode]), work(self.systems["best-effort"])
        done = [now.get(role, 0.0) / then[role] for role in self.roles]
        predicted, real = (100 * sum(values) / len(values) for values in (self.work, done))
        good = [abs(a - b) <= max(0.15 * b, 0.1) for a, b in zip(self.waits, measured)] + [abs(predicted - real) <= 0.1 * real]
        figures = [(*pair, 2) for pair in zip(self.waits, measured)] + [(predicted, real, 0)]
        texts = [f"{a:.{digits}f}/{b:.{digits}f}" for a, b, digits in figures]
        sign = "" if repeats(self.systems["alone"]) else "~"
        cells = [readme.short(self.mix), sign + MODES[self.mode]]
        return cells + [text if near else f"**{text}**" for text, near in zip(texts, good)], good


def rows():
    for device, known in DEVICES.items():
        every = load(device)
        steps = alone_rates(device, every)
        for mix in MIXES:
            for mode in known["modes"]:
                systems = next((systems for key, systems in every.items() if key[1] == mix and mode in systems), None)
                if systems:
                    yield Row(device, mix, mode, systems, steps)


def table(xsched, folder):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        all_rows = sorted(rows(), key=lambda row: MIXES.index(row.mix))
        first = {(row.device, row.mix): row for row in all_rows}
        bases = dict(zip(first, pool.map(lambda row: row.play_base(xsched, folder), first.values())))
        list(pool.map(lambda row: row.play(xsched, folder, bases[row.device, row.mix]), all_rows))
    found = [row.cells() for row in all_rows]
    # A mix is named in its first row.
    for (cells, _), row, before in zip(found[1:], all_rows[1:], all_rows):
        if row.mix == before.mix:
            cells[0] = ""
    sums = [f"{sum(good[at] for _, good in found)} of {len(found)}" for at in range(3)]
    head = ("urgent + best-effort", "", "wait, gap: P50, ms", "wait, gap: P99, ms", "best-effort work, %")
    return records.table(head, [cells for cells, _ in found] + [["near enough", "", *sums]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xsched", default=str(ROOT / "target/debug/xsched"), metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    parser.add_argument("--check", action="store_true", help="fail if the page has another table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        made = table(args.xsched, folder)
    print(made)
    page = PAGE.read_text()
    anew = MADE.sub(lambda found: f"{found[1]}{made}\n", page)
    if args.write:
        PAGE.write_text(anew)
    if args.check and anew != page:
        print(f"calibrate.py: {PAGE.name} has another table: make it anew by --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
