"""OS: a thread for each operator, and the operating system decides; the way of most engines.

The baseline of the Haren paper. With ``nice``, a policy's g ranks the operators, and their threads get nice
values accordingly every period, as Lachesis does: ``haren.make("os", nice="hr")``.
"""

from dataclasses import replace

from haren.errors import PolicyError
from haren.policy import Policy
from haren.registry import make, register


@register("os")
def os(nice: str | Policy | None = None) -> Policy:
    """A thread for each operator; nice= names a policy that sets the threads' nice values."""
    if nice is None:
        return Policy("os", dispatch="dedicated")
    policy = make(nice)
    if policy.dispatch != "bound" or policy.eligible or policy.quantum:
        raise PolicyError(f"os: nice={policy.name!r} must be a policy that only ranks operators")
    return replace(policy, name=f"os-{policy.name}", dispatch="dedicated")
