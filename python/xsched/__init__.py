"""Priorities, hints and suspension of streams and of the whole program.

The program must run under the preload library: start it with ``xsched run -- python …``, or call :func:`ensure` first.

- :class:`Queue`: one stream of any framework as a preemptible queue.
- :func:`raised`, :func:`set_priority`, :func:`priority`, :func:`hint`, :func:`usage`: the whole program.
- :func:`set_scheduler`, :func:`policy`: the scheduler and its policy.
- :func:`attached`, :func:`ensure`: the preload library.

    import xsched

    xsched.ensure(["--priority", "low"])  # before anything uses a device
    with xsched.raised("high"):
        answer_a_request()
    with xsched.Queue(torch.cuda.Stream(), priority="high") as queue:
        ...
"""

from ._errors import Failed, NotPreloaded, NotRegistered, XSchedError
from ._library import attached
from .program import Usage, hint, policy, priority, priority_of, raised, set_priority, set_scheduler, usage
from .queue import Queue
from .start import ensure

__version__ = "0.2.0"

__all__ = [
    "Failed", "NotPreloaded", "NotRegistered", "Queue", "Usage", "XSchedError", "__version__", "attached", "ensure", "hint", "policy",
    "priority", "priority_of", "raised", "set_priority", "set_scheduler", "usage",
]  # fmt: skip
