#!/usr/bin/env python3
"""What is tried inside the guest that `cargo xtask vm` boots, as root, with systemd as process 1.

Prints a line for each check, `ok NAME` or `not ok NAME: why`, and at last `end N M`: N checks, M of which failed.
"""

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIM = "/run/sim.sock"
SOCKET = "/run/xsched/xsched.sock"
# The processor is emulated: what takes 1 s on a machine may take 10 here.
PATIENCE_S = 90
checks = failures = 0


def say(line):
    print(line, flush=True)


def check(name, found, why=""):
    global checks, failures
    checks += 1
    failures += not found
    say(f"ok {name}" if found else f"not ok {name}: {' '.join(str(why).split())[:400]}")


def until(wanted):
    """Waits for a condition and returns what it gave, or what it gave last."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = wanted()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def sh(*command, user=None, **env):
    if user:
        command = ("runuser", "-u", user, "--", *command)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=PATIENCE_S)
    return done.returncode, (done.stdout + done.stderr).strip()


def xsched(*args, user=None, **env):
    return sh("/usr/bin/xsched", *args, user=user, **env)


def ps(user=None, **env):
    code, text = xsched("ps", "--json", user=user, **env)
    return json.loads(text) if code == 0 else None


def programs(user=None, **env):
    return {p["pid"]: p for p in (ps(user, **env) or {"programs": []})["programs"]}


def state(pid):
    groups = programs().get(pid, {}).get("groups", [])
    return groups[0]["state"] if groups else None


class Steady:
    """A program that works until its stdin ends. `before` stands before it, `options` are of `xsched run`."""

    def __init__(self, user=None, options=(), before=(), env=(), run=True):
        started = ["/usr/bin/xsched", "run", *options, "--"] if run else []
        as_user = ["runuser", "-u", user, "--"] if user else []
        self.child = subprocess.Popen(
            [*as_user, *before, *started, str(HERE / "steady"), "5000", "2"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SIMDEV_SOCKET": SIM, **dict(env)},
        )
        os.set_blocking(self.child.stdout.fileno(), False)
        self.lines = 0

    def pid(self):
        """Of the program itself, below whatever started it."""
        below = [self.child.pid]
        for pid in below:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            below += [int(child) for child in children.read_text().split()] if children.exists() else []
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in below if Path(f"/proc/{pid}/comm").exists()}
        return next((pid for pid, name in names.items() if name == "steady"), None)

    def attached(self):
        """Waits until the daemon knows it; returns its pid."""
        return until(lambda: (pid := self.pid()) in programs() and pid)

    def goes_on(self):
        """Whether it completes further work."""

        def more():
            try:
                return self.child.stdout.read()
            except TypeError:
                return None

        while more():
            pass
        return bool(until(more))

    def end(self):
        try:
            _, errors = self.child.communicate("end\n", timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return None, "it does not end"
        return self.child.returncode, errors


def install():
    library = Path("/usr/lib/xsched")
    library.mkdir(parents=True, exist_ok=True)
    for file in HERE.iterdir():
        if file.name == "xsched" or file.name.startswith("lib"):
            shutil.copy2(file, library / file.name)
    Path("/usr/bin/xsched").unlink(missing_ok=True)
    os.symlink("../lib/xsched/xsched", "/usr/bin/xsched")
    shutil.copy(HERE / "xsched.service", "/etc/systemd/system/xsched.service")
    Path("/etc/systemd/user").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "user-xsched.service", "/etc/systemd/user/xsched.service")
    for user in ("alice", "bob"):
        if user not in {p.pw_name for p in pwd.getpwall()}:
            subprocess.run(["useradd", "--create-home", user], check=True)
    sh("systemctl", "daemon-reload")


def property_of(name, unit="xsched"):
    return sh("systemctl", "show", "-P", name, unit)[1]


def journal():
    return sh("journalctl", "-u", "xsched", "-o", "cat", "--no-pager")[1]


def the_system_unit():
    code, text = sh("systemctl", "start", "xsched")
    check("the system unit starts and says that it serves", (code, property_of("ActiveState")) == (0, "active"), text + journal())
    info = ps()
    check("root's command finds the daemon", info is not None, xsched("ps"))
    code, text = sh("systemd-analyze", "security", "--no-pager", "xsched")
    score = re.search(r"exposure level for xsched\.service: ([0-9.]+)", text)
    check("exposure under 3.0", score and float(score[1]) < 3.0, score and score[1])
    check("its files are its own", oct(os.stat("/var/lib/xsched").st_mode & 0o777) == "0o700", os.listdir("/var/lib"))


def users():
    alice, bob = Steady("alice", ["--priority", "low"]), Steady("bob")
    a, b = alice.attached(), bob.attached()
    check("programs of two users attach to one daemon", a and b, (a, b, journal()[-300:]))
    check("a user sees its own programs only", list(programs("alice")) == [a], programs("alice"))
    check("root sees all", {a, b} <= set(programs()), programs())
    code, text = xsched("suspend", "--pid", str(b), user="alice")
    check("a user cannot suspend another's program", code == 3 and "attached" in text, text)
    check("that is in the journal", f"refused: process {b} is of user" in journal(), journal()[-400:])
    code, text = xsched("suspend", "--pid", str(a), user="bob")
    code, text = xsched("policy", "set", "up", user="alice")
    check("a user cannot change the policy", code == 3, text)
    code, text = xsched("hint", "--pid", str(a), "--priority", "system", user="alice")
    check("nor take a class above its limit", code == 3 and "limit" in text, text)
    check("urgent programs of one hold those of the other", held_by(bob, a), programs().get(a))
    for program in (alice, bob):
        code, errors = program.end()
        check("it ends well", code == 0, errors)


def held_by(program, pid):
    xsched("hint", "--pid", str(program.pid()), "--priority", "high")
    return until(lambda: state(pid) == "ready" and state(program.pid()) == "running")


def over_a_restart():
    alice = Steady("alice")
    pid = alice.attached()
    xsched("suspend", "--pid", str(pid))
    check("root suspends it", until(lambda: state(pid) == "suspended"), state(pid))
    before = property_of("MainPID")
    sh("systemctl", "restart", "xsched")
    check("the unit restarts", property_of("MainPID") != before and property_of("ActiveState") == "active", journal()[-400:])
    check("it is suspended again by the next daemon", until(lambda: state(pid) == "suspended"), (state(pid), journal()[-300:]))
    xsched("resume", "--pid", str(pid))
    check("and goes on when it is resumed", alice.goes_on(), state(pid))
    check("it ends well", alice.end()[0] == 0)


def reload():
    folder = Path("/etc/xsched")
    folder.mkdir(exist_ok=True)
    config = folder / "config.toml"
    config.write_text('policy = "up"\n')
    code, text = sh("systemctl", "reload", "xsched")
    check("a reload changes the policy", code == 0 and until(lambda: xsched("policy", "get")[1] == "up"), text + xsched("policy", "get")[1])
    config.write_text('policy = "up"\nplicy = 1\n')
    sh("systemctl", "reload", "xsched")
    check("a wrong configuration is told with its line", until(lambda: "config.toml:2: unknown field" in journal()), journal()[-300:])
    check("and changes nothing", xsched("policy", "get")[1] == "up")
    config.write_text('[[rule]]\ncgroup = "/batch.slice/*"\npriority = "low"\n')
    sh("systemctl", "reload", "xsched")
    until(lambda: xsched("policy", "get")[1] == "hpf")
    batch = Steady(before=["systemd-run", "--quiet", "--scope", "--slice=batch.slice"])
    pid = batch.attached()
    found = programs().get(pid, {})
    check("a rule by cgroup gives the class", (found.get("class"), found.get("class_from")) == ("low", "rule"), found)
    config.unlink()
    sh("systemctl", "reload", "xsched")
    check("without the rule it is normal again", until(lambda: programs().get(pid, {}).get("class") == "normal"), programs().get(pid))
    check("it ends well", batch.end()[0] == 0)


def watchdog():
    alice = Steady("alice")
    pid = alice.attached()
    before = property_of("MainPID")
    os.kill(int(before), 19)
    check("a program goes on while the daemon hangs", alice.goes_on())
    is_new = until(lambda: property_of("MainPID") not in (before, "0") and property_of("ActiveState") == "active")
    check("the watchdog ends it and the unit starts again", is_new, journal()[-400:])
    check("because of the watchdog", "atchdog" in sh("journalctl", "-u", "xsched", "--no-pager")[1])
    check("the program attaches again", until(lambda: pid in programs()), journal()[-300:])
    check("it ends well", alice.end()[0] == 0)


def the_user_unit():
    sh("loginctl", "enable-linger", "alice")
    uid = pwd.getpwnam("alice").pw_uid
    until(lambda: Path(f"/run/user/{uid}/systemd/private").exists())
    as_alice = {"XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    code, text = sh("systemctl", "--user", "start", "xsched", user="alice", **as_alice)
    check("the user unit starts", code == 0, text + sh("journalctl", "--user-unit", "xsched", "--no-pager")[1][-400:])
    its = {"XSCHED_SOCKET": f"/run/user/{uid}/xsched/xsched.sock"}
    program = Steady("alice", env={**its, **as_alice}.items())
    known = until(lambda: (pid := program.pid()) in programs("alice", **its) and pid)
    check("a program attaches to it", known, ps("alice", **its))
    code, text = sh("systemctl", "--user", "reload", "xsched", user="alice", **as_alice)
    check("it reloads", code == 0, text)
    check("it ends well", program.end()[0] == 0)
    code, text = sh("systemctl", "--user", "stop", "xsched", user="alice", **as_alice)
    check("it stops", code == 0, text)


def rootless_container():
    inside = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-c"]
    line = f'mount --bind /run/xsched /run/xsched; exec "$0" "$@"'
    program = Steady("alice", before=[*inside, line], options=["--socket", SOCKET, "--require"])
    pid = program.attached()
    found = programs().get(pid, {})
    check("a program of a rootless container attaches to the machine's daemon", pid, program.child.poll() and program.child.communicate())
    check("as its owner", found.get("uid") == pwd.getpwnam("alice").pw_uid, found)
    stop = ["runuser", "-u", "alice", "--", *inside, line, "/usr/bin/xsched", "policy", "set", "--socket", SOCKET, "up"]
    code, text = sh(*stop)
    check("its root is not the machine's", code == 3 and "only root" in text, (code, text))
    check("it ends well", program.end()[0] == 0)
    code, text = sh("unshare", "--pid", "--fork", "--mount", "/usr/bin/xsched", "policy", "set", "up")
    check("nor is that of a container with the machine's users", code == 3 and "only root" in text, (code, text))


def stop():
    alice = Steady("alice")
    alice.attached()
    sh("systemctl", "stop", "xsched")
    check("programs go on when the unit stops", alice.goes_on())
    check("it ends well", alice.end()[0] == 0)
    check("nothing of the daemon is left", not Path("/run/xsched").exists() or not os.listdir("/run/xsched"))


def main():
    install()
    device = subprocess.Popen(["/usr/bin/xsched", "sim-device", "--socket", SIM])
    until(lambda: Path(SIM).exists())
    os.chmod(SIM, 0o666)
    for part in (the_system_unit, users, over_a_restart, reload, watchdog, rootless_container, the_user_unit, stop):
        say(f"# {part.__name__}")
        try:
            part()
        except Exception as e:  # One part's fault must not hide the others' results.
            check(part.__name__, False, repr(e))
    device.terminate()
    say(f"end {checks} {failures}")


sys.exit(main())
