#!/usr/bin/env python3
"""Draws a day in a cluster of 1,000 devices under two policies, as `xsched simulate` plays it.

  day.py [--xsched FILE] [--json FILE] [--out PICTURE]

Plays benches/scenarios/day.toml (some minutes), or reads the figures that --json names, and draws for each half hour how much of the devices
is used, what P99 urgent requests have, and how many jobs wait or run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches/cuda"))
import svg  # noqa: E402

SCENARIO = ROOT / "benches/scenarios/day.toml"
COLOURS = {"hpf": "xsched-line", "fair": "alone-line"}
DASHES = {"hpf": None, "fair": "6 4"}
WIDE, LEFT, RIGHT, TOP, TALL, GAP = 760, 64, 20, 58, 116, 44


def play(xsched):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "day.json"
        subprocess.run([xsched, "simulate", SCENARIO, "--json", out], check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def of(interval, name):
    return next(program for program in interval["programs"] if program["name"] == name)


# Titles, and what is drawn of an interval.
PANELS = (
    ("devices in use, %", lambda interval: interval["device_use_percent"]),
    ("P99 of urgent requests, s", lambda interval: (of(interval, "server")["p99_us"] or 0) / 1e6),
    ("jobs that wait or run", lambda interval: of(interval, "jobs")["open_requests"]),
)


def panel(top, title, runs, value):
    """One panel: a line for each run, on an axis of 24 hours."""
    found = {run["policy"]: [value(interval) for interval in run["intervals"]] for run in runs}
    most = svg.ceiling(max(max(values) for values in found.values()))
    room = WIDE - LEFT - RIGHT
    parts = [svg.text(LEFT, top - 9, title, bold=True)]
    for part in (0, 0.5, 1):
        y = top + TALL * (1 - part)
        parts += [svg.line([(LEFT, y), (WIDE - RIGHT, y)], "lines"), svg.text(LEFT - 8, y + 4, f"{most * part:,.3g}" if most < 1000 else f"{most * part:,.0f}", "end", 11, "faint")]
    for hour in range(0, 25, 3):
        parts.append(svg.text(LEFT + room * hour / 24, top + TALL + 16, f"{hour}:00", "middle", 11, "faint"))
    for policy, values in found.items():
        points = [(LEFT + room * (n + 0.5) / len(values), top + TALL * (1 - v / most)) for n, v in enumerate(values)]
        parts.append(svg.line(points, COLOURS[policy], 2.2, DASHES[policy]))
    return parts


def picture(figures):
    runs = figures["runs"]
    words = "A day of 1,000 devices"
    parts, x = [svg.text(16, 26, words, size=15)], 16 + svg.room(words, 15) + 20
    for run in runs:
        parts += [svg.line([(x, 21), (x + 26, 21)], COLOURS[run["policy"]], 2.2, DASHES[run["policy"]]), svg.text(x + 34, 26, run["policy"])]
        x += 60 + svg.room(run["policy"])
    for n, (title, value) in enumerate(PANELS):
        parts += panel(TOP + 10 + n * (TALL + GAP), title, runs, value)
    return svg.document(WIDE, TOP + len(PANELS) * (TALL + GAP), parts, figures["question"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xsched", default=str(ROOT / "target/release/xsched"), metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="figures that were played already")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures/day.svg", metavar="PICTURE")
    args = parser.parse_args()
    figures = json.loads(args.json.read_text()) if args.json else play(args.xsched)
    args.out.write_text(picture(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
