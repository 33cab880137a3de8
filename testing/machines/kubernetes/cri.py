"""A real containerd of a check's own, 2 or 1.7, and a client of its Container Runtime Interface, in the place of a kubelet."""

import glob
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time

try:
    import grpc
except ImportError:
    print("grpcio is not there: pip install grpcio")
    sys.exit(77)

from wire import fields, message, pairs

PATIENCE_S = 60
PAUSE_IMAGE = "xsched.test/pause:1"
PAUSE = "#include <signal.h>\n#include <unistd.h>\nstatic void end(int s) { (void)s; _exit(0); }\n" \
        "int main(void) { signal(SIGTERM, end); for (;;) pause(); }\n"
COMMON = """root = "{at}/root"
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
"""
# By containerd's major version. 1.7 resolves CDI devices of the kubelet's if it is told to, and those of plugins never; 2 does both by default.
CONFIG = {
    2: "version = 3\n" + COMMON + """
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{image}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_cdi = {cdi}
  cdi_spec_dirs = ["{at}/cdi"]
""",
    1: "version = 2\n" + COMMON + """
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  enable_cdi = {cdi}
  cdi_spec_dirs = ["{at}/cdi"]
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
""",
}
CGROUP = "xsched-cri-test"
# Of NamespaceMode: the pod's containers see the host's network, and their own processes only.
NAMESPACES = message(f1=2, f2=1)


def version(search):
    """Of containerd, as it tells it: `1.7.24~ds1`."""
    words = subprocess.run(["containerd", "--version"], env=dict(os.environ, PATH=search), capture_output=True, text=True).stdout
    return words.split()[2].lstrip("v")


def search_path(folder, majors=(2,)):
    """Where programs are looked for. Ends the check with 77 if one of them is missing."""
    search = os.path.abspath(folder) + ":" + os.environ["PATH"] if folder else os.environ["PATH"]
    needed = ["containerd", "ctr", "containerd-shim-runc-v2", "runc", "cc"]
    missing = [name for name in needed if not shutil.which(name, path=search)]
    if missing or os.geteuid():
        print(f"needs root and {', '.join(missing)}" if missing else "needs root")
        sys.exit(77)
    said = version(search)
    if int(said.split(".")[0]) not in majors:
        print(f"needs containerd {' or '.join(map(str, majors))}, and this is {said}")
        sys.exit(77)
    return search


def until(what, so):
    """Waits for a condition and returns what it gave."""
    end = time.monotonic() + PATIENCE_S
    while not (found := so()):
        assert time.monotonic() < end, f"not so in time: {what}"
        time.sleep(0.02)
    return found


def pause_layer(folder):
    """The layer of an image with one program."""
    source, program = os.path.join(folder, "pause.c"), os.path.join(folder, "pause")
    with open(source, "w") as file:
        file.write(PAUSE)
    subprocess.run(["cc", "-static", "-O1", "-o", program, source], check=True)
    path = os.path.join(folder, "pause.tar")
    with tarfile.open(path, "w") as tar:
        tar.add(program, arcname="pause")
    return path


def archive(folder, name, layer, entrypoint):
    """An OCI archive of a layer, a tar file."""
    with open(layer, "rb") as file:
        layer, blobs = file.read(), {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs["blobs/sha256/" + digest] = data
        return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(data)}

    root = {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}
    config = {"architecture": "amd64", "os": "linux", "config": {"Entrypoint": entrypoint}, "rootfs": root}
    manifest = {"schemaVersion": 2, "config": blob(json.dumps(config).encode(), "config.v1+json"),
                "layers": [blob(layer, "layer.v1.tar")]}
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": "1"}
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    path = os.path.join(folder, "image.tar")
    with tarfile.open(path, "w") as tar:
        for file, data in blobs.items():
            info = tarfile.TarInfo(file)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


class Pod:
    """A sandbox."""

    def __init__(self, engine, name, namespace, annotations):
        self.engine, self.name, self.containers = engine, name, []
        network = message(f1=NAMESPACES)
        security = message(f1="/" + CGROUP, f2=network)
        metadata = message(f1=name, f2="uid-" + name, f3=namespace)
        self.config = message(f1=metadata, f3=engine.logs, f7=pairs(annotations), f8=security)
        self.id = engine.ask("RunPodSandbox", message(f1=self.config))[1][0]

    def container(self, name, image=PAUSE_IMAGE, command=(), devices=(), mounts=(), environment=None):
        """Makes and starts one. Mounts are pairs: inside, outside."""
        config = message(
            f1=message(f1=name), f2=message(f1=image), f3=list(command), f6=pairs(environment or {}),
            f7=[message(f1=inside, f2=outside) for inside, outside in mounts], f11=name + ".log",
            f15=message(f2=message(f3=NAMESPACES)), f17=[message(f1=device) for device in devices],
        )
        made = self.engine.ask("CreateContainer", message(f1=self.id, f2=config, f3=self.config))[1][0]
        self.engine.ask("StartContainer", message(f1=made))
        container = Container(self.engine, made, name)
        self.containers.append(container)
        return container

    def remove(self):
        for container in self.containers:
            container.remove()
        for what in ("StopPodSandbox", "RemovePodSandbox"):
            self.engine.ask(what, message(f1=self.id))


class Container:
    def __init__(self, engine, made, name):
        self.engine, self.made, self.id, self.name = engine, made, made.decode(), name
        self.pid = self.status()[1]

    def status(self):
        """Its state (1 runs, 2 has ended), its process, its exit code."""
        answer = self.engine.ask("ContainerStatus", message(f1=self.made, f2=1))
        status = fields(answer[1][0])
        details = json.loads(fields(answer[2][0])[2][0])
        return status.get(3, [0])[0], details["pid"], status.get(7, [0])[0]

    def environment(self):
        with open(f"/proc/{self.pid}/environ", "rb") as file:
            return file.read().split(b"\0")

    def wait(self):
        """Its exit code, when it has ended."""
        until(f"{self.name} ends", lambda: self.status()[0] == 2)
        return self.status()[2]

    def printed(self):
        """The lines of its standard output so far."""
        with open(os.path.join(self.engine.logs, self.name + ".log")) as file:
            words = [line.rstrip("\n").split(" ", 3) for line in file]
        return [line[3] for line in words if len(line) == 4 and line[1:3] == ["stdout", "F"]]

    def remove(self):
        self.engine.ask("StopContainer", message(f1=self.made, f2=2))
        self.engine.ask("RemoveContainer", message(f1=self.made))


class Containerd:
    """The engine, with everything of its own below a folder."""

    def __init__(self, folder, search, resolves_cdi=True):
        self.at, self.environment, self.process = folder, dict(os.environ, PATH=search), None
        self.logs = os.path.join(folder, "logs")
        self.log = open(os.path.join(folder, "containerd.log"), "w")
        for name in ("cdi", "logs"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        with open(os.path.join(folder, "containerd.toml"), "w") as file:
            file.write(CONFIG[int(version(search).split(".")[0])].format(
                at=folder, image=PAUSE_IMAGE, cdi=str(resolves_cdi).lower()))
        self.start()
        self.load(PAUSE_IMAGE, pause_layer(folder), ["/pause"])

    def start(self):
        words = ["containerd", "-c", os.path.join(self.at, "containerd.toml")]
        self.process = subprocess.Popen(words, env=self.environment, stdout=self.log, stderr=self.log)
        authority = [("grpc.default_authority", "localhost")]
        self.channel = grpc.insecure_channel(f"unix:{self.at}/c.sock", options=authority)
        grpc.channel_ready_future(self.channel).result(PATIENCE_S)

    def stop(self):
        """Its containers run on."""
        self.channel.close()
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def ctr(self, *words):
        words = ["ctr", "-a", os.path.join(self.at, "c.sock"), "-n", "k8s.io", *words]
        return subprocess.run(words, env=self.environment, capture_output=True, text=True)

    def load(self, name, layer, entrypoint):
        done = self.ctr("images", "import", archive(self.at, name, layer, entrypoint))
        assert done.returncode == 0, done.stderr

    def ask(self, method, data):
        return fields(self.channel.unary_unary("/runtime.v1.RuntimeService/" + method)(data, timeout=PATIENCE_S))

    def mounts(self):
        """What is mounted below its folder, or comes from there. The sandbox's /dev/shm is containerd's until it ends."""
        with open("/proc/mounts") as file:
            return [line for line in file if self.at in line and "/shm" not in line]

    def cgroups(self):
        """Those of its containers. The pods' own, which a kubelet makes and removes, is not."""
        own = glob.glob(f"/sys/fs/cgroup/{CGROUP}") + glob.glob(f"/sys/fs/cgroup/*/{CGROUP}")
        return [entry.path for folder in own for entry in os.scandir(folder) if entry.is_dir()]

    def end(self):
        """Also of what a failure has left."""
        for sandbox in self.ask("ListPodSandbox", b"").get(1, []):
            for what in ("StopPodSandbox", "RemovePodSandbox"):
                self.ask(what, message(f1=fields(sandbox)[1][0]))
        self.stop()
        for folder in glob.glob(f"/sys/fs/cgroup/{CGROUP}") + glob.glob(f"/sys/fs/cgroup/*/{CGROUP}"):
            os.rmdir(folder)
