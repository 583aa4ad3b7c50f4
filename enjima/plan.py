"""The query graph as users build it: operators, edges, names, and what can be wrong with it."""

from collections.abc import Sequence

from enjima.draw import svg
from enjima.errors import GraphError
from enjima.native import words as w
from enjima.operators import Operator

__all__ = ["Plan"]


class Plan:
    """Operators in the order they were added, each with at most one input."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.upstream: list[int | None] = []
        self._query: list[int] = []
        self.query_names: list[str] = []
        self._names: set[str] = set()

    def name_for(self, name: str | None, kind: str) -> str:
        """The name given, or one made of the kind; a name used again is numbered."""
        base = kind if name is None else name
        chosen, number = base, 1
        while chosen in self._names:
            number += 1
            chosen = f"{base}-{number}"
        self._names.add(chosen)
        return chosen

    def add(self, operator: Operator, upstream: int | None, query: str | None = None) -> int:
        """Append an operator behind ``upstream``; a source begins a new query."""
        if upstream is None:
            label = query or f"query-{len(self.query_names)}"
            if label in self.query_names:
                raise GraphError(f"there is a query {label!r} already; give this one another name")
            self.query_names.append(label)
            self._query.append(len(self.query_names) - 1)
        else:
            self._query.append(self._query[upstream])
        self.operators.append(operator)
        self.upstream.append(upstream)
        return len(self.operators) - 1

    def query_of(self, index: int) -> int:
        return self._query[index]

    def ordered(self) -> tuple[list[Operator], list[tuple[int, int]], list[int]]:
        """Operators with each query's contiguous and topologically sorted, edges, query numbers."""
        order = sorted(range(len(self.operators)), key=lambda index: (self._query[index], index))
        place = {index: position for position, index in enumerate(order)}
        edges = [(place[up], place[index]) for index, up in enumerate(self.upstream) if up is not None]
        return [self.operators[i] for i in order], sorted(edges), [self._query[i] for i in order]

    def validate(self) -> None:
        """Raise `GraphError` unless every stream ends in a sink."""
        if not self.operators:
            raise GraphError(
                "the environment has no query: add env.source(...) and a sink such as .collect()"
            )
        used = {up for up in self.upstream if up is not None}
        for index, operator in enumerate(self.operators):
            if operator.kind != w.SINK and index not in used:
                raise GraphError(
                    f"query {self.query_names[self._query[index]]!r}: nothing consumes {operator.name!r}; "
                    "end it with a sink: .collect(), .for_each(f) or .null()"
                )

    def drawing(self, query: int | None = None) -> str:
        """The graph of one query, or of all, as SVG."""
        members = [i for i in range(len(self.operators)) if query is None or self._query[i] == query]
        place = {index: position for position, index in enumerate(members)}
        edges: Sequence[tuple[int, int]] = [
            (place[up], place[i]) for i in members if (up := self.upstream[i]) is not None
        ]
        return svg([self.operators[i] for i in members], edges)
