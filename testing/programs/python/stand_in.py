#!/usr/bin/env python3
"""torch_xsched over a stand-in for the part of PyTorch that it uses: streams, the current one, a first launch."""

import contextlib
import sys
import types

from device import Device, check

device = Device()


class Stream:
    def __init__(self):
        self.cuda_stream = device.stream()


class Cuda(types.SimpleNamespace):
    Stream = Stream
    current = None

    def is_available(self):
        return True

    def current_stream(self):
        return self.current or types.SimpleNamespace(cuda_stream=0)

    @contextlib.contextmanager
    def stream(self, stream):
        former, self.current = self.current, stream
        yield
        self.current = former


torch = types.ModuleType("torch")
torch.cuda = Cuda()
torch.version = types.SimpleNamespace(hip=None)
torch.zeros = lambda *_, **__: device.launch(torch.cuda.current_stream().cuda_stream)
sys.modules["torch"] = torch

import xsched  # noqa: E402
from torch_xsched import XSchedQueue, XSchedScheduler  # noqa: E402

# Nothing was launched yet: the block sees to that.
with XSchedScheduler(policy="HPF").enabled():
    check(xsched.priority() == 128, "the class of the block")
check(xsched.priority() == 0, "the former one")
with contextlib.ExitStack() as stack:
    queues = [stack.enter_context(XSchedQueue(torch.cuda.Stream(), priority)) for priority in (-50, 0, 7, "high")]
    for queue in queues:
        with queue.enabled():
            torch.zeros(1, device="cuda")
            check(torch.cuda.current_stream() is queue.stream, "work goes to the stream")
        queue.wait()
    print("here", flush=True)
    sys.stdin.readline()
with XSchedQueue(priority=3) as queue:
    check(queue.stream.cuda_stream == 0 and queue.priority == 3, "PyTorch's current stream")
