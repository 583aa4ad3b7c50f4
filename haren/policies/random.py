"""Random: priorities drawn anew every round.

Optimizes nothing; what a policy must beat to have an idea in it. No features.
"""

from collections.abc import Callable

from haren.assign import random as anywhere
from haren.numbers import draw
from haren.policy import Policy
from haren.registry import register


@register("random")
def random(f: Callable = anywhere) -> Policy:
    """Any order, another one each round."""
    return Policy("random", f=f, g=lambda op, F, seed: float(draw(seed, op)))
