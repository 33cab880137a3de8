#!/usr/bin/env python3
"""A picture of best-effort work against the urgent program's wait for the device: a point for each system of a mix.

  curve.py FILE --svg PICTURE [--mix MIX]

FILE is what coloc.py or sides.py wrote; MIX is one of it [bert-lc+bert-be*5, where it has that, else its only one]. Across: the P99 of the wait
for the device beyond that alone, in ms, on a logarithmic axis, with its 95 % interval; of token gaps where these are streamed. What is below
0.01 ms is drawn there. Up: best-effort items per second, or, of several kinds of programs, the mean of what each does of its own
without the urgent one. Left and up is better. Windows that are marked as noisy are left out (figures.py says when).
"""

import argparse
import math
import sys
from pathlib import Path

import figures
import svg
from readme import short

USUAL = "bert-lc+bert-be*5"
FLOOR_MS = 0.01
NAMES = {  # system -> words, and the name of its colour
    "native": ("nothing done", "native"),
    "mps": ("MPS", "mps"),
    "mps-prio": ("MPS with priorities", "mps"),
    "xsched": ("xsched: outside", "xsched"),
    "xsched-inside": ("xsched: inside, yields", "xsched"),
    "xsched-noyield": ("xsched: inside, gates close", "xsched"),
    "xsched-noflags": ("xsched: inside, no priorities", "xsched"),
}
ITEMS = {"bert-be": "requests", "rn50": "images", "train": "tokens", "llm-be": "tokens", "gemm": "kernels", "jax": "steps"}
WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 84, 24, 56, 64
DOT, LINE, SMALL = 6, 15, 12
FAR = 20  # pixels from a point to its label beyond which a line leads there


def points(found):
    """(system, x in ms with its interval, y) of each system that has both; what y is."""
    rows = {n: r for n, r in found["systems"].items() if n not in ("alone", "best-effort") and r.get("best_effort_per_s")}
    kinds = {role for row in rows.values() for role in row["best_effort_per_s"]}
    result = []
    for name, row in rows.items():
        beyond = row.get("gap_wait_beyond_alone") or row.get("wait_beyond_alone")
        work = row["best_effort_per_s"][next(iter(kinds))] if len(kinds) == 1 else 100 * row["work"].get("work kept", [0])[0]
        if beyond and work:
            result.append((name, beyond["p99"], work))
    what = f"best-effort {ITEMS[next(iter(kinds))]} per s" if len(kinds) == 1 else "best-effort work, % of its own, mean"
    return result, what


def amount(value):
    """A number in four digits at most."""
    if not value:
        return "0"
    return f"{value / 1000:.0f} k" if value >= 10_000 else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def nearest(x, y, box):
    """The point of a box that is nearest to another point."""
    return min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])


def crosses(begin, end, box):
    """Whether a straight line runs through a box, but for where it begins."""
    steps = (n / 40 for n in range(41))
    at = ((begin[0] + n * (end[0] - begin[0]), begin[1] + n * (end[1] - begin[1])) for n in steps)
    return any(box[0] < x < box[2] and box[1] < y < box[3] and math.dist((x, y), begin) > 2 * DOT for x, y in at)


def place(x, y, wide, high, taken, frame):
    """The box of a label for a point: it covers nothing of `taken`, lies in the frame, and is as near as can be, right of the point
    rather than elsewhere. A line to one that is far crosses as little as can be."""
    best = None
    for across in range(-int(wide) - 240, 241, 4):
        for down in range(-240, 241, 4):
            mine = (x + across, y + down - high / 2, x + across + wide, y + down + high / 2)
            inside = mine[0] >= frame[0] and mine[1] >= frame[1] and mine[2] <= frame[2] and mine[3] <= frame[3]
            cost = math.dist(nearest(x, y, mine), (x, y)) + 0.02 * abs(down) + (0 if across > 0 else 2)
            if not inside or (best and cost >= best[0]) or any(overlap(mine, other) for other in taken):
                continue
            if cost > FAR:
                cost += 200 * sum(crosses((x, y), nearest(x, y, mine), other) for other in taken)
            if not best or cost < best[0]:
                best = cost, mine
    return best[1] if best else (x + DOT + 4, y - high / 2, x + DOT + 4 + wide, y + high / 2)


def picture(mix, found):
    """The picture as SVG."""
    given, what = points(found)
    if not given:
        raise ValueError(f"{mix}: no system has both a wait for the device and best-effort work")
    bounds = [max(FLOOR_MS, v) for _, x, _ in given for v in x if v is not None]
    low = 10.0 ** math.floor(math.log10(min(bounds)))
    high = 10.0 ** max(math.ceil(math.log10(max(bounds))), math.log10(low) + 1)
    top = svg.ceiling(1.05 * max([y for _, _, y in given]))
    right, bottom = WIDE - RIGHT, HIGH - BOTTOM

    def across(value):
        return LEFT + (right - LEFT) * math.log(max(value, low) / low) / math.log(high / low)

    def up(value):
        return bottom - (bottom - TOP) * value / top

    title = f"{short(mix)}: work beside the wait for the GPU"
    parts = [svg.text(16, 26, title, size=15), svg.text(LEFT, TOP - 10, f"{what} (more is better)", size=SMALL, name="faint")]
    for n in range(6):
        y = up(top * n / 5)
        parts += [svg.line([(LEFT, y), (right, y)], "lines"), svg.text(LEFT - 8, y + 4, amount(top * n / 5), "end", 11, "faint")]
    tick = low
    while tick <= high * 1.001:
        words = f"≤ {tick:g}" if tick <= FLOOR_MS * 1.001 else f"{tick:g}"
        parts += [svg.line([(across(tick), TOP), (across(tick), bottom)], "lines")]
        parts += [svg.text(across(tick), bottom + 18, words, "middle", 11, "faint")]
        tick *= 10
    words = "wait for the GPU beyond alone, P99, ms, with its 95 % interval (less is better)"
    parts.append(svg.text((LEFT + right) / 2, bottom + 42, words, "middle", SMALL, "faint"))
    dots = [(across(x[0]), up(y)) for _, x, y in given]
    taken = [(x - DOT - 2, y - DOT - 2, x + DOT + 2, y + DOT + 2) for x, y in dots]
    labels, lead = [], []
    for (name, x, work), (at, y) in zip(given, dots):
        noise = ", noise" if found["systems"][name].get("noisy") else ""
        lines = [NAMES.get(name, (name, ""))[0] + noise, f"{x[0]:.2f} ms · {amount(work)}"]
        wide, tall = max(svg.room(words, SMALL) for words in lines) + 4, LINE * len(lines)
        mine = place(at, y, wide, tall, taken, (LEFT, TOP, right, bottom))
        taken.append(mine)
        left, begin = mine[:2]
        labels.append(svg.box(left, begin, wide, tall, "paper"))
        labels.append(svg.text(left + 2, begin + LINE - 4, lines[0], size=SMALL, bold=name == "xsched-inside"))
        labels.append(svg.text(left + 2, begin + 2 * LINE - 4, lines[1], size=SMALL, name="faint"))
        near = nearest(at, y, mine)
        if math.dist(near, (at, y)) > FAR:
            lead.append(svg.line([(at, y), near], "alone-line", 0.8))
    parts += labels + lead
    for (name, (_, least, most), _), (x, y) in zip(given, dots):
        colour = NAMES.get(name, (name, "xsched"))[1]
        if least is not None:
            parts.append(svg.box(across(least), y - 0.75, across(most) - across(least), 1.5, colour))
        parts.append(svg.dot(x, y, DOT, colour))
    return svg.document(WIDE, HIGH, parts, title)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, required=True, metavar="PICTURE")
    parser.add_argument("--mix")
    args = parser.parse_args()
    if not args.file.is_file():
        parser.error(f"{args.file} is no file")
    found = figures.summaries(args.file)
    mix = args.mix or (USUAL if USUAL in found else next(iter(found)) if len(found) == 1 else None)
    if mix not in found:
        parser.error(f"--mix: {args.file} has {', '.join(found) or 'no co-location'}")
    try:
        args.svg.write_text(picture(mix, found[mix]))
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
