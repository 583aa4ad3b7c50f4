"""Features: what a policy may know of each operator. One table, `FEATURES`, says all about each.

Measured features come from the engine (`haren.spe`) and the worker loop, and are refreshed in the scheduling
task T_S, only where they can have changed. Derived ones are functions of others, computed once a round for
the operators concerned. A user's own feature is a derived one:

    work = haren.Feature("work", lambda op, F: F.pending[op] * F.cost[op], needs=["pending", "cost"])
    haren.Policy("most-work", g=lambda op, F: F.work[op], features=[work])

Times are nanoseconds of the scheduler's clock. Averages weigh the newest round with ``smoothing``; the first
measurement replaces the start value. An operator that does not run keeps its cost, selectivity and rate.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Literal

import numpy as np

from haren.errors import PolicyError
from haren.graph import Graph, downstream

__all__ = ["FANOUTS", "FEATURES", "Fanout", "Feature", "resolve"]

INF = math.inf
Direction = Literal["upstream", "downstream", "query"]
Fanout = Literal["max", "product", "sum"]
FANOUTS = ("max", "product", "sum")


@dataclass(frozen=True)
class Feature:
    """A feature: give a user's own one a name, a function and what it needs; the table has the others.

    ``function(op, F)`` or ``function(op, F, graph)`` computes it from the features it ``needs``. With
    ``reads="downstream"`` (or "upstream") it may also read features of all operators downstream, itself
    included: those are computed before. Another set of operators is given by a function ``reads(op, graph)``.
    """

    name: str
    function: Callable | None = None
    needs: tuple[str, ...] = ()
    unit: str = ""
    reads: Literal["upstream", "downstream"] | Callable | None = None
    what: str = ""
    dtype: Literal["f8", "i8"] = "f8"
    static: bool = False
    depends: tuple[Direction, ...] = ()  # whose runs can change it, besides those of the operator itself
    intrinsic: bool = False  # only a run of the operator itself can refresh it
    arrivals: bool = False  # a source's value changes by itself, so it is refreshed every round
    empty: float | None = None  # the value when there is nothing: no event waits, nothing is bounded
    start: float = 0.0
    smoothing: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", tuple(self.needs))
        if not self.name.isidentifier() or iskeyword(self.name) or self.name.startswith("_"):
            raise PolicyError(f"feature {self.name!r}: a name is an identifier, to be read as F.{self.name}")
        if self.function is not None and not callable(self.function):
            raise PolicyError(f"feature {self.name!r}: {self.function!r} is not a function")
        if self.reads not in (None, "upstream", "downstream") and not callable(self.reads):
            raise PolicyError(
                f"feature {self.name!r}: reads={self.reads!r}; 'upstream', 'downstream', or a function"
            )
        if self.dtype not in ("f8", "i8"):
            raise PolicyError(f"feature {self.name!r}: dtype={self.dtype!r}; 'f8' or 'i8'")

    @property
    def derived(self) -> bool:
        return self.function is not None

    @property
    def independent(self) -> bool:
        """Whether only runs of the operator itself change it (definition 3.1 of the Haren paper)."""
        return not (self.static or self.derived or self.depends or self.arrivals)

    @property
    def kind(self) -> str:
        """Its class, in the words of the paper."""
        if self.static:
            return "static"
        words = ["dynamic", "derived" if self.derived else "independent" if self.independent else "dependent"]
        words += [f"on {' and '.join(self.depends)}"] if self.depends else []
        return " ".join(words) + (", execution-intrinsic" if self.intrinsic else "")


def global_selectivity(fanout: Fanout) -> Callable:
    """Results at the sinks for one event of the operator."""
    if fanout == "sum":

        def function(op, F, graph):
            below = downstream(graph, op)
            if len(below) == 0:
                return 1.0
            total = 0.0
            for other in below:
                total += F.global_selectivity[other]
            return F.selectivity[op] * total

    elif fanout == "max":

        def function(op, F, graph):
            below = downstream(graph, op)
            if len(below) == 0:
                return 1.0
            best = 0.0
            for other in below:
                best = max(best, F.global_selectivity[other])
            return F.selectivity[op] * best

    else:

        def function(op, F, graph):
            product = 1.0
            for other in downstream(graph, op):
                product *= F.global_selectivity[other]
            return product * F.selectivity[op] if len(downstream(graph, op)) else 1.0

    return function


def output_cost(op, F, graph):
    """Time to carry one event of the operator to the sinks, through all branches."""
    total = 0.0
    for other in downstream(graph, op):
        total += F.output_cost[other]
    return F.cost[op] + F.selectivity[op] * total


def global_rate(op, F):
    """Results per second of work, if the operator and all behind it ran."""
    return 1e9 * F.global_selectivity[op] / max(F.output_cost[op], 1e-3)


def _table(*features: Feature) -> dict[str, Feature]:
    return {feature.name: feature for feature in features}


FEATURES = _table(
    Feature("cost", unit="ns/event", what="time per event, mean over the events of a round",
            intrinsic=True, start=1.0, smoothing=0.3),
    Feature("selectivity", unit="events/event", what="events out per event in",
            intrinsic=True, start=1.0, smoothing=0.3),
    Feature("rate", unit="events/s", what="events taken in per second of wall time",
            intrinsic=True, smoothing=0.3),
    Feature("last_scheduled", unit="ns", what="when its last run ended"),
    Feature("head_time", unit="ns", depends=("upstream",), empty=INF, start=INF,
            what="clock time of the oldest event that waits; of a source with a rate, when its next "
            "event is meant to be; over several inputs the earliest"),
    Feature("average_arrival", unit="ns", depends=("upstream",), empty=INF, start=INF,
            what="clock time halfway between the oldest and the newest event that wait"),
    Feature("pending", unit="events", dtype="i8", depends=("upstream",), arrivals=True,
            what="events that wait; of a source, those that are due"),
    Feature("output_room", unit="events", depends=("downstream",), empty=INF, start=INF,
            what="events that fit into the fullest output"),
    Feature("latency_gradient", unit="ns/s", depends=("query",), smoothing=0.3,
            what="how fast the mean latency at the sinks of the operator's query grows"),
    Feature("topological_order", unit="", dtype="i8", static=True,
            what="the longest way from a source, in operators"),
    Feature("operator_type", unit="", dtype="i8", static=True, what="0: source, 1: in between, 2: sink"),
    Feature("query_class", unit="", dtype="i8", static=True, what="of its query; higher is more urgent"),
    Feature("thread", unit="", dtype="i8", what="the thread it is bound to; set when f has run"),
    Feature("global_selectivity", global_selectivity("sum"), ("selectivity",), "events/event", "downstream",
            what="results at the sinks per event; `fanout` says how branches add up", start=1.0),
    Feature("output_cost", output_cost, ("cost", "selectivity"), "ns/event", "downstream",
            what="time to carry an event to the sinks", start=1.0),
    Feature("global_rate", global_rate, ("global_selectivity", "output_cost"), "events/s",
            what="results per second of work, of the operator and all behind it"),
)  # fmt: skip


def resolve(wanted: Iterable[str | Feature], fanout: Fanout = "sum") -> dict[str, Feature]:
    """The features wanted and all they need, those needed first."""
    if fanout not in FANOUTS:
        raise PolicyError(f"fanout={fanout!r}; one of {', '.join(FANOUTS)}")
    wanted = list(wanted)
    own: dict[str, Feature] = {}
    for given in wanted:
        if isinstance(given, Feature) and own.setdefault(given.name, given) != given:
            raise PolicyError(f"there are two features {given.name!r}; give one another name")
    found: dict[str, Feature] = {}

    def add(name: str, path: tuple[str, ...]) -> None:
        if name in found:
            return
        if name in path:
            raise PolicyError(f"features need each other in a circle: {' -> '.join((*path, name))}")
        feature = own.get(name) or FEATURES.get(name)
        if feature is None:
            needed = f" (needed by {path[-1]!r})" if path else ""
            raise PolicyError(f"there is no feature {name!r}{needed}; there are: {', '.join(FEATURES)}")
        measured = name in FEATURES and not FEATURES[name].derived
        if measured and feature != FEATURES[name]:
            raise PolicyError(f"feature {name!r} is measured; give your own another name")
        if not measured and feature.function is None:
            raise PolicyError(f"feature {name!r} has no function to compute it")
        if name == "global_selectivity" and name not in own:
            feature = Feature(**{**vars(feature), "function": global_selectivity(fanout)})
        for need in feature.needs:
            add(need, (*path, name))
        found[name] = feature

    for one in wanted:
        add(one.name if isinstance(one, Feature) else one, ())
    return found


def static_values(feature: Feature, graph: Graph) -> np.ndarray:
    """The values of a static feature of the table."""
    count, arrays = len(graph), graph.arrays
    values = np.zeros(count)
    if feature.name == "topological_order":
        for up, down in sorted(graph.edges):
            values[down] = max(values[down], values[up] + 1)
    elif feature.name == "operator_type":
        values[:] = 1
        values[graph.sinks] = 2
        values[graph.sources] = 0
    elif feature.name == "query_class":
        values[:] = [graph.classes[query] if graph.classes else 0 for query in arrays.query]
    return values


def dependents(features: Sequence[Feature], graph: Graph) -> np.ndarray:
    """The bitmap D: whether a run of operator i can change a dependent feature of operator k, at [i, k]."""
    count, arrays = len(graph), graph.arrays
    same = np.eye(count, dtype=bool)
    below = np.zeros((count, count), bool)
    for up, down in graph.edges:
        below[up, down] = True
    near = {"upstream": below, "downstream": below.T, "query": arrays.query[:, None] == arrays.query[None, :]}
    far = _reachable(below)
    changes: dict[str, np.ndarray] = {}
    total = same.copy()
    for feature in features:
        if feature.static:
            changes[feature.name] = np.zeros_like(same)
            continue
        if not feature.derived:
            own = same.copy()
            for direction in feature.depends:
                own |= near[direction]
        else:
            read = same.copy()  # [j, k]: the value of k is made of features of j
            if feature.reads == "downstream":
                read |= far.T
            elif feature.reads == "upstream":
                read |= far
            elif feature.reads is not None:
                for op in range(count):
                    read[list(feature.reads(op, arrays)), op] = True
            needed = np.zeros_like(same)
            for need in feature.needs:
                needed |= changes[need]
            own = (needed.astype(np.float32) @ read.astype(np.float32)) > 0
        changes[feature.name] = own
        if not feature.independent:
            total |= own
    return total


def _reachable(below: np.ndarray) -> np.ndarray:
    """Whether k is behind i, at [i, k]; operators are in topological order."""
    far = below.copy()
    for op in range(len(below) - 1, -1, -1):
        for other in np.flatnonzero(below[op]):
            far[op] |= far[other]
    return far
