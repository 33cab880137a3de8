"""xsched for PyTorch: a process that is urgent for a while, and streams with any number of priorities.

::

    scheduler = XSchedScheduler(policy="priority", domains={"system": ["cublas", "cudnn"], "user": ["default"]})
    with scheduler.enabled():
        model(x)

    urgent = XSchedQueue(torch.cuda.Stream(), priority=20)
    with urgent.enabled():
        model(x)
"""

from .queue import XSchedQueue
from .scheduler import XSchedScheduler

__all__ = ["XSchedQueue", "XSchedScheduler"]
