"""START HERE: a scheduling policy is two small functions over features.

    fcfs = haren.Policy("my-fcfs", g=lambda op, F: -F.head_time[op], features=["head_time"])

    def urgent_then_productive(op, F):
        return F.query_class[op], F.global_rate[op]

    mine = haren.Policy("mine", f=haren.assign.by_query, g=urgent_then_productive,
                        features=["query_class", "global_rate"])
    haren.testing.check_policy(mine)
    env.run(seconds=10, policy=mine)

**g(op, F)**, intra-thread: the priority of operator number ``op``, a number or a tuple compared
lexicographically. Higher goes first; +-inf is allowed, NaN is not. Default: all are equal (round robin).
**f(F, graph, threads)**, inter-thread: for each operator the thread (0 to threads - 1) that runs it.
Default: `haren.assign.random`.
**eligible(op, F, now)**: whether a thread may pick the operator now. Optional.
**quantum(op, F, now)**: how many events it may take in one turn. Optional; else the scheduler's batch b.
**adapt(op, F, state)**: changes the policy's own state, see below. Optional.

``F`` holds what ``features`` declares and nothing else, an array over operators each: ``F.cost[op]``.
`haren.FEATURES` lists what there is; a `haren.Feature` of your own stands in the list beside the names.
Each function may ask for more by naming further parameters: ``graph`` (a `haren.GraphArrays`), ``now`` (ns),
``threads``, ``seed`` (a random integer, new every round; see `haren.draw`), ``round_end`` (ns), and
``state``: floats that the scheduler keeps for the policy, a row for each operator (``state[op, 0]``), begun
with the values given as ``state=``. State may be changed; F and graph may not.

When each is called: every period P all threads meet in the scheduling task T_S; features are refreshed, then
f assigns, then every thread ranks its operators with g. In between, in the execution task T_E, a thread runs
the first operator of its ranking that can run, b events at a time. See `haren.Bound` for P, b and the rest.
With ``dispatch="shared"`` there is no f: threads take the best eligible operator of all, see `haren.Shared`.

Functions are compiled where numba can; else they run as Python with a `PythonFallbackWarning`: the same
schedule, slower. A function that fails while queries run leaves the last good schedule in force.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from haren import assign
from haren.errors import PolicyError
from haren.features import FEATURES, Fanout, Feature, resolve
from haren.reads import attributes_read

__all__ = ["Policy"]

FIRST = {"f": ("F", "graph", "threads"), "g": ("op", "F"), "eligible": ("op", "F", "now")}
FIRST |= {"quantum": FIRST["eligible"], "adapt": ("op", "F", "state")}
MORE = ("graph", "now", "threads", "seed", "round_end", "state")


def _equal(op, F):
    """Round robin: an operator is as good as any other."""
    return 0.0


@dataclass(frozen=True)
class Policy:
    """How operators are bound to threads (f) and ranked within one (g); see the top of this file."""

    name: str
    g: Callable = _equal
    f: Callable = assign.random
    features: Iterable[str | Feature] = ()
    eligible: Callable | None = None
    quantum: Callable | None = None
    adapt: Callable | None = None
    state: tuple[float, ...] = ()
    fanout: Fanout = "sum"
    """How branches add up in derived features: "max", "product" or "sum"."""
    unfair: bool = False
    """Declares that an operator may wait for ever while others have work."""
    dispatch: str = "bound"
    """"bound" or "shared": as above. "dedicated": a thread for each operator; a g then ranks nice values."""
    resolved: dict[str, Feature] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dispatch not in ("bound", "shared", "dedicated"):
            raise PolicyError(f"policy {self.name!r}: dispatch={self.dispatch!r}; bound, shared or dedicated")
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "state", tuple(map(float, self.state)))
        try:
            object.__setattr__(self, "resolved", resolve([*self.features, *self._of_functions], self.fanout))
        except PolicyError as error:
            raise PolicyError(f"policy {self.name!r}: {error}", policy=self.name) from None
        for role in FIRST:
            function = getattr(self, role)
            if function is not None:
                self._check(role, function)

    @property
    def declared(self) -> tuple[str, ...]:
        """The names of the features that are in F."""
        names = [feature if isinstance(feature, str) else feature.name for feature in self.features]
        return tuple(dict.fromkeys([*names, *self._of_functions]))

    @property
    def _of_functions(self) -> list[str]:
        """The features that functions declare themselves, as `haren.assign.load_balanced` does."""
        return [name for role in FIRST for name in getattr(getattr(self, role), "features", ())]

    @property
    def intrinsic(self) -> bool:
        """Whether f or g uses features that only a run of the operator refreshes."""
        return any(feature.intrinsic for feature in self.resolved.values())

    def arguments(self, role: str) -> tuple[str, ...]:
        """The names of what a function is called with."""
        given = list(inspect.signature(getattr(self, role)).parameters)
        return (*FIRST[role], *given[len(FIRST[role]) :])

    def _check(self, role: str, function: Callable) -> None:
        first, where = FIRST[role], f"policy {self.name!r}: {role}"
        if not callable(function):
            raise PolicyError(f"{where} is not a function but {function!r}", policy=self.name, function=role)
        try:
            kinds = inspect.signature(function).parameters
        except ValueError as error:
            why = f"{where} is not a function written in Python: {function!r}"
            raise PolicyError(why, policy=self.name, function=role) from error
        given = [name for name, one in kinds.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
        extras = given[len(first) :]
        if len(given) < max(len(first), len(kinds)) or any(name not in MORE for name in extras):
            raise PolicyError(
                f"{where}({', '.join(given)}): it takes {', '.join(first)}, and may ask by name for "
                f"{', '.join(name for name in MORE if name not in first)}",
                policy=self.name, function=role,
            )  # fmt: skip
        for name in attributes_read(function, given[first.index("F")]):
            if name not in self.declared and (name in FEATURES or name not in dir(tuple)):
                known = "add it to features=[...]" if name in FEATURES else "there is no such feature"
                raise PolicyError(
                    f"{where} reads F.{name}, which is not declared: {known}", policy=self.name, function=role
                )
