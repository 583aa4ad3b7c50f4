"""Min-cost: operators in post-order, from the sources to the sink, each as long as it has something to do.

Optimizes what scheduling and switching cost per event. Min-Cost of Aurora (Carney et al.), as the Enjima
paper compares it (5.1.2): a query is a tree with the sink as its root, walked again and again; what ran
longest ago is next. ``strict=True`` takes the order as a ranking instead: an operator goes before all that
are behind it. Feature: last_scheduled.
"""

import numpy as np

from haren.features import Feature
from haren.graph import downstream, upstream
from haren.policy import Policy
from haren.quantum import rest_of_round
from haren.registry import register


def post_order(op, F, graph):
    """The operator's place in a walk over its query that visits all upstream neighbours before itself."""
    count = len(graph.query)
    visited = np.zeros(count, np.int64)
    path = np.zeros(count + 1, np.int64)
    place = 0
    for sink in range(count):
        if graph.query[sink] != graph.query[op] or len(downstream(graph, sink)) > 0:
            continue
        depth = 1
        path[0] = sink
        visited[sink] = 1
        while depth > 0:
            here = path[depth - 1]
            following = -1
            for above in upstream(graph, here):
                if following < 0 and visited[above] == 0:
                    following = above
            if following >= 0:
                visited[following] = 1
                path[depth] = following
                depth += 1
            else:
                if here == op:
                    return place
                place += 1
                depth -= 1
    return place


POST_ORDER = Feature(
    "post_order", post_order, dtype="i8", what="place in post-order, the sink being the root"
)


@register("min-cost")
def min_cost(strict: bool = False, least_turn: int = 1000) -> Policy:
    """The operators of a query one after the other, sources first: for little switching."""

    def in_turn(op, F):
        return -F.last_scheduled[op], -F.post_order[op]

    def in_order(op, F):
        return -float(F.post_order[op])

    return Policy(
        "min-cost",
        g=in_order if strict else in_turn,
        quantum=rest_of_round(least_turn),
        features=[POST_ORDER, "last_scheduled"],
        dispatch="shared",
    )
