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
import records
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


def gather(folder):
    """Everything in a folder of results."""
    found = [r for path in sorted(Path(folder).glob("*.jsonl")) for r in records.load(path)]

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
    result = {
        "machines": machines,
        "coloc": mixes,
        "preempt": preempt(of("preempt")),
        "launch": launch(of("launch")),
        "alone": alone.summary(of("alone", "idle")),
        "shares": shares(of("shares")),
        "classes": classes(of("classes")),
        "groups": groups.summary(of("groups")),
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

    for mix, found in report.get("coloc", {}).items():
        rows = {
            n: r for n, r in found["systems"].items() if r.get("p99_to_alone") and r.get("best_effort_of_time_left")
        }
        if not rows:
            continue
        figure, axes = pyplot.subplots(figsize=(6, 4))
        for name, row in rows.items():
            axes.scatter(100 * row["best_effort_of_time_left"], row["p99_to_alone"], s=50)
            axes.annotate(
                name,
                (100 * row["best_effort_of_time_left"], row["p99_to_alone"]),
                xytext=(5, 5),
                textcoords="offset points",
            )
        axes.axhline(1.10, linestyle=":", color="grey")
        axes.axvline(95, linestyle=":", color="grey")
        axes.set(
            xlabel="best-effort work, % of what the time left allows", ylabel="P99 to alone", title=mix, yscale="log"
        )
        save(figure, out / f"coloc-{mix.replace('*', 'x')}.svg", pyplot)
    if report.get("preempt"):
        figure, axes = pyplot.subplots(figsize=(7, 4))
        kernels = [k for k in dict.fromkeys(r["kernel"] for r in report["preempt"]) if k != "none"]
        for system in dict.fromkeys(r["system"] for r in report["preempt"]):
            mine = {r["kernel"]: r["p99"] for r in report["preempt"] if r["system"] == system}
            here = [k for k in kernels if k in mine]
            axes.plot(here, [mine[k] for k in here], marker="o", label=system)
        axes.set(xlabel="kernels beside it", ylabel="P99 of preemption latency, µs", yscale="log")
        axes.legend()
        save(figure, out / "preempt.svg", pyplot)


def save(figure, path, pyplot):
    figure.tight_layout()
    figure.savefig(path)
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
