#!/usr/bin/env python3
"""Draws what `xsched trace --json` recorded: a lane for each program, with its runs and its waits.

  timeline.py TRACE.json[.xz] --svg PICTURE [--ms N] [--from MS] [--title TEXT]

From the middle of the record, N ms [100]; --from begins so many ms after its beginning. For a pool or a program that yields inside
itself, on a machine with a GPU while the programs run:

  xsched trace --last 2s --json > pool.json && benches/timeline.py pool.json --svg docs/pictures/pool.svg --title "In a pool"
"""

import argparse
import json
import lzma
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "cuda"))
import svg  # noqa: E402

WIDTH, LEFT, RIGHT, TOP, LANE, BAR = 860, 150, 20, 62, 46, 26
CLASSES = ["system", "realtime", "high", "normal", "low"]
# What a span is drawn as: the bar's part of the full height. Waits are a line, so that what runs stands out.
HEIGHTS = {"runs": 1.0, "leaves": 0.45}
WAITING = ("waits", "suspended", "stalled")


def read(path):
    """The record in a file, which may be packed (.xz)."""
    return json.loads(lzma.open(path).read() if path.suffix == ".xz" else path.read_text())


def middle(trace, ms):
    """Beginning and length, in µs, of so many ms from the middle of the record."""
    whole = trace["to_us"] - trace["from_us"]
    wide = min(ms * 1000, whole)
    return trace["from_us"] + (whole - wide) / 2, wide


def place(name):
    """Order of a class among all: the most urgent first."""
    return CLASSES.index(name) if name in CLASSES else len(CLASSES)


def lanes(trace):
    """The groups of programs that did something, the most urgent first."""
    shown = [group for group in trace["groups"] if group["program"] and group["spans"]]
    return sorted(shown, key=lambda group: (place(group["program"]["class"]), group["program"]["pid"], group["id"]))


def step(span):
    """Distance of the marks of the axis: five to ten of them."""
    return next(unit * 10**power for power in range(-2, 7) for unit in (1, 2, 5) if span / (unit * 10**power) <= 10)


def drawn(trace, title, begin_us, wide_us):
    """The picture of this part of the record."""
    groups = lanes(trace)
    room = WIDTH - LEFT - RIGHT
    at = lambda us: LEFT + room * min(max((us - begin_us) / wide_us, 0), 1)  # noqa: E731
    bottom = TOP + LANE * len(groups)
    urgent = min((place(group["program"]["class"]) for group in groups), default=0)
    parts = [svg.text(20, 26, title, bold=True, size=14)]
    mark, ms = step(wide_us / 1000), 0.0
    while ms <= wide_us / 1000 + 1e-9:
        x = LEFT + room * ms * 1000 / wide_us
        parts += [svg.line([(x, TOP - 8), (x, bottom)], "lines"), svg.text(x, bottom + 18, f"{ms:g}", "middle", 12, "faint")]
        ms += mark
    parts.append(svg.text(LEFT + room / 2, bottom + 38, "ms", "middle", 12, "faint"))
    for n, group in enumerate(groups):
        program, middle = group["program"], TOP + LANE * n + LANE / 2
        name = "xsched" if place(program["class"]) == urgent else "alone"
        parts += [svg.text(20, middle - 1, program["name"]), svg.text(20, middle + 15, program["class"], size=12, name="faint")]
        for span in group["spans"]:
            left, right = at(span["from_us"]), at(span["to_us"])
            if span["to_us"] <= begin_us or span["from_us"] >= begin_us + wide_us:
                continue
            if span["doing"] in WAITING:
                parts.append(svg.line([(left, middle), (right, middle)], f"{name}-line", 2, "2 3"))
            else:
                high = BAR * HEIGHTS[span["doing"]]
                parts.append(svg.box(left, middle - high / 2, max(right - left, 0.6), high, name))
    x = WIDTH - RIGHT - 330
    parts += [
        svg.box(x, 14, 24, 14, "alone"), svg.text(x + 30, 26, "on the device", size=12, name="faint"),
        svg.box(x + 140, 18, 24, 6, "alone"), svg.text(x + 170, 26, "leaves it", size=12, name="faint"),
        svg.line([(x + 248, 21), (x + 272, 21)], "alone-line", 2, "2 3"), svg.text(x + 278, 26, "waits", size=12, name="faint"),
    ]
    names = ", ".join(f"{group['program']['name']} ({group['program']['class']})" for group in groups)
    return svg.document(WIDTH, bottom + 50, parts, f"{title}: when {names} had the device, and when each waited")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--svg", type=Path, required=True)
    parser.add_argument("--ms", type=float, default=100)
    parser.add_argument("--from", dest="begin", type=float)
    parser.add_argument("--title", default="The device over time")
    args = parser.parse_args()
    try:
        trace = read(args.trace)
        begin, wide = middle(trace, args.ms)
        if not lanes(trace):
            raise ValueError("no program of yours is in it")
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        print(f"timeline.py: {args.trace} is no output of `xsched trace --json` that can be drawn: {error}", file=sys.stderr)
        return 2
    if args.begin is not None:
        begin = trace["from_us"] + args.begin * 1000
    args.svg.write_text(drawn(trace, args.title, begin, wide))
    return 0


if __name__ == "__main__":
    sys.exit(main())
