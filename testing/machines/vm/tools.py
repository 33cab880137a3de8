"""What the parts of the guest's checks share: a line for each check, waits with a deadline, the command, programs."""

import json
import os
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIM = "/run/sim.sock"
SOCKET = "/run/xsched/xsched.sock"
# The processor is emulated: what takes 1 s on a machine may take 10 here.
PATIENCE_S = 90
# A command outlasts what systemd waits for a unit (90 s), so that it can tell why that fails.
COMMAND_S = 240
outcomes = []


def say(line):
    print(line, flush=True)


def check(name, found, why=""):
    outcomes.append(bool(found))
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
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=COMMAND_S)
    return done.returncode, (done.stdout + done.stderr).strip()


def xsched(*args, user=None, command="/usr/bin/xsched", **env):
    return sh(command, *args, user=user, **env)


def ps(user=None, **env):
    code, text = xsched("ps", "--json", user=user, **env)
    return json.loads(text) if code == 0 else None


def programs(user=None, **env):
    return {p["pid"]: p for p in (ps(user, **env) or {"programs": []})["programs"]}


def state(pid):
    groups = programs().get(pid, {}).get("groups", [])
    return groups[0]["state"] if groups else None


class Program:
    """A program of the guest's, under `xsched run`, that is told by lines what to do. `before` stands before it, `options` are of `run`."""

    def __init__(self, name, user=None, options=(), before=(), env=(), args=(), command="/usr/bin/xsched"):
        as_user = ["runuser", "-u", user, "--"] if user else []
        env = dict(env)
        # Of the program only: not of what starts it.
        own = [f"{name}={env.pop(name)}" for name in ("LD_PRELOAD", "LD_LIBRARY_PATH") if name in env]
        run = ["env", *own, command, "run", *options, "--"]
        self.name, self.lines = name, []
        self.child = subprocess.Popen(
            [*as_user, *before, *run, str(HERE / name), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SIMDEV_SOCKET": SIM, **env},
        )
        os.set_blocking(self.child.stdout.fileno(), False)

    def pid(self):
        """Of the program itself, below whatever started it."""
        below = [self.child.pid]
        for pid in below:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            below += [int(child) for child in children.read_text().split()] if children.exists() else []
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in below if Path(f"/proc/{pid}/comm").exists()}
        return next((pid for pid, name in names.items() if name == self.name), None)

    def attached(self):
        """Waits until the daemon knows it; returns its pid."""
        return until(lambda: (pid := self.pid()) in programs() and pid)

    def more(self):
        """What it has said since the last time. Where there is nothing Python raises the one or the other, by its version."""
        try:
            text = self.child.stdout.read() or ""
        except (TypeError, BlockingIOError):
            return ""
        self.lines += text.splitlines()
        return text

    def goes_on(self):
        """Whether it completes further work."""
        while self.more():
            pass
        return bool(until(self.more))

    def says(self, line):
        return bool(until(lambda: (self.more(), line in self.lines)[1]))

    def tell(self, line):
        self.child.stdin.write(f"{line}\n")
        self.child.stdin.flush()

    def does(self, line, answer):
        self.lines.clear()
        self.tell(line)
        return self.says(answer)

    def errors(self):
        os.set_blocking(self.child.stderr.fileno(), False)
        try:
            return self.child.stderr.read()
        except (TypeError, BlockingIOError):
            return ""

    def end(self):
        try:
            self.child.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return None
        return self.child.returncode


class Steady(Program):
    """A program that works until its stdin ends."""

    def __init__(self, user=None, options=(), before=(), env=(), command="/usr/bin/xsched"):
        super().__init__("steady", user, options, before, env, ("5000", "2"), command)

    def end(self):
        try:
            _, errors = self.child.communicate("end\n", timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return None, "it does not end"
        return self.child.returncode, errors


def property_of(name, unit="xsched"):
    return sh("systemctl", "show", "-P", name, unit)[1]


def journal():
    return sh("journalctl", "-u", "xsched", "-o", "cat", "--no-pager")[1]


def user_journal():
    return sh("journalctl", "_UID=1000", "-o", "cat", "--no-pager", "-n", "20")[1]
