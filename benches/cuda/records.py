"""Results as JSON lines, and the few statistics that are made of them."""

import fcntl
import json
import lzma
import statistics
from pathlib import Path

median = statistics.median


def append(path, record):
    """Adds one record; other threads and processes may do the same."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.seek(0, 2) and (file.seek(-1, 2), file.read(1))[1] != b"\n":
            file.write(b"\n")  # its writer was killed
        file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")


def load(path):
    """All records of a file, which may be packed (.xz); a line that a killed writer left half done is left out."""
    path = Path(path)
    if not path.exists():
        return []
    text = lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text()
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def done(path, *keys):
    """What is recorded already, as tuples of the values of `keys`."""
    return {tuple(r.get(k) for k in keys) for r in load(path)}


def percentile(values, share):
    """The value that `share` (0..1) of the values do not exceed."""
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def latencies(values):
    """The usual figures of latencies, in the unit they come in."""
    return {
        "n": len(values),
        "p50": round(percentile(values, 0.5), 4),
        "p90": round(percentile(values, 0.9), 4),
        "p99": round(percentile(values, 0.99), 4),
        "max": round(max(values), 4),
    }


def spread(values):
    """Median, least and greatest."""
    return {
        "median": round(median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "n": len(values),
    }


def table(head, rows):
    """A table in Markdown; figures are put as they come."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join("–" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
