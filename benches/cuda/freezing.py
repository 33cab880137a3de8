#!/usr/bin/env python3
"""Memory of PyTorch programs that leaves the GPU: frozen and thawed, without a daemon, and two jobs that take turns.

  freezing.py --bin FOLDER [--out FILE] [--gib N] [--seconds N] [--only turns]

FOLDER holds `xsched` and `libxsched.so`. Each program holds N GiB (8) with known contents and works on all of it. Prints one JSON object
for each part, to FILE too: seconds and GiB/s of freeze and thaw, what the driver says is in use, checksums that must be equal, steps of
each job alone and together, with `[memory] capacity` at 1.5 programs. Takes two minutes at most; needs torch and nvidia-smi.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GIB = 1 << 30


def worker(gib):
    """Holds memory, and answers commands: sum = checksum, step = one pass over all of it, run SECONDS = passes until then."""
    import torch

    torch.manual_seed(1)
    parts = [torch.randint(0, 1 << 20, (GIB // 8,), dtype=torch.int64, device="cuda") for _ in range(gib)]

    def step():
        for part in parts:
            part.mul_(3).add_(1).remainder_(1 << 20)
        torch.cuda.synchronize()

    def checksum():
        return [int(part.sum().item()) for part in parts]

    step()
    print("ready", flush=True)
    for line in sys.stdin:
        words, began = line.split(), time.monotonic()
        if words[0] == "sum":
            answer = checksum()
        elif words[0] == "step":
            answer = step()
        else:
            answer, until = 0, began + float(words[1])
            while time.monotonic() < until:
                step()
                answer += 1
        print(json.dumps({"answer": answer, "s": round(time.monotonic() - began, 4)}), flush=True)


class Place:
    """Daemon and programs of this run, with a socket of their own."""

    def __init__(self, folder, binary):
        self.folder, self.xsched = folder, str(Path(binary) / "xsched")
        self.env = dict(os.environ, XSCHED_SOCKET=f"{folder}/xsched.sock", XDG_STATE_HOME=f"{folder}/state")
        self.config = Path(folder) / "config.toml"
        self.children = []

    def start_daemon(self, text=""):
        self.config.write_text(text)
        self.daemon = subprocess.Popen([self.xsched, "daemon", "--config", str(self.config)], env=self.env)
        self.children.append(self.daemon)
        self.until(lambda: self.run("ps").returncode == 0)

    def until(self, so, seconds=30):
        give_up = time.monotonic() + seconds
        while not so():
            if time.monotonic() > give_up:
                raise TimeoutError
            time.sleep(0.02)

    def run(self, *args):
        return subprocess.run([self.xsched, *args], env=self.env, capture_output=True, text=True)

    def program(self, gib, *options):
        words = [self.xsched, "run", *options, "--", sys.executable, __file__, "--worker", str(gib)]
        child = subprocess.Popen(words, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        if child.stdout.readline().strip() != "ready":
            raise RuntimeError("the program did not start")
        return child

    def move(self, verb, pid, gib):
        began = time.monotonic()
        done = self.run(verb, str(pid))
        s = time.monotonic() - began
        return {"s": round(s, 3), "gib_per_s": round(gib / s, 1), "code": done.returncode, "says": (done.stdout + done.stderr).strip()}

    def end(self):
        for child in self.children:
            child.kill()


def tell(child, line):
    child.stdin.write(line + "\n")
    child.stdin.flush()


def answer(child):
    return json.loads(child.stdout.readline())


def ask(child, line):
    tell(child, line)
    return answer(child)


def used_mib():
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(words, capture_output=True, text=True).stdout.split()[0])


def freezing(place, gib, report):
    """Freeze and thaw, three times: the first one makes the host's memory."""
    child = place.program(gib, "--memory", "swap")
    before, first = used_mib(), ask(child, "sum")
    for turn in range(3):
        freeze = place.move("freeze", child.pid, gib)
        away = used_mib()
        thaw = place.move("thaw", child.pid, gib)
        after = ask(child, "sum")
        same = after["answer"] == first["answer"]
        report("freeze", turn=turn, freeze=freeze, thaw=thaw, used_mib=[before, away, used_mib()], same=same)
    return child, first


def without_daemon(place, gib, child, first, report):
    """The daemon is killed while the program is frozen: it goes on by the host's memory, and is frozen again by the next daemon."""
    on_device = ask(child, "sum")["s"]
    place.move("freeze", child.pid, gib)
    place.daemon.send_signal(signal.SIGKILL)
    place.daemon.wait()
    on_host = [ask(child, "sum"), ask(child, "sum")]
    same = all(each["answer"] == first["answer"] for each in on_host)
    used = used_mib()
    place.start_daemon()
    place.until(lambda: " frozen " in place.run("ps").stdout)
    thaw = place.move("thaw", child.pid, gib)
    back = ask(child, "sum")
    report("without daemon", sum_s=[on_device] + [each["s"] for each in on_host] + [back["s"]], used_mib=used, same=same, thaw=thaw,
           same_after=back["answer"] == first["answer"])
    child.stdin.close()
    child.wait()


def turns(place, gib, seconds, report):
    """Two jobs of 2/3 of the capacity each, beside one of them alone."""
    place.config.write_text(f'[memory]\ncapacity = "{3 * gib * GIB // 2 + 2 * GIB >> 20}MiB"\n')
    place.run("daemon", "reload")
    one = place.program(gib, "--memory", "swap")
    alone = ask(one, f"run {seconds / 3}")
    two = place.program(gib, "--memory", "swap")
    for child in (one, two):
        tell(child, f"run {seconds}")
    both = [answer(one), answer(two)]
    rate = alone["answer"] / alone["s"]
    steps = [each["answer"] for each in both]
    longest = max(each["s"] for each in both)
    report("turns", alone_per_s=round(rate, 2), steps=steps, s=[each["s"] for each in both],
           of_alone=round(sum(steps) / longest / rate, 3), memory=place.run("ps", str(one.pid), str(two.pid)).stdout)
    for child in (one, two):
        child.stdin.close()
        child.wait()


def urgent(place, gib, report):
    """An urgent program that is started beside one that has the room."""
    low = place.program(gib, "--memory", "swap", "--priority", "low")
    first, began = ask(low, "sum"), time.monotonic()
    high = place.program(gib, "--priority", "high")
    started = time.monotonic() - began
    steps = [ask(high, "step")["s"] for _ in range(20)]
    on_host = ask(low, "sum")
    high.stdin.close()
    high.wait()
    place.until(lambda: "away" not in place.run("ps", str(low.pid)).stdout, 60)
    last = ask(low, "sum")
    same = first["answer"] == on_host["answer"] == last["answer"]
    report("urgent", started_s=round(started, 2), step_s=sorted(steps)[10], low_sum_s=[first["s"], on_host["s"], last["s"]], same=same)


def reporting(args, measure, **always):
    """Measures in a place of its own. Each part is printed as a line, and written to the file asked for."""
    lines = []

    def report(part, **figures):
        lines.append(json.dumps({"part": part, **always, **figures}))
        print(lines[-1], flush=True)
        if args.out:
            args.out.write_text("\n".join(lines) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder, args.bin)
        try:
            measure(place, report)
        finally:
            place.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bin", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", choices=("turns",), help="only the jobs that take turns, and the urgent program")
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker)
    def measure(place, report):
        place.start_daemon()
        if not args.only:
            child, first = freezing(place, args.gib, report)
            without_daemon(place, args.gib, child, first, report)
        turns(place, args.gib, args.seconds, report)
        urgent(place, args.gib, report)

    reporting(args, measure, gib=args.gib)


if __name__ == "__main__":
    main()
