"""The plain pool: round robin over runnable operators, with affinity.

A thread stays with a query, going round its operators in topological order so that it meets the blocks
it has just written while they are warm, until nothing there can run or its time slice is over; then it
moves to the next query, first to one no other thread is at. A turn of ``quantum``
events fits a core's cache; threads that share a query take turns of ``shared_quantum``: longer ones can raise
throughput, but were seen to let latency swing at half load.
"""

from collections.abc import Sequence

import numpy as np

from haren.dispatch.dispatch import TURN_LIMIT_NS, Dispatch, Installed, compiled
from haren.graph import Graph
from haren.memory import address

__all__ = ["Pool"]

# the words of the pool
QUERIES = 0
BOUNDS = 8  # address: first and last operator of each query
OCCUPANCY = 16  # address: threads at each query, a cache line each
THREADS = 24  # address: the threads' records, a cache line each
SLICE_NS = 32
QUANTUM = 40
SHARED_QUANTUM = 48
TURN_NS = 56
# the words of a thread
QUERY = 0
LAST = 8
SINCE = 16


class Pool(Dispatch):
    """Round robin over runnable operators with affinity; ``quantum`` is in events."""

    def __init__(self, *, quantum: int = 16384, shared_quantum: int = 16384, slice_ms: float = 4.0) -> None:
        if quantum < 1 or shared_quantum < 1:
            raise ValueError(f"a quantum is at least one event, not {min(quantum, shared_quantum)}")
        if slice_ms <= 0:
            raise ValueError(f"slice_ms must be positive, not {slice_ms}")
        self.quantum = quantum
        self.shared_quantum = shared_quantum
        self.slice_ns = int(slice_ms * 1e6)

    def install(
        self, graph: Graph, threads: int, former: Installed | None = None, kept: Sequence[int] = ()
    ) -> Installed:
        from haren.native import pool as decisions

        bounds = np.array([graph.bounds(q) for q in range(graph.query_count)], np.int64)
        occupancy = np.zeros((graph.query_count, 8), np.int64)
        records = np.zeros((threads, 8), np.int64)
        records[:, 0] = -1
        parts = map(address, (bounds, occupancy, records))
        limits = (self.slice_ns, self.quantum, self.shared_quantum, TURN_LIMIT_NS)
        pool = np.array([len(bounds), *parts, *limits], np.int64)
        return Installed(pool, compiled(decisions), (bounds, occupancy, records))
