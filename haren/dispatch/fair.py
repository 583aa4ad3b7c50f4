"""A model of the operating system's scheduler for the virtual clock: operators as threads, fair in time.

Whenever a core is free, the operator that can run and has had the least time gets it, for a time slice. One
that slept does not save up more than a slice. This is the idea of Linux' fair schedulers, not their detail.
"""

from collections.abc import Sequence

import numpy as np

from haren.dispatch.dispatch import Dispatch, Installed, compiled
from haren.graph import Graph
from haren.memory import address

__all__ = ["Fair"]

# the words of the dispatch
OPERATORS = 0
SLICE_NS = 8
HAD = 16  # address: the time each operator has had
CLOCK = 24  # the least time that anyone had who was chosen so far
BEGAN = 32  # address: when each operator's slice began


class Fair(Dispatch):
    """Fair time slices; the threads of a run are the cores."""

    def __init__(self, *, slice_ms: float = 3.0) -> None:
        if slice_ms <= 0:
            raise ValueError(f"slice_ms must be positive, not {slice_ms}")
        self.slice_ns = int(slice_ms * 1e6)

    def install(
        self, graph: Graph, threads: int, former: Installed | None = None, kept: Sequence[int] = ()
    ) -> Installed:
        from haren.native import fair as decisions

        had, began = np.zeros(len(graph), np.int64), np.zeros(len(graph), np.int64)
        words = np.array([len(graph), self.slice_ns, address(had), 0, address(began)], np.int64)
        return Installed(words, compiled(decisions), (had, began))
