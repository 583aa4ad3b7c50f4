"""The shared memory of the scheduling task: the feature matrix F, the dependencies D, the flags U.

Values lie feature by feature, one word per operator, so that ``F.cost`` is an array for compiled and for
plain Python functions alike. `haren.native.features` refreshes them, `haren.native.functions` reads them.
"""

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np

from haren.errors import PolicyError
from haren.features import Feature, dependents, static_values
from haren.graph import Graph, GraphArrays, adjacency
from haren.memory import address, lines
from haren.policy import Policy

__all__ = ["Matrix", "dimensions", "features_type"]

# the words of a matrix
OPERATORS = 0
STRIDE = 8  # bytes from one feature's values to the next one's
VALUES = 16
FLAGS = 24  # U: a word per operator, 1 if its dependent features have to be refreshed
INDEPENDENT = 32  # address and number of codes: measured features that only the operator's own runs change
INDEPENDENT_COUNT = 40
DEPENDENT = 48  # the same for those that others' runs change
DEPENDENT_COUNT = 56
DERIVED = 64  # address and number of functions that compute the derived ones
DERIVED_COUNT = 72
DEPENDENTS_FROM = 80  # D: for each operator the others whose dependent features its runs can change
DEPENDENTS = 88
SEEN = 96  # per operator, what its counters were at the last refresh
ARRIVALS = 104  # operators that are flagged every round
ARRIVALS_COUNT = 112
STATE = 120
THREADS = 128
SEED = 136
QUERY = 144
QUERY_COUNT = 152
UPSTREAM_FROM = 160
UPSTREAM = 168
DOWNSTREAM_FROM = 176
DOWNSTREAM = 184
SINKS_FROM = 192  # the sinks of each query
SINKS = 200
DYNAMIC = 208  # how many features a full update would refresh, for each operator
THREAD_ROW = 216  # address of the values of feature "thread"; 0 if it is not used
NAMED = 224  # how many features there are
ROUND_END = 232  # when the next round begins
LAST_ROW = 240  # address of the values of feature "last_scheduled"; 0 if it is not used
GRADIENT = 248  # address of the entry of feature "latency_gradient"; 0 if it is not used
MATRIX_BYTES = 256

# measured features, by name: the code that native/features.py knows them by
CODES = {
    "cost": 0, "selectivity": 1, "rate": 2, "last_scheduled": 3, "head_time": 4, "average_arrival": 5,
    "pending": 6, "output_room": 7, "latency_gradient": 8,
}  # fmt: skip

# the words of what was seen of an operator at its last refresh
SEEN_BUSY, SEEN_EVENTS, SEEN_OUT, SEEN_AT, SEEN_MEASURED = range(0, 40, 8)
SEEN_LATENCY_COUNT, SEEN_LATENCY_TOTAL, SEEN_LATENCY_AT, SEEN_LATENCY_MEAN = range(40, 72, 8)
SEEN_BYTES = 128
# an entry of a list of measured features: code, row, smoothing (bits), value when there is nothing (bits)
ENTRY_BYTES = 32


def features_type(names: Sequence[str]) -> Any:
    """The type of F for a function that sees these features."""
    return namedtuple("F", names)


class Column(np.ndarray):
    """Values of a feature for functions in Python: elements are plain numbers, as in compiled code."""

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(index)
        return value.item() if isinstance(value, np.generic) else value

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array.item() if array.ndim == 0 else super().__array_wrap__(array, context, return_scalar)


def _readable(array: np.ndarray) -> np.ndarray:
    """An array as functions in Python see it: it can be read, not written."""
    column = array.view(Column)
    column.flags.writeable = False
    return column


class Matrix:
    """The features of a policy for the operators of a graph."""

    def __init__(self, policy: Policy, graph: Graph, threads: int, seed: int) -> None:
        self.policy, self.graph = policy, graph
        self.features = list(policy.resolved.values())
        self.row = {feature.name: row for row, feature in enumerate(self.features)}
        count, arrays = len(graph), graph.arrays
        stride = -(-max(count, 1) // 8)
        self._values = lines(max(1, len(self.features)) * stride).reshape(-1, 8 * stride)
        self.flags = np.ones(count, np.int64)
        self.seen = lines(2 * max(1, count)).reshape(-1, SEEN_BYTES // 8)
        self.state = np.zeros((count, max(1, len(policy.state))))
        self.state[:, : len(policy.state)] = policy.state
        for feature in self.features:
            values = static_values(feature, graph) if feature.static else feature.start
            self.column(feature.name)[:] = values
        measured = [feature for feature in self.features if feature.name in CODES]
        self._independent = self._entries([one for one in measured if one.independent])
        self._dependent = self._entries([one for one in measured if not one.independent])
        self.derived = [feature for feature in self.features if feature.derived]
        self._functions = np.zeros(max(1, len(self.derived)), np.int64)
        bitmap = dependents(self.features, graph)
        np.fill_diagonal(bitmap, False)  # an operator that ran is flagged in any case
        self._dependents = adjacency([np.flatnonzero(row).tolist() for row in bitmap])
        columns = {name: _readable(one) for name, one in arrays._asdict().items() if name != "queries"}
        self._graph_arrays = GraphArrays(queries=arrays.queries, **columns)
        moving = any(feature.arrivals for feature in self.features)
        if "thread" in self.row and self.derived:
            self._arrivals = np.arange(count)  # f may bind any of them anew
        else:
            self._arrivals = np.array(graph.sources if moving else [], np.int64)
        sinks = graph.sinks
        self._sinks = adjacency(
            [[op for op in sinks if graph.queries[op] == query] for query in range(graph.query_count)]
        )
        self.words = lines(MATRIX_BYTES // 64)
        rows = {name: address(self._values[self.row[name]]) if name in self.row else 0
                for name in ("thread", "last_scheduled")}  # fmt: skip
        for offset, value in {
            OPERATORS: count,
            STRIDE: 64 * stride,
            VALUES: address(self._values),
            FLAGS: address(self.flags),
            INDEPENDENT: address(self._independent),
            INDEPENDENT_COUNT: len(self._independent),
            DEPENDENT: address(self._dependent),
            DEPENDENT_COUNT: len(self._dependent),
            DERIVED: address(self._functions),
            DEPENDENTS_FROM: address(self._dependents[0]),
            DEPENDENTS: address(self._dependents[1]),
            SEEN: address(self.seen),
            ARRIVALS: address(self._arrivals),
            ARRIVALS_COUNT: len(self._arrivals),
            STATE: address(self.state),
            THREADS: threads,
            SEED: 1 + (seed * 2654435761 + 12345) % (2**31 - 3),
            QUERY: address(arrays.query),
            QUERY_COUNT: arrays.queries,
            UPSTREAM_FROM: address(arrays.upstream_from),
            UPSTREAM: address(arrays.upstream),
            DOWNSTREAM_FROM: address(arrays.downstream_from),
            DOWNSTREAM: address(arrays.downstream),
            SINKS_FROM: address(self._sinks[0]),
            SINKS: address(self._sinks[1]),
            DYNAMIC: sum(not (one.static or one.name == "thread") for one in self.features),
            THREAD_ROW: rows["thread"],
            LAST_ROW: rows["last_scheduled"],
            GRADIENT: next(
                (address(one) for one in self._dependent if one[0] == CODES["latency_gradient"]), 0
            ),
            NAMED: len(self.features),
        }.items():
            self.words[offset // 8] = value

    def _entries(self, features: Sequence[Feature]) -> np.ndarray:
        entries = np.zeros((len(features), ENTRY_BYTES // 8), np.int64)
        for entry, one in zip(entries, features, strict=True):
            empty = 0.0 if one.empty is None else one.empty
            numbers = np.array([one.smoothing, empty], np.float64).view(np.int64)
            entry[:] = [CODES[one.name], self.row[one.name], *numbers]
        return entries

    @property
    def threads(self) -> int:
        return int(self.words[THREADS // 8])

    def install(self, addresses: Sequence[int]) -> None:
        """Let these functions compute the derived features, in the order of `derived`."""
        self._functions[: len(addresses)] = addresses
        self.words[DERIVED_COUNT // 8] = len(addresses)

    def column(self, name: str) -> np.ndarray:
        """The values of a feature, to read and write."""
        feature = self.policy.resolved[name]
        return self._values[self.row[name]].view(np.dtype(feature.dtype))[: len(self.graph)]

    def values(self, names: Sequence[str]) -> Any:
        """F as a function in Python sees it: it can be read, not written."""
        return features_type(names)(*(_readable(self.column(name)) for name in names))

    def arguments(self, op: int, names: Sequence[str], wanted: Sequence[str], now: int) -> list[Any]:
        """What a function of the policy is called with in Python."""
        known = {
            "op": op,
            "F": self.values(names),
            "graph": self._graph_arrays,
            "now": now,
            "threads": self.threads,
            "seed": int(self.words[SEED // 8]),
            "round_end": int(self.words[ROUND_END // 8]),
            "state": self.state.view(Column),
        }
        return [known[name] for name in wanted]

    def carry(self, former: "Matrix", kept: Sequence[int]) -> None:
        """Take over what is known of operators that were there before: their former numbers, -1 if new."""
        new = [op for op, old in enumerate(kept) if old >= 0]
        old = [kept[op] for op in new]
        self.seen[new] = former.seen[old]
        averaged = [feature.name for feature in self.features if feature.independent]
        if not set(averaged) <= set(former.row):
            self.seen[new, SEEN_MEASURED // 8] = 0  # the next measurement is the first for some of them
        if former.policy.state == self.policy.state:
            self.state[new] = former.state[old]
        for feature in self.features:
            known = former.policy.resolved.get(feature.name)
            if known is not None and known.dtype == feature.dtype and not feature.static:
                self.column(feature.name)[new] = former.column(feature.name)[old]


def dimensions(policy: Policy) -> tuple[int, bool]:
    """How many numbers g's priorities have, and whether they are a tuple: as of an operator that is alone."""
    matrix = Matrix(policy, Graph(["probe"], [0]), 1, 0)
    try:
        value = policy.g(*matrix.arguments(0, policy.declared, policy.arguments("g"), 0))
    except Exception as error:
        raise PolicyError(
            f"policy {policy.name!r}: g raises {type(error).__name__} for an operator of which nothing was "
            f"measured yet: {error}",
            policy=policy.name,
            function="g",
        ) from error
    return (len(value), True) if isinstance(value, tuple) else (1, False)
