#!/usr/bin/env python3
"""The injector under a real containerd 2: a pod's annotation reaches its container, and nothing is left.

    cri.py XSCHED_KUBE [FOLDER]     containerd, ctr and containerd-shim-runc-v2 are in the folder or on the path, runc is on the path

As root. A CRI client makes a sandbox in the host's network with an image of one static program, and a container in it, as a kubelet
does. Needs PyPI's grpcio and a C compiler. Exit code 77: something of that is not there."""
import glob
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

try:
    import grpc
except ImportError:
    print("grpcio is not there: pip install grpcio")
    sys.exit(77)

from kubelet import fields

PATIENCE_S = 60
IMAGE = "xsched.test/pause:1"
PAUSE = "#include <signal.h>\n#include <unistd.h>\nstatic void end(int s) { (void)s; _exit(0); }\n" \
        "int main(void) { signal(SIGTERM, end); for (;;) pause(); }\n"
CONFIG = """version = 3
root = "{at}/root"
state = "{at}/state"
[grpc]
  address = "{at}/c.sock"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{at}/nri.sock"
  plugin_path = "{at}/none"
  plugin_config_path = "{at}/none"
[plugins."io.containerd.internal.v1.opt"]
  path = "{at}/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{image}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{at}/cdi"]
"""
LIBRARY = "/usr/lib/xsched/libxsched.so"
CGROUP = "xsched-cri-test"


def specification(library):
    """What `xsched cdi generate` writes, without its hooks: the image has no loader to look at."""
    mount = {"hostPath": library, "containerPath": LIBRARY, "options": ["ro", "bind"]}
    devices = [{"name": n, "containerEdits": {"env": ["XSCHED_PRIORITY=" + n]}} for n in ("high", "normal", "low")]
    return {"cdiVersion": "0.3.0", "kind": "xsched.dev/class", "devices": devices, "containerEdits": {"mounts": [mount]}}


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(**given):
    """A message from fields like f1="text", f2=5, f3=b"...", f4=[...]."""
    out = b""
    for name, values in given.items():
        key = int(name[1:])
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, int):
                out += varint(key << 3) + varint(value)
            else:
                data = value.encode() if isinstance(value, str) else value
                out += varint(key << 3 | 2) + varint(len(data)) + data
    return out


def image(folder):
    """An OCI archive with one program."""
    source, program = os.path.join(folder, "pause.c"), os.path.join(folder, "pause")
    with open(source, "w") as file:
        file.write(PAUSE)
    subprocess.run(["cc", "-static", "-O1", "-o", program, source], check=True)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(program, arcname="pause")
    layer, blobs = layer.getvalue(), {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs["blobs/sha256/" + digest] = data
        return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(data)}

    root = {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}
    config = {"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/pause"]}, "rootfs": root}
    manifest = {"schemaVersion": 2, "config": blob(json.dumps(config).encode(), "config.v1+json"),
                "layers": [blob(layer, "layer.v1.tar")]}
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": IMAGE, "org.opencontainers.image.ref.name": "1"}
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    path = os.path.join(folder, "image.tar")
    with tarfile.open(path, "w") as tar:
        for name, data in blobs.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def until(what, so):
    end = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < end, f"not so in time: {what}"
        time.sleep(0.02)


def main(path, kube):
    at = tempfile.mkdtemp(prefix="xsched-cri-", dir="/tmp")
    environment = dict(os.environ, PATH=path)
    write = lambda name, text: open(os.path.join(at, name), "w").write(text)
    read = lambda name: open(os.path.join(at, name)).read()
    write("config.toml", CONFIG.format(at=at, image=IMAGE))
    write("kubernetes.toml", '[injector.ceilings]\nteam = "low"\n')
    os.mkdir(os.path.join(at, "cdi"))
    write("cdi/xsched.dev-class.json", json.dumps(specification(os.path.join(at, "kubernetes.toml"))))
    log, kube_log = open(os.path.join(at, "log"), "w"), open(os.path.join(at, "kube.log"), "w")
    engine = subprocess.Popen(["containerd", "-c", os.path.join(at, "config.toml")], env=environment, stdout=log, stderr=log)
    injector = None
    try:
        until("containerd listens", lambda: os.path.exists(os.path.join(at, "c.sock")))
        words = ["ctr", "-a", os.path.join(at, "c.sock"), "-n", "k8s.io", "images", "import", image(at)]
        subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
        options = ["--config", os.path.join(at, "kubernetes.toml"), "--runtime", os.path.join(at, "nri.sock")]
        start = lambda: subprocess.Popen([kube, "nri"] + options, stderr=kube_log)
        injector = start()
        until("the injector is registered", lambda: "registered with containerd" in read("kube.log"))
        authority = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix:{at}/c.sock", options=authority) as channel:
            def ask(method, data):
                return fields(channel.unary_unary("/runtime.v1.RuntimeService/" + method)(data, timeout=PATIENCE_S))

            network = message(f1=message(f1=2, f2=1))
            annotation = message(f1="xsched.dev/class", f2="high")
            pod = message(f1=message(f1="train", f2="uid-1", f3="team"), f7=annotation,
                          f8=message(f1="/" + CGROUP, f2=network))
            sandbox = ask("RunPodSandbox", message(f1=pod))[1][0]

            def run(name):
                config = message(f1=message(f1=name), f2=message(f1=IMAGE), f15=message(f2=message(f3=message(f1=2, f2=1))))
                made = ask("CreateContainer", message(f1=sandbox, f2=config, f3=pod))[1][0]
                ask("StartContainer", message(f1=made))
                status = ask("ContainerStatus", message(f1=made, f2=1))
                pid = json.loads(fields(status[2][0])[2][0])["pid"]
                return made, open(f"/proc/{pid}/environ", "rb").read().split(b"\0")

            first, variables = run("main")
            assert b"XSCHED_PRIORITY=low" in variables, variables
            assert "pod team/train: asks for class high, gets low: the ceiling of namespace team" in read("kube.log")
            print("a pod's annotation reaches its container, below the namespace's ceiling")

            injector.terminate()
            assert injector.wait(PATIENCE_S) == 0
            second, variables = run("late")
            assert not [v for v in variables if v.startswith(b"XSCHED_")], variables
            injector = start()
            line = "pod team/train, container late: started while the injector was away"
            until("the injector names it", lambda: line in read("kube.log"))
            assert read("kube.log").count("was away") == 1, "the first one has its class"
            print("a container that started without the injector is named when it is back")

            for container in (first, second):
                ask("StopContainer", message(f1=container, f2=2))
                ask("RemoveContainer", message(f1=container))
            ask("StopPodSandbox", message(f1=sandbox))
            ask("RemovePodSandbox", message(f1=sandbox))
        injector.terminate()
        assert injector.wait(PATIENCE_S) == 0
        injector = None
        mounts = [line for line in open("/proc/mounts") if at in line and "/shm" not in line]
        assert not mounts, mounts
        print("nothing is mounted after the sandbox's end")
        print(read("kube.log"), end="")
    except BaseException:
        print(read("log")[-6000:], read("kube.log"), sep="\n")
        raise
    finally:
        # What a failure has left. After a success there is none.
        words = ["ctr", "-a", os.path.join(at, "c.sock"), "-n", "k8s.io", "tasks", "kill", "-s", "9", "-a"]
        left = subprocess.run(words[:5] + ["tasks", "list", "-q"], env=environment, capture_output=True, text=True).stdout.split()
        for task in left:
            subprocess.run(words + [task], env=environment, check=False)
            subprocess.run(words[:6] + ["delete", "-f", task], env=environment, check=False, capture_output=True)
        for program in (injector, engine):
            if program:
                program.terminate()
                program.wait(PATIENCE_S)
        # Fails where a container's is left.
        for folder in glob.glob(f"/sys/fs/cgroup/{CGROUP}") + glob.glob(f"/sys/fs/cgroup/*/{CGROUP}"):
            os.rmdir(folder)
        shutil.rmtree(at, ignore_errors=True)


if __name__ == "__main__":
    kube, folder = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    search = os.path.abspath(folder) + ":" + os.environ["PATH"] if folder else os.environ["PATH"]
    needed = ["containerd", "ctr", "containerd-shim-runc-v2", "runc", "cc"]
    missing = [name for name in needed if not shutil.which(name, path=search)]
    if missing or os.geteuid():
        print(f"needs root and {', '.join(missing)}" if missing else "needs root")
        sys.exit(77)
    said = subprocess.run(["containerd", "--version"], env=dict(os.environ, PATH=search), capture_output=True, text=True).stdout
    if "/v2 " not in said:
        print(f"needs containerd 2, and this is {said.strip()}")
        sys.exit(77)
    main(search, kube)
