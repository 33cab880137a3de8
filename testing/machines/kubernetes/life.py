#!/usr/bin/env python3
"""The life of CRI sandboxes that share the simulated device: real containerd 2, daemon, device plugin, injector, the hook of CDI.

    life.py BIN [FOLDER]    BIN has xsched, xsched-kube, libxsched.so, libsimdev.so; containerd and its shim are in FOLDER or on the path

As root. A stand-in for the kubelet allocates, a CRI client makes the pods. Ends with a table. Needs PyPI's grpcio, runc, a C compiler,
openssl. Exit code 77: something of that is not there."""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from cri import PATIENCE_S, Containerd, Pod, search_path, until
from kubelet import Kubelet

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[1] / "lib"), str(HERE.parent / "containers")]

import images  # noqa: E402
from api_server import NODE, ApiServer  # noqa: E402
from harness import Background, Skip, compile_c  # noqa: E402

IMAGE = "xsched.test/load:1"
TAINT = "xsched.dev/not-ready"
PROGRAMS = ("xsched", "xsched-kube", "libxsched.so")
STEADY = ("/job/simload", "be", "--us", "200", "--batch", "16", "--until")
# What a namespace's configuration says: team has three parts of four.
CONFIG = "policy = \"hpf\"\n[namespaces.team]\nweight = 300\n[namespaces.other]\nweight = 100\n"
# A container that has no class so long after it was about to be made is named.
NODE_CONFIG = '[device_plugin]\ndelivered_within_ms = 5000\n[injector.ceilings]\nserving = "high"\n[startup_taint]\ninterval_ms = 100\n'
REQUESTS = 100
SHARE_S = 3


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def waits_for(address):
    """What a program says that it waits for, at its `--listen`; nothing if it is ready or not there yet."""
    try:
        urllib.request.urlopen(f"http://{address}/ready", timeout=PATIENCE_S).close()
        return ""
    except urllib.error.HTTPError as refused:
        return refused.read().decode()
    except urllib.error.URLError:
        return ""


class Node:
    """What runs on a node, from a folder of its own."""

    def __init__(self, at, bin_folder, search):
        self.at, self.bin, self.job = Path(at), Path(bin_folder).resolve(), Path(at) / "job"
        self.opt, self.socket, self.sim = self.at / "opt", self.at / "run/xsched.sock", self.job / "sim.sock"
        for folder in (self.opt, self.socket.parent, self.job):
            folder.mkdir()
        self.at.chmod(0o755)
        simdev = (f"-I{HERE.parents[2] / 'crates/xsched-simdev/include'}", f"-L{self.bin}", "-lsimdev", "-lpthread", "-lm")
        compile_c(HERE.parents[1] / "programs/sim/simload.c", self.job / "simload", *simdev)
        compile_c(HERE / "urgent.c", self.job / "urgent", *simdev)
        shutil.copy(self.bin / "libsimdev.so", self.job)
        (self.at / "daemon.toml").write_text(CONFIG)
        (self.at / "kubernetes.toml").write_text(NODE_CONFIG)
        self.env = dict(os.environ, XSCHED_SOCKET=str(self.socket), HOME=at, XDG_CONFIG_HOME=at, XDG_STATE_HOME=at)
        self.running, self.generation = {}, 0
        self.engine = Containerd(at, search)
        self.engine.load(IMAGE, images.glibc(self.at, "load").tar(), ["/bin/sh"])
        self.kubelet = Kubelet(str(self.at / "plugins"))
        self.install()
        self.start("device", self.bin / "xsched", "sim-device", "--socket", self.sim)
        until("the device answers", self.sim.exists)

    def install(self):
        """Puts the programs where the node has them, by renames as the DaemonSet's first container does, and writes the specification."""
        for name in PROGRAMS:
            shutil.copy(self.bin / name, self.opt / (name + ".new"))
            os.rename(self.opt / (name + ".new"), self.opt / name)
        self.xsched("cdi", "generate", "--output", self.at / "cdi", "--socket", self.socket)

    def xsched(self, *words):
        command = [str(word) for word in (self.opt / "xsched", *words)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stderr}")
        return done.stdout

    def start(self, name, *command):
        self.generation += 1
        self.running[name] = Background(command, self.env, self.at, f"{name}-{self.generation}")
        return self.running[name]

    def stop(self, name):
        status = self.running.pop(name).stop()
        assert status == 0, f"{name} ends with {status}"

    def start_daemon(self):
        self.start("daemon", self.opt / "xsched", "daemon", "--socket", self.socket, "--config", self.at / "daemon.toml")
        until("the daemon answers", lambda: self.programs() is not None)

    def start_kube(self, name, command, *options):
        self.start(name, self.opt / "xsched", "kube", command, "--config", self.at / "kubernetes.toml", *options)

    def start_plugin(self, *options):
        where = ["--socket", self.socket, "--library", self.opt / "libxsched.so", "--kubelet", self.kubelet.folder]
        resources = ["--pod-resources", f"{self.kubelet.folder}/pod-resources.sock"]
        self.start_kube("plugin", "device-plugin", *where, *resources, "--simulated", "1", *options)

    def start_injector(self, *options):
        resources = ["--pod-resources", f"{self.kubelet.folder}/pod-resources.sock"]
        self.start_kube("injector", "nri", *resources, "--cdi", self.at / "cdi", "--runtime", self.at / "nri.sock", *options)

    def start_agents(self):
        """Device plugin and injector, until kubelet and runtime know them."""
        self.start_plugin()
        self.start_injector()
        self.endpoints = [request[2][0].decode() for request in self.kubelet.registrations()]
        self.injector_registers(1)

    def injector_registers(self, times):
        log = self.running["injector"].stderr
        until("the injector is registered", lambda: log.read_text().count("registered with containerd") >= times)

    def programs(self):
        try:
            return json.loads(self.xsched("ps", "--json"))["programs"]
        except RuntimeError:
            return None

    def program(self, container):
        return next((p for p in self.programs() or [] if p["container"] == container.id and p["groups"]), None)

    def attached(self, *containers):
        """Their rows, once the daemon has them all."""
        def all_of_them():
            rows = [self.program(container) for container in containers]
            return rows if all(rows) else None
        return until("all are attached", all_of_them)

    def allocate(self, name, pod, container):
        """The CDI devices of a container that asks for `xsched.dev/gpu-NAME` and is about to be made. Pods are pairs: namespace, name."""
        with self.kubelet.channel(self.endpoints[("high", "normal", "low").index(name)]) as channel:
            device = self.kubelet.devices(channel)[len(self.kubelet.given)]
            names = self.kubelet.allocate(channel, device)
            self.kubelet.given.append((*pod, container, f"xsched.dev/gpu-{name}", device))
            self.kubelet.before_start(channel, device)
            return names

    def run(self, pod, name, command, devices=()):
        environment = {"SIMDEV_SOCKET": "/job/sim.sock", "LD_LIBRARY_PATH": "/job", "XSCHED_STATS": f"/job/{name}.stats"}
        words = (*command, f"/job/{name}.stop")
        return pod.container(name, IMAGE, words, devices, [("/job", str(self.job))], environment)

    def finish(self, container):
        """Has a load end, and gives its last line."""
        (self.job / f"{container.name}.stop").touch()
        assert container.wait() == 0, container.status()
        return container.printed()[-1]

    def end(self):
        for name in ("taint", "injector", "plugin", "daemon", "device"):
            if name in self.running:
                self.running.pop(name).stop()
        self.kubelet.server.stop(None)
        self.engine.end()


class Life:
    """The cases, in order: each goes on from where the one before has ended."""

    def __init__(self, node):
        self.node, self.rows = node, []

    def case(self, name, body):
        begin = time.monotonic()
        what = body()
        self.rows.append((name, what, time.monotonic() - begin))
        print(f"ok {name}: {what}", flush=True)

    def starts(self):
        node = self.node
        node.start_daemon()
        node.start_agents()
        self.train = Pod(node.engine, "train", "team", {})
        devices = node.allocate("low", ("team", "train"), "train")
        self.low = node.run(self.train, "train", STEADY, devices)
        [row] = node.attached(self.low)
        names = [row[key] for key in ("container_name", "pod", "namespace", "class")]
        assert names == ["train", "train", "team", "low"], row
        # Of one that is never made no class is seen: by then the other's time is over, too.
        node.allocate("low", ("team", "train"), "never")
        log = node.running["plugin"].stderr
        until("it is named", lambda: "container never: was given xsched.dev/gpu-low, and no class has reached it" in log.read_text())
        assert "container train: was given" not in log.read_text(), log.read_text()
        node.kubelet.given.pop()
        return f"{devices[0]} allocated by the device plugin; the daemon knows container, pod and namespace; one that is never made is named"

    def suspended_by_a_rival(self):
        """Each request of the urgent pod finds the device full and its owner at work."""
        node = self.node
        self.serve = Pod(node.engine, "serve", "serving", {"xsched.dev/class": "high"})
        self.high = node.run(self.serve, "serve", ("/job/urgent",))
        high, low = [f"{row['groups'][0]['id']}" for row in node.attached(self.high, self.low)]
        assert node.program(self.high)["class"] == "high"
        until("requests are done", lambda: len(self.high.printed()) > REQUESTS)
        requests = [tuple(map(int, line.split())) for line in self.high.printed()]
        groups = {group["id"]: group for group in json.loads(node.xsched("trace", "--json", "--last", "60s"))["groups"]}
        # How the low pod lost the device: it leaves, and where it had left already, it waits at once.
        lost = [span for span in groups[low]["spans"] if span["doing"] in ("leaves", "waits")]
        closed = []
        for begin, _ in requests[:REQUESTS]:
            # A span is told in whole us: the clock of the program may be past the one that its launch is told with.
            span = next((s for s in lost if begin - 1 <= s["from_us"] <= begin + 20_000), None)
            # One that came while the low pod wanted nothing closed nothing.
            if span:
                closed.append(span["from_us"] - begin)
        assert len(closed) > REQUESTS / 2, (len(closed), groups[low]["spans"][-9:], requests[-3:])
        assert quantile(closed, 0.5) < 1000, closed
        took = [end - begin for begin, end in requests[:REQUESTS]]
        assert self.low.status()[0] == 1, "it is not evicted"
        return f"{len(closed)} of {REQUESTS} launches found it at work. From the launch to its closed gate: {closed[0]} µs the first time, P50 {quantile(closed, 0.5)}, P99 {quantile(closed, 0.99)}. A request of 1 ms took {quantile(took, 0.5)} µs (P50)"

    def daemon_restarts(self, by_force):
        node = self.node
        before = [container.pid for container in (self.low, self.high)]
        if by_force:
            node.running["daemon"].process.kill()
            node.running.pop("daemon").process.wait()
        else:
            node.stop("daemon")
        done = len(self.high.printed())
        until("requests go on without a daemon", lambda: len(self.high.printed()) > done + 5)
        node.start_daemon()
        rows = node.attached(self.low, self.high)
        assert [row["class"] for row in rows] == ["low", "high"], rows
        assert [row["namespace"] for row in rows] == ["team", "serving"], rows
        assert [container.status()[:2] for container in (self.low, self.high)] == [(1, pid) for pid in before]
        return "both go on meanwhile, and attach again with class and names"

    def agents_are_upgraded(self):
        node = self.node
        files = lambda: [(node.opt / name).stat().st_ino for name in PROGRAMS]
        before, old = files(), dict(node.running)
        node.install()
        assert all(a != b for a, b in zip(before, files()))
        for name in ("plugin", "injector", "daemon"):
            node.stop(name)
        assert not [name for name in os.listdir(node.kubelet.folder) if name.startswith("xsched")]
        node.start_daemon()
        node.start_agents()
        node.attached(self.low, self.high)
        log = node.running["injector"].stderr
        assert "was away" not in log.read_text(), log.read_text()
        new = os.readlink(f"/proc/{node.running['daemon'].process.pid}/exe")
        assert new == str(node.opt / "xsched") and old["daemon"].process.pid != node.running["daemon"].process.pid
        return "kubelet and runtime have them again; both pods attach to the new daemon, with the library they began with"

    def runtime_restarts(self):
        node = self.node
        node.engine.stop()
        node.engine.start()
        node.injector_registers(2)
        rows = node.attached(self.low, self.high)
        assert [container.status()[0] for container in (self.low, self.high)] == [1, 1] and len(rows) == 2
        assert "was away" not in node.running["injector"].stderr.read_text()
        return "the injector registers again; both pods go on, and are known to have their class"

    def shares_by_namespace(self):
        """Two pods of one namespace beside one of another, by weights of 3 to 1."""
        node = self.node
        node.finish(self.high)
        self.other = Pod(node.engine, "other", "other", {"xsched.dev/class": "low"})
        self.more = Pod(node.engine, "more", "team", {"xsched.dev/class": "low"})
        node.xsched("policy", "set", "fair", "by=namespace")
        containers = [self.low, node.run(self.other, "other", STEADY), node.run(self.more, "more", STEADY)]
        node.attached(*containers)
        time_of = lambda: [row["groups"][0]["device_us"] for row in node.attached(*containers)]
        until("all have had the device", lambda: all(time_of()))
        begin = time_of()
        time.sleep(SHARE_S)  # what is measured
        took = [after - before for after, before in zip(time_of(), begin)]
        shares = [100 * one / sum(took) for one in took]
        team = shares[0] + shares[2]
        assert abs(team - 75) <= 5, shares
        for container in containers[1:]:
            assert json.loads(node.finish(container))["check"] == "ok"
        node.xsched("policy", "set", "hpf")
        return f"weights 3 : 1 give {team:.1f} % to the two pods of one ({shares[0]:.1f} and {shares[2]:.1f}), {shares[1]:.1f} % to the pod of the other"

    def nothing_is_lost(self):
        """Whatever came, each launch was done once."""
        node = self.node
        said = json.loads(node.finish(self.low))
        [counted] = [json.loads(line) for line in (node.job / "train.stats").read_text().splitlines()]
        unscheduled = {why: count for why, count in counted["unscheduled"].items() if count}
        assert said["check"] == "ok" and counted["launches"] == said["enqueued"], (said, counted)
        return f"{said['enqueued']} launches of the low pod, in order and with the right result; without a decision: {unscheduled}"

    def a_container_is_killed(self):
        node = self.node
        low = node.run(self.train, "again", STEADY, node.allocate("low", ("team", "train"), "again"))
        urgent = node.run(self.serve, "killed", STEADY)
        node.attached(low, urgent)
        state = lambda: (node.program(low) or {"groups": [{}]})["groups"][0].get("state")
        until("the low one is held", lambda: state() not in ("running", None))
        os.kill(urgent.pid, 9)
        until("the low one runs", lambda: state() == "running")
        assert urgent.wait() == 137 and node.program(urgent) is None
        node.finish(low)
        return "the pod that it held runs at once"

    def node_comes_back(self):
        """As after a reboot: the kubelet starts the pods that it knows at once, and the scheduler places a new one unless a taint keeps it away."""
        node = self.node
        for name in ("injector", "plugin", "daemon"):
            node.stop(name)
        api, ports = ApiServer(node.at), [socket.socket() for _ in range(3)]
        try:
            for port in ports:
                # Taken, and free for a program that is to listen there.
                port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                port.bind(("127.0.0.1", 0))
            plugin, injector, taint = ("{}:{}".format(*port.getsockname()) for port in ports)
            parts = ["--socket", node.socket, "--device-plugin", plugin, "--injector", injector]
            account = ["--api", api.url, "--credentials", api.account]
            node.start_kube("taint", "startup-taint", "--node", NODE, *account, *parts, "--listen", taint)
            until("the node has the taint", lambda: api.taints() == [TAINT])
            known = Pod(node.engine, "known", "team", {"xsched.dev/class": "low"})
            early = known.container("early")
            assert not [v for v in early.environment() if v.startswith(b"XSCHED_PRIORITY")], "no injector, no class"
            node.start_daemon()
            node.start_plugin("--listen", plugin)
            until("the injector alone is missing", lambda: "the injector at" in waits_for(taint))
            assert api.taints() == [TAINT]
            node.start_injector("--listen", injector, "--restart-missed")
            until("the taint is gone", lambda: not api.taints())
            new = Pod(node.engine, "new", "team", {"xsched.dev/class": "low"})
            placed = node.run(new, "placed", STEADY)
            assert early.wait() == 0, "the one that was too early is told to end"
            again = node.run(known, "early-again", STEADY)
            rows = node.attached(placed, again)
            assert [row["class"] for row in rows] == ["low", "low"], rows
            node.finish(placed)
            node.finish(again)
            node.stop("taint")
            assert api.taints() == [], "a program that ends sets none"
            for pod in (known, new):
                pod.remove()
        finally:
            for port in ports:
                port.close()
            api.end()
        return "the node has the taint until the injector, the last, is ready; the new pod, placed then, has its class; the pod that the kubelet had started before is ended, and has its class when it is made anew"

    def nothing_is_left(self):
        node = self.node
        for pod in (self.train, self.serve, self.other, self.more):
            pod.remove()
        until("no program is attached", lambda: not node.programs())
        assert json.loads(node.xsched("cdi", "list", "--json"))["containers"] == []
        for name in ("injector", "plugin", "daemon"):
            node.stop(name)
        node.xsched("cdi", "generate", "--remove", "--output", node.at / "cdi")
        left = [str(file) for folder in ("cdi", "run", "run-containers") for file in (node.at / folder).iterdir()]
        left += [name for name in os.listdir(node.kubelet.folder) if name.startswith("xsched")]
        left += node.engine.mounts() + node.engine.cgroups()
        assert not left, left
        return "no record, mount, socket, cgroup or specification"

    def all(self):
        self.case("start", self.starts)
        self.case("a full device takes an urgent pod", self.suspended_by_a_rival)
        self.case("daemon restarted", lambda: self.daemon_restarts(False))
        self.case("daemon killed and started", lambda: self.daemon_restarts(True))
        self.case("daemon, plugin, injector and library replaced", self.agents_are_upgraded)
        self.case("containerd restarted", self.runtime_restarts)
        self.case("`fair by=namespace`", self.shares_by_namespace)
        self.case("nothing lost", self.nothing_is_lost)
        self.case("a container killed", self.a_container_is_killed)
        self.case("the node comes back", self.node_comes_back)
        self.case("pods deleted, programs ended", self.nothing_is_left)


def main(search, bin_folder):
    at, node = tempfile.mkdtemp(prefix="xsched-life-", dir="/tmp"), None
    try:
        node = Node(at, bin_folder, search)
        life = Life(node)
        life.all()
        print("\n| case | what happened | s |\n| --- | --- | --- |")
        for row in life.rows:
            print("| {} | {} | {:.1f} |".format(*row))
    except Skip as why:
        print(why)
        sys.exit(77)
    except BaseException:
        for log in sorted(Path(at).glob("*.err")) + [Path(at) / "containerd.log"]:
            if log.exists():
                print(f"== {log.name}\n{log.read_text()[-3000:]}")
        raise
    finally:
        if node:
            node.end()
        shutil.rmtree(at, ignore_errors=True)


if __name__ == "__main__":
    missing = [name for name in (*PROGRAMS, "libsimdev.so") if not (Path(sys.argv[1]) / name).exists()]
    if missing:
        print(f"{sys.argv[1]} has no {', '.join(missing)}: cargo build --workspace")
        sys.exit(77)
    main(search_path(sys.argv[2] if len(sys.argv) > 2 else ""), sys.argv[1])
