#!/usr/bin/env python3
"""Puts results together: report.json, report.md and plots (SVG, where matplotlib is installed).

  report.py DIR [--out DIR]

DIR holds the JSON lines that bench.py and the other scripts wrote. Of each measurement the build measured last counts.
"""

import argparse
import json
import sys
from pathlib import Path

import alone
import coloc
import groups
import limits
import readme
import records
import svg
from units import newest


def by_case(found):
    """case -> its records, in order."""
    result = {}
    for record in found:
        result.setdefault(record["case"], []).append(record)
    return result


def preempt(found):
    rows = []
    for case, mine in by_case(found).items():
        values = [v for r in mine for v in r["latency_us"]]
        levels = sorted({g["level"] for r in mine for p in r["seen"] for g in p["groups"] if g["level"] is not None})
        rows.append(
            {
                "system": mine[0]["system"],
                "kernel": mine[0]["kernel"],
                "levels_seen": levels,
                "beside_per_s": mine[0].get("beside_per_s"),
                **records.latencies(values),
            }
        )
    return rows


def launch(found):
    cases, rows = by_case(found), []
    for case, mine in cases.items():
        bare = {r["round"]: r for r in cases.get(f"bare / {mine[0]['stream']} stream", [])}
        row = {
            "case": case,
            "ns": records.spread([r["ns"] for r in mine]),
            "cycles": records.spread([r["cycles"] for r in mine]),
        }
        pairs = [(r, bare[r["round"]]) for r in mine if r["round"] in bare]
        if pairs and mine[0] is not pairs[0][1]:
            row["added_ns"] = records.spread([a["ns"] - b["ns"] for a, b in pairs])
            row["added_cycles"] = records.spread([a["cycles"] - b["cycles"] for a, b in pairs])
            row["ratio"] = records.spread([a["ns"] / b["ns"] for a, b in pairs])
        rows.append(row)
    return rows


def shares(found):
    cases, rows = by_case(found), []
    native = [r["total_per_s"] for r in cases.get("native", [])]
    for case, mine in cases.items():
        total = records.median([r["total_per_s"] for r in mine])
        rows.append(
            {
                "case": case,
                "share": records.spread([r["share"] for r in mine]),
                "total_per_s": total,
                "to_native": round(total / records.median(native), 4) if native else None,
            }
        )
    return rows


def classes(found):
    rows = []
    for case, mine in by_case(found).items():
        row = {"case": case}
        if "skipped" in mine[-1]:
            row["skipped"] = mine[-1]["skipped"]
        elif "switches_per_s" in mine[0]:
            row["switches_per_s"] = records.spread([r["switches_per_s"] for r in mine])
        else:
            for kind in mine[0]["latency_us"]:
                row[kind] = records.latencies([v for r in mine if "latency_us" in r for v in r["latency_us"][kind]])
        rows.append(row)
    return rows


def held(found):
    return [
        {"case": case, "returned": mine[-1]["returned"], "urgent_us": records.latencies(mine[-1]["latency_us"])}
        for case, mine in by_case(found).items()
    ]


def startup(found):
    return [
        {
            "case": case,
            "ended_s": mine[-1]["ended_s"],
            "not_ended": mine[-1]["not_ended"],
            "limit_s": mine[-1]["limit_s"],
            "urgent_us": records.latencies(mine[-1]["latency_us"]) if mine[-1]["latency_us"] else None,
        }
        for case, mine in by_case(found).items()
    ]


def gather(folder):
    """Everything in a folder of results."""
    records_of = (r for path in sorted(Path(folder).glob("*.jsonl")) for r in records.load(path))
    # Some benchmarks write records of a form of their own, which no table here shows.
    found = [r for r in records_of if "bench" in r]

    def of(*names):
        return newest([r for r in found if r["bench"] in names])

    faults = {r["bench"]: True for r in found if r["bench"].startswith("fault ")}
    machines = []
    for record in found:
        if record["bench"] == "machine" and record not in machines:
            machines.append(record)
    mixes = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        mixes.update(coloc.summaries(path))
    known = (*coloc.MIXES, *limits.SERVING)
    mixes = {m: mixes[m] for m in sorted(mixes, key=lambda m: [*known, m].index(m))}
    result = {
        "machines": machines,
        "coloc": mixes,
        "preempt": preempt(of("preempt")),
        "launch": launch(of("launch")),
        "alone": alone.summary(of("alone", "idle")),
        "shares": shares(of("shares")),
        "classes": classes(of("classes")),
        "groups": groups.summary(of("groups")),
        "held": held(of("held")),
        "startup": startup(of("startup")),
        "faults": [{k: v for k, v in r.items() if k not in ("at", "round")} for name in faults for r in of(name)],
    }
    return {k: v for k, v in result.items() if v}


# ---- Markdown --------------------------------------------------------------------------------------------------------


def cell(spread, digits=2):
    """Median (least–greatest)."""
    return (
        None
        if spread is None
        else f"{spread['median']:.{digits}f} ({spread['min']:.{digits}f}–{spread['max']:.{digits}f})"
    )


def two(latency, digits=1):
    return None if latency is None else f"{latency['p50']:.{digits}f} / {latency['p99']:.{digits}f}"


def markdown(report):
    parts = ["# Measurements\n", *map(machine_text, report.get("machines", []))]
    for mix, found in report.get("coloc", {}).items():
        left = "" if found["time_left"] is None else f", time left {100 * found['time_left']:.1f} %"
        parts += [f"## `coloc` {mix}{left}\n", coloc.table(found) + "\n"]
    sections = (
        ("preempt", preempt_text),
        ("launch", launch_text),
        ("alone", alone_text),
        ("shares", shares_text),
        ("classes", classes_text),
        ("groups", groups_text),
        ("held", held_text),
        ("startup", startup_text),
        ("faults", faults_text),
    )
    for name, text in sections:
        if name in report:
            parts += [f"## `{name}`\n", text(report[name]) + "\n"]
    return "\n".join(parts)


def machine_text(found):
    gpu = ", ".join(f"{g['name']} (driver {g['driver_version']})" for g in found["gpus"]) or "no GPU"
    packages = ", ".join(f"{k} {v}" for k, v in found["packages"].items())
    return (
        f"{gpu}; {found['cpu']}, {found['cores']} cores; Linux {found['kernel']}, glibc {found['glibc']}, Python "
        f"{found['python']}, {packages}; {found['xsched']}, commit {found['commit']}, build {found['build']}.\n"
    )


def preempt_text(rows):
    kernels = list(dict.fromkeys(r["kernel"] for r in rows))
    cells = {(r["system"], r["kernel"]): r for r in rows}
    body = [(s, *(two(cells.get((s, k))) for k in kernels)) for s in dict.fromkeys(r["system"] for r in rows)]
    return "µs from the launch to its kernel's first store, P50 / P99, by what runs beside it:\n\n" + records.table(
        ("system", *kernels), body
    )


def launch_text(rows):
    body = [
        (r["case"], cell(r["ns"], 0), cell(r["cycles"], 0), cell(r.get("added_ns"), 1), cell(r.get("ratio"), 4))
        for r in rows
    ]
    return records.table(("case", "ns", "TSC cycles", "added ns", "to bare"), body)


def ranged(ratio):
    """A median and the range in which it lies."""
    return ratio and f"{ratio['median']:.4f} ({ratio['low']:.4f}–{ratio['high']:.4f})"


def alone_text(found):
    body = []
    for role, r in found.items():
        idle = "; ".join(f"{k} {v}" for k, v in r.get("idle_cpu_ms", {}).items()) or None
        body.append(
            (
                role,
                r.get("native_ms"),
                r.get("xsched_ms"),
                ranged(r.get("ratio")),
                ranged(r.get("control")),
                ranged(r.get("ratio_of_quickest_tenths")),
                ranged(r.get("control_of_quickest_tenths")),
                r.get("n"),
                idle,
            )
        )
    figures = ("bare P50 ms", "xsched P50 ms", "ratio (95 %)", "control", "of the quickest tenths", "control")
    head = ("role", *figures, "n", "processor time while idle, ms in 5 s")
    return records.table(head, body)


def shares_text(rows):
    body = [(r["case"], cell(r["share"]), r["total_per_s"], r["to_native"]) for r in rows]
    return records.table(("weights", "share of the first, %", "kernels per s, both", "to native"), body)


def classes_text(rows):
    body = []
    for r in rows:
        figures = ", ".join(f"{k} {two(v)}" for k, v in r.items() if isinstance(v, dict) and "p99" in v)
        body.append((r["case"], r.get("skipped") or figures or f"{cell(r['switches_per_s'])} switches per s"))
    return records.table(("case", "P50 / P99 in µs"), body)


def groups_text(found):
    body = [
        (kind, system, *(two(by.get(g), 2) for g in ("high", "middle", "low")), min(v["n"] for v in by.values()))
        for kind, pools in found.items()
        for system, by in pools.items()
    ]
    return "P50 / P99 in ms:\n\n" + records.table(("as", "system", "high", "middle", "low", "n, least"), body)


def held_text(rows):
    body = [(r["case"], "yes" if r["returned"] else "no", two(r["urgent_us"], 0)) for r in rows]
    return records.table(("held / by so many", "the call returned", "requests beside it: P50 / P99 in µs"), body)


def startup_text(rows):
    body = []
    for r in rows:
        ended = ", ".join(f"{name} {s:.1f}" for name, s in sorted(r["ended_s"].items(), key=lambda item: item[1]))
        late = ", ".join(r["not_ended"])
        body.append((r["case"], ended, f"{late} within {r['limit_s']:.0f}" if late else None, two(r["urgent_us"], 0)))
    head = ("programs / system", "ended after s", "did not end, s", "the urgent one: P50 / P99 in µs")
    return records.table(head, body)


def faults_text(rows):
    skip = ("bench", "case", "build", "failed", "xids")
    body = []
    for r in rows:
        facts = ", ".join(f"{k}: {v}" for k, v in r.items() if k not in skip)
        body.append(
            (
                r["bench"].removeprefix("fault "),
                r["case"],
                f"**failed**: {r['failed']}" if "failed" in r else "holds",
                len(r["xids"]) if isinstance(r["xids"], list) else r["xids"],
                facts,
            )
        )
    return records.table(("check", "case", "outcome", "Xids", "seen"), body)


# ---- plots -----------------------------------------------------------------------------------------------------------


def plots(report, out):
    """SVG files; a line where they cannot be drawn."""
    try:
        import matplotlib
    except ImportError:
        print("report: matplotlib is not installed: no plots", file=sys.stderr)
        return
    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "xsched"})  # text stays text; equal files
    if report.get("coloc"):
        coloc_plot(report["coloc"], out / "coloc.svg", pyplot)
    if report.get("preempt"):
        preempt_plot(report["preempt"], out / "preempt.svg", pyplot)


LOOKS = {  # of the systems: name, colour, marker; xsched's variants differ by their markers
    "native": ("nothing done", svg.NATIVE[0], "s"),
    "xsched": ("xsched", svg.XSCHED[0], "o"),
    "xsched-time": ("xsched --share time", svg.XSCHED[0], "P"),
    "xsched-pool": ("xsched --share pool", svg.XSCHED[0], "X"),
    "xsched-spatial": ("xsched --share spatial", svg.XSCHED[0], "D"),
    "xsched-inside": ("xsched, urgent inside", svg.XSCHED[0], "*"),
    "xsched-noflags": ("xsched, inside, no priorities", svg.XSCHED[0], "<"),
    "xsched-noyield": ("xsched, inside, gates close", svg.XSCHED[0], ">"),
    "mps": ("MPS", svg.MPS[0], "^"),
    "mps-prio": ("MPS, client priorities", svg.MPS[0], "v"),
}


def mix_title(mix):
    """`bert-lc+bert-be*5` as a reader would say it."""
    words = []
    for part in mix.split("+"):
        role, _, count = part.partition("*")
        words.append(f"{count} × {readme.NAMES.get(role, role)}" if count else readme.NAMES.get(role, role))
    return f"{words[0]}, beside {' + '.join(words[1:])}"


def coloc_plot(mixes, path, pyplot):
    """A panel for each mix: best-effort work against P99 to alone, the median of the rounds with their range."""
    across = min(2, len(mixes))
    down = -(-len(mixes) // across)
    shape = dict(sharex=True, sharey=True, squeeze=False, figsize=(4.2 * across, 2.3 * down + 0.5))
    figure, grid = pyplot.subplots(down, across, **shape)
    legend = {}
    for axes in grid.flat[len(mixes) :]:
        axes.set_visible(False)
    for axes, (mix, found) in zip(grid.flat, mixes.items()):
        axes.axhline(1.10, linestyle=":", color="grey")
        axes.axvline(95, linestyle=":", color="grey")
        for system, row in found["systems"].items():
            ratio, left = row.get("p99_to_alone_by_round"), row.get("best_effort_of_time_left")
            if not ratio or not left:
                continue
            name, colour, marker = LOOKS.get(system, (system, None, "D"))
            reach = [[ratio["median"] - ratio["min"]], [ratio["max"] - ratio["median"]]]
            point = axes.errorbar(
                100 * left, ratio["median"], reach, fmt=marker, color=colour, markersize=6, capsize=2, elinewidth=1
            )
            legend.setdefault(name, point)
        axes.set_title(mix_title(mix), fontsize=10)
        axes.grid(alpha=0.2)
    (low, high), top = grid[0, 0].get_xlim(), grid[0, 0].get_ylim()[1]
    for axes in grid.flat:
        axes.fill_between((95, high), 0, 1.10, color="#2ca02c", alpha=0.1, linewidth=0)
        axes.set(xlim=(low, high), ylim=(0.6, top))
    figure.supxlabel("best-effort work, % of what the time left allows (aim: 95)", fontsize=10)
    figure.supylabel("P99 to alone (aim: 1.10)", fontsize=10)
    figure.legend(legend.values(), legend.keys(), loc="upper center", ncols=len(legend), fontsize=8, frameon=False)
    save(figure, path, pyplot, top=1 - 0.35 / figure.get_figheight())


def preempt_plot(rows, path, pyplot):
    """P99 of the preemption latency by what runs beside, a line for each system."""
    figure, axes = pyplot.subplots(figsize=(7, 4))
    kernels = [k for k in dict.fromkeys(r["kernel"] for r in rows) if k != "none"]
    for system in dict.fromkeys(r["system"] for r in rows):
        mine = {r["kernel"]: r["p99"] for r in rows if r["system"] == system}
        here = [k for k in kernels if k in mine]
        axes.plot(here, [mine[k] for k in here], marker="o", label=system)
    axes.set(xlabel="kernels beside it", ylabel="P99 of preemption latency, µs", yscale="log")
    axes.legend()
    save(figure, path, pyplot)


def save(figure, path, pyplot, top=1):
    figure.tight_layout(rect=(0, 0, 1, top))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="where the report goes [DIR]")
    args = parser.parse_args()
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is no folder")
    out = args.out or args.folder
    out.mkdir(parents=True, exist_ok=True)
    report = gather(args.folder)
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "report.md").write_text(markdown(report))
    plots(report, out)
    print(out / "report.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
