"""Multi-class: queries of a higher class first, and within a class that class's own policy.

Haren paper, 7.4. ``haren.make("multi-class", high="fcfs", low="hr")``: classes from the most to the least
urgent; the last one named has class 0, the one before 1, and so on (``query_class`` of a query). A query
whose class is above the highest named one is treated as that one.
"""

from collections.abc import Callable

from haren.assign import random
from haren.errors import PolicyError
from haren.features import Feature
from haren.matrix import dimensions
from haren.policy import Policy
from haren.registry import make, register


@register("multi-class")
def multi_class(f: Callable = random, **classes: str | Policy) -> Policy:
    """Classes of queries from the most urgent to the least, each with a policy: high="fcfs", low="hr"."""
    if not classes:
        raise PolicyError("multi-class needs classes, the most urgent first, such as high='fcfs', low='hr'")
    members = [make(policy) for policy in classes.values()]
    for name, policy in zip(classes, members, strict=True):
        plain = policy.dispatch == "bound" and not (policy.eligible or policy.quantum or policy.state)
        if not plain or set(policy.arguments("g")) - {"op", "F", "graph", "seed"}:
            raise PolicyError(
                f"multi-class: {name}={policy.name!r} is more than a ranking g over features; "
                "eligible, quantum, state, now and threads cannot be divided among classes"
            )
    features = ["query_class", *(one for policy in members for one in (*policy.features, *policy.declared))]
    features = [one for one in features if not isinstance(one, str) or one not in own_names(members)]
    fanouts = {policy.fanout for policy in members}
    if len(fanouts) > 1:
        raise PolicyError(f"multi-class: its policies have different fan-out rules: {', '.join(fanouts)}")
    width = max(dimensions(policy)[0] for policy in members)
    g = _of_class(0, members[-1], width)
    for level, policy in enumerate(reversed(members[:-1]), 1):
        g = _above(level, _of_class(level, policy, width), g)
    return Policy("multi-class", f=f, g=g, features=features, fanout=fanouts.pop())


def own_names(members: list[Policy]) -> set[str]:
    """The names of features that users have defined themselves."""
    return {one.name for policy in members for one in policy.features if isinstance(one, Feature)}


def _of_class(level: int, policy: Policy, width: int) -> Callable:
    """The class, then what its policy says, filled up to as many numbers as the widest policy has."""
    inner, (own, tupled) = _with_all(policy), dimensions(policy)
    first, rest = (float(level),), (0.0,) * (width - own)
    if not tupled and rest:
        return lambda op, F, graph, seed: first + (float(inner(op, F, graph, seed)),) + rest  # noqa: RUF005
    if not tupled:
        return lambda op, F, graph, seed: first + (float(inner(op, F, graph, seed)),)  # noqa: RUF005
    if rest:
        return lambda op, F, graph, seed: first + inner(op, F, graph, seed) + rest
    return lambda op, F, graph, seed: first + inner(op, F, graph, seed)


def _with_all(policy: Policy) -> Callable:
    """The policy's g, called with all that a g of a class may ask for."""
    inner = policy.g
    extras = policy.arguments("g")[2:]
    if extras == ():
        return lambda op, F, graph, seed: inner(op, F)
    if extras == ("graph",):
        return lambda op, F, graph, seed: inner(op, F, graph)
    if extras == ("seed",):
        return lambda op, F, graph, seed: inner(op, F, seed)
    if extras == ("seed", "graph"):
        return lambda op, F, graph, seed: inner(op, F, seed, graph)
    return inner


def _above(level: int, first: Callable, rest: Callable) -> Callable:
    """``first`` for queries of this class and higher, ``rest`` for the others."""

    def g(op, F, graph, seed):
        if F.query_class[op] >= level:
            return first(op, F, graph, seed)
        return rest(op, F, graph, seed)

    return g
