#!/usr/bin/env python3
"""Plays a newcomer's first minutes: types the commands of installed pages, in their order, into a shell on a terminal of 80 x 24, keeps
every screen, and checks what is seen.

Prints a line for each command, `ok WAY: COMMAND` or `not ok WAY: COMMAND: why`; the exit code is 1 if one is not ok. Needs bash; run by
`cargo xtask package --check`, and in the guest of `cargo xtask vm --minutes`.
"""

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

# A guest's processor may be emulated, and a machine that tests is busy.
PATIENCE_S = 240
ROWS, COLUMNS = 24, 80
# The prompt says where it is and how the last command ended, in sequences that a terminal does not show.
PROMPT = re.compile(rb"\x1b\]133;D;(\d+)\x07\x1b\]133;A\x07[^\x1b]*\x1b\]133;B\x07")
SEQUENCE = re.compile(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;?<>=!]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>78]|\r")
BAD = re.compile(r"^(xsched: .*|Traceback .*|.*: command not found|.*No such file or directory.*|FAIL .*|.*[Ww]arning: .*|.*\berror:? .*)$", re.M)
# Pages of a newcomer who has installed it, and words after the fence of the blocks that are typed.
PAGES = ("README.md", "guide/getting-started.md")
TYPED = ("run", "gpu")


def lines_of(page):
    """Commands of a page: the lines of its blocks for a shell, as they stand."""
    tags, found = None, []
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            tags = None if tags is not None else line.removeprefix("```").split()
        elif tags and tags[0] == "sh" and set(tags[1:]) & set(TYPED) and line.strip():
            found.append(line)
    return found


class Shell:
    """bash on a terminal, with the environment of a user who has just logged in."""

    def __init__(self, screens, home, path, env=(), user=None):
        self.screens, self.seen, self.at = screens, b"", 0
        name = user.pw_name if user else "anna"
        env = {"HOME": str(home), "USER": name, "LOGNAME": name, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PATH": path, **dict(env)}
        prompt = r"\[\e]133;D;$?\a\e]133;A\a\]\w\$ \[\e]133;B\a\]"
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # Only the descriptors of the terminal: nothing of what called.
            os.closerange(3, 256)
            if user and user.pw_uid:
                os.initgroups(user.pw_name, user.pw_gid)
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
            os.chdir(home)
            os.execve("/bin/bash", ["bash", "--noprofile", "--norc", "-i"], {**env, "PS1": prompt, "HISTFILE": ""})
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.prompted()

    def more(self, until):
        """Reads until `until` finds something in what came since the last command; returns that, or None when the time is over."""
        end = time.monotonic() + PATIENCE_S
        while not (found := until(self.seen[self.at :])):
            if time.monotonic() > end or not select.select([self.terminal], [], [], 1)[0]:
                if time.monotonic() > end:
                    return None
                continue
            try:
                data = os.read(self.terminal, 65536)
            except OSError:
                return None
            self.seen += data
            with open(self.screens, "ab") as file:
                file.write(data)
        return found

    def prompted(self):
        found = self.more(PROMPT.search)
        code = int(found[1]) if found else None
        text = self.seen[self.at : self.at + found.start()] if found else self.seen[self.at :]
        self.at = self.at + found.end() if found else len(self.seen)
        return code, SEQUENCE.sub("", text.decode(errors="replace"))

    def types(self, line, keys=()):
        """Types a line, and keys when the screen shows the text that each waits for. Returns exit code and screen without the echo."""
        os.write(self.terminal, line.encode() + b"\n")
        for awaited, key in keys:
            shown = self.more(lambda seen: awaited.encode() in seen.split(b"\n", 1)[-1] and "shown" or PROMPT.search(seen) and "ended")
            if shown == "ended":
                break
            os.write(self.terminal, (key if shown else "\x03").encode())
        code, text = self.prompted()
        return code, text.split("\n", 1)[-1] if "\n" in text else text

    def close(self):
        os.close(self.terminal)
        try:
            os.kill(self.pid, signal.SIGHUP)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


class Play:
    """The commands that were typed, and how they ended."""

    def __init__(self, way, shell, say=lambda line: print(line, flush=True), may_say=()):
        self.way, self.shell, self.say, self.may_say, self.failed = way, shell, say, may_say, 0

    def check(self, name, found, why=""):
        self.failed += not found
        self.say(f"ok {self.way}: {name}" if found else f"not ok {self.way}: {name}: {' '.join(str(why).split())[-600:]}")

    def types(self, line, wanted=(), keys=(), may_say=()):
        """Types a command that must end well, show what is wanted, and complain of nothing."""
        code, text = self.shell.types(line, keys)
        bad = [found for found in BAD.findall(text) if not any(part in found for part in (*may_say, *self.may_say))]
        missing = [part for part in wanted if part not in text]
        self.check(line, code == 0 and not bad and not missing, f"exit code {code}, lacks {missing}, complains {bad}: {text}")
        return text

    def until(self, line, wanted, keys=()):
        """Types a command again and again until the screen has what is wanted, as one does who waits for a program to begin."""
        end = time.monotonic() + PATIENCE_S
        while True:
            code, text = self.shell.types(line, keys)
            found = code == 0 and all(re.search(part, text, re.M) for part in wanted)
            if found or time.monotonic() > end:
                break
            time.sleep(0.5)
        self.check(line, found, f"exit code {code}: {text}")
        return text

    def pages(self, folder, prefix="/usr"):
        """Types the commands of the installed pages."""
        for page in PAGES:
            self.page(folder / page, prefix)

    def page(self, page, prefix="/usr"):
        both = (r"\bhigh\b.*serve\.py", r"\blow\b.*train\.py")
        running = False
        victim = None
        for line in lines_of(page):
            # A reader with another prefix, or with another process id, types that.
            line = line.replace("/usr/share/", f"{prefix}/share/").replace("4711", victim or "4711")
            command = line.split(" #")[0].strip()
            if command.endswith("&"):
                self.types(line)
                running = True
            elif command == "xsched top":
                # The daemon begins with the programs: a reader's next line comes a second later.
                self.until(line, [], keys=[("train.py", "q")])
            elif command == "xsched ps":
                text = self.until(line, both)
                victim = next((row.split()[0] for row in text.splitlines() if row.endswith("train.py")), None)
            elif command == "xsched doctor":
                self.types(line, wanted=["ok    preload", "      sim  "], may_say=("No such file or directory", "such file or directory"))
            elif command.startswith("xsched demo"):
                self.types(line, wanted=["alone"])
            else:
                self.types(line)
        if running:
            # The first page says so; they would print how they end later.
            self.types("kill %1 %2; wait", may_say=("Terminated",))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", required=True, help="name of the way of installing, for the lines")
    parser.add_argument("--prefix", type=Path, required=True, help="folder with bin/xsched")
    parser.add_argument("--pages", type=Path, help="folder of the installed pages; default PREFIX/share/doc/xsched")
    parser.add_argument("--screens", type=Path, required=True, help="file that the screens are added to")
    options = parser.parse_args()
    path = f"{options.prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    # A path that is short enough for a socket.
    with tempfile.TemporaryDirectory(prefix="minutes-") as home:
        runtime = Path(home) / "run"
        runtime.mkdir(mode=0o700)
        shell = Shell(options.screens, home, path, {"XDG_RUNTIME_DIR": str(runtime)})
        play = Play(options.way, shell)
        play.pages(options.pages or options.prefix / "share/doc/xsched", options.prefix)
        play.types("xsched daemon stop")
        shell.close()
    sys.exit(play.failed > 0)


if __name__ == "__main__":
    main()
