#!/usr/bin/env python3
"""Plays recipes of docs/guide/recipes.md on this machine's GPU, and writes the screen of each to FOLDER/NAME.txt.

  play.py FOLDER NAME...          with `xsched` in PATH; names: server diffusion jax torchrun openai jupyter

A server is measured alone, with each work beside it and nothing done, then under xsched with each work. `--secs` is the length of
a measurement, `--budget` the seconds after which all is ended: what was measured until then is written. `--small` is for a CPU.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/recipes"
# Recipe -> the work beside the server, the word in its lines of progress, variables.
WORK = {
    "server": ("python3 train.py", "steps/s", {}),
    "diffusion": ("python3 paint.py", "pictures/s", {}),
    "jax": ("python3 train_jax.py", "steps/s", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    "torchrun": ("torchrun --nproc-per-node 2 train.py", "steps/s", {}),
    "openai": ("python3 embed.py", "texts/s", {}),
}
SMALL = {
    "serve.py": "--device cpu --layers 2 --width 128",
    "train.py": "--device cpu --layers 1 --width 64 --batch 1",
    "train_jax.py": "--width 128 --batch 16",
    "paint.py": "--device cpu --width 32 --batch 1 --steps 2",
    "embed.py": "--device cpu --layers 1 --batch 2",
    "model.py": "--layers 2 --width 128",
    "transformers": "--device cpu",
}


class Failed(Exception):
    """A step that did not come to its end; what was written until then stays."""


class Play:
    def __init__(self, args):
        self.args, self.end = args, time.monotonic() + args.budget
        self.work = Path(tempfile.mkdtemp(prefix="recipes-"))
        self.work.chmod(0o755)
        # A copy that other users can read.
        self.examples = shutil.copytree(args.examples, self.work / "examples")
        subprocess.run(["chmod", "-R", "a+rX", self.examples], check=True)
        self.started = []
        os.environ.update(XSCHED_SOCKET=str(self.work / "xsched.sock"), PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1")
        os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")

    def say(self, name, text):
        print(f"[{name} {self.args.budget - self.left():5.1f} s] {text}", flush=True)
        with (self.args.folder / f"{name}.txt").open("a") as file:
            print(text, file=file)

    def left(self):
        return self.end - time.monotonic()

    def words(self, command):
        words = command.split() if isinstance(command, str) else list(command)
        if self.args.small:
            words += [more for key, value in SMALL.items() if key in words for more in value.split()]
        return words

    def start(self, command, env=(), before=()):
        path = self.work / f"{len(self.started)}.out"
        with path.open("w") as out:
            process = subprocess.Popen(
                [*before, *self.words(command)], cwd=self.examples, env={**os.environ, **dict(env)}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )
        process.path = path
        self.started.append(process)
        return process

    def wait_for(self, process, word):
        while word not in (text := process.path.read_text(errors="replace")):
            if process.poll() is not None or self.left() < 1:
                raise Failed(f"{process.args[-3:]}, status {process.poll()}, no {word!r}: {text[-1500:]}")
            time.sleep(0.05)

    def progress(self, process, word):
        return [line for line in process.path.read_text(errors="replace").splitlines() if word in line]

    def run(self, *words):
        try:
            done = subprocess.run(words, cwd=self.examples, capture_output=True, text=True, timeout=max(1, self.left()))
            return (done.stdout + done.stderr).strip()
        except subprocess.TimeoutExpired:
            raise Failed(f"{words} did not end in time") from None

    def stop(self, *processes):
        """Ends programs with what they have started."""
        for process in processes:
            for sent, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, 3)):
                try:
                    os.killpg(process.pid, sent)
                    process.wait(patience)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass

    def ask(self, ask, ps=False):
        """Asks for a while; gives what was said of it, and of the programs then."""
        command = [*ask, "--secs", f"{self.args.secs:g}"]
        process = subprocess.Popen(command, cwd=self.examples, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            seen = None
            if ps:
                time.sleep(0.7 * self.args.secs)
                seen = self.run("xsched", "ps")
            return process.communicate(timeout=max(1, self.left()))[0].strip()[-1500:], seen
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed("the server did not answer in time") from None

    def beside(self, server, names, ask, ready):
        """One server, and the works of these recipes one after the other: bare, then under xsched."""
        title = " ".join(ask)
        serving = self.start(server)
        ready(serving)
        alone = self.ask(ask)[0]
        for name in names:
            self.say(name, f"# the server alone\n$ {title}\n{alone}")
        for scheduled in (False, True):
            high, low = ("xsched run --priority high -- ", "xsched run --priority low -- ") if scheduled else ("", "")
            if scheduled:
                self.stop(serving)
                serving = self.start(high + server)
            for name in names:
                command, word, env = WORK[name]
                try:
                    if not scheduled and name != names[0] and self.left() < (len(names) + 1) * (self.args.secs + 12):
                        raise Failed("left out, there is no time")
                    work = self.start(low + command, env)
                    ready(serving)
                    self.wait_for(work, word)
                    said, ps = self.ask(ask, ps=scheduled)
                    shown = " ".join([*(f"{key}={value}" for key, value in env.items()), low + command])
                    lines = ["# under xsched" if scheduled else "# the work beside it, nothing done"]
                    lines += [f"$ {high}{server} &", f"$ {shown} &", f"$ {title}", said, self.progress(work, word)[-1]]
                    self.say(name, "\n".join(["", *lines, *(["$ xsched ps", ps] if ps else [])]))
                except Failed as e:
                    self.say(name, f"FAILED {'under xsched' if scheduled else 'bare'}: {e}")
                self.stop(*(process for process in self.started if process is not serving))
        self.stop(serving)

    def served(self, names):
        self.beside("python3 serve.py", names, ["python3", "ask.py"], lambda process: self.wait_for(process, "ready"))

    def openai(self, names):
        needed = self.run("python3", "-c", "import fastapi, uvicorn, openai, pydantic")
        if needed:
            raise Failed(f"left out: `pip install 'transformers[serving]'` first: {needed[-300:]}")
        self.run(*self.words("python3 model.py ./model"))
        # Readiness shows by the first answer, which ask.py waits for.
        self.beside("transformers serve ./model", names, ["python3", "ask.py", "--model", "./model"], lambda _: None)

    def jupyter(self, names):
        """Three users, one of them with two kernels' work, at a daemon for all with the policy `fair`."""
        if os.getuid() != 0:
            raise Failed("left out: only root becomes three users")
        self.say("jupyter", self.run("xsched", "policy", "set", "fair"))
        running = []
        for n, user in ((1, "anna"), (1, "anna"), (2, "ben"), (3, "carla")):
            home = self.work / user
            home.mkdir(exist_ok=True)
            os.chown(home, 20000 + n, 20000 + n)
            env = {"HOME": home, "USER": user, "LOGNAME": user, "TORCHINDUCTOR_CACHE_DIR": home / "cache"}
            before = ["setpriv", f"--reuid={20000 + n}", f"--regid={20000 + n}", "--clear-groups"]
            running.append(self.start("xsched run -- python3 train.py", env, before))
        for process in running:
            self.wait_for(process, "steps/s")
        time.sleep(min(11, max(0, self.left() - 3)))
        self.say("jupyter", "$ xsched ps\n" + self.run("xsched", "ps"))
        self.stop(*running)
        self.run("xsched", "policy", "set", "hpf")

    def all(self):
        names = self.args.names
        log = (self.args.folder / "daemon.txt").open("w")
        daemon = subprocess.Popen(["xsched", "daemon"], stdout=log, stderr=subprocess.STDOUT)
        if names != ["jupyter"]:
            # Read by the programs' imports, in the meantime.
            self.start(["nice", "python3", "-c", "import torch._dynamo, jax"])
        try:
            for part, chosen in (
                (self.served, [name for name in names if name in WORK and name != "openai"]),
                (self.openai, [name for name in names if name == "openai"]),
                (self.jupyter, [name for name in names if name == "jupyter"]),
            ):
                try:
                    if chosen:
                        part(chosen)
                except Exception as e:
                    for name in chosen:
                        self.say(name, f"FAILED: {type(e).__name__}: {e}")
                self.stop(*self.started)
        finally:
            self.stop(*self.started)
            daemon.terminate()
            daemon.wait()
            for process in self.started:
                with (self.args.folder / "programs.txt").open("a") as file:
                    print(f"--- {' '.join(map(str, process.args))[-150:]}\n{process.path.read_text(errors='replace')[-1500:]}", file=file)
            shutil.rmtree(self.work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", choices=[*WORK, "jupyter"])
    parser.add_argument("--secs", type=float, default=5)
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--examples", type=Path, default=EXAMPLES)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    Play(args).all()


if __name__ == "__main__":
    sys.exit(main())
