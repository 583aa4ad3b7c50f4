"""Dispatch styles: how a worker gets its next piece of work."""

from typing import Any

from haren.dispatch.bound import Bound
from haren.dispatch.dedicated import Dedicated
from haren.dispatch.dispatch import Dispatch, Installed
from haren.dispatch.pool import Pool
from haren.dispatch.shared import Shared
from haren.policy import Policy

__all__ = ["Bound", "Dedicated", "Dispatch", "Installed", "Pool", "Shared", "dispatch_for"]


def dispatch_for(how: Any) -> Dispatch:
    """A dispatch from what users write: one, a policy, the name of one, or None for the plain pool."""
    from haren.registry import make

    if how is None:
        return Pool()
    if isinstance(how, Dispatch):
        return how
    if not isinstance(how, (str, Policy)):
        raise ValueError(
            f"{how!r} is neither a policy, nor the name of one, nor a dispatch such as haren.Pool()"
        )
    policy = make(how)
    return {"bound": Bound, "shared": Shared, "dedicated": Dedicated}[policy.dispatch](policy)
