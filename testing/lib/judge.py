"""What the ladder lets pass: outputs against the library's own run-to-run difference, launches against another count.

A line of output is `NAME VALUE…`. Lines that were equal in all bare runs must stay equal to the bit. In those that were
not, digests (`#…`) are left out and numbers may differ by a few times what they differed by in the bare runs.
"""

import difflib
import json
import re

# Bare runs are few: a difference between them is a sample of what there is, not its bound.
SAMPLE_FACTOR = 4
# Of the greatest number of a line: no less is asked where a library's bits vary.
FLOOR = 1e-6
SHOWN_LINES = 20


def lines_of(text):
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def stderr_lines(text):
    """What a program says on stderr, without what the scheduler says, and without numbers: times, addresses, pids."""
    kept = [line for line in lines_of(text) if not line.startswith("xsched: ")]
    return [re.sub(r"0x[0-9a-fA-F]+|\d+", "#", line) for line in kept]


def scheduler_lines(text):
    return [line for line in lines_of(text) if line.startswith("xsched: ")]


def split(line):
    """Name, words and numbers of a line; digests are in neither."""
    name, *rest = line.split()
    words, numbers = [], []
    for word in rest:
        if word.startswith("#"):
            continue
        try:
            numbers.append(float(word))
        except ValueError:
            words.append(word)
    return name, words, numbers


def needs_third(runs):
    """Whether two bare runs differ, so that one more says better by how much."""
    return lines_of(runs[0].stdout) != lines_of(runs[1].stdout)


def reference(runs):
    """What bare runs have in common: `(reference, problem)`; no reference where nothing can be compared with them."""
    texts = [lines_of(run.stdout) for run in runs]
    if any(run.timed_out for run in runs):
        return None, f"did not end within {runs[-1].seconds:.0f} s\n{tail(runs[-1])}"
    if any(run.status != runs[0].status for run in runs):
        return None, f"exit statuses {[run.status for run in runs]}\n{tail(runs[-1])}"
    if any(len(lines) != len(texts[0]) for lines in texts):
        return None, "prints more or fewer lines each time\n" + unified(texts[0], texts[1], "bare", "bare again")
    loose = {}
    for at, same in enumerate(zip(*texts)):
        if len(set(same)) == 1:
            continue
        parts = [split(line) for line in same]
        if any((name, words, len(numbers)) != (*parts[0][:2], len(parts[0][2])) for name, words, numbers in parts):
            return None, "prints other words each time\n" + "\n".join(same)
        columns = list(zip(*(numbers for _, _, numbers in parts)))
        spread = max((max(c) - min(c) for c in columns), default=0.0)
        scale = max((abs(n) for c in columns for n in c), default=0.0)
        loose[str(at)] = SAMPLE_FACTOR * spread + FLOOR * scale
    errors = [stderr_lines(run.stderr) for run in runs]
    stderr = errors[0] if all(lines == errors[0] for lines in errors) else None
    return {"status": runs[0].status, "lines": texts[0], "loose": loose, "stderr": stderr}, None


def differences(expected, outcome):
    """How a run differs from the reference, or None."""
    if outcome.timed_out:
        return f"did not end within {outcome.seconds:.0f} s\n{tail(outcome)}"
    if outcome.status != expected["status"]:
        return f"exit status {outcome.status} instead of {expected['status']}\n{tail(outcome)}"
    found = lines_of(outcome.stdout)
    pairs = list(zip(expected["lines"], found))
    wrong = [at for at, (a, b) in enumerate(pairs) if a != b and not near(a, b, expected["loose"].get(str(at)))]
    if wrong or len(found) != len(expected["lines"]):
        shown = [f"-{pairs[at][0]}\n+{pairs[at][1]}" for at in wrong[:SHOWN_LINES]]
        counts = (
            f"{len(expected['lines'])} lines bare, {len(found)} now; " if len(found) != len(expected["lines"]) else ""
        )
        return f"stdout: {counts}{len(wrong)} of {len(pairs)} lines differ\n" + "\n".join(shown)
    errors = stderr_lines(outcome.stderr)
    if expected["stderr"] is not None and errors != expected["stderr"]:
        return "stderr differs\n" + unified(expected["stderr"], errors, "bare", "now")
    return None


def near(expected, found, tolerance):
    """Whether a line that varies by itself is within its tolerance."""
    if tolerance is None:
        return False
    (name, words, numbers), (other, others, values) = split(expected), split(found)
    if (name, words, len(numbers)) != (other, others, len(values)):
        return False
    # Written so that a NaN is never near.
    return all(a == b or abs(a - b) <= tolerance for a, b in zip(numbers, values))


def unified(a, b, one, other):
    shown = list(difflib.unified_diff(a, b, one, other, lineterm="", n=0))
    return "\n".join(line[:200] for line in shown[:SHOWN_LINES])


def tail(outcome):
    return "\n".join((outcome.stdout + outcome.stderr).splitlines()[-12:])


def unscheduled(stats):
    """What says that commands went past the scheduler, or None."""
    problems = [
        f"pid {s['pid']}: unscheduled {json.dumps(s['unscheduled'])}" for s in stats if any(s["unscheduled"].values())
    ]
    return "\n".join(problems) or None


def miscounted(counts, stats):
    """How the library's launches differ from what reached the device, or None.

    Both count calls that succeeded and were not recorded into a capture, and not calls made inside of others. What the
    library itself added is taken off, if it is of the kind that is counted.
    """
    by_pid = {line["pid"]: line for line in stats}
    problems = []
    for seen in counts:
        line = by_pid.pop(seen["pid"], None)
        if line is None:
            if seen["total"]:
                problems.append(
                    f"pid {seen['pid']}: {seen['total']} commands reached the device, the library reports nothing"
                )
            continue
        added = {name: n for name, n in line.get("added", {}).items() if name in seen["calls"]}
        expected = seen["total"] - sum(added.values())
        if line["launches"] != expected:
            problems.append(
                f"pid {seen['pid']}: the library counted {line['launches']} commands, {expected} reached the device"
                f" ({json.dumps(seen['calls'])}; refused {json.dumps(seen['failed'])}; added {json.dumps(added)})"
            )
    problems += [f"pid {pid}: the library counted {line['launches']} commands, CUPTI saw no such process"
                 for pid, line in by_pid.items() if line["launches"]]  # fmt: skip
    return "\n".join(problems) or None
