"""Chain: the operators that get rid of most events in the least time.

Optimizes the memory of waiting events. Babcock et al., used in the Haren paper, 7.2. Draw a chain of
operators as points (time to process an event so far, share of the event that is left); the lower envelope
is made of segments, each the steepest descent from where the one before ended. All operators of a segment
have the segment's slope as their priority, then the oldest event goes first.

The definition is for chains: where streams fork or join, a chain ends and another begins. A source is in no
segment and has slope 0, since it can only add to what waits. A sink takes out all that reaches it.
"""

import math
from collections.abc import Callable

from haren.assign import random
from haren.features import Feature
from haren.graph import downstream, upstream
from haren.policy import Policy
from haren.registry import register


def next_in_chain(op, graph):
    """The operator behind in the same chain; -1 at its end."""
    below = downstream(graph, op)
    if len(below) == 1 and len(upstream(graph, below[0])) == 1:
        return below[0]
    return -1


def start_of_chain(op, graph):
    """The first operator of the same chain."""
    while len(upstream(graph, op)) == 1:
        above = upstream(graph, op)[0]
        if next_in_chain(above, graph) != op or len(upstream(graph, above)) == 0:
            break
        op = above
    return op


def members(op, graph):
    """The operators of the same chain."""
    if len(upstream(graph, op)) == 0:
        return [op]
    found = [start_of_chain(op, graph)]
    while next_in_chain(found[-1], graph) >= 0:
        found.append(next_in_chain(found[-1], graph))
    return found


def chain_slope(op, F, graph):
    """The slope of the lower envelope at the operator: share of an event that goes, per ns."""
    if len(upstream(graph, op)) == 0:
        return 0.0
    first = start_of_chain(op, graph)
    while True:
        best, best_end = -math.inf, first
        left, time, end = 1.0, 0.0, first  # what is left of an event that begins the segment, and when
        while end >= 0:
            time += left * F.cost[end]
            left *= F.selectivity[end] if len(downstream(graph, end)) > 0 else 0.0
            slope = (1.0 - left) / max(time, 1e-3)
            if slope >= best:
                best, best_end = slope, end
            end = next_in_chain(end, graph)
        member = first
        while member != best_end and member != op:
            member = next_in_chain(member, graph)
        if member == op:
            return best
        first = next_in_chain(best_end, graph)


SLOPE = Feature(
    "chain_slope", chain_slope, ("cost", "selectivity"), "events/ns", members,
    what="slope of the lower envelope of the chain at the operator",
)  # fmt: skip


@register("chain")
def chain(f: Callable = random) -> Policy:
    """What frees most memory soonest first: for few waiting events."""
    return Policy(
        "chain", f=f, g=lambda op, F: (F.chain_slope[op], -F.head_time[op]), features=[SLOPE, "head_time"]
    )
