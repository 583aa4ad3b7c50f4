"""Longest queue first: the operator with most events waiting.

Keeps the longest queue short. A classic of switching and queueing. Feature: pending, the events that wait.
"""

from collections.abc import Callable

from haren.assign import random
from haren.policy import Policy
from haren.registry import register


@register("longest-queue")
def longest_queue(f: Callable = random) -> Policy:
    """Most waiting events first: for short queues."""
    return Policy("longest-queue", f=f, g=lambda op, F: float(F.pending[op]), features=["pending"])
