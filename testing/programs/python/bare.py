#!/usr/bin/env python3
"""The packages in a program that runs without the preload, or starts itself again under it: bare.py [ensure | late | child]."""

import os
import sys

import torch_xsched
import xsched
from device import Device, check, refused

mode = sys.argv[1] if len(sys.argv) > 1 else ""

if mode == "":
    check(not xsched.attached(), "not attached")
    for function in (xsched.usage, xsched.priority, lambda: xsched.Queue(0), lambda: xsched.set_priority("high")):
        refused(xsched.NotPreloaded, "xsched run", function)
    refused(xsched.NotPreloaded, "xsched.ensure()", torch_xsched.XSchedScheduler().enabled().__enter__)
    refused(xsched.XSchedError, "PyTorch cannot be imported", torch_xsched.XSchedQueue)
    for wrong in ({"vendor": ["x"]}, {"system": "cublas"}, {"system": ["default"]}, {"user": [""]}):
        refused(ValueError, "domain", torch_xsched.XSchedScheduler, domains=wrong)
    refused(TypeError, "['--priority', 'low'], not the text", xsched.ensure, "--priority low")
    refused(TypeError, "1 is no text", xsched.ensure, ["--priority", 1])
    refused(TypeError, "-256 to 255", xsched.priority_of, 1.5)
    refused(ValueError, "hpf", torch_xsched.XSchedScheduler, policy="best")
    check(torch_xsched.XSchedScheduler(policy="Laxity").policy == "lax", "a policy has several names")
elif mode == "late":
    Device()
    refused(xsched.XSchedError, "uses a device already", xsched.ensure)
elif mode == "child":
    child = os.fork()
    if child == 0:
        refused(xsched.XSchedError, "child process", xsched.ensure)
        os._exit(0)
    check(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a child is refused")
elif mode == "ensure":
    before = xsched.attached()
    xsched.ensure(["--priority", "low"])
    check(xsched.attached() and before, f"started again with {sys.argv[1:]}")
    xsched.ensure()
    device = Device()
    device.launch(None)
    device.synchronize(None)
    check(xsched.priority() == -128, "with the options of run")
    check(not any(name.startswith("XSCHED_PYTHON") for name in os.environ), "its children may start themselves again")
