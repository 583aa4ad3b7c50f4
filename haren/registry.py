"""Policies by name: `register` one, `make` it, list them; packages add theirs by entry point.

    @haren.register("mine")
    def mine(weight=1.0):
        '''What it optimizes.'''
        return haren.Policy("mine", ...)

    haren.make("mine", weight=2.0)

A package offers policies to everyone who installs it with entry points of the group ``haren.policies``:
``mine = "package.module:factory"``.
"""

import inspect
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from haren.errors import PolicyError
from haren.policy import Policy

__all__ = ["make", "policies", "register"]

GROUP = "haren.policies"
_factories: dict[str, Callable[..., Policy]] = {}


def register(name: str, factory: Callable[..., Policy] | Policy | None = None) -> Any:
    """Offer a policy, or a function that makes one, under ``name``; without it, a decorator."""
    if factory is None:
        return lambda given: register(name, given)
    if isinstance(factory, Policy):
        policy = factory
        _factories[name] = lambda: policy
    elif callable(factory):
        _factories[name] = factory
    else:
        raise PolicyError(f"policy {name!r}: register a Policy or a function that makes one, not {factory!r}")
    return factory


def make(name: "str | Policy", /, **parameters: Any) -> Policy:
    """The policy of this name, with parameters of its own; a policy itself is returned as it is."""
    if isinstance(name, Policy):
        if parameters:
            raise PolicyError(f"policy {name.name!r} is made already and takes no {', '.join(parameters)}")
        return name
    if name not in policies():
        raise PolicyError(f"there is no policy {name!r}; there are: {', '.join(policies())}")
    if name not in _factories:  # loaded when asked for: a broken package hurts only its users
        register(name, _entry_points()[name].load())
    factory = _factories[name]
    try:
        inspect.signature(factory).bind(**parameters)
    except TypeError as error:
        wanted = ", ".join(map(str, inspect.signature(factory).parameters.values())) or "no parameters"
        raise PolicyError(f"policy {name!r}: {error}; it takes {wanted}", policy=name) from None
    policy = factory(**parameters)
    if not isinstance(policy, Policy):
        raise PolicyError(f"policy {name!r}: its factory made {policy!r}, not a Policy", policy=name)
    return policy


def policies() -> list[str]:
    """The names `make` knows."""
    return sorted({*_factories, *_entry_points()})


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
