"""What a window can compute per key: count, sum, min, max, mean, and aggregates users write."""

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from enjima.errors import SchemaError
from enjima.schema import Schema

__all__ = ["Aggregate", "count", "max", "mean", "min", "sum"]


@dataclass(frozen=True)
class Aggregate:
    """An aggregate as four functions: init, add, merge, result.

    ``init() -> state``, ``add(state, event) -> state``, ``merge(a, b) -> state``, ``result(state)``. A state
    is a number or a tuple of numbers; ``dtype`` is the type of the result. ``merge`` joins two partial
    states: windows made of panes need it.
    """

    init: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    dtype: Any = "f8"
    field: str | None = None
    built_in: str | None = None

    def state_types(self, where: str) -> list[np.dtype]:
        """The type of each number in the state: i8 or f8, from what ``init`` returns."""
        start = self.init()
        values = start if isinstance(start, tuple) else (start,)
        if not values or not all(isinstance(v, (int, float, np.integer, np.floating)) for v in values):
            raise SchemaError(
                f"{where}: init() returned {start!r}; a state is a number or a tuple of numbers"
            )
        return [_state_type(value) for value in values]

    def bound(self, schema: Schema, where: str) -> "Aggregate":
        """This aggregate for a stream: built-in ones take their types from the field they aggregate."""
        if self.built_in is None or self.field is None:
            return self
        dtype = schema.require(self.field, where)
        if dtype.kind not in "biuf":
            raise SchemaError(f"{where}: field {self.field!r} is {dtype}; {self.built_in} needs a number")
        return _FIELD_AGGREGATES[self.built_in](self.field, dtype)


def count() -> Aggregate:
    """The number of events."""
    return Aggregate(
        init=lambda: 0,
        add=lambda state, event: state + 1,
        merge=lambda a, b: a + b,
        result=lambda state: state,
        dtype="i8",
        built_in="count",
    )


def _state_type(value: Any) -> np.dtype:
    if isinstance(value, (float, np.floating)):
        return np.dtype("f8")
    return np.dtype("u8" if isinstance(value, np.unsignedinteger) else "i8")


def _sum(name: str, dtype: np.dtype) -> Aggregate:
    zero = 0.0 if dtype.kind == "f" else 0
    return Aggregate(
        init=lambda: zero,
        add=_expression(f"state + event.{name}"),
        merge=lambda a, b: a + b,
        result=lambda state: state,
        dtype="f8" if dtype.kind == "f" else "i8",
        field=name,
        built_in="sum",
    )


def _extreme(kind: str, name: str, dtype: np.dtype) -> Aggregate:
    if dtype.kind == "f":
        worst: Any = float("inf") if kind == "min" else float("-inf")
    elif dtype.kind == "u":
        worst = np.uint64(2**64 - 1 if kind == "min" else 0)
    else:
        worst = 2**63 - 1 if kind == "min" else -(2**63)
    return Aggregate(
        init=lambda: worst,
        add=_expression(f"{kind}(state, event.{name})"),
        merge=_expression(f"{kind}(state, event)"),
        result=lambda state: state,
        dtype=dtype,
        field=name,
        built_in=kind,
    )


def _mean(name: str, dtype: np.dtype) -> Aggregate:
    return Aggregate(
        init=lambda: (0.0, 0),
        add=_expression(f"(state[0] + event.{name}, state[1] + 1)"),
        merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        result=lambda state: state[0] / state[1],
        dtype="f8",
        field=name,
        built_in="mean",
    )


def _expression(source: str) -> Callable[[Any, Any], Any]:
    """``lambda state, event: source``, from text, because the field's name is part of it."""
    return eval(f"lambda state, event: {source}", {"min": builtins.min, "max": builtins.max})


_FIELD_AGGREGATES: dict[str, Callable[[str, np.dtype], Aggregate]] = {
    "sum": _sum,
    "min": lambda name, dtype: _extreme("min", name, dtype),
    "max": lambda name, dtype: _extreme("max", name, dtype),
    "mean": _mean,
}


def _unbound(kind: str, name: str) -> Aggregate:
    if not isinstance(name, str) or not name.isidentifier():
        raise SchemaError(f"{kind}() takes the name of a field, not {name!r}")
    return _FIELD_AGGREGATES[kind](name, np.dtype("f8"))


def sum(field: str) -> Aggregate:
    """The sum of a field: i8 for integers, f8 for floats."""
    return _unbound("sum", field)


def min(field: str) -> Aggregate:
    """The smallest value of a field."""
    return _unbound("min", field)


def max(field: str) -> Aggregate:
    """The largest value of a field."""
    return _unbound("max", field)


def mean(field: str) -> Aggregate:
    """The arithmetic mean of a field, as f8."""
    return _unbound("mean", field)
