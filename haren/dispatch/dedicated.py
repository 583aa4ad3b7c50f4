"""A thread for each operator, and the operating system decides who runs: the usual way of engines.

A thread runs its operator while it can, ``quantum`` events a turn, and sleeps on a bell of its own when it
cannot. After each turn it wakes the neighbours in the graph that sleep and can run now: those downstream
have news, those upstream have room. Nobody spins, and nobody looks from time to time whether there is work.
"""

from collections.abc import Sequence

import numpy as np

from haren.dispatch.dispatch import TURN_LIMIT_NS, Dispatch, Installed, compiled
from haren.graph import Graph, adjacency
from haren.memory import address
from haren.policy import Policy

__all__ = ["Dedicated", "neighbours_of"]

# the words of the dispatch
QUANTUM = 0
TURN_NS = 8
BOUNDS = 16  # address: where each operator's neighbours begin, and one word more
NEIGHBOURS = 24  # address: operators


class Dedicated(Dispatch):
    """One thread per operator, whatever number of threads is asked for; ``quantum`` is in events.

    With a ``policy`` that has a g, the threads get nice values by its ranking every ``period`` seconds
    (`haren.nice`).
    """

    own_bells = True

    def __init__(self, policy: Policy | None = None, *, quantum: int = 16384, period: float = 0.1) -> None:
        if quantum < 1:
            raise ValueError(f"a quantum is at least one event, not {quantum}")
        if not 0 < period <= 3600:
            raise ValueError(f"period={period!r} is out of range: seconds, at most 3600")
        self.policy = policy
        self.quantum = quantum
        self.period = period

    @property
    def ranks(self) -> bool:
        """Whether the policy ranks operators."""
        return self.policy is not None and self.policy.g is not Policy.g

    def workers(self, graph: Graph, threads: int) -> int:
        """As many as there are operators; ``threads`` is not used."""
        return len(graph.names)

    def install(
        self, graph: Graph, threads: int, former: Installed | None = None, kept: Sequence[int] = ()
    ) -> Installed:
        from haren.native import dedicated as decisions

        bounds, neighbours = adjacency(neighbours_of(graph, operator) for operator in range(len(graph)))
        words = np.array([self.quantum, TURN_LIMIT_NS, address(bounds), address(neighbours)], np.int64)
        functions, keep = compiled(decisions), (bounds, neighbours)
        if not self.ranks:
            return Installed(words, functions, keep)
        from haren.nice import NiceThreads

        return NiceThreads(words, functions, keep, self, graph)


def neighbours_of(graph: Graph, operator: int) -> list[int]:
    """Those whose readiness a turn of the operator can change: downstream first, for latency."""
    downstream = [below for above, below in graph.edges if above == operator]
    upstream = [above for above, below in graph.edges if below == operator]
    return list(dict.fromkeys(downstream + upstream))
