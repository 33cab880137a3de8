"""What the compatibility and measurement scripts share: building C programs, running processes, a private daemon.

Only the Python standard library. Processes are started in sessions of their own and ended by their ids.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

TESTING = Path(__file__).resolve().parent.parent


ROOT = Path(__file__).resolve().parent.parent.parent


class Skip(Exception):
    """Something this machine lacks; the text says what and how to get it."""


def compile_c(source, output, *flags, shared=False):
    """Compiles one C or C++ file unless the result is newer than everything beside the source."""
    source, output = Path(source), Path(output)
    compiler = "g++" if source.suffix == ".cpp" else "gcc"
    if not shutil.which(compiler):
        raise Skip(f"{compiler} is missing (apt-get install {compiler})")
    inputs = [source, *source.parent.glob("*.h"), *TESTING.glob("programs/*/*.h")]
    if output.exists() and output.stat().st_mtime > max(p.stat().st_mtime for p in inputs):
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    warnings = ["-w"] if source.suffix == ".cpp" else ["-Wall", "-Wextra", "-Wno-deprecated-declarations"]
    options = ["-O1" if source.suffix == ".cpp" else "-O2", *warnings, "-DCL_TARGET_OPENCL_VERSION=300"]
    options += ["-fPIC", "-shared"] if shared else []
    options += [f"-ffile-prefix-map={ROOT}/="]  # what they print of their source is the same in any checkout
    done = subprocess.run(
        [compiler, *options, "-o", str(output), str(source), *flags], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{source}: does not compile\n{done.stderr}")
    return output


# Processes started here that have not been waited for, for `end_all`.
started = set()


def end_all():
    """Kills what is still running, with its descendants: for a script that is told to end."""
    for process in list(started):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


class Outcome:
    """How a program ended: exit status (negative: a signal), what it printed, seconds it took."""

    def __init__(self, status, stdout, stderr, seconds, timed_out):
        self.status, self.stdout, self.stderr = status, stdout, stderr
        self.seconds, self.timed_out = seconds, timed_out


def run(command, env=None, timeout=120, cwd=None):
    """Runs a program to its end; past the timeout (seconds) its whole session is killed."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in command],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    timed_out = False
    started.add(process)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    finally:
        started.discard(process)
    return Outcome(process.returncode, out, err, time.monotonic() - begin, timed_out)


class Background:
    """A program that runs beside others until it is told to end; its output is kept in files."""

    def __init__(self, command, env, folder, name):
        self.stdout = Path(folder) / f"{name}.out"
        self.stderr = Path(folder) / f"{name}.err"
        with open(self.stdout, "w") as out, open(self.stderr, "w") as err:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        started.add(self.process)

    def running(self):
        return self.process.poll() is None

    def wait_for(self, text, timeout=30):
        """Waits until its standard error holds the text; the timeout is in seconds."""
        deadline = time.monotonic() + timeout
        while text not in self.stderr.read_text():
            if not self.running() or time.monotonic() > deadline:
                raise RuntimeError(f"no {text!r} from {self.process.args}: {self.stderr.read_text()}")
            time.sleep(0.01)

    def stop(self, timeout=10):
        """SIGTERM, then SIGKILL after the timeout (seconds); gives the exit status."""
        started.discard(self.process)
        if self.running():
            self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()


class Daemon(Background):
    """A private `xsched daemon` on a socket in `folder`, ready when this returns."""

    def __init__(self, xsched, folder, policy, *options, timeout=10, env=None):
        self.socket = Path(folder) / f"{policy}.sock"
        # A configuration or state of the user who runs the tests must not matter.
        env = dict(os.environ, **env or {}, XDG_CONFIG_HOME=str(folder), XDG_STATE_HOME=str(folder))
        command = [xsched, "daemon", "--socket", self.socket, "--policy", policy, "--idle-exit", "never", *options]
        super().__init__(command, env, folder, f"daemon-{policy}")
        self.ps_command = [str(xsched), "ps", "--json", "--socket", str(self.socket)]
        deadline = time.monotonic() + timeout
        while self.ps() is None:
            if not self.running() or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the daemon did not start: {self.stderr.read_text().strip()}")
            time.sleep(0.01)

    def ps(self):
        """What `xsched ps --json` says, or None if the daemon does not answer."""
        done = subprocess.run(self.ps_command, capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None


def json_lines(path):
    """The objects of a file with one JSON object a line; nothing if there is no such file."""
    path = Path(path)
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []
