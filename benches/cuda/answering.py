#!/usr/bin/env python3
"""Two models that do not fit into the GPU's memory together and answer in turn.

  answering.py --bin FOLDER [--out FILE] [--gib N] [--every SECONDS] [--requests N] [--only PARTS]

FOLDER holds `xsched` and `libxsched.so`. Each model has N GiB (10) of weights; both together have 1.2 times the capacity that the daemon
is told. A request is a pass over all weights of one model, and the next request is the other one's. Prints one JSON object for each way, to
FILE too: seconds from the request to its answer, less the pass itself, the first time and then the median, with the bytes that moved; for
`anew` of each time:

  swap        both models run under `xsched run --memory swap`; `moves_gib_per_s` is the speed of the moves alone, in both directions,
              and `link_gib_per_s` that of plain copies in both directions at once, from and to pinned memory, between the requests
  anew        without xsched: the one is ended and the other started, which loads as many weights from memory (/dev/shm)
  checkpoint  without xsched: the one is checkpointed and the other restored by cuCheckpointProcess*, where the driver has them

Takes two minutes; needs torch.
"""

import argparse
import ctypes
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from freezing import GIB, ask, reporting, tell

PART = GIB // 2


def model(count, folder):
    """Loads the weights, parts of half a GiB, and answers each line with the sum of them and the seconds of the pass."""
    import torch

    if folder:
        weights = [torch.load(f"{folder}/part.pt", mmap=True, weights_only=True).cuda() for _ in range(count)]
    else:
        torch.manual_seed(1)
        weights = [torch.randint(0, 1 << 20, (PART // 4,), dtype=torch.int32, device="cuda") for _ in range(count)]
    sums = lambda: sum(int(part.sum().item()) for part in weights)
    sums()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.monotonic()
        print(json.dumps({"sum": sums(), "s": time.monotonic() - began}), flush=True)


def link():
    """Answers each line with the GiB/s of copies of 4 GiB in both directions at once."""
    import torch

    parts = [(torch.empty(2 * GIB, dtype=torch.uint8, device="cuda"), torch.empty(2 * GIB, dtype=torch.uint8, pin_memory=True)) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in parts]

    def copy():
        for _ in range(2):
            for (device, host), stream, out in zip(parts, streams, (True, False)):
                with torch.cuda.stream(stream):
                    (host if out else device).copy_(device if out else host, non_blocking=True)
        torch.cuda.synchronize()

    copy()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.monotonic()
        copy()
        print(json.dumps({"gib_per_s": 8 / (time.monotonic() - began)}), flush=True)


def save(folder):
    import torch

    torch.save(torch.randint(0, 1 << 20, (PART // 4,), dtype=torch.int32), f"{folder}/part.pt")


def start(place, words, *before, **more):
    words = [*before, sys.executable, __file__, *words]
    child = subprocess.Popen(words, env=place.env | more, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    place.children.append(child)
    return child


def ready(child):
    if child.stdout.readline().strip() != "ready":
        raise RuntimeError("a model did not start")
    return child


def stop(child):
    child.stdin.close()
    child.wait()


def asked(child, before=lambda: None):
    """Seconds of a request, the answer's sum."""
    began = time.monotonic()
    before()
    found = ask(child, "request")
    return time.monotonic() - began, found["sum"]


def figures(times, alone, gib):
    beyond = [each - alone for each in times]
    usual = statistics.median(beyond[2:])
    return {"first_s": [round(each, 3) for each in beyond[:2]], "median_s": round(usual, 3), "worst_s": round(max(beyond[2:]), 3),
            "gib_per_s": round(2 * gib / usual, 1), "limit_s": round(2 * gib * GIB / 45e9 + 0.2, 3)}


def swap(place, args, report):
    capacity = int(2 * args.gib / 1.2 * 1024) + 1200
    place.start_daemon(f'[memory]\ncapacity = "{capacity}MiB"\n')
    stats = [f"{place.folder}/stats-{n}" for n in range(2)]
    words = ["--model", str(args.parts)], place.xsched, "run", "--memory", "swap", "--"
    models = [ready(start(place, *words, XSCHED_STATS=file)) for file in stats]
    plain, speeds = ready(start(place, ["--link"])), []
    asked(models[1])
    alone, total = asked(models[1])
    times, sums = [], set()
    for n in range(args.requests):
        time.sleep(args.every / 2)
        speeds.append(ask(plain, "copy")["gib_per_s"])
        time.sleep(args.every / 2)
        took, found = asked(models[n % 2])
        times.append(took)
        sums.add(found)
    says = place.run("ps", str(models[0].pid), str(models[1].pid)).stdout
    for each in (*models, plain):
        stop(each)
    beside = [json.loads(Path(file).read_text().splitlines()[-1])["residency"]["beside"] for file in stats]
    moves, size, us = (sum(each[key] for each in beside) for key in ("moves", "bytes", "us"))
    speed, copies = 2 * size / GIB / (us / 1e6) if us else 0, statistics.median(speeds)
    report("swap", alone_s=round(alone, 4), capacity_mib=capacity, same=sums == {total}, **figures(times, alone, args.gib),
           moves=moves, moves_gib_per_s=round(speed, 1), link_gib_per_s=round(copies, 1), of_link=round(speed / copies, 3),
           links=[round(each, 1) for each in speeds], says=says)
    return alone


def operate():
    """Checkpoints other processes: reads a step and a process in a line, and answers with the driver's code."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    for line in sys.stdin:
        step, pid = line.split()
        print(getattr(driver, f"cuCheckpointProcess{step}")(int(pid), None), flush=True)


def checkpoint(place, args, alone, report):
    if not hasattr(ctypes.CDLL("libcuda.so.1"), "cuCheckpointProcessLock"):
        report("checkpoint", why="the driver has no such functions")
        return
    operator = start(place, ["--operate"])

    def call(step, pid):
        tell(operator, f"{step} {pid}")
        if not select.select([operator.stdout], [], [], 20)[0]:
            raise OSError(f"cuCheckpointProcess{step} did not end within 20 s")
        if code := int(operator.stdout.readline()):
            raise OSError(f"cuCheckpointProcess{step} returned error {code}")

    def change(away, back):
        for step, pid in (("Lock", away), ("Checkpoint", away), ("Restore", back), ("Unlock", back)):
            call(step, pid)

    models = [ready(start(place, ["--model", str(args.parts)])) for _ in range(2)]
    try:
        for step in ("Lock", "Checkpoint"):
            call(step, models[0].pid)
        times = []
        for n in range(args.requests):
            here, other = models[n % 2], models[1 - n % 2]
            times.append(asked(here, lambda: change(other.pid, here.pid))[0])
        report("checkpoint", **figures(times, alone, args.gib))
    except OSError as error:
        report("checkpoint", why=str(error))
    for child in (operator, *models):
        child.kill()
        child.wait()


def anew(place, args, report):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        subprocess.run([sys.executable, __file__, "--save", folder], check=True)
        words, times = ["--model", str(args.parts), "--from", folder], []
        here = ready(start(place, words))
        for _ in range(3):
            began = time.monotonic()
            stop(here)
            stopped = time.monotonic()
            here = ready(start(place, words))
            times.append({"stop_s": round(stopped - began, 2), "start_s": round(time.monotonic() - stopped, 2)})
            print(f"anew: {times[-1]}", file=sys.stderr, flush=True)
        stop(here)
    report("anew", times=times, median_s=statistics.median(each["stop_s"] + each["start_s"] for each in times))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--save", help=argparse.SUPPRESS)
    parser.add_argument("--link", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--operate", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--from", dest="folder", help=argparse.SUPPRESS)
    parser.add_argument("--bin", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gib", type=int, default=10)
    parser.add_argument("--every", type=float, default=2)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--only", default="swap,checkpoint,anew", help="parts, with commas between [%(default)s]")
    args = parser.parse_args()
    args.parts = 2 * args.gib
    if args.link:
        return link()
    if args.operate:
        return operate()
    if args.save:
        return save(args.save)
    if args.model:
        return model(args.model, args.folder)

    def measure(place, report):
        parts, alone = args.only.split(","), 0.02
        if "swap" in parts:
            alone = swap(place, args, report)
        if "checkpoint" in parts:
            checkpoint(place, args, alone, report)
        if "anew" in parts:
            anew(place, args, report)

    reporting(args, measure, gib=args.gib)


if __name__ == "__main__":
    main()
