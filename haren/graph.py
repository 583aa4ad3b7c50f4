"""What a scheduler knows of a query graph: operators in topological order, streams, queries."""

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Graph"]


@dataclass(frozen=True)
class Graph:
    """Operators 0..n-1, numbered so that each query's operators are contiguous and topologically sorted."""

    names: Sequence[str]
    queries: Sequence[int]  # the query of each operator
    edges: Sequence[tuple[int, int]] = field(default_factory=list)  # (upstream, downstream)

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

    @property
    def query_count(self) -> int:
        return max(self.queries) + 1 if self.queries else 0

    def bounds(self, query: int) -> tuple[int, int]:
        """The first operator of a query and the one behind its last."""
        members = [op for op, owner in enumerate(self.queries) if owner == query]
        return members[0], members[-1] + 1
