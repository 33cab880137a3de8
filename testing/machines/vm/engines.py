"""Containers of Podman: of a user without privileges, and of root. The image is what the program needs of the guest's own files."""

import json
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

from tools import HERE, SIM, Program, check, programs, say, sh, state, until, xsched

KIND = "xsched.dev/class"


def image_of(user, folder):
    """A root folder with a shell, C's library and the places that are mounted."""
    needed = {"/bin/sh"}
    for program in ("/bin/sh", HERE / "steady", HERE / "libsimdev.so"):
        for word in sh("ldd", str(program))[1].split():
            if word.startswith("/") and not word.startswith(str(HERE)):
                needed.add(word)
    for name in sorted(needed):
        to = folder / name.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, to)
    for name in ("opt/x", "proc", "dev", "sys", "tmp", "etc", "run", "usr/bin", "usr/lib"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    sh("chown", "-R", f"{user}:", str(folder))


class Contained(Program):
    """The program of a container that has a class; it works until its stdin ends."""

    def __init__(self, engine, name, device):
        self.name, self.lines = "steady", []
        words = ["run", "--rm", "-i", "--name", name, "--device", f"{KIND}={device}", *engine.options, "--rootfs", str(engine.folder)]
        self.child = subprocess.Popen(
            [*engine.base, *words, str(HERE / "steady"), "5000", "2"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=engine.env, cwd="/",
        )
        os.set_blocking(self.child.stdout.fileno(), False)

    def pid(self):
        """Of the only such program: the container's monitor is no child of the engine."""
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and (folder / "comm").read_text().strip() == self.name:
                    return int(folder.name)
            except OSError:
                pass
        return None

    def end(self):
        try:
            _, errors = self.child.communicate("end\n", timeout=120)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return None, "it does not end"
        return self.child.returncode, errors


class Engine:
    def __init__(self, user):
        home = pwd.getpwnam(user).pw_dir
        self.folder, self.env = Path(home) / "image", dict(os.environ, HOME=home)
        self.base = ["podman"]
        if user != "root":
            runtime = f"/run/user/{pwd.getpwnam(user).pw_uid}"
            bus = f"unix:path={runtime}/bus"
            self.base = ["runuser", "-u", user, "--", "env", f"XDG_RUNTIME_DIR={runtime}", f"DBUS_SESSION_BUS_ADDRESS={bus}", *self.base]
        self.options = ["--network", "none", "-v", f"{HERE}:{HERE}:ro", "-v", f"{SIM}:{SIM}", "-e", f"SIMDEV_SOCKET={SIM}"]
        image_of(user, self.folder)

    def podman(self, *words):
        done = subprocess.run([*self.base, *words], capture_output=True, text=True, env=self.env, timeout=240, cwd="/")
        return done.returncode, (done.stdout + done.stderr).strip()

    def fact(self, word):
        return self.podman("info", "--format", word)[1].splitlines()[-1]


def records():
    code, text = xsched("cdi", "list", "--json")
    return json.loads(text)["containers"] if code == 0 else text


def life(engine, name, uid):
    """A container from its start to its end. Returns the daemon's line of its program."""
    began = time.monotonic()
    program = Contained(engine, name, "low")
    pid = program.attached()
    check(f"its program is scheduled, {time.monotonic() - began:.0f} s after `podman run`", pid, program.child.poll() and program.child.communicate())
    found = programs().get(pid, {})
    check("as a program of its user, of the container's class", (found.get("uid"), found.get("class")) == (uid, "low"), found)
    check("without a launch past the scheduler", found.get("groups") and all(sum(g["unscheduled"].values()) == 0 for g in found["groups"]), found)
    xsched("suspend", "--pid", str(pid))
    check("it is suspended from outside", until(lambda: state(pid) == "suspended"), state(pid))
    xsched("resume", "--pid", str(pid))
    check("and goes on", program.goes_on(), state(pid))
    code, errors = program.end()
    check("it ends well", code == 0, (code, errors))
    return found


def nothing_left(name):
    check("nothing is told of it any more", until(lambda: records() == []), records())
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    check("nor mounted", not mounts, mounts)


def podman_of_a_user():
    if not shutil.which("podman"):
        return check("podman is there", False, "the guest was made without it")
    sh("loginctl", "enable-linger", "alice")
    uid = pwd.getpwnam("alice").pw_uid
    until(lambda: Path(f"/run/user/{uid}/bus").exists())
    code, text = xsched("cdi", "generate")
    check("the specification is written", code == 0, text)
    engine = Engine("alice")
    say(f"# Podman {engine.fact('{{.Version.Version}}')}, {engine.fact('{{.Host.OCIRuntime.Name}}')}, rootless {engine.fact('{{.Host.Security.Rootless}}')}, cgroups {engine.fact('{{.Host.CgroupsVersion}}')}")
    life(engine, "of-alice", uid)
    nothing_left("of-alice")
    code, text = engine.podman("run", "--rm", *engine.options, "--device", f"{KIND}=system", "--rootfs", str(engine.folder), "/bin/sh", "-c", "echo $XSCHED_PRIORITY")
    check("a class above what its user may have starts as well", code == 0, text)


def podman_of_root():
    engine = Engine("root")
    say(f"# {engine.fact('{{.Host.OCIRuntime.Name}}')}, AppArmor {engine.fact('{{.Host.Security.AppArmorEnabled}}')}, seccomp {engine.fact('{{.Host.Security.SECCOMPEnabled}}')}")
    found = life(engine, "of-root", 0)
    check("it has the container's name", "of-root" in json.dumps(found), found)
    nothing_left("of-root")
    code, text = xsched("cdi", "generate", "--remove")
    check("the specification goes", code == 0, text)
