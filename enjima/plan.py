"""The query graph as users build it: operators, edges, names, and what can be wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from enjima.draw import svg
from enjima.errors import GraphError
from enjima.native import words as w
from enjima.operators import Operator

__all__ = ["Plan", "QueryPlan"]


@dataclass(eq=False)
class QueryPlan:
    """Connected operators: in the order they were added, which is topological, each with its inputs."""

    name: str
    named: bool  # by the user
    operators: list[Operator] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    query_class: int = 0  # higher is more urgent

    def edges(self) -> list[tuple[int, int]]:
        """Pairs (upstream, downstream), by downstream operator and the number of its input."""
        return [(up, down) for down, inputs in enumerate(self.inputs) for up in inputs]

    def validate(self) -> None:
        """Raise `GraphError` unless every stream ends in a sink."""
        used = {up for inputs in self.inputs for up in inputs}
        for index, operator in enumerate(self.operators):
            if operator.kind != w.SINK and index not in used:
                raise GraphError(
                    f"query {self.name!r}: nothing consumes {operator.name!r}; "
                    "end it with a sink: .collect(), .for_each(f) or .null()"
                )


class Plan:
    """All operators in the order they were added, and the queries they belong to."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.inputs: list[tuple[int, ...]] = []
        self._labels: list[int] = []  # of each operator; equal in a query
        self._queries: dict[int, tuple[str, bool]] = {}  # label -> name, whether the user gave it
        self._classes: dict[int, int] = {}  # label -> the query's class
        self._next_label = 0
        self.running: set[str] = set()  # names of queries that run, to which nothing can be added

    def name_for(self, name: str | None, kind: str) -> str:
        """The name given, or one made of the kind; a name used again is numbered."""
        base = kind if name is None else name
        used = {operator.name for operator in self.operators}
        chosen, number = base, 1
        while chosen in used:
            number += 1
            chosen = f"{base}-{number}"
        return chosen

    def add(
        self, operator: Operator, upstream: Sequence[int] = (), query: str | None = None, query_class: int = 0
    ) -> int:
        """Append an operator behind others; one without inputs, a source, begins a new query."""
        if not upstream:
            label = self._new_query(query)
            self._classes[label] = query_class
        else:
            label = self._merge([self._labels[index] for index in upstream])
        self.operators.append(operator)
        self.inputs.append(tuple(upstream))
        self._labels.append(label)
        return len(self.operators) - 1

    def _new_query(self, name: str | None) -> int:
        chosen, number = name or f"query-{self._next_label}", self._next_label
        if name in self.query_names:
            raise GraphError(f"there is a query {name!r} already; give this one another name")
        while chosen in self.query_names:
            number += 1
            chosen = f"query-{number}"
        label, self._next_label = self._next_label, self._next_label + 1
        self._queries[label] = (chosen, name is not None)
        return label

    def _merge(self, labels: Sequence[int]) -> int:
        """One query of several: named as the first that the user named, of the most urgent class."""
        wanted = sorted(set(labels))
        for name in (self._queries[label][0] for label in wanted):
            if name in self.running:
                raise GraphError(
                    f"query {name!r} runs already and cannot grow; remove() it, or build a new query with a "
                    "source of its own"
                )
        given = [self._queries[label] for label in wanted if self._queries[label][1]]
        kept = (given or [self._queries[wanted[0]]])[0]
        self._classes[wanted[0]] = max(self._classes[label] for label in wanted)
        for label in wanted[1:]:
            del self._queries[label], self._classes[label]
        self._queries[wanted[0]] = kept
        self._labels = [wanted[0] if label in wanted else label for label in self._labels]
        return wanted[0]

    @property
    def query_names(self) -> list[str]:
        return [name for name, _ in self._queries.values()]

    def queries(self) -> list[QueryPlan]:
        """The queries, in the order they were begun."""
        return [self.query(name) for name in self.query_names]

    def query(self, name: str) -> QueryPlan:
        """The query of this name."""
        label, named = self._label(name)
        members = [i for i, owner in enumerate(self._labels) if owner == label]
        place = {index: position for position, index in enumerate(members)}
        operators = [self.operators[i] for i in members]
        inputs = [tuple(place[up] for up in self.inputs[i]) for i in members]
        return QueryPlan(name, named, operators, inputs, self._classes[label])

    def _label(self, name: str) -> tuple[int, bool]:
        for label, (known, named) in self._queries.items():
            if known == name:
                return label, named
        names = ", ".join(self.query_names) or "none"
        raise GraphError(f"there is no query {name!r}; the queries are: {names}")

    def query_of(self, index: int) -> str:
        """The name of an operator's query."""
        return self._queries[self._labels[index]][0]

    def index(self, operator: Operator) -> int:
        """Where an operator stands; `GraphError` if its query was removed."""
        for index, known in enumerate(self.operators):
            if known is operator:
                return index
        raise GraphError(f"{operator.name!r} belongs to a query that was removed")

    def find(self, name: str) -> int:
        """The index of the operator of this name."""
        for index, operator in enumerate(self.operators):
            if operator.name == name:
                return index
        names = ", ".join(operator.name for operator in self.operators) or "none"
        raise GraphError(f"there is no operator {name!r}; the operators are: {names}")

    def remove(self, name: str) -> None:
        """Forget a query; its names are free again. Streams of it must not be used any more."""
        label, _ = self._label(name)
        kept = [i for i, owner in enumerate(self._labels) if owner != label]
        place = {index: position for position, index in enumerate(kept)}
        self.operators[:] = [self.operators[i] for i in kept]
        self.inputs[:] = [tuple(place[up] for up in self.inputs[i]) for i in kept]
        self._labels[:] = [self._labels[i] for i in kept]
        del self._queries[label], self._classes[label]
        self.running.discard(name)

    def validate(self) -> None:
        """Raise `GraphError` unless there is a query and every stream ends in a sink."""
        if not self.operators:
            raise GraphError(
                "the environment has no query: add env.source(...) and a sink such as .collect()"
            )
        for query in self.queries():
            query.validate()

    def drawing(self, name: str | None = None) -> str:
        """The graph of one query, or of all, as SVG."""
        operators: list[Operator] = []
        edges: list[tuple[int, int]] = []
        for query in self.queries() if name is None else [self.query(name)]:
            first = len(operators)
            operators += query.operators
            edges += [(first + up, first + down) for up, down in query.edges()]
        return svg(operators, edges)
