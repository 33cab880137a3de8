#!/usr/bin/env python3
"""Makes the pictures of the documents from a real run on the simulated device.

  pictures.py --bin target/release [--out docs/pictures] [--only NAME ...]

Names: ps, top, doctor, demo, time-sharing, architecture, pool, inside. Two programs of examples/tour run under a daemon of their own; what the
commands print in a terminal of so many columns (tmux) becomes an SVG that has the colours of the page that shows it, light or dark.
`demo` draws its own. `time-sharing` draws 100 ms of the daemon's record (timeline.py). No run is needed for `architecture` (drawing.py),
`pool` and `inside`, which were recorded on a GPU (docs/benchmarks/h100).
The programs lie in a temporary folder, whose name is shown as that of a usual installation.
"""

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches/cuda"))
import drawing  # noqa: E402
import svg  # noqa: E402
import timeline  # noqa: E402

TIMELINE_MS = 100
NAMES = ["ps", "top", "doctor", "demo", "time-sharing", "architecture", "pool", "inside"]

# Records of a GPU, and the titles of what is drawn of them.
RECORDED = {"pool": "Two best-effort programs in a pool, an urgent one outside", "inside": "The same three programs, all inside one pool"}
RECORDED_MS = 60

FILES = ["xsched", "libxsched.so", "libsimdev.so"]

# What is typed, and the columns and lines of the terminal.
PICTURES = {
    "ps": ("xsched ps", 92, 8),
    "top": ("xsched top", 92, 14),
    "doctor": ("xsched doctor", 100, 34),
}

# Colours by their number in a terminal: on a light and on a dark page.
COLOURS = {
    0: ("#24292f", "#6e7681"), 1: ("#b3261e", "#ff8078"), 2: ("#1a7f37", "#56d364"), 3: ("#8a5a00", "#e3b341"),
    4: ("#0550ae", "#79c0ff"), 5: ("#8250df", "#d2a8ff"), 6: ("#0b7285", "#56d4dd"), 7: ("#57606a", "#c9d1d9"),
}
INK, PAPER, FRAME, DIM = svg.INK, svg.PAPER, svg.LINES, svg.FAINT
CELL, LINE, PAD, FONT = 8.4, 18, 14, 14


class Style:
    """How the next characters look, as the last escape sequences said."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.colour, self.bold, self.dim, self.reverse = None, False, False, False

    def take(self, codes):
        codes = [int(code or 0) for code in codes.split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.reset()
            elif code in (1, 2, 7):
                setattr(self, {1: "bold", 2: "dim", 7: "reverse"}[code], True)
            elif code == 22:
                self.bold = self.dim = False
            elif code == 27:
                self.reverse = False
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.colour = code % 10
            elif code == 39:
                self.colour = None
            elif code in (38, 48):
                # Of 256 colours, the first sixteen are the same.
                number = codes[1] if codes[:1] == [5] else None
                del codes[: 2 if codes[:1] == [5] else 4]
                if code == 38 and number is not None and number < 16:
                    self.colour = number % 8

    def classes(self):
        found = [f"c{self.colour}"] if self.colour is not None else []
        return found + [name for name in ("bold", "dim", "reverse") if getattr(self, name)]


def spans(line):
    """Text and classes of the stretches of a line that look alike."""
    style, found = Style(), []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            style.take(part[2:-1])
        elif part:
            found.append((part, style.classes()))
    return found


def wide(text):
    """Columns that a text takes."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def sheet():
    """Two style sheets: the second is for dark pages."""
    def rules(n):
        colours = "".join(f".c{number}{{fill:{pair[n]}}}" for number, pair in COLOURS.items())
        return (f".paper{{fill:{PAPER[n]};stroke:{FRAME[n]}}}text{{fill:{INK[n]}}}{colours}.dim{{fill:{DIM[n]}}}"
                f".back{{fill:{INK[n]}}}.reverse{{fill:{PAPER[n]}}}")
    font = "text{font:%dpx ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}.bold{font-weight:bold}" % FONT
    return f"<style>{font}{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}</style>"


def drawn(command, lines, columns):
    """What stands in a terminal, as SVG."""
    lines = [f"\x1b[1m$ {command}\x1b[0m"] + lines
    width, height = columns * CELL + 2 * PAD, len(lines) * LINE + 2 * PAD
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
           f'height="{height:.0f}" role="img" aria-label="{html.escape(command)}">', sheet(),
           f'<rect class="paper" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>']
    for n, line in enumerate(lines):
        at, y = 0, PAD + (n + 1) * LINE - 5
        for text, classes in spans(line):
            columns_here, x = wide(text), PAD + at * CELL
            if "reverse" in classes:
                out.append(f'<rect class="back" shape-rendering="crispEdges" x="{x:.1f}" y="{y - LINE + 5}" width="{columns_here * CELL:.1f}" height="{LINE}"/>')
            if text.strip():
                name = f' class="{" ".join(classes)}"' if classes else ""
                # So long that columns stand below each other whatever the font is.
                out.append(f'<text x="{x:.1f}" y="{y}"{name} textLength="{columns_here * CELL:.1f}" lengthAdjust="spacingAndGlyphs" '
                           f'xml:space="preserve">{html.escape(text)}</text>')
            at += columns_here
    return "\n".join(out + ["</svg>", ""])


class Terminal:
    """A terminal in tmux."""

    def __init__(self, socket, env, columns, lines):
        self.folder = socket.parent
        self.base = ["tmux", "-f", "/dev/null", "-u", "-S", str(socket)]
        self.env = {**env, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "PS1": ""}
        self.run("new-session", "-d", "-x", str(columns), "-y", str(lines), "-s", "t", "sh", "-c", "exec sleep 1000")
        self.run("set-option", "-g", "status", "off")

    def run(self, *args):
        return subprocess.run([*self.base, *args], env=self.env, check=True, capture_output=True, text=True).stdout

    def screen(self, command, seconds):
        """What it shows once a command has ended, or so long after it has begun."""
        ended = self.folder / "ended"
        ended.unlink(missing_ok=True)
        self.run("respawn-pane", "-k", "-t", "t", "sh", "-c", f"{command}; touch {ended}; exec sleep 1000")
        until = time.monotonic() + seconds
        while not ended.exists() and time.monotonic() < until:
            time.sleep(0.1)
        lines = self.run("capture-pane", "-e", "-p", "-t", "t").split("\n")
        while lines and not re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]).strip():
            lines.pop()
        return [line.rstrip() for line in lines]

    def end(self):
        subprocess.run([*self.base, "kill-server"], env=self.env, check=False, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if "architecture" in args.only:
        (args.out / "architecture.svg").write_text(drawing.architecture())
    for recorded, title in RECORDED.items():
        if recorded in args.only:
            trace = timeline.read(ROOT / f"docs/benchmarks/h100/timeline-{recorded}.json.xz")
            text = timeline.drawn(trace, title, *timeline.middle(trace, RECORDED_MS))
            (args.out / f"{recorded}.svg").write_text(text)
    if not set(args.only) - {"architecture", *RECORDED}:
        return 0
    with tempfile.TemporaryDirectory(prefix="xsched-pictures-", dir="/tmp") as name:
        folder = Path(name)
        for file in FILES:
            shutil.copy(args.bin / file, folder / file)
        for file in (ROOT / "examples/tour").glob("*.py"):
            shutil.copy(file, folder)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("XSCHED_", "SIMDEV_", "XDG_"))}
        env.update(PATH=f"{folder}:{env['PATH']}", HOME=name, XDG_RUNTIME_DIR=name, SIMDEV_SOCKET=f"{name}/sim.sock",
                   SIMDEV_LIBRARY=f"{name}/libsimdev.so", XSCHED_SOCKET=f"{name}/xsched.sock")
        start = lambda *words: subprocess.Popen(words, cwd=folder, env=env, stdin=subprocess.DEVNULL)  # noqa: E731
        started = [start("xsched", "daemon", "--log", f"{name}/log"), start("xsched", "sim-device", "--socket", f"{name}/sim.sock")]
        try:
            time.sleep(0.5)
            for priority, program in [("high", "serve.py"), ("low", "train.py")]:
                started.append(start("xsched", "run", "--priority", priority, "--", "python3", program))
            time.sleep(15 if "top" in args.only else 5)
            for picture, (command, columns, lines) in PICTURES.items():
                if picture not in args.only:
                    continue
                terminal = Terminal(folder / f"{picture}.tmux", env, columns, lines)
                try:
                    screen = terminal.screen(command, 6 if picture == "top" else 60)
                finally:
                    terminal.end()
                usual = [(f"{name}/libxsched.so", "/usr/lib/xsched/libxsched.so"), (f"{name}/xsched.sock", "/run/xsched/xsched.sock")]
                for here, there in usual:
                    screen = [line.replace(here, there) for line in screen]
                (args.out / f"{picture}.svg").write_text(drawn(command, screen, columns))
            if "time-sharing" in args.only:
                command = ["xsched", "trace", "--last", "1s", "--json"]
                trace = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
                text = timeline.drawn(trace, "Time sharing under hpf", *timeline.middle(trace, TIMELINE_MS))
                (args.out / "time-sharing.svg").write_text(text)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()
        if "demo" in args.only:
            words = ["xsched", "demo", "--device", "sim", "--svg", str(args.out.resolve() / "demo.svg")]
            subprocess.run(words, env=env, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
