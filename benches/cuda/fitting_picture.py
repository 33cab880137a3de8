#!/usr/bin/env python3
"""Draws a run of fitting.py: the memory of both programs before, beside and after each other.

  fitting_picture.py FILE --run WORDS [--capacity GIB] [--out PICTURE]

FILE has the lines of one or more runs; WORDS is the command of the one to draw, as its lines name it; of several, the first.
"""

import argparse
import json
import sys
from pathlib import Path

import svg

ROOT = Path(__file__).resolve().parents[2]
LEFT, TOP, BAR, ROW, PER_GIB = 150, 58, 26, 58, 4.6


def lines_of(path, run):
    """Lines of the first run with this command, by part."""
    found = {}
    for line in map(json.loads, path.read_text().splitlines()):
        if line.get("run") != run:
            if found:
                break
            continue
        found[line["part"]] = line
    if "training after" not in found and "server gone" not in found:
        sys.exit(f"{path}: no run {run}")
    return found


def per_second(row):
    return f"{row['steps'] / row['s']:.2f} steps a second"


def picture(found, capacity):
    alone, turns, gone = found["training alone"], found["all turns"], found["server gone"]
    held, away = (turns["memory"][key] for key in ("used_bytes", "away_bytes"))
    server = turns["used_mib"] / 1024 - held
    gap, bare = (turns[key]["gap_p99_ms"] for key in ("beside", "alone"))
    rows = [
        ("training", [("xsched", gone["memory"]["used_bytes"])], 0, [per_second(alone)]),
        ("beside a server", [("xsched", held), ("alone", server)], away,
         [f"{turns['steps_per_s']:.2f} steps a second", f"token gap P99 {gap:.2f} ms, alone {bare:.2f}"]),
        ("server gone", [("xsched", gone["memory"]["used_bytes"])], gone["memory"]["away_bytes"],
         [f"all back after {gone['back_s']:.1f} s"]),
    ]
    end = LEFT + capacity * PER_GIB
    width, height = end + away * PER_GIB + 40, TOP + len(rows) * ROW + 30
    parts = [svg.text(16, 24, "A training and a server that do not fit together", size=15)]
    parts.append(svg.text(LEFT, TOP - 8, f"the GPU's {capacity:.0f} GiB", name="faint", size=11))
    parts.append(svg.text(end + 6, TOP - 8, "the host", name="faint", size=11))
    for n, (name, blocks, hosted, notes) in enumerate(rows):
        y, x = TOP + n * ROW, LEFT
        parts.append(svg.text(16, y + 18, name))
        for color, gib in blocks:
            parts.append(svg.box(x, y, gib * PER_GIB, BAR, color))
            x += gib * PER_GIB
        if hosted:
            parts.append(svg.box(end + 6, y, hosted * PER_GIB, BAR, "mps"))
        parts.append(svg.text(LEFT, y + BAR + 15, "; ".join(notes), size=11))
    parts.append(svg.line([(end, TOP - 4), (end, TOP + len(rows) * ROW - 14)], "lines"))
    x, y = LEFT, height - 18
    for color, words in (("xsched", "training, on the GPU"), ("mps", "training, lent"), ("alone", "server")):
        parts += [svg.box(x, y - 9, 12, 10, color), svg.text(x + 18, y, words, size=11)]
        x += 40 + svg.room(words, 11)
    label = f"GPU memory of a training of {gone['memory']['used_bytes']:.0f} GiB alone, beside a server of {server:.0f}, and after it"
    return svg.document(width, height, parts, label)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--run", required=True)
    parser.add_argument("--capacity", type=float, default=79.2, help="GiB of the GPU [%(default)s]")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures/fitting.svg")
    args = parser.parse_args()
    args.out.write_text(picture(lines_of(args.file, args.run), args.capacity))


if __name__ == "__main__":
    main()
