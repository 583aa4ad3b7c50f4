"""A thread for each operator, and the operating system decides who runs: the usual way of engines.

A thread runs its operator while it can, ``quantum`` events a turn, and sleeps on a bell of its own when it
cannot. After each turn it wakes the neighbours in the graph that sleep and can run now: those downstream
have news, those upstream have room. Nobody spins, and nobody looks from time to time whether there is work.
"""

import numpy as np

from haren.dispatch.dispatch import TURN_LIMIT_NS, Dispatch, compiled
from haren.graph import Graph
from haren.memory import address

__all__ = ["Dedicated"]

# the words of the dispatch
QUANTUM = 0
TURN_NS = 8
BOUNDS = 16  # address: where each operator's neighbours begin, and one word more
NEIGHBOURS = 24  # address: operators


class Dedicated(Dispatch):
    """One thread per operator, whatever number of threads is asked for; ``quantum`` is in events."""

    own_bells = True

    def __init__(self, *, quantum: int = 16384) -> None:
        if quantum < 1:
            raise ValueError(f"a quantum is at least one event, not {quantum}")
        self.quantum = quantum

    def workers(self, graph: Graph, threads: int) -> int:
        """As many as there are operators; ``threads`` is not used."""
        return len(graph.names)

    def install(self, graph: Graph, threads: int) -> tuple[np.ndarray, ...]:
        lists = [_neighbours(graph, operator) for operator in range(len(graph.names))]
        bounds = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        neighbours = np.array([operator for near in lists for operator in near], np.int64)
        words = np.array([self.quantum, TURN_LIMIT_NS, address(bounds), address(neighbours)], np.int64)
        return words, bounds, neighbours

    def functions(self) -> tuple[int, int, int]:
        from haren.native import dedicated

        return compiled(dedicated)


def _neighbours(graph: Graph, operator: int) -> list[int]:
    """Those whose readiness a turn of the operator can change: downstream first, for latency."""
    downstream = [below for above, below in graph.edges if above == operator]
    upstream = [above for above, below in graph.edges if below == operator]
    return list(dict.fromkeys(downstream + upstream))
