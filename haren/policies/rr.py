"""Round robin: all operators are equal, so a thread goes round those that can run, a batch each.

Optimizes nothing; the plainest baseline. No features.
"""

from collections.abc import Callable

from haren.assign import round_robin
from haren.policy import Policy
from haren.registry import register


@register("rr")
def rr(f: Callable = round_robin) -> Policy:
    """Every operator in turn."""
    return Policy("rr", f=f)
