"""Highest rate: the operator that leads to most results for the least work.

Optimizes the mean latency. Haren paper, 7.2, after Sharaf et al. Feature: global_rate, i.e. the results at
the sinks that an event leads to, over the time to get it there. ``fanout`` says how branches add up.
"""

from collections.abc import Callable

from haren.assign import random
from haren.features import Fanout
from haren.policy import Policy
from haren.registry import register


@register("hr")
def hr(f: Callable = random, fanout: Fanout = "sum") -> Policy:
    """The most results per time first: for the mean latency."""
    return Policy("hr", f=f, g=lambda op, F: F.global_rate[op], features=["global_rate"], fanout=fanout)
