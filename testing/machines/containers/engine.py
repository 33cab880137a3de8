"""A container engine of the checks' own, with a daemon and a simulated device: its storage, the device of each class, its containers."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "lib"))

from harness import Background, Skip, compile_c, run  # noqa: E402

CDI = Path("/var/run/cdi")
KIND = "xsched.dev/class"
PATIENCE_S = 20


def until(what, wanted):
    """Waits for a condition and returns what it gave."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := wanted()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.02)
    return found


class Engine:
    def __init__(self, bin_folder, work, floor=None):
        self.bin, self.work = Path(bin_folder).resolve(), Path(work)
        if os.geteuid() != 0:
            raise Skip("only root starts containers here")
        for tool in ("podman", "runc"):
            if not shutil.which(tool):
                raise Skip(f"{tool} is missing (apt-get install podman runc)")
        self.socket = self.work / "run/xsched.sock"
        self.socket.parent.mkdir()
        self.socket.parent.chmod(0o755)
        self.base = ["podman", "--root", self.work / "storage", "--runroot", self.work / "runroot"]
        self.base += ["--tmpdir", self.work / "tmp", "--cgroup-manager", "cgroupfs", "--runtime", os.environ.get("OCI_RUNTIME", "runc")]
        self.env = dict(os.environ, XSCHED_SOCKET=str(self.socket), SIMDEV_SOCKET=str(self.work / "sim.sock"))
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME"):
            self.env[name] = str(self.work)
        self.daemon = self.device = None
        made = self.xsched("cdi", "generate", "--output", CDI, "--socket", self.socket)
        if made.returncode != 0:
            raise Skip(made.stderr.strip())
        self.simload = compile_c(
            HERE.parents[1] / "programs/sim/simload.c", self.work / "simload",
            f"-I{HERE.parents[2] / 'crates/xsched-simdev/include'}", *([f"-L{floor}", "-Wl,--allow-shlib-undefined"] if floor else []),
            f"-L{self.bin}", "-lsimdev", "-lpthread", "-lm",
        )

    def xsched(self, *words):
        command = [str(word) for word in (self.bin / "xsched", *words)]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)

    def start_device(self):
        command = [self.bin / "xsched", "sim-device", "--socket", self.work / "sim.sock"]
        self.device = Background(command, self.env, self.work, "device")
        until("the device answers", (self.work / "sim.sock").exists)
        (self.work / "sim.sock").chmod(0o666)

    def start_daemon(self, config=""):
        (self.work / "config.toml").write_text(config)
        command = [self.bin / "xsched", "daemon", "--socket", self.socket, "--config", self.work / "config.toml"]
        self.daemon = Background(command, self.env, self.work, "daemon")
        until("the daemon answers", lambda: self.xsched("ps").returncode == 0)

    def stop_daemon(self):
        self.daemon.stop()

    def programs(self):
        done = self.xsched("ps", "--json")
        return json.loads(done.stdout)["programs"] if done.returncode == 0 else []

    def records(self):
        return json.loads(self.xsched("cdi", "list", "--json", "--socket", self.socket).stdout)["containers"]

    def podman(self, *words, timeout=120):
        return run([*self.base, *words], env=self.env, timeout=timeout)

    def image(self, tar, name, *changes):
        options = [word for change in changes for word in ("--change", change)]
        done = self.podman("import", "-q", *options, tar, name)
        if done.status != 0:
            raise RuntimeError(f"import of {name}: {done.stderr}")

    def options(self, name, device=f"{KIND}=low", *more):
        words = ["--name", name, "--network", "none", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=4096:4096"]
        # What the load needs of the device.
        words += ["-v", f"{self.work}:/job", "-v", f"{self.bin}:/bin-of-xsched:ro", "-e", "SIMDEV_SOCKET=/job/sim.sock"]
        words += ["-e", "LD_LIBRARY_PATH=/bin-of-xsched", *more]
        return words + (["--device", device] if device else [])

    def run(self, name, image, *command, device=f"{KIND}=low", more=()):
        """Runs one to its end and removes it."""
        return self.podman("run", "--rm", *self.options(name, device, *more), image, *command)

    def begin(self, name, image, *command, device=f"{KIND}=low", more=()):
        """Begins one; gives its id."""
        done = self.podman("run", "-d", *self.options(name, device, *more), image, *command)
        if done.status != 0:
            raise RuntimeError(f"{name} does not start: {done.stderr}")
        return done.stdout.strip()

    def end(self):
        self.podman("rm", "-af", "-t", "0")
        for process in (self.daemon, self.device):
            if process:
                process.stop()
        self.xsched("cdi", "generate", "--remove", "--output", CDI)
        # Layers have mounts until then.
        self.podman("system", "reset", "-f")
