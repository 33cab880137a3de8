"""Requests to the daemon, by the ``xsched`` command."""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from typing import Any

from ._errors import XSchedError
from ._library import command

# The command answers within milliseconds; a daemon that does not answer must not hold the program.
TIMEOUT_S = 10


def ask(*words: str) -> str:
    """Runs ``xsched WORDS`` and returns what it prints; raises with the command's own line. Its notes become warnings."""
    # The command itself needs no scheduler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            [command(), *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise XSchedError(f"`xsched {' '.join(words)}` has not answered within {TIMEOUT_S} s") from None
    except OSError as error:
        raise XSchedError(f"`xsched {' '.join(words)}` cannot be run: {error}") from None
    if done.returncode != 0:
        line = done.stderr.strip().removeprefix("xsched: ") or f"exit code {done.returncode}"
        raise XSchedError(f"`xsched {' '.join(words)}`: {line}")
    for line in done.stderr.splitlines():
        warnings.warn(line.removeprefix("xsched: "), stacklevel=4)
    return done.stdout


def ps() -> dict[str, Any]:
    """``xsched ps --json``."""
    answer: dict[str, Any] = json.loads(ask("ps", "--json"))
    return answer
