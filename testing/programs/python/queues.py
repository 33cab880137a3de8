#!/usr/bin/env python3
"""Queues of the package xsched over streams of the program. Prints "ok WHAT" for each check; "here" waits for a line."""

import sys

import xsched
from device import Device, check, refused


class Framework:
    """As frameworks keep a stream."""

    def __init__(self, name, value):
        setattr(self, name, value)


def main():
    check(xsched.attached(), "attached")
    device = Device()
    stream, other = device.stream(), device.stream()
    device.launch(other)
    queue = xsched.Queue(stream, 20)
    device.launch(stream)
    device.synchronize(stream)
    print("here", flush=True)
    sys.stdin.readline()

    queue.suspend(sync=True)
    thread = device.launching_thread(stream)
    thread.join(0.1)
    check(thread.is_alive(), "a launch on a suspended queue waits")
    device.launch(other)
    device.synchronize(other)
    check(True, "another stream does not")
    queue.resume()
    thread.join()
    queue.wait()
    check(queue.idle(), "it goes on")

    queue.priority = "low"
    queue.set_utilization(40)
    queue.set_deadline(5000)
    queue.set_deadline(None)
    queue.set_laxity(1000, "low", 30)
    xsched.hint(timeslice_us=1000, k=2)
    check(queue.priority == -128, "hints are taken")
    again = xsched.Queue(Framework("cuda_stream", stream))
    again.close()
    queue.wait()
    check(True, "a second queue over a stream is the first one's")

    used = xsched.usage()
    check(used.launches == 4 and used.unscheduled == 0 and used.device_us > 0, f"usage: {used}")
    check(xsched.policy() == "hpf" and xsched.priority() == 0, "the daemon's answer")

    refused(ValueError, "-256 to 255", queue.set_priority, 300)
    refused(ValueError, "low", xsched.Queue, stream, "urgent")
    refused(ValueError, "1, 2, 3", xsched.Queue, stream, level=4)
    refused(ValueError, "cuda, hip, opencl", xsched.Queue, stream, platform="metal")
    refused(ValueError, "'all'", queue.suspend, wait="some")
    refused(ValueError, "hpf", xsched.set_scheduler, "local", "best")
    refused(ValueError, "needs a daemon", xsched.set_scheduler, "local", "slo")
    refused(TypeError, ".cuda_stream", xsched.Queue, "stream")
    refused(xsched.Failed, "out of range", queue.set_utilization, 101)
    # 2**32 + 50 is 50 in 32 bits.
    refused(xsched.Failed, "out of range", queue.set_utilization, 2**32 + 50)
    refused(xsched.Failed, "out of range", xsched.hint, timeslice_us=2**64 + 1000)
    for wrong in ("50", 50.0, True, None):
        refused(TypeError, "percent is a whole number", queue.set_utilization, wrong)
    refused(TypeError, "us is a whole number", queue.set_deadline, "5000")
    refused(TypeError, "us is a whole number", queue.set_laxity, 1.5)
    refused(TypeError, "timeslice_us is a whole number", xsched.hint, timeslice_us="1000")
    refused(TypeError, "k is a whole number", xsched.hint, k="2")
    for wrong in (1.5, True, ["high"]):
        refused(TypeError, "-256 to 255", queue.set_priority, wrong)
    refused(ValueError, "'all'", queue.suspend, wait=["all"])
    refused(ValueError, "cuda, hip, opencl", xsched.Queue, stream, platform=["cuda"])
    refused(ValueError, "global", xsched.set_scheduler, ["local"])
    queue.close()
    queue.close()
    refused(xsched.XSchedError, "closed", queue.wait)
    with xsched.Queue(Framework("ptr", stream), "high") as anew:
        device.launch(stream)
        anew.wait()
        check(anew.idle(), "a queue after it")
    device.launch(stream)
    device.synchronize(stream)
    check(True, "the stream is still the program's")


main()
