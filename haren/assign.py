"""Inter-thread functions f: which thread runs which operator. Each returns one thread per operator.

``policy = haren.Policy("mine", f=haren.assign.by_query, ...)``. A function here may declare ``features``
that are then part of F without the policy's naming them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from haren.errors import PolicyError
from haren.graph import Graph
from haren.numbers import draw

__all__ = ["by_query", "load_balanced", "pinned", "random", "round_robin"]


def random(F, graph, threads, seed):
    """Each operator to any thread, drawn anew every round: the f of the Haren paper's experiments."""
    chosen = np.empty(len(graph.query), np.int64)
    for op in range(len(chosen)):
        chosen[op] = draw(seed, op) % threads
    return chosen


def round_robin(F, graph, threads):
    """Operators dealt out in topological order."""
    return np.arange(len(graph.query)) % threads


def by_query(F, graph, threads):
    """Queries dealt out, so that an operator finds what its neighbours wrote in the cache of its core."""
    return graph.query % threads


def load_balanced(F, graph, threads):
    """The operator with the most work next to the thread with the least: work is cost times rate."""
    work = F.cost * F.rate
    order = np.argsort(-work, kind="mergesort")
    loads = np.zeros(threads)
    counts = np.zeros(threads, np.int64)
    chosen = np.empty(len(work), np.int64)
    for op in order:
        best = 0
        for thread in range(1, threads):
            lighter = loads[thread] < loads[best]
            if lighter or (loads[thread] == loads[best] and counts[thread] < counts[best]):
                best = thread
        chosen[op] = best
        loads[best] += work[op]
        counts[best] += 1
    return chosen


load_balanced.features = ("cost", "rate")  # type: ignore[attr-defined]


class pinned:
    """Operators where the user wants them: ``pinned({"map": 1, "ads": 0})`` by name of operator or query.

    Names of operators go before those of queries; whatever is not named is dealt out by query. A list gives
    one thread for each operator.
    """

    def __init__(self, threads: Mapping[str, int] | Sequence[int]) -> None:
        self.threads = threads

    def __call__(self, F: Any, graph: Any, threads: int) -> Any:
        raise TypeError("pinned(...) is made for a graph when it is installed")

    def for_graph(self, graph: Graph) -> Callable:
        """The function for one graph."""
        wanted = self.threads
        if not isinstance(wanted, Mapping):
            pins = np.array(wanted, np.int64)
            if len(pins) != len(graph):
                raise PolicyError(f"pinned: {len(pins)} threads for {len(graph)} operators")
        else:
            queries = {graph.query_name(op) for op in range(len(graph))}
            unknown = set(wanted) - set(graph.names) - queries
            if unknown:
                raise PolicyError(
                    f"pinned: there is no operator or query {sorted(unknown)[0]!r}; the operators are: "
                    f"{', '.join(graph.names)}; the queries: {', '.join(sorted(queries))}"
                )
            both = [(name, graph.query_name(op)) for op, name in enumerate(graph.names)]
            pins = np.array([wanted.get(name, wanted.get(query, -1)) for name, query in both], np.int64)

            if min(wanted.values(), default=0) < 0:
                raise PolicyError(f"pinned: {min(wanted.values())} is no thread; they are numbered from 0")
        if isinstance(wanted, Sequence) and (pins < 0).any():
            raise PolicyError(f"pinned: {pins.min()} is no thread; they are numbered from 0")

        def f(F, graph, threads):
            return np.where(pins < 0, graph.query % threads, pins)

        return f
