#!/usr/bin/env python3
"""The injector under a real containerd, 2 or 1.7: a pod's annotation reaches its container, and so does the class of its resource where
containerd resolves no CDI devices; nothing is left.

    injector.py BIN [FOLDER]    BIN has xsched, xsched-kube, libxsched.so; containerd, ctr and containerd-shim-runc-v2 are in FOLDER or on
                                the path, runc is on the path

As root. A CRI client makes sandboxes in the host's network, and containers in them, as a kubelet does. Needs PyPI's grpcio and a C
compiler. Exit code 77: something of that is not there."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cri import PATIENCE_S, Containerd, Pod, search_path, until, version
from kubelet import Kubelet

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[1] / "lib"), str(HERE.parent / "containers")]

import images  # noqa: E402
from harness import Skip  # noqa: E402

LIBRARY = "/usr/lib/xsched/libxsched.so"
GLIBC, MUSL = "xsched.test/glibc:1", "xsched.test/musl:1"
CEILINGS = '[injector.ceilings]\nteam = "low"\n'


class Check:
    """A node with containerd and the injector."""

    def __init__(self, at, bin_folder, search, resolves_cdi=True):
        self.at, self.bin, self.injector, self.engine, self.kubelet = Path(at), bin_folder, None, None, None
        self.log = open(self.at / "kube.log", "w")
        (self.at / "run").mkdir()
        self.at.chmod(0o755)
        self.xsched("cdi", "generate", "--output", self.at / "cdi", "--socket", self.at / "run/x.sock")
        self.engine = Containerd(at, search, resolves_cdi)
        self.kubelet = Kubelet(str(self.at / "kubelet"))
        self.engine.load(GLIBC, images.glibc(self.at, "glibc").tar(), ["/bin/sh"])
        try:
            self.engine.load(MUSL, images.musl(self.at).tar(), ["/bin/hello"])
            self.has_musl = True
        except Skip as why:
            self.has_musl = False
            print(f"no image of musl: {why}")

    def xsched(self, *words):
        return subprocess.run([self.bin / "xsched", *words], check=True, capture_output=True, text=True).stdout

    def said(self):
        return (self.at / "kube.log").read_text()

    def start(self, configuration, *more):
        (self.at / "kubernetes.toml").write_text(configuration)
        before = self.said().count("registered with containerd")
        options = ["--config", self.at / "kubernetes.toml", "--cdi", self.at / "cdi", "--runtime", self.at / "nri.sock"]
        options += ["--pod-resources", self.at / "kubelet/pod-resources.sock", *more]
        self.injector = subprocess.Popen([self.bin / "xsched-kube", "nri", *options], stderr=self.log)
        until("the injector is registered", lambda: self.said().count("registered with containerd") > before)

    def stop(self):
        injector, self.injector = self.injector, None
        injector.terminate()
        assert injector.wait(PATIENCE_S) == 0

    def annotation_reaches_its_container(self):
        self.start(CEILINGS)
        pod = Pod(self.engine, "train", "team", {"xsched.dev/class": "high"})
        variables = pod.container("main").environment()
        assert b"XSCHED_PRIORITY=low" in variables, variables
        assert "pod team/train: asks for class high, gets low: the ceiling of namespace team" in self.said()
        print("a pod's annotation reaches its container, below the namespace's ceiling")

        self.stop()
        variables = pod.container("late").environment()
        assert not [v for v in variables if v.startswith(b"XSCHED_")], variables
        self.start(CEILINGS)
        line = "pod team/train, container late: started while the injector was away"
        until("the injector names it", lambda: line in self.said())
        assert self.said().count("was away") == 1, "the first one has its class"
        print("a container that started without the injector is named when it is back")
        self.stop()
        self.start(CEILINGS, "--restart-missed")
        early, late = pod.containers
        assert late.wait() == 0, "it is told to end"
        until("it is logged", lambda: "container late: has ended, for the kubelet to start it" in self.said())
        assert early.status()[0] == 1, "the one with its class runs on"
        # As a kubelet does.
        variables = pod.container("late-again").environment()
        assert b"XSCHED_PRIORITY=low" in variables, variables
        print("where that is asked for it is ended, and gets its class when it is made anew")
        pod.remove()
        self.stop()

    def class_of_a_resource(self, resolves_cdi):
        """A container comes with the CDI device that the device plugin has given it."""
        self.start("")
        self.kubelet.given = [("team", "train", "by-resource", "xsched.dev/gpu-low", "SIM-0::0")]
        pod = Pod(self.engine, "train", "team", {})
        words = ["/bin/sh", "-c", "cat /proc/self/maps; echo $XSCHED_PRIORITY"]
        container = pod.container("by-resource", GLIBC, words, ["xsched.dev/class=low"])
        assert container.wait() == 0, container.printed()
        printed = container.printed()
        assert printed[-1] == "low" and any(line.endswith(LIBRARY) for line in printed[:-1]), printed
        line = "pod team/train, container by-resource: the runtime has left out the CDI devices of xsched.dev/gpu-low"
        assert (line in self.said()) != resolves_cdi, self.said()
        plain = pod.container("plain", GLIBC, words)
        assert plain.wait() == 0 and plain.printed()[-1] == "", plain.printed()
        pod.remove()
        self.stop()
        print("enable_cdi = %s: the class of a resource %s" % (
            str(resolves_cdi).lower(), "is left to containerd" if resolves_cdi else "is left out by containerd, and given by the injector"))

    def holders_of_the_sockets_folder_are_left_alone(self):
        """As the daemon's own container on a node with a default class."""
        self.start('[injector]\ndefault_class = "low"\n')
        pod = Pod(self.engine, "node", "ours", {})
        words = ["/bin/sh", "-c", "echo $XSCHED_PRIORITY; echo 1 >/run/xsched/probe && echo writable"]
        holder = pod.container("daemon", GLIBC, words, mounts=[("/run/xsched", str(self.at / "run"))])
        assert holder.wait() == 0 and holder.printed() == ["", "writable"], holder.printed()
        other = pod.container("other", GLIBC, words)
        assert other.wait() != 0 and other.printed() == ["low"], other.printed()
        system = Pod(self.engine, "proxy", "kube-system", {})
        assert system.container("proxy", GLIBC, words[:2] + ["echo $XSCHED_PRIORITY"]).wait() == 0
        assert system.containers[0].printed() == [""], system.containers[0].printed()
        pod.remove()
        system.remove()
        self.stop()
        print("a default class leaves the daemon's container and kube-system alone")

    def images_are_looked_at_first(self, configuration, how):
        """The hook runs: glibc's programs get the library, what cannot load it runs without."""
        self.start(configuration)
        name = configuration.split('"')[1] if configuration else "usual"
        pod = Pod(self.engine, name, "team", {"xsched.dev/class": "low"})
        glibc = pod.container(f"{name}-glibc", GLIBC, ["/bin/sh", "-c", "cat /etc/ld.so.preload /proc/self/maps; echo $XSCHED_PRIORITY"])
        assert glibc.wait() == 0, glibc.printed()
        printed = glibc.printed()
        assert printed[0] == LIBRARY and printed[-1] == "low", printed
        assert any(line.endswith(LIBRARY) for line in printed[1:-1]), printed
        if self.has_musl:
            musl = pod.container(f"{name}-musl", MUSL)
            assert musl.wait() == 0 and musl.printed() == ["alive without"], musl.printed()
        pod.remove()
        left = json.loads(self.xsched("cdi", "list", "--json", "--socket", self.at / "run/x.sock"))["containers"]
        assert left == [], left
        self.stop()
        print(f"{how}: programs of glibc load the library" + ("; one of musl runs without" if self.has_musl else ""))

    def nothing_is_left(self):
        assert not self.engine.mounts() and not self.engine.cgroups(), (self.engine.mounts(), self.engine.cgroups())
        print("nothing is mounted after the sandbox's end")

    def end(self):
        if self.injector:
            self.injector.terminate()
            self.injector.wait(PATIENCE_S)
        if self.kubelet:
            self.kubelet.server.stop(None)
        if self.engine:
            self.engine.end()


def check_all(check, by_name):
    check.annotation_reaches_its_container()
    check.images_are_looked_at_first("", "by the name of a CDI device" if by_name else "a runtime without CDI for plugins, by edits")
    if by_name:
        check.images_are_looked_at_first('delivery = "environment"\n', "by edits")
    check.holders_of_the_sockets_folder_are_left_alone()
    check.class_of_a_resource(True)


def run(search, bin_folder, resolves_cdi, body):
    at, check = tempfile.mkdtemp(prefix="xsched-cri-", dir="/tmp"), None
    try:
        check = Check(at, bin_folder, search, resolves_cdi)
        body(check)
        check.nothing_is_left()
        print(check.said(), end="")
    except BaseException:
        for name in ("containerd.log", "kube.log"):
            if (Path(at) / name).exists():
                print((Path(at) / name).read_text()[-6000:])
        raise
    finally:
        if check:
            check.end()
        shutil.rmtree(at, ignore_errors=True)


def main(search, bin_folder):
    by_name = int(version(search).split(".")[0]) >= 2
    run(search, bin_folder, True, lambda check: check_all(check, by_name))
    run(search, bin_folder, False, lambda check: check.class_of_a_resource(False))


if __name__ == "__main__":
    main(search_path(sys.argv[2] if len(sys.argv) > 2 else "", (2, 1)), Path(sys.argv[1]).resolve())
