#!/usr/bin/env python3
"""A stand-in for the kubelet that shares no code with the program under test: gRPC's own C library, messages taken apart byte by byte.

    kubelet.py PROGRAM     starts `PROGRAM device-plugin --simulated 2`, is registered with, lists and allocates

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

PATIENCE_S = 30
CLASSES = ["high", "normal", "low"]


def number(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a message: number to values, bytes or integers."""
    found, at = {}, 0
    while at < len(data):
        key, at = number(data, at)
        value, at = number(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        else:
            assert key & 7 == 0, f"wire type {key & 7}"
        found.setdefault(key >> 3, []).append(value)
    return found


def field(number_of_it, data):
    assert len(data) < 128
    return bytes([number_of_it << 3 | 2, len(data)]) + data


def main(program):
    registered = queue.Queue()

    class Registration(grpc.GenericRpcHandler):
        def service(self, call):
            if call.method != "/v1beta1.Registration/Register":
                return None
            return grpc.unary_unary_rpc_method_handler(lambda request, _: registered.put(fields(request)) or b"")

    with tempfile.TemporaryDirectory(prefix="xsched-kubelet-", dir="/tmp") as folder:
        plugins, config, daemon = (os.path.join(folder, name) for name in ("plugins", "config", "daemon"))
        os.mkdir(plugins)
        open(config, "w").close()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(daemon)
        listening.listen(64)
        server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Registration()])
        server.add_insecure_port(f"unix:{plugins}/kubelet.sock")
        server.start()
        words = [program, "device-plugin", "--config", config, "--socket", daemon, "--kubelet", plugins]
        plugin = subprocess.Popen(words + ["--simulated", "2"])
        try:
            for name in CLASSES:
                request = registered.get(timeout=PATIENCE_S)
                assert request[1] == [b"v1beta1"], request
                assert request[3] == [b"xsched.dev/gpu-" + name.encode()], request
                assert fields(request[4][0]) == {1: [1], 2: [1]}, request
                # As a kubelet does; gRPC itself would send the socket's path, which the program's library takes for no host.
                authority = [("grpc.default_authority", "localhost")]
                with grpc.insecure_channel(f"unix:{plugins}/{request[2][0].decode()}", options=authority) as channel:
                    ask = lambda method, data: channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")(data, timeout=PATIENCE_S)
                    assert fields(ask("GetDevicePluginOptions", b"")) == {1: [1], 2: [1]}
                    stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", timeout=PATIENCE_S)
                    devices = [fields(device) for device in fields(next(stream))[1]]
                    assert all(device[2] == [b"Healthy"] for device in devices), devices
                    ids = [device[1][0] for device in devices]
                    assert len(ids) == (2 if name == "high" else 8), ids
                    answer = fields(ask("Allocate", field(1, field(1, ids[-1]))))
                    assert answer == {1: [field(5, field(1, b"xsched.dev/class=" + name.encode()))]}, answer
                    stream.cancel()
                print(f"{name}: {len(ids)} devices, allocated {ids[-1].decode()}")
        finally:
            plugin.terminate()
            code = plugin.wait(PATIENCE_S)
            server.stop(None)
        assert code == 0, code
        assert not [name for name in os.listdir(plugins) if name.startswith("xsched")]


if __name__ == "__main__":
    main(sys.argv[1])
