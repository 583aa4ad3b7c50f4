"""Min-latency: the operator that brings out a result in the least time.

Optimizes the mean latency, turn by turn. Min-Latency of Aurora (Carney et al.), as the Enjima paper compares
it (5.1.2): its priority without the weight and without eligibility. Features: cost, selectivity.
"""

from haren.policies.latency_optimized import COST_PER_RESULT, OUTPUT_SELECTIVITY
from haren.policy import Policy
from haren.quantum import rest_of_round
from haren.registry import register


@register("min-latency")
def min_latency(least_turn: int = 1000) -> Policy:
    """The least time to the next result first: for the mean latency."""
    return Policy(
        "min-latency",
        g=lambda op, F: 1.0 / max(F.cost_per_result[op], 1e-3),
        quantum=rest_of_round(least_turn),
        features=[OUTPUT_SELECTIVITY, COST_PER_RESULT],
        dispatch="shared",
    )
