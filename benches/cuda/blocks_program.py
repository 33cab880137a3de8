#!/usr/bin/env python3
"""A PyTorch program that serves requests (ResNet-18, batch 1) and changes by itself how urgent it is.

  blocks_program.py scheduler|queue|manual SECONDS

  scheduler  inside the block the process is urgent (torch_xsched.XSchedScheduler); another program works beside it
  queue      a thread of the same process works flat out; inside, the requests' stream has a higher priority (XSchedQueue)
  manual     the same thread; inside, its stream is suspended (xsched.Queue)

It prints READY, waits for a line, and prints a line of JSON: latencies in ms of each of the phases before, inside, after.
"""

import contextlib
import json
import sys
import threading
import time

import roles

PERIOD_S = 0.02


def flat_out(torch, stream, over):
    """Matrix products on a stream, a few in flight, until `over`."""
    with torch.cuda.stream(stream):
        a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        while not over.is_set():
            for _ in range(8):
                b = a @ a
            stream.synchronize()
    return b


@contextlib.contextmanager
def suspended(queue):
    queue.suspend()
    try:
        yield
    finally:
        queue.resume()


def main():
    way, seconds = sys.argv[1], float(sys.argv[2])
    import torch
    import torch_xsched
    import xsched

    role = roles.Role(torch, "rn18", None)
    with torch.no_grad():
        role.warm()
        over, inside = threading.Event(), None
        own = torch.cuda.Stream()
        if way == "scheduler":
            scheduler = torch_xsched.XSchedScheduler(policy=None)
            inside = scheduler.enabled
        else:
            other = torch.cuda.Stream()
            thread = threading.Thread(target=flat_out, args=(torch, other, over), daemon=True)
            thread.start()
            behind = xsched.Queue(other, "low")
            inside = lambda: suspended(behind)  # noqa: E731
            if way == "queue":
                inside = lambda: torch_xsched.XSchedQueue(own, "high")  # noqa: E731

        def phase():
            latencies, end = [], time.monotonic() + seconds
            with torch.cuda.stream(own):
                while time.monotonic() < end:
                    begin = time.monotonic()
                    role.step()
                    own.synchronize()
                    latencies.append(round((time.monotonic() - begin) * 1e3, 4))
                    time.sleep(max(0.0, begin + PERIOD_S - time.monotonic()))
            return latencies

        phase()
        print("READY", flush=True)
        sys.stdin.readline()
        found = {"before": phase()}
        with inside():
            found["inside"] = phase()
        found["after"] = phase()
        over.set()
    print("FOUND " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
