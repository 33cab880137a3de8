#!/usr/bin/env python3
"""A stand-in for the kubelet that shares no code with the program under test: gRPC's own C library, messages taken apart byte by byte.

    kubelet.py PROGRAM     starts `PROGRAM device-plugin --simulated 2`, is registered with, lists and allocates; finds `PROGRAM dra`

Needs PyPI's grpcio. Exit code 77: it is not there."""
import os
import queue
import socket
import subprocess
import sys
import tempfile
from concurrent import futures

try:
    import grpc
except ImportError:
    print("grpcio is not there: pip install grpcio")
    sys.exit(77)

from wire import fields, message

PATIENCE_S = 30
CLASSES = ["high", "normal", "low"]
# Named as host: the path of a socket, escaped, as a kubelet's plugin manager does.
AUTHORITY = [("grpc.default_authority", "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.xsched.dev-reg.sock")]


class Kubelet(grpc.GenericRpcHandler):
    """Its folder of plugins, what registers there, what other plugins offer: pairs of resource and device; and which containers were given
    devices: namespace, pod, container, resource, device."""

    def __init__(self, folder):
        os.mkdir(folder)
        self.folder, self.registered, self.others, self.given = folder, queue.Queue(), [], []
        self.server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[self])
        self.server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        self.server.add_insecure_port(f"unix:{folder}/pod-resources.sock")
        self.server.start()

    def service(self, call):
        answers = {
            "/v1beta1.Registration/Register": lambda request, _: self.registered.put(fields(request)) or b"",
            "/v1.PodResourcesLister/GetAllocatableResources": lambda *_: message(f1=[message(f1=r, f2=d) for r, d in self.others]),
            "/v1.PodResourcesLister/List": lambda *_: message(f1=[
                message(f1=pod, f2=namespace, f3=message(f1=name, f2=message(f1=r, f2=d))) for namespace, pod, name, r, d in self.given]),
        }
        answer = answers.get(call.method)
        return answer and grpc.unary_unary_rpc_method_handler(answer)

    def registrations(self):
        """One of each class, in their order."""
        return [self.registered.get(timeout=PATIENCE_S) for _ in CLASSES]

    def channel(self, endpoint):
        return grpc.insecure_channel(f"unix:{self.folder}/{endpoint}", options=AUTHORITY)

    def devices(self, channel):
        """The ids of a class, all of them healthy."""
        stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", timeout=PATIENCE_S)
        devices = [fields(device) for device in fields(next(stream))[1]]
        stream.cancel()
        assert all(device[2] == [b"Healthy"] for device in devices), devices
        return [device[1][0] for device in devices]

    def until_healthy(self, channel, wanted):
        """Waits for a list with so many healthy devices; the ids of the others."""
        for answer in channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", timeout=PATIENCE_S):
            devices = [fields(device) for device in fields(answer)[1]]
            unhealthy = [device[1][0].decode() for device in devices if device[2] != [b"Healthy"]]
            if len(devices) - len(unhealthy) == wanted:
                return unhealthy

    def allocate(self, channel, device):
        """The names of the CDI devices that a container gets with a device."""
        asked = message(f1=message(f1=device))
        answer = fields(channel.unary_unary("/v1beta1.DevicePlugin/Allocate")(asked, timeout=PATIENCE_S))
        assert list(answer) == [1] and len(answer[1]) == 1, answer
        container = fields(answer[1][0])
        assert list(container) == [5], container
        return [fields(device)[1][0].decode() for device in container[5]]

    def before_start(self, channel, device):
        """As before a container with the device is made."""
        channel.unary_unary("/v1beta1.DevicePlugin/PreStartContainer")(message(f1=device), timeout=PATIENCE_S)


def finds_the_plugin_for_claims(program, folder):
    """As a kubelet's plugin manager does: by its socket in a folder."""
    registry = os.path.join(folder, "registry")
    os.mkdir(registry)
    words = [program, "dra", "--plugins", os.path.join(folder, "claims"), "--registry", registry, "--simulated", "1"]
    plugin = subprocess.Popen(words)
    try:
        with grpc.insecure_channel(f"unix:{registry}/gpu.xsched.dev-reg.sock", options=AUTHORITY) as channel:
            ask = lambda method, data: channel.unary_unary("/pluginregistration.Registration/" + method)(
                data, timeout=PATIENCE_S, wait_for_ready=True)
            info = fields(ask("GetInfo", b""))
            assert (info[1], info[2], info[4]) == ([b"DRAPlugin"], [b"gpu.xsched.dev"], [b"v1.DRAPlugin"]), info
            ask("NotifyRegistrationStatus", message(f1=1))
        print("claims: found, " + info[3][0].decode())
    finally:
        plugin.terminate()
        code = plugin.wait(PATIENCE_S)
    assert code == 0, code


def main(program):
    with tempfile.TemporaryDirectory(prefix="xsched-kubelet-", dir="/tmp") as folder:
        plugins, config, daemon = (os.path.join(folder, name) for name in ("plugins", "config", "daemon"))
        with open(config, "w") as file:
            file.write("[device_plugin]\nhealth_interval_ms = 10\n")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(daemon)
        listening.listen(64)
        kubelet = Kubelet(plugins)
        words = [program, "device-plugin", "--config", config, "--socket", daemon, "--kubelet", plugins]
        words += ["--pod-resources", f"{plugins}/pod-resources.sock"]
        plugin = subprocess.Popen(words + ["--simulated", "2"])
        try:
            for name, request in zip(CLASSES, kubelet.registrations()):
                assert request[1] == [b"v1beta1"], request
                assert request[3] == [b"xsched.dev/gpu-" + name.encode()], request
                assert fields(request[4][0]) == {1: [1], 2: [1]}, request
                with kubelet.channel(request[2][0].decode()) as channel:
                    options = channel.unary_unary("/v1beta1.DevicePlugin/GetDevicePluginOptions")(b"", timeout=PATIENCE_S)
                    assert fields(options) == {1: [1], 2: [1]}
                    ids = kubelet.devices(channel)
                    assert len(ids) == (2 if name == "high" else 8), ids
                    assert kubelet.allocate(channel, ids[-1]) == ["xsched.dev/class=" + name]
                    if name == "high":
                        kubelet.others = [("nvidia.com/gpu", "SIM-0")]
                        assert kubelet.until_healthy(channel, 1) == ["SIM-0::0"]
                        kubelet.others = []
                        assert kubelet.until_healthy(channel, 2) == []
                print(f"{name}: {len(ids)} devices, allocated {ids[-1].decode()}")
        finally:
            plugin.terminate()
            code = plugin.wait(PATIENCE_S)
            kubelet.server.stop(None)
        assert code == 0, code
        assert not [name for name in os.listdir(plugins) if name.startswith("xsched")]
        finds_the_plugin_for_claims(program, folder)


if __name__ == "__main__":
    main(sys.argv[1])
