"""Errors, each in one line that says what to do."""

from __future__ import annotations


class XSchedError(RuntimeError):
    """Base class of this package's errors."""


class NotPreloaded(XSchedError):
    """The preload library is not in this process, so that its launches are unscheduled."""

    def __init__(self) -> None:
        super().__init__(
            "libxsched.so is not preloaded, so that launches of this program are unscheduled: start it by "
            "`xsched run -- python …`, or call xsched.ensure() before anything uses a device"
        )


class NotRegistered(XSchedError):
    """The daemon does not know the program, as before its first device call."""


# Of include/xsched/types.h.
OUT_OF_RANGE = 2
RESULTS = {
    1: "the vendor's interface refused, or there is none in the process",
    OUT_OF_RANGE: "an argument is out of range",
    3: "the queue is closed, or libxsched.so has no such queue",
    4: "not in this state, or not within a command",
    5: "the device cannot, the policy needs a daemon, or the process has 64 groups",
    6: "the former scheduler has not ended within 2 s",
    999: "internal error of xsched: scheduling is off from here on",
}


class Failed(XSchedError):
    """Error of a function of the C API: `function` is its name, `result` the number."""

    def __init__(self, function: str, result: int) -> None:
        super().__init__(f"{function}: {RESULTS.get(result, f'result {result}')}")
        self.function = function
        self.result = result
