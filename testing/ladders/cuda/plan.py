"""Which runs there are, which part does which, and what is done already."""

import json
import os
from pathlib import Path

MODES = ("bare", "xsched", "counted", "behind", "ahead", "inside", "swap", "chaos-1", "chaos-2", "chaos-3")
VERSION = 1


def modes_of(program, chosen=MODES):
    """The modes of one program, in their order; without the bare run there is nothing to compare with."""
    own = program.modes or MODES
    # A kernel fault ends the neighbour in the same pool, too.
    unfit = {m for m, fits in (("counted", program.counted), ("inside", not program.faults)) if not fits}
    return [m for m in MODES if m == "bare" or (m in chosen and m in own and m not in unfit)]


def cost(program, chosen=MODES):
    """Seconds of all runs of a program, one after the other; the bare one is done twice."""
    return program.seconds * (1 + len(modes_of(program, chosen)))


def part(programs, which, parts, chosen=MODES):
    """The programs of one part: the same for the same list, of about equal cost, in the list's order."""
    loads, members = [0.0] * parts, [[] for _ in range(parts)]
    for program in sorted(programs, key=lambda p: (-cost(p, chosen), p.name)):
        least = loads.index(min(loads))
        loads[least] += cost(program, chosen)
        members[least].append(program.name)
    return [p for p in programs if p.name in members[which - 1]]


def parse_part(text):
    """`K/N` as two numbers."""
    try:
        which, parts = (int(word) for word in text.split("/"))
    except ValueError:
        raise ValueError(f"{text!r} is not K/N, such as 1/4") from None
    if not 1 <= which <= parts:
        raise ValueError(f"{text!r}: there is no part {which} of {parts}")
    return which, parts


class Results:
    """The results file: one entry a (program, mode), replaced as a whole each time so that it is never half written."""

    def __init__(self, path, build, machine=None):
        self.path, self.build = Path(path) if path else None, build
        self.content = {"version": VERSION, "machine": machine, "runs": {}, "skipped": {}}
        if self.path and self.path.exists():
            found = json.loads(self.path.read_text())
            if found.get("version") != VERSION:
                raise ValueError(f"{path} is not a results file of this ladder")
            self.content = found | {"machine": machine or found["machine"]}

    def find(self, program, mode):
        """What is known of a run, or None. A run of another build of the scheduler says nothing of this one."""
        entry = self.content["runs"].get(f"{program}/{mode}")
        return entry if entry and (mode == "bare" or entry["build"] == self.build) else None

    def finished(self, program, mode, source=None, again=False):
        """Whether this version (`source`) of the program has run in this mode, with success if `again` is wanted."""
        entry = self.find(program, mode)
        return entry is not None and entry.get("source") == source and (entry["ok"] or not again)

    def record(self, program, mode, ok, **facts):
        self.content["skipped"].pop(program, None)
        self.content["runs"][f"{program}/{mode}"] = {"ok": ok, "build": self.build, **facts}
        self.save()

    def skip(self, program, reason):
        self.content["skipped"][program] = reason
        self.save()

    def save(self):
        if self.path:
            new = self.path.with_name(self.path.name + ".new")
            new.write_text(json.dumps(self.content, indent=1))
            os.replace(new, self.path)
