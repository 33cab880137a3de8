#!/usr/bin/env python3
"""The injector under a real containerd 2: a pod's annotation reaches its container, and nothing is left.

    injector.py XSCHED_KUBE [FOLDER]    containerd, ctr and containerd-shim-runc-v2 are in the folder or on the path, runc is on the path

As root. A CRI client makes a sandbox in the host's network with an image of one static program, and a container in it, as a kubelet
does. Needs PyPI's grpcio and a C compiler. Exit code 77: something of that is not there."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from cri import PATIENCE_S, Containerd, Pod, search_path, until

LIBRARY = "/usr/lib/xsched/libxsched.so"


def specification(library):
    """What `xsched cdi generate` writes, without its hooks: the image has no loader to look at."""
    mount = {"hostPath": library, "containerPath": LIBRARY, "options": ["ro", "bind"]}
    devices = [{"name": n, "containerEdits": {"env": ["XSCHED_PRIORITY=" + n]}} for n in ("high", "normal", "low")]
    return {"cdiVersion": "0.3.0", "kind": "xsched.dev/class", "devices": devices, "containerEdits": {"mounts": [mount]}}


def main(search, kube):
    at = tempfile.mkdtemp(prefix="xsched-cri-", dir="/tmp")
    write = lambda name, text: open(os.path.join(at, name), "w").write(text)
    read = lambda name: open(os.path.join(at, name)).read()
    write("kubernetes.toml", '[injector.ceilings]\nteam = "low"\n')
    kube_log = open(os.path.join(at, "kube.log"), "w")
    engine = injector = None
    try:
        engine = Containerd(at, search)
        write("cdi/xsched.dev-class.json", json.dumps(specification(os.path.join(at, "kubernetes.toml"))))
        options = ["--config", os.path.join(at, "kubernetes.toml"), "--runtime", os.path.join(at, "nri.sock")]
        start = lambda: subprocess.Popen([kube, "nri"] + options, stderr=kube_log)
        injector = start()
        until("the injector is registered", lambda: "registered with containerd" in read("kube.log"))
        pod = Pod(engine, "train", "team", {"xsched.dev/class": "high"})
        variables = pod.container("main").environment()
        assert b"XSCHED_PRIORITY=low" in variables, variables
        assert "pod team/train: asks for class high, gets low: the ceiling of namespace team" in read("kube.log")
        print("a pod's annotation reaches its container, below the namespace's ceiling")

        injector.terminate()
        assert injector.wait(PATIENCE_S) == 0
        variables = pod.container("late").environment()
        assert not [v for v in variables if v.startswith(b"XSCHED_")], variables
        injector = start()
        line = "pod team/train, container late: started while the injector was away"
        until("the injector names it", lambda: line in read("kube.log"))
        assert read("kube.log").count("was away") == 1, "the first one has its class"
        print("a container that started without the injector is named when it is back")

        pod.remove()
        injector.terminate()
        assert injector.wait(PATIENCE_S) == 0
        injector = None
        assert not engine.mounts() and not engine.cgroups(), (engine.mounts(), engine.cgroups())
        print("nothing is mounted after the sandbox's end")
        print(read("kube.log"), end="")
    except BaseException:
        print(read("containerd.log")[-6000:] if engine else "", read("kube.log"), sep="\n")
        raise
    finally:
        if injector:
            injector.terminate()
            injector.wait(PATIENCE_S)
        if engine:
            engine.end()
        shutil.rmtree(at, ignore_errors=True)


if __name__ == "__main__":
    main(search_path(sys.argv[2] if len(sys.argv) > 2 else ""), os.path.abspath(sys.argv[1]))
