"""The whole program: its priority, its use of the device, its scheduler."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from dataclasses import dataclass
from typing import Any, Iterator, Optional, Union

from . import _library
from ._command import ask, ps
from ._errors import NotRegistered, XSchedError

CLASSES = {"system": 255, "realtime": 192, "high": 128, "normal": 0, "low": -128, "batch": -128}
_SCHEDULERS = {"application": 1, "local": 2, "global": 3}
# Policies that a process can have for itself, by their numbers in include/xsched/types.h.
_POLICIES = {
    "hpf": 1, "hhpf": 2, "chpf": 3, "up": 4, "pup": 5, "spup": 6, "kedf": 7, "lax": 8, "awf": 9, "cfs": 10, "mlfq": 11,
}  # fmt: skip
_DAEMONS_POLICIES = ("slo", "fair", "external")
_OTHER_NAMES = {"priority": "hpf", "share": "up", "edf": "kedf", "laxity": "lax"}
# A process is registered by a thread of its own, soon after its first device call.
_REGISTRATION_S = 2.0


def priority_of(value: Union[int, str]) -> int:
    """Converts a class's name, or a number from -256 to 255, to a number."""
    if isinstance(value, str) and value.lower() in CLASSES:
        return CLASSES[value.lower()]
    wrong = f"a priority is one of {', '.join(CLASSES)} or a number from -256 to 255, not {value!r}"
    if isinstance(value, str):
        raise ValueError(wrong)
    try:
        number = _library.whole_number("priority", value)
    except TypeError:
        raise TypeError(wrong) from None
    if -256 <= number <= 255:
        return number
    raise ValueError(wrong)


@dataclass(frozen=True)
class Usage:
    """Statistics of the program, all its queues together: `launches`, launches `unscheduled` (without a decision), `suspensions` (times
    that a gate was closed), `device_us` (time on the devices, µs), `wait_us` (time at closed gates, µs)."""

    launches: int
    """Commands launched."""
    unscheduled: int
    """Launches without a decision."""
    suspensions: int
    """Times that a gate was closed."""
    device_us: int
    """Time on the devices, µs."""
    wait_us: int
    """Time at closed gates, µs."""


def _entry() -> dict[str, Any]:
    """The daemon's entry of this process, for which it waits a little after the first device call."""
    _library.need_attached()
    deadline = time.monotonic() + _REGISTRATION_S
    while True:
        programs: list[dict[str, Any]] = ps()["programs"]
        for program in programs:
            if program["pid"] == os.getpid():
                return program
        if time.monotonic() >= deadline:
            raise NotRegistered(
                "the daemon does not know this program: use the device first (a launch), and let daemon and program have one "
                "namespace of process ids; `xsched ps` lists what it knows"
            )
        time.sleep(0.01)


def usage() -> Usage:
    """Statistics of the program so far, all its queues together.

    :raises NotRegistered: the program has made no device call yet.
    """
    groups = _entry()["groups"]

    def total(field: str) -> int:
        return sum(int(group[field]) for group in groups)

    return Usage(
        launches=total("launches"),
        unscheduled=sum(sum(group["unscheduled"].values()) for group in groups),
        suspensions=total("suspensions"),
        device_us=total("device_us"),
        wait_us=total("wait_us"),
    )


def priority() -> int:
    """Priority of the program that is in force, -255 to 255.

    :raises NotRegistered: the program has made no device call yet.
    """
    return int(_entry()["priority"])


def set_priority(value: Union[int, str]) -> int:
    """Sets the program's class or priority, as ``xsched hint`` does. Returns the one in force, which is lower, with a warning,
    if the operator allows no more.

    :raises NotRegistered: the program has made no device call yet.
    """
    wished = priority_of(value)
    _entry()
    ask("hint", "--pid", str(os.getpid()), "--priority", str(wished))
    given = int(_entry()["priority"])
    if given != wished:
        warnings.warn(f"the operator allows priority {given}, not {wished}", stacklevel=2)
    return given


class _Raised:
    """The priorities that open blocks ask for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked: list[int] = []
        self.former = 0

    def enter(self, number: int) -> None:
        with self.lock:
            before = max(self.asked, default=None)
            if before is None:
                self.former = priority()
            self.asked.append(number)
            try:
                if before is None or number > before:
                    set_priority(number)
            except BaseException:
                self._drop(number)
                raise

    def leave(self, number: int) -> None:
        with self.lock:
            self._drop(number)

    def _drop(self, number: int) -> None:
        before = max(self.asked)
        self.asked.remove(number)
        now = max(self.asked, default=self.former)
        if now == before and self.asked:
            return
        try:
            set_priority(now)
        except XSchedError as error:
            # Without its daemon a program is unscheduled, and a new daemon knows nothing of the block.
            warnings.warn(f"priority {now} cannot be given back: {error}", stacklevel=5)


_raised = _Raised()


def _forget() -> None:
    """In a forked child, which the daemon knows as a program of its own."""
    global _raised
    _raised = _Raised()


os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def raised(value: Union[int, str] = "high") -> Iterator[None]:
    """Context manager: gives the whole process, all threads and default streams included, this class or priority.

    Of several open blocks the highest priority holds. After the last one the process has its former priority again. Each change
    takes some milliseconds.

    :raises NotPreloaded: the preload library is not in this process.
    :raises NotRegistered: the program has made no device call yet.
    """
    number = priority_of(value)
    counted = _raised
    counted.enter(number)
    try:
        yield
    finally:
        # A child that was forked inside the block has nothing to give back.
        if counted is _raised:
            counted.leave(number)


def hint(*, timeslice_us: Optional[int] = None, k: Optional[int] = None) -> None:
    """Sets hints of the whole program: the length of its turns, 100 to 10000000 µs, and the `k` of ``kedf``, 1 to 64."""
    _library.need_attached()
    if timeslice_us is not None:
        _library.call("XHintTimeslice", _library.whole_number("timeslice_us", timeslice_us))
    if k is not None:
        if not 1 <= _library.whole_number("k", k) <= 64:
            raise ValueError(f"k is 1 to 64, not {k}")
        _library.call("XHintKDeadline", k)


def policy_name(name: str) -> str:
    """A policy's own name, for any of its names."""
    wished = name.lower() if isinstance(name, str) else ""
    found = _OTHER_NAMES.get(wished, wished)
    if found not in _POLICIES and found not in _DAEMONS_POLICIES:
        raise ValueError(f"a policy is one of {', '.join((*_POLICIES, *_DAEMONS_POLICIES))}, not {name!r}")
    return found


def _number_of_policy(name: str) -> int:
    found = policy_name(name)
    if found not in _POLICIES:
        raise ValueError(f"{found} needs a daemon; a process can have {', '.join(_POLICIES)}")
    return _POLICIES[found]


def set_scheduler(kind: str, policy: Optional[str] = None) -> None:
    """Sets the scheduler of this process: ``"global"`` (the daemon), ``"local"`` (one inside the process, with `policy`), or
    ``"application"`` (only :meth:`Queue.suspend` holds a queue). Waits, for 2 s at most, until the former one has ended."""
    _library.need_attached()
    if not isinstance(kind, str) or kind not in _SCHEDULERS:
        raise ValueError(f"a scheduler is one of {', '.join(_SCHEDULERS)}, not {kind!r}")
    if (kind == "local") != (policy is not None):
        raise ValueError("a policy is given with 'local', and only there")
    global _chosen
    _library.call("XHintSetScheduler", _SCHEDULERS[kind], 0 if policy is None else _number_of_policy(policy))
    _chosen = (kind, policy)


# What set_scheduler() was told last.
_chosen: Optional[tuple[str, Optional[str]]] = None


def scheduler() -> tuple[str, Optional[str]]:
    """Scheduler of this process, as :func:`set_scheduler` takes it: chosen by it, else by the environment."""
    if _chosen is not None:
        return _chosen
    kind, name = os.environ.get("XSCHED_SCHEDULER", "").upper(), os.environ.get("XSCHED_POLICY", "").lower()
    if _library.is_set("XSCHED_NO_DAEMON") or kind == "APP":
        return ("application", None)
    if kind == "GLB" or not (kind == "LCL" or name):
        return ("global", None)
    return ("local", name or "hpf")


def policy() -> str:
    """Name of the daemon's policy on devices without one of their own.

    :raises XSchedError: no daemon answers.
    """
    return _first_word(ps()["daemon"]["policy"])


def policies() -> set[str]:
    """The names of the policies in force on the devices that this program uses.

    :raises NotRegistered: the program has made no device call yet.
    """
    own = _entry()
    daemon = ps()["daemon"]
    by_device: dict[str, str] = daemon["device_policies"]
    return {_first_word(by_device.get(group["device"], daemon["policy"])) for group in own["groups"]}


def _first_word(policy: str) -> str:
    """A policy's name, without its parameters."""
    return policy.split()[0] if policy.split() else ""
