"""What a scheduler knows of a query graph: operators in topological order, streams, queries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

__all__ = ["Graph", "GraphArrays", "downstream", "upstream"]


class GraphArrays(NamedTuple):
    """The graph as f, g and features see it, compiled or not: arrays over operators.

    ``query`` is each operator's query, ``queries`` how many there are. `haren.upstream(graph, op)` and
    `haren.downstream(graph, op)` are an operator's neighbours.
    """

    query: np.ndarray
    queries: int
    upstream_from: np.ndarray  # where each operator's upstream neighbours begin, and one more
    upstream: np.ndarray
    downstream_from: np.ndarray
    downstream: np.ndarray


def upstream(graph: GraphArrays, op: int) -> np.ndarray:
    """The operators whose output ``op`` reads."""
    return graph.upstream[graph.upstream_from[op] : graph.upstream_from[op + 1]]


def downstream(graph: GraphArrays, op: int) -> np.ndarray:
    """The operators that read the output of ``op``."""
    return graph.downstream[graph.downstream_from[op] : graph.downstream_from[op + 1]]


@dataclass(frozen=True)
class Graph:
    """Operators 0..n-1, numbered so that each query's operators are contiguous and topologically sorted."""

    names: Sequence[str]
    queries: Sequence[int]  # the query of each operator
    edges: Sequence[tuple[int, int]] = field(default_factory=list)  # (upstream, downstream)
    query_names: Sequence[str] = ()
    classes: Sequence[int] = ()  # of each query; higher is more urgent, 0 if not given

    def __post_init__(self) -> None:
        if len(self.names) != len(self.queries):
            raise ValueError(f"{len(self.names)} operator names but {len(self.queries)} query numbers")
        if list(self.queries) != sorted(self.queries):
            raise ValueError("the operators of a query must be numbered contiguously")
        if sorted(set(self.queries)) != list(range(self.query_count)):
            raise ValueError(
                f"queries must be numbered 0, 1, ... without a gap, not {sorted(set(self.queries))}"
            )
        for upstream, downstream in self.edges:
            if not 0 <= upstream < downstream < len(self.names):
                raise ValueError(f"edge {(upstream, downstream)} does not follow the topological order")
        for given, what in ((self.query_names, "query names"), (self.classes, "query classes")):
            if given and len(given) != self.query_count:
                raise ValueError(f"{len(given)} {what} for {self.query_count} queries")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def query_count(self) -> int:
        return max(self.queries) + 1 if self.queries else 0

    def bounds(self, query: int) -> tuple[int, int]:
        """The first operator of a query and the one behind its last."""
        members = [op for op, owner in enumerate(self.queries) if owner == query]
        return members[0], members[-1] + 1

    def query_name(self, op: int) -> str:
        """The name of an operator's query."""
        number = self.queries[op]
        return self.query_names[number] if self.query_names else f"query-{number}"

    @cached_property
    def arrays(self) -> GraphArrays:
        """The graph as arrays, for f, g and features."""
        above: list[list[int]] = [[] for _ in self.names]
        below: list[list[int]] = [[] for _ in self.names]
        for up, down in self.edges:
            above[down].append(up)
            below[up].append(down)
        up_from, up_list = adjacency(above)
        down_from, down_list = adjacency(below)
        query = np.array(self.queries, np.int64)
        return GraphArrays(query, self.query_count, up_from, up_list, down_from, down_list)

    @property
    def sources(self) -> list[int]:
        """Operators without inputs."""
        return np.flatnonzero(np.diff(self.arrays.upstream_from) == 0).tolist()

    @property
    def sinks(self) -> list[int]:
        """Operators without outputs."""
        return np.flatnonzero(np.diff(self.arrays.downstream_from) == 0).tolist()


def adjacency(lists: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Lists of numbers as one array, and where each list begins in it (with the end behind the last)."""
    lists = list(lists)
    bounds = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return bounds, np.array([number for one in lists for number in one], np.int64)
