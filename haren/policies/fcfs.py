"""First come, first served: the operator whose oldest event waits longest.

Optimizes the maximum latency. Haren paper, 7.2. Feature: head_time, the time of the oldest waiting event.
"""

from collections.abc import Callable

from haren.assign import random
from haren.policy import Policy
from haren.registry import register


@register("fcfs")
def fcfs(f: Callable = random) -> Policy:
    """The oldest event first: for the maximum latency."""
    return Policy("fcfs", f=f, g=lambda op, F: -F.head_time[op], features=["head_time"])
