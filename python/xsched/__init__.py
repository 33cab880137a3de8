"""xsched for Python: priorities, hints and suspension of streams, and of the whole program.

The program runs under the preload library: start it by ``xsched run -- python …``, or call :func:`ensure` first thing.

- :class:`Queue`: one stream of any framework as a preemptible queue.
- :func:`raised`, :func:`set_priority`, :func:`usage`: the whole program, as the daemon has it.
- :func:`set_scheduler`, :func:`policy`: what decides which queue runs.
- :func:`attached`, :func:`ensure`: whether the program is scheduled at all.
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
