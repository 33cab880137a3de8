#!/usr/bin/env python3
"""torch_xsched on a GPU: P99 of a request outside, inside and after a block, which must move and move back; then streams of three
priorities.

  xsched run --share time -- python3 torch_gpu.py rival
  xsched run --share time --priority low -- python3 torch_gpu.py [SECONDS]

Needs PyTorch, a GPU and the packages on PYTHONPATH. The rival, of class normal, prints READY and works half of the time until it is
killed: all of the time would leave a low program next to nothing.
"""

import sys
import time

import torch
import xsched
from torch_xsched import XSchedQueue, XSchedScheduler

PRIORITIES = (-50, 0, 90)


def p99_ms(seconds, request):
    """P99 of requests one after the other, each on the default stream with a backward pass on autograd's thread."""
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.perf_counter()
        request()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    times.sort()
    return times[min(len(times) - 1, int(len(times) * 0.99))]


def rival():
    """Matrix products of about 1 ms: 10 ms of work, 10 ms of rest."""
    a = torch.randn(7168, 7168, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    print("READY", flush=True)
    while True:
        begin = time.monotonic()
        while time.monotonic() - begin < 0.01:
            a @ a
            torch.cuda.synchronize()
        time.sleep(0.01)


def main():
    if sys.argv[1:] == ["rival"]:
        rival()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
    x = torch.randn(64, 1024, device="cuda")

    def request():
        model(x).sum().backward()

    for _ in range(10):
        request()
    torch.cuda.synchronize()
    own = xsched.priority()
    before = p99_ms(seconds, request)
    scheduler = XSchedScheduler(policy=None, domains={"system": ["cublas", "hipblas"], "user": ["default"]})
    with scheduler.enabled():
        inside = p99_ms(seconds, request)
    after = p99_ms(seconds, request)
    print(f"P99 before {before:.2f} ms, inside {inside:.2f} ms, after {after:.2f} ms")
    failed = []
    if not inside < min(before, after) * 0.8:
        failed.append("P99 does not move and move back: is another program at work?")
    if xsched.priority() != own:
        failed.append(f"priority {xsched.priority()} stays, not {own}")

    expected = x @ x.T
    torch.cuda.synchronize()
    queues = [XSchedQueue(torch.cuda.Stream(), priority) for priority in PRIORITIES]
    results = []
    for queue in queues:
        with queue.enabled():
            results.append(x @ x.T)
    queues[0].suspend()
    queues[0].resume()
    for queue in queues:
        queue.wait()
    if not all(torch.equal(result, expected) for result in results):
        failed.append("a stream's result is another")
    for queue in queues:
        queue.close()
    print(f"usage {xsched.usage()}")
    sys.exit("; ".join(failed) if failed else 0)


main()
