#!/usr/bin/env python3
"""The co-location table and picture of the README, from raw files.

  readme.py [--mps FILE] [--svg FILE] [FILE]

FILE is what coloc.py wrote [docs/benchmarks/h200/coloc.jsonl]. Prints Markdown: for each mix the P99 of all requests of
all rounds together (pooled) and the median of the rounds' ratios to alone, the worst mix first. Where tokens are streamed, it is the
P99 of the gaps between them. MPS comes from the same file where it was measured there, else from the files that --mps names (the later one wins), with the commit beside it.
"""

import argparse
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import coloc
import records

HERE = Path(__file__).resolve().parent
RAW = HERE.parents[1] / "docs" / "benchmarks" / "h200"
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
LOOKS = {
    "native": ("nothing done", "#8c8c8c"),
    "xsched": ("xsched", "#c8342b"),
    "mps-prio": ("MPS, client priorities", "#2f7fb5"),
}


def title(mix):
    """`bert-lc+bert-be*5` as a reader would say it."""
    words = []
    for part in mix.split("+"):
        role, _, count = part.partition("*")
        words.append(f"{count} × {NAMES.get(role, role)}" if count else NAMES.get(role, role))
    return " + ".join(words)


def commits(path):
    """Build -> commit. A record of the machine stands before the windows of its build."""
    found = {}
    for record in records.load(path):
        if record.get("bench") == "machine":
            found[record["build"]] = record["commit"][:7]
    return found


def built(path, mix):
    """Commit of the build that `summaries` shows of this mix."""
    windows = [r for r in records.load(path) if r.get("bench") == "coloc" and r["mix"] == mix]
    return commits(path).get(windows[-1]["build"], "unknown")


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


def figures(file, mps_files):
    """Mix -> what the table says of it, the worst first."""
    found, others = {}, {other: coloc.summaries(other) for other in mps_files}
    for mix, whole in coloc.summaries(file).items():
        rows = {name: promised(row) for name, row in whole["systems"].items() if "p99" in row}
        systems = {name: dict(row, commit=built(file, mix)) for name, row in rows.items()}
        for other, summaries in others.items():
            row = summaries.get(mix, {"systems": {}})["systems"].get("mps-prio")
            if row and "mps-prio" not in whole["systems"]:
                systems["mps-prio"] = dict(promised(row), commit=built(other, mix))
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
    return f"{row['p99']:.2f} ms · {both}" if row["commit"] == commit else f"{both} ({row['commit']})"


def kept(row):
    left = (row or {}).get("best_effort_of_time_left")
    return "–" if left is None else f"{100 * left:.0f}"


HEAD = (
    "latency-critical + best-effort",
    "alone",
    "nothing done",
    "**xsched**",
    "MPS, client priorities",
    "best-effort work: nothing done / xsched / MPS",
)


def table(found):
    rows = []
    for mix, systems in found.items():
        commit = systems["xsched"]["commit"]
        cells = [cell(systems.get(name), commit) for name in ("native", "xsched", "mps-prio")]
        parts = [kept(systems.get(name)) for name in ("native", "xsched", "mps-prio")]
        work = " / ".join(parts) + " %" if set(parts) != {"–"} else "–"
        rows.append((title(mix), f"{systems['alone']['p99']:.2f} ms", *cells, work))
    return records.table(HEAD, rows)


def picture(found, path):
    """Bars of the pooled P99 to alone; a line across each is the rounds' median. What is longer has its figure."""
    wide, left, top, bar, gap, most = 880, 370, 34, 13, 20, 2.0
    unit = (wide - left - 60) / most
    parts, y = [], top
    for mix, systems in found.items():
        shown = [name for name in LOOKS if name in systems]
        middle = y + len(shown) * (bar + 2) / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{middle:.0f}" text-anchor="end">{escape(title(mix))}</text>')
        for name in shown:
            row = systems[name]
            value, rounds = row["p99_to_alone"], row["p99_to_alone_by_round"]["median"]
            length = min(value, most) * unit
            said = f"{ratio(value)} ×" + ("  →" if value > most else "")
            parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar}" fill="{LOOKS[name][1]}"/>')
            parts.append(f'<text x="{left + length + 5:.1f}" y="{y + bar - 2}" font-size="11">{said}</text>')
            if rounds <= most:
                x = left + rounds * unit
                parts.append(f'<path d="M{x:.1f} {y - 1}v{bar + 2}" stroke="#000" stroke-width="2"/>')
            y += bar + 2
        y += gap
    legend = left
    for name, colour in LOOKS.values():
        parts.append(f'<rect x="{legend}" y="10" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{legend + 16}" y="20">{escape(name)}</text>')
        legend += 34 + 7 * len(name)
    one = left + unit
    parts.append(f'<path d="M{one:.1f} {top - 6}V{y - gap + 6}" stroke="#555" stroke-dasharray="3 3"/>')
    parts.append(
        f'<text x="{left}" y="{y + 4}" font-size="11">'
        "P99 of all requests, alone = 1 (dashed); black line: median of the rounds</text>"
    )
    size = f'viewBox="0 0 {wide} {y + 16}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    back = f'<rect width="{wide}" height="{y + 16}" fill="#fff"/>'
    Path(path).write_text("\n".join([head, back, *parts, "</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=RAW / "coloc.jsonl")
    parser.add_argument("--mps", type=Path, action="append", default=[], help="further files that have mps-prio")
    parser.add_argument("--svg", type=Path, help="draw the picture as well")
    args = parser.parse_args()
    for path in (args.file, *args.mps):
        if not path.is_file():
            parser.error(f"{path} is no file")
    found = figures(args.file, args.mps)
    if not found:
        parser.error(f"{args.file} holds no co-location")
    print(table(found))
    if args.svg:
        picture(found, args.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
