"""The palette of all pictures, and the frame that each has.

A pair is a colour on a light and on a dark page. `crates/xsched-bench/src/picture.rs` draws `xsched demo` and `xsched compare` with
the same pairs; a test there compares them with this file.
"""

import math
from xml.sax.saxutils import escape, quoteattr

PAPER = ("#ffffff", "#16181c")
INK = ("#24292f", "#d8dee4")
FAINT = ("#6e7781", "#8b949e")
LINES = ("#d0d7de", "#3a3f46")
# A program alone, beside another with nothing done, under xsched, under MPS.
ALONE = ("#5a5a5a", "#b2b2b2")
NATIVE = ("#c83c28", "#f27862")
XSCHED = ("#1e6ebe", "#66b0fa")
MPS = ("#b8860b", "#e3b341")

FILLS = {"paper": PAPER, "faint": FAINT, "alone": ALONE, "native": NATIVE, "xsched": XSCHED, "mps": MPS}
STROKES = {"lines": LINES, "alone-line": ALONE, "xsched-line": XSCHED}
FONT = "13px 'DejaVu Sans',Verdana,sans-serif"
# Widest character that a font of these has on average, relative to its size: room is reckoned with it.
GLYPH = 0.62


def _rules(n):
    fills = "".join(f".{name}{{fill:{pair[n]}}}" for name, pair in FILLS.items())
    strokes = "".join(f".{name}{{stroke:{pair[n]};fill:none}}" for name, pair in STROKES.items())
    return f"text{{fill:{INK[n]}}}{fills}{strokes}"


def room(text, size=13):
    """Pixels that a text takes at most."""
    return len(text) * size * GLYPH


def text(x, y, words, anchor="start", size=13, name=None, bold=False):
    """One line of text."""
    more = f' class="{name}"' if name else ""
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    style = [f"font-size:{size}px"] * (size != 13) + ["font-weight:bold"] * bold
    more += f' style="{";".join(style)}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def box(x, y, width, height, name):
    """A filled rectangle in the colour of this name."""
    return f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def dot(x, y, radius, name):
    """A filled circle in the colour of this name."""
    return f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def line(points, name, width=1.0, dash=None):
    """A line through these points."""
    through = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline class="{name}" points="{through}" stroke-width="{width}"{dashes}/>'


def document(width, height, parts, label):
    """The picture: these parts on paper, with the colours of the page that shows it."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label={quoteattr(label)}>'
    )
    style = f"<style>text{{font:{FONT}}}{_rules(0)}@media (prefers-color-scheme:dark){{{_rules(1)}}}</style>"
    return "\n".join([head, style, box(0, 0, width, height, "paper"), *parts, "</svg>"]) + "\n"


def ceiling(value):
    """The next round number at or above a value."""
    decade = 10.0 ** math.floor(math.log10(value))
    return next(step * decade for step in (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10) if step * decade >= value * (1 - 1e-9))
