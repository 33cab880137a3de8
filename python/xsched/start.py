"""Starts the program again under the preload."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from typing import NoReturn, Optional, Sequence, Union

from . import _library
from ._errors import XSchedError

# Set for the program that is started again, so that it is not started a third time.
_GUARD = "XSCHED_PYTHON_ENSURED"
_PID = os.getpid()


def _refuse(why: str) -> NoReturn:
    raise XSchedError(f"xsched.ensure() cannot start this program again: {why}; start it by `xsched run -- python …`")


def _device_in_use() -> Optional[str]:
    """A sign that a driver is at work in this process already."""
    if _library.is_loaded("libcuda.so.1"):
        return "libcuda.so.1"
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if target == "/dev/kfd" or target.startswith("/dev/nvidia"):
            return target
    return None


def _words(options: Union[str, bytes]) -> list[str]:
    """The words that a text was meant to be."""
    return os.fsdecode(options).split() or ["--priority", "low"]


def ensure(options: Sequence[str] = ()) -> None:
    """Starts the interpreter again under ``xsched run OPTIONS``, with the same arguments, unless the preload library is in it.

    Call it before all else: code before it runs twice.

    :param options: options of ``xsched run``, one word each, as ``["--priority", "high"]``.
    :raises TypeError: `options` is a text, or holds something else than texts.
    :raises XSchedError: the program cannot be started again (an interactive session, a notebook, a child process, a program that
        has threads or uses a device already), or was started again to no effect.
    """
    if isinstance(options, (str, bytes)):
        raise TypeError(f"options are a list of words, such as {_words(options)}, not the text {options!r}")
    options = list(options)
    for option in options:
        if not isinstance(option, str):
            raise TypeError(f"options are a list of words, such as ['--priority', 'low'], and {option!r} is no text")
    was_started = os.environ.pop(_GUARD, None) is not None
    if _library.attached():
        return
    if _library.is_set("XSCHED_DISABLE"):
        raise XSchedError("XSCHED_DISABLE leaves this program unscheduled: unset it")
    if was_started:
        raise XSchedError(
            "the program was started under `xsched run` and libxsched.so is not in it: see what `xsched doctor` says"
        )
    if "ipykernel" in sys.modules or "IPython" in sys.modules:
        _refuse("it is a notebook or IPython")
    if hasattr(sys, "ps1") or sys.flags.interactive or not sys.argv or sys.argv[0] in ("", "-"):
        _refuse("it is an interactive session, or read from standard input")
    if multiprocessing.parent_process() is not None or os.getpid() != _PID:
        _refuse("it is a child process; call it in the parent before that starts children")
    if threading.active_count() > 1:
        _refuse("it has more threads than one; call it first thing")
    used = _device_in_use()
    if used is not None:
        _refuse(f"it uses a device already ({used}); call it first thing")
    if not sys.executable or not sys.orig_argv:
        _refuse("the interpreter's path is not known")
    command = _library.command()
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, _GUARD: "1"}
    os.execve(command, [command, "run", *options, "--", sys.executable, *sys.orig_argv[1:]], environment)
