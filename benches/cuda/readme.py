#!/usr/bin/env python3
"""The co-location tables and picture of the README and of the results pages, from raw files.

  readme.py [--full] [--mps FILE] [--svg FILE] FILE ...
  readme.py --write

--write makes all published tables and pictures anew, by the commands that stand above them in the pages (`made by:`).

FILE is what coloc.py wrote; where several have a mix, the last one counts. Prints Markdown: a
table of the mixes in `ROWS`, one figure a cell, the best of each three in bold: the P99 of all requests of all rounds together,
relative to the same alone, and the best-effort work. `~` marks figures of which half of the windows or more are noisy (figures.py says
when). --full: one table of all mixes with every figure, the worst mix first. Where tokens
are streamed, P99 is that of the gaps between them. --svg draws the P99 of the same rows. MPS comes from the same file where it was
measured there, else from the files that --mps names (the later one wins), with the commit beside it.
"""

import argparse
import math
import os
import re
import sys
from pathlib import Path

import coloc
import records
import svg

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/results/h100.md", "docs/results/h200.md")
# A command that a page names, and the table below it.
MADE = re.compile(r"(<!-- made by: python3 benches/cuda/readme\.py (.*?) -->\n)((?:\|.*\n)+)")
NAMES = {
    "rn18": "ResNet-18",
    "rn50": "ResNet-50",
    "bert-lc": "BERT",
    "bert-be": "BERT",
    "gemm": "100 ms GEMMs",
    "llm": "LLM (gap between tokens)",
    "llm-be": "batch decoding",
    "llm-low": "LLM of class normal",
    "train": "training",
    "jax": "JAX",
}
SYSTEMS = {"native": "nothing done", "mps-prio": "MPS", "xsched": "xsched"}
FILLS = {"native": "native", "mps-prio": "mps", "xsched": "xsched"}
# Rows of the README, in order.
ROWS = ("llm+train", "llm+train+llm-be", "bert-lc+bert-be*5", "rn18+rn50")


def title(mix, names=NAMES):
    """`bert-lc+bert-be*5` as a reader would say it."""
    words = []
    for part in mix.split("+"):
        role, _, count = part.partition("*")
        words.append(f"{count} × {names.get(role, role)}" if count else names.get(role, role))
    return " + ".join(words)


def short(mix):
    """The title without what is measured."""
    return title(mix, {**NAMES, "llm": "LLM"})


def commits(path):
    """Mix -> commit of the build that `summaries` shows of it. A record of the machine stands before the windows of its build."""
    builds, found = {}, {}
    for record in records.load(path):
        if record.get("bench") == "machine":
            builds[record["build"]] = record["commit"][:7]
        elif record.get("bench") == "coloc":
            found[record["mix"]] = record["build"]
    return {mix: builds.get(build, "unknown") for mix, build in found.items()}


def promised(row):
    """What a user waits for: requests, or tokens where they are streamed."""
    if "gap" not in row["metrics"]:
        return row
    gap = row["metrics"]["gap"]
    shown = dict(row, p99=gap["p99"][0])
    if "to_alone" in row:
        shown["p99_to_alone"] = row["to_alone"]["gap"]["p99"][0]
        shown["p99_to_alone_by_round"] = gap["p99_to_alone_by_round"]
    return shown


def is_noisy(row):
    """True if half of a system's windows or more are marked."""
    return bool(row.get("noisy")) or 2 * row.get("left_out", 0) >= row.get("left_out", 0) + row.get("windows", 1)


def figures(file, mps_files):
    """Mix -> what the table says of it, the worst first."""
    found, commit = {}, commits(file)
    # The pages say of their figures that they are of all rounds.
    others = {other: (coloc.summaries(other, leave_out=False), commits(other)) for other in mps_files}
    quiet = coloc.summaries(file)
    for mix, whole in coloc.summaries(file, leave_out=False).items():
        rows = {name: promised(row) for name, row in whole["systems"].items() if "p99" in row}
        for name, row in rows.items():
            row["is_noisy"] = is_noisy(quiet[mix]["systems"].get(name, {}))
        systems = {name: dict(row, commit=commit[mix]) for name, row in rows.items()}
        for summaries, built in others.values():
            row = summaries.get(mix, {"systems": {}})["systems"].get("mps-prio")
            if row and "mps-prio" not in whole["systems"]:
                systems["mps-prio"] = dict(promised(row), commit=built[mix])
        if "p99_to_alone" in systems.get("xsched", {}):
            found[mix] = systems
    return dict(sorted(found.items(), key=lambda item: -item[1]["xsched"]["p99_to_alone"]))


def ratio(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def cell(row, commit):
    """P99 in ms, pooled and by rounds to alone. Of another build and day only the ratios can be compared."""
    if not row:
        return "not measured"
    both = f"{ratio(row['p99_to_alone'])} × · {ratio(row['p99_to_alone_by_round']['median'])} ×"
    sign = "~" if row.get("is_noisy") else ""
    return f"{sign}{row['p99']:.2f} ms · {both}" if row["commit"] == commit else f"{both} ({row['commit']})"


def kept(row):
    left = (row or {}).get("best_effort_of_time_left")
    return "–" if left is None else f"{100 * left:.0f}"


# Systems of the full table, in order, and what it calls them.
FULL = {
    "native": "nothing done",
    "mps-prio": "MPS, client priorities",
    "xsched": "**xsched**",
    "xsched-inside": "xsched, urgent program inside",
}
HEAD = ("urgent + best-effort", "alone", *FULL.values(), "best-effort work, in the same order")


def table(found):
    rows = []
    for mix, systems in found.items():
        commit = systems["xsched"]["commit"]
        cells = [cell(systems.get(name), commit) for name in FULL]
        parts = [kept(systems.get(name)) for name in FULL]
        work = " / ".join(parts) + " %" if set(parts) != {"–"} else "–"
        rows.append((title(mix), f"{systems['alone']['p99']:.2f} ms", *cells, work))
    return records.table(HEAD, rows)


def best(values, least):
    """Which of the values that are shown are the best: the least, or the greatest."""
    there = [value for value in values if value is not None]
    return [value is not None and value == (min if least else max)(there) for value in values]


def small_cells(systems, of, show, least):
    """One figure of each system, the best in bold."""
    values = [of(systems[name]) if name in systems else None for name in SYSTEMS]
    shown = [None if value is None else show(value) for value in values]
    marks = best([None if value is None else float(show(value).split()[0]) for value in values], least)
    noise = ["~" if systems.get(name, {}).get("is_noisy") else "" for name in SYSTEMS]
    cells = [None if cell is None else f"{sign}{cell}" for sign, cell in zip(noise, shown)]
    return [f"**{cell}**" if mark else cell for cell, mark in zip(cells, marks)]


def small_table(found):
    """The README's table: a row for each mix; P99 of each system, then best-effort work of each."""
    rows = []
    for mix, systems in found.items():
        p99 = small_cells(systems, lambda row: row["p99_to_alone"], lambda v: f"{ratio(v)} ×", least=True)
        work = small_cells(systems, lambda row: row.get("best_effort_of_time_left"), lambda v: f"{100 * v:.0f} %", least=False)
        rows.append((short(mix), *p99, *work))
    names = SYSTEMS.values()
    return records.table(("", *(f"P99: {name}" for name in names), *(f"work: {name}" for name in names)), rows)


def ticks(low, high):
    """Round numbers of a logarithmic axis."""
    if high / low < 25:
        return [tick for tick in (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10) if low <= tick <= high]
    return [10.0**n for n in range(-2, 6) if low <= 10.0**n <= high]


def picture(found, path):
    """Bars of the P99 on a logarithmic axis: they begin at 1, which is alone, and each has its figure on paper right of it."""
    wide, top, bar, gap, right = 880, 64, 15, 18, 84
    left = 16 + max(svg.room(short(mix)) for mix in found)
    values = [systems[name]["p99_to_alone"] for systems in found.values() for name in SYSTEMS if name in systems]
    low, high = min(0.8, 0.8 * min(values)), max(2.0, max(values))
    at = lambda value: left + (wide - left - right) * math.log(value / low) / math.log(high / low)  # noqa: E731
    bars, y = [], top
    for mix, systems in found.items():
        shown = [name for name in SYSTEMS if name in systems]
        bars.append(svg.text(left - 12, y + len(shown) * (bar + 2) / 2 + 4, short(mix), "end"))
        marks = best([float(ratio(systems[name]["p99_to_alone"])) for name in shown], least=True)
        for name, mark in zip(shown, marks):
            value = systems[name]["p99_to_alone"]
            begin, end = sorted((at(1), at(value)))
            # What is 1 or all but 1 is seen, too.
            bars.append(svg.box(begin, y, max(end - begin, 3), bar, FILLS[name]))
            words, x = f"{ratio(value)} ×", max(at(value), at(1) + 3) + 5
            bars.append(svg.box(x, y, svg.room(words, 12), bar, "paper"))
            bars.append(svg.text(x + 1, y + bar - 3, words, size=12, bold=mark))
            y += bar + 2
        y += gap
    bottom = y - gap + 6
    parts = [svg.text(16, 24, "P99 relative to running alone: shorter is better", size=15)]
    legend = 16 + svg.room("P99 relative to running alone: shorter is better", 15) + 12
    for name, words in SYSTEMS.items():
        parts += [svg.box(legend, 13, 12, 12, FILLS[name]), svg.text(legend + 18, 24, words)]
        legend += 34 + svg.room(words)
    for tick in ticks(low, high):
        name, words = ("alone-line", "alone") if tick == 1 else ("lines", f"{tick:g} ×")
        parts.append(svg.line([(at(tick), top - 8), (at(tick), bottom)], name, 1.0))
        parts.append(svg.text(at(tick), top - 14, words, "middle", 11, "faint"))
    Path(path).write_text(svg.document(wide, bottom + 12, parts + bars, "P99 relative to running alone"))


def made(words):
    """The table that these arguments ask for; draws the picture, too."""
    args = arguments(words)
    found = {}
    for path in args.files:
        found.update(figures(path, args.mps))
    if not args.full:
        found = {mix: found[mix] for mix in ROWS if mix in found}
    if not found:
        sys.exit(f"readme.py: {', '.join(map(str, args.files))}: no co-location")
    if args.svg:
        picture(found, args.svg)
    return table(found) if args.full else small_table(found)


def rewritten(text):
    """A page with its tables made anew."""
    return MADE.sub(lambda found: f"{found[1]}{made(found[2].split())}\n", text)


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--full", action="store_true", help="all mixes and figures")
    parser.add_argument("--mps", type=Path, action="append", default=[], help="further files that have mps-prio")
    parser.add_argument("--svg", type=Path, help="draw the picture as well")
    parser.add_argument("--write", action="store_true", help="make all published tables and pictures anew")
    args = parser.parse_args(words)
    if bool(args.files) == args.write:
        parser.error("give files, or --write")
    for path in (*args.files, *args.mps):
        if not path.is_file():
            parser.error(f"{path} is no file")
    return args


def main():
    if not arguments().write:
        print(made(sys.argv[1:]))
        return 0
    os.chdir(ROOT)
    for page in PAGES:
        Path(page).write_text(rewritten(Path(page).read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
