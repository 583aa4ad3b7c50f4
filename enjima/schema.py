"""The type of a stream's events: named fields of fixed size, packed without gaps."""

from collections import namedtuple
from collections.abc import Iterator, Mapping
from functools import cached_property
from keyword import iskeyword
from typing import Any

import numpy as np

from enjima.errors import SchemaError

__all__ = ["Schema"]

_KINDS = "biufS"


class Schema:
    """A record type, from ``"ad_id: i8, price: f8"``, a mapping, a numpy dtype or another schema."""

    def __init__(self, spec: Any) -> None:
        self.dtype = _packed(_parse(spec))
        for name in self.names:
            kind = self.dtype[name].kind
            if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
                raise SchemaError(
                    f"field name {name!r} is not a Python identifier one can read as an attribute; rename it"
                )
            if self.dtype[name].shape or kind not in _KINDS:
                raise SchemaError(
                    f"field {name!r} has type {self.dtype[name]}; fields are integers, floats, booleans "
                    "or fixed-size bytes ('S8'); turn dates into integers with .astype('i8')"
                )

    @property
    def names(self) -> tuple[str, ...]:
        return self.dtype.names or ()

    @property
    def size(self) -> int:
        """Bytes of one event."""
        return self.dtype.itemsize

    def offset(self, name: str) -> int:
        """Where a field lies within an event."""
        assert self.dtype.fields is not None
        return self.dtype.fields[name][1]

    def require(self, name: str, what: str) -> np.dtype:
        """The type of field ``name``; `SchemaError` if there is none."""
        if name not in self.names:
            raise SchemaError(f"{what}: there is no field {name!r}; the stream has {', '.join(self.names)}")
        return self.dtype[name]

    def integer(self, name: str, what: str) -> np.dtype:
        """The type of field ``name``, which must be an integer or a boolean."""
        dtype = self.require(name, what)
        if dtype.kind not in "biu":
            raise SchemaError(f"{what}: field {name!r} is {dtype}; it must be an integer or a boolean")
        return dtype

    @cached_property
    def _event(self) -> Any:
        return namedtuple("Event", self.names)

    def events(self, array: np.ndarray) -> Iterator[Any]:
        """The events of an array as user functions see them in Python: attributes that are plain numbers."""
        return map(self._event._make, array.tolist())

    def __str__(self) -> str:
        return ", ".join(f"{name}: {self.dtype[name].str.lstrip('<|=')}" for name in self.names)

    def __repr__(self) -> str:
        return f"Schema('{self}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)


def _parse(spec: Any) -> np.dtype:
    if isinstance(spec, Schema):
        return spec.dtype
    try:
        if isinstance(spec, str):
            pairs = [part.split(":") for part in spec.split(",") if part.strip()]
            if not pairs or any(len(pair) != 2 for pair in pairs):
                raise SchemaError(f"schema {spec!r} is not of the form 'name: type, name: type'")
            return np.dtype([(name.strip(), kind.strip()) for name, kind in pairs])
        if isinstance(spec, Mapping):
            return np.dtype(list(spec.items()))
        dtype = np.dtype(spec)
    except (TypeError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"schema {spec!r} is not valid: {error}") from error
    if dtype.names is None:
        raise SchemaError(f"schema {spec!r} has no named fields; use a structured dtype")
    return dtype


def _packed(dtype: np.dtype) -> np.dtype:
    return np.dtype([(name, dtype[name].newbyteorder("=")) for name in dtype.names or ()])
