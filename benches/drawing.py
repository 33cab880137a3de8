"""The drawing of the architecture: two programs, their gates, the daemon, the driver and the device. pictures.py writes it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "cuda"))
import svg  # noqa: E402

WIDTH, HEIGHT = 960, 520
LABEL = (
    "Two programs, each with libxsched.so and a gate before the vendor's driver; the daemon and its policy open and close the gates "
    "by storing to memory that is shared with each program"
)
# Columns: what launches, the library, the driver, the device.
THREADS, LIBRARY, DRIVER, DEVICE = (40, 150), (300, 290), (680, 100), (830, 110)
GATE_WORD, STATE_WORD = 370, 500
HEAD = 7


def frame(x, y, width, height, name="lines", line=1.2):
    """A box with rounded corners and no filling."""
    return f'<rect class="{name}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6" stroke-width="{line}"/>'


def arrow(x1, y1, x2, y2, name, dash=None):
    """A horizontal or vertical arrow in the colour of this name, up to its head's tip."""
    along = ((x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1))
    back = (x2 - along[0] * HEAD, y2 - along[1] * HEAD)
    side = (along[1] * HEAD * 0.6, along[0] * HEAD * 0.6)
    tip = f"{x2},{y2} {back[0] + side[0]:.1f},{back[1] + side[1]:.1f} {back[0] - side[0]:.1f},{back[1] - side[1]:.1f}"
    return svg.line([(x1, y1), back], f"{name}-line", 1.8, dash) + f'<polygon class="{name}" points="{tip}"/>'


def program(y, title, name, is_open):
    """A process: threads, library and gate, with the way of a launch to the driver. Inner boxes begin 34 below its top."""
    (left, wide), (library, room), inner = THREADS, LIBRARY, y + 34
    middle, edge = inner + 27, library + room
    parts = [
        frame(20, y, edge, 104), svg.text(34, y + 22, title, bold=True),
        frame(left, inner, wide, 54), svg.text(left + wide / 2, middle - 3, "threads", "middle"),
        svg.text(left + wide / 2, middle + 15, "call the driver", "middle", 12, "faint"),
        arrow(left + wide, middle, library, middle, name), svg.text(left + wide + 55, middle - 8, "launch", "middle", 12, "faint"),
        frame(library, inner, room, 54, f"{name}-line", 1.8), svg.text(library + 14, middle + 5, "libxsched.so", bold=True),
        svg.text(edge - 46, middle + 5, "gate open" if is_open else "gate closed", "end"),
    ]
    # The gate: two posts, and a bar across the way of the launch where it is closed.
    post = edge - 28
    parts += [svg.box(post, inner + 8, 5, 10, name), svg.box(post, inner + 36, 5, 10, name)]
    if is_open:
        parts.append(arrow(edge - 40, middle, DRIVER[0], middle, name))
    else:
        parts += [svg.box(post, inner + 8, 5, 38, name), svg.text(edge + 45, middle - 8, "held", "middle", 12, "faint")]
        parts.append(arrow(edge, middle, DRIVER[0], middle, name, "3 5"))
    return parts


def shared(y, above, below, to_gate):
    """Memory that a program and the daemon share, at this height: between what lies `above` it and `below` it. The gate word goes to
    the program, up or down; the state word to the daemon."""
    parts = [
        frame(LIBRARY[0], y, LIBRARY[1], 34), svg.line([(435, y), (435, y + 34)], "lines", 1.2),
        svg.text(GATE_WORD, y + 22, "gate word", "middle"), svg.text(STATE_WORD + 12, y + 22, "state word", "middle"),
        svg.text(LIBRARY[0] - 14, y + 22, "shared memory", "end", 12, "faint"),
    ]
    ends = [(y, above), (y + 34, below)]
    for near, far in ends:
        # Up to the program above, or down to the program below.
        is_up = (far < near) == (to_gate == "up")
        first, last = (near, far) if is_up else (far, near)
        parts += [arrow(GATE_WORD, first, GATE_WORD, last, "alone"), arrow(STATE_WORD + 12, last, STATE_WORD + 12, first, "alone")]
    return parts


def architecture():
    """The whole drawing."""
    edge = LIBRARY[0] + LIBRARY[1]
    parts = program(20, "program of class high", "xsched", True)
    parts += shared(150, 108, 208, "up")
    parts += [
        frame(LIBRARY[0], 208, LIBRARY[1], 88, "xsched-line", 1.8), svg.text(LIBRARY[0] + 14, 240, "xsched daemon", bold=True),
        svg.text(LIBRARY[0] + 14, 262, "which program has", size=12, name="faint"),
        svg.text(LIBRARY[0] + 14, 278, "the device?", size=12, name="faint"),
        frame(edge - 130, 226, 116, 52), svg.text(edge - 72, 248, "policy", "middle", bold=True),
        svg.text(edge - 72, 267, "hpf, fair, …", "middle", 12, "faint"),
        frame(THREADS[0], 224, THREADS[1], 56), svg.text(THREADS[0] + 75, 249, "xsched ps, top,", "middle"),
        svg.text(THREADS[0] + 75, 267, "trace, policy", "middle"),
        arrow(THREADS[0] + THREADS[1], 252, LIBRARY[0], 252, "alone"), svg.text(THREADS[0] + THREADS[1] + 55, 244, "socket", "middle", 12, "faint"),
    ]
    parts += shared(338, 296, 430, "down")
    parts += program(396, "program of class low", "alone", False)
    (x, wide), (device, room) = DRIVER, DEVICE
    parts += [
        frame(x, 20, wide, 480), svg.text(x + wide / 2, 248, "vendor's", "middle", bold=True), svg.text(x + wide / 2, 266, "driver", "middle", bold=True),
        arrow(x + wide, 252, device, 252, "xsched"),
        frame(device, 182, room, 140, "xsched-line", 1.8), svg.text(device + room / 2, 248, "GPU", "middle", bold=True, size=16),
        svg.text(device + room / 2, 268, "or other device", "middle", 12, "faint"),
    ]
    return svg.document(WIDTH, HEIGHT, parts, LABEL)
