#!/usr/bin/env python3
"""Keeps the default stream busy from a thread of its own, and opens and closes blocks of torch_xsched as its stdin says:
"enter CLASS", "leave", "system CLASS", "local POLICY", "policy NAME", "end"."""

import sys
import threading

import xsched

from device import Device, check, refused
from torch_xsched import XSchedScheduler
from xsched import XSchedError


def main():
    device = Device()
    ending = threading.Event()

    def work():
        device.enter()
        while not ending.is_set():
            for _ in range(8):
                device.launch(None, 200)
            device.synchronize(None)

    thread = threading.Thread(target=work)
    thread.start()
    blocks = []
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "enter":
            block = XSchedScheduler(policy="priority", domains={"user": ["default"]}, priority=rest[0]).enabled()
            block.__enter__()
            blocks.append(block)
        elif word == "leave":
            blocks.pop().__exit__(None, None, None)
        elif word == "system":
            # Its streams are made by way of libffi, which stands for a vendor's library here.
            with XSchedScheduler(domains={"system": ["libffi", "_ctypes"]}, priority=rest[0]).enabled():
                device.launch(device.stream())
            device.launch(device.stream())
        elif word == "local":
            before = xsched.program.scheduler()
            scheduler = XSchedScheduler(policy=rest[0])
            with scheduler.enabled(), scheduler.enabled():
                check(xsched.program.scheduler() == ("local", rest[0]), "the process decides by the policy")
                device.launch(None)
                refused(XSchedError, "end that one first", XSchedScheduler(policy="cfs").enabled().__enter__)
            check(xsched.program.scheduler() == before, "and as before after the block")
        elif word == "policy":
            try:
                with XSchedScheduler(policy=rest[0]).enabled():
                    check(False, "another policy than the daemon's is refused")
            except XSchedError as error:
                check("xsched policy set" in str(error), "another policy than the daemon's is refused")
        elif word == "end":
            break
        print("done", flush=True)
    ending.set()
    thread.join()


main()
