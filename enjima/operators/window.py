"""Windows in event time, and what all aggregates over them share.

Windows are aligned to time 0, closed at the start and open at the end.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from enjima.aggregates import Aggregate
from enjima.errors import SchemaError
from enjima.native import words as w
from enjima.operators.operator import Compiled, Instance, UserFunction, records
from enjima.schema import Schema

__all__ = ["Sliding", "Tumbling", "Window", "WindowAggregate"]

NEVER = 2**63 - 1
BEGINNING = -(2**63)
MOST_PANES = 4096

LATE_ERROR = "store(op + ERROR, LATE_EVENT); store(op + ERROR_VALUE, start); break"
LATE_DROP = "add_to(op + LATE, 1); read += 1; continue"


@dataclass(frozen=True)
class Tumbling:
    """Windows of a fixed length that follow each other: ``Tumbling(seconds=10)``."""

    seconds: float

    def __post_init__(self) -> None:
        _check_seconds("a window's length", self.seconds)

    def lengths(self, unit_ns: int, where: str) -> tuple[int, int]:
        """Length and distance of windows in the stream's unit of time."""
        length = _units(self.seconds, unit_ns, where)
        return length, length

    def __str__(self) -> str:
        return f"{self.seconds:g} s"


@dataclass(frozen=True)
class Sliding:
    """Windows of a fixed length that overlap: ``Sliding(seconds=60, every=10)``."""

    seconds: float
    every: float

    def __post_init__(self) -> None:
        _check_seconds("a window's length", self.seconds)
        _check_seconds("the distance of windows (every=)", self.every)
        if self.every > self.seconds:
            raise SchemaError(
                f"windows of {self.seconds} s every {self.every} s would leave out events; "
                "every= is at most the length"
            )

    def lengths(self, unit_ns: int, where: str) -> tuple[int, int]:
        """Length and distance of windows in the stream's unit of time."""
        length, slide = (_units(seconds, unit_ns, where) for seconds in (self.seconds, self.every))
        if length // gcd(length, slide) > MOST_PANES:
            raise SchemaError(
                f"{where}: {self} windows are made of {length // gcd(length, slide)} panes (the greatest "
                f"common measure of length and distance), at most {MOST_PANES}; use rounder numbers"
            )
        return length, slide

    def __str__(self) -> str:
        return f"{self.seconds:g} s every {self.every:g} s"


Window = Tumbling | Sliding


def _check_seconds(what: str, seconds: Any) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e9:
        raise SchemaError(f"{what} must be a positive number of seconds, not {seconds!r}")


def _units(seconds: float, unit_ns: int, where: str) -> int:
    exact = seconds * 1e9 / unit_ns
    if round(exact) < 1 or abs(exact - round(exact)) > 1e-6 * exact:
        raise SchemaError(
            f"{where}: {seconds} s is not a whole number of the stream's time unit ({unit_ns} ns)"
        )
    return round(exact)


class WindowAggregate(Compiled):
    """One result per key and window: ``window_start``, the keys, the aggregates."""

    kind = w.TIMED
    label = "window"

    def __init__(
        self,
        name: str,
        inputs: Schema,
        time: str,
        keys: tuple[str, ...],
        window: Window,
        unit_ns: int,
        aggregates: Mapping[str, Aggregate],
        late: str,
    ) -> None:
        where = f"window {name!r}"
        if not aggregates:
            raise SchemaError(f"{where}: name at least one aggregate, such as views=count()")
        if late not in ("error", "drop"):
            raise SchemaError(f"{where}: late={late!r}; late events are an 'error' or are 'drop'ped")
        fields = [("window_start", np.dtype("i8"))] + [(key, inputs.integer(key, where)) for key in keys]
        for key in keys:
            if [name for name, _ in fields].count(key) > 1:
                raise SchemaError(
                    f"{where}: the result would have two fields {key!r}; leave out or rename the key"
                )
        self.aggregates: dict[str, Aggregate] = {}
        for field, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise SchemaError(
                    f"{where}: {field}={aggregate!r} is not an aggregate; use count(), sum('field'), ..."
                )
            if field in [name for name, _ in fields]:
                raise SchemaError(
                    f"{where}: the result would have two fields {field!r}; rename the aggregate"
                )
            self.aggregates[field] = aggregate.bound(inputs, where)
            fields.append((field, np.dtype(self.aggregates[field].dtype)))
        super().__init__(name, inputs, Schema(np.dtype(fields)), "window_start")
        self.input_time: str = time
        self.keys = keys
        self.window = window
        self.length, self.slide = window.lengths(unit_ns, where)
        self.late = late
        self.functions = [
            UserFunction(a.add, name, ("the state", "the event"))
            for a in self.aggregates.values()
            if a.built_in is None
        ]
        self.states = [
            (f"state_{field}_{i}", kind)
            for field, aggregate in self.aggregates.items()
            for i, kind in enumerate(aggregate.state_types(where))
        ]

    def pieces(self) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Statements for a template, by what they do, and the names they use.

        They know the records ``event``, ``slot`` (a key's place), ``cell`` (where its events are added up),
        ``total`` (what a result is made of, where ``cell`` is merged into) and ``target`` (the result).
        """
        assert self.inputs is not None and self.output is not None
        from enjima.native.kernels import jit_user_function

        keys = list(enumerate(self.keys))
        text: dict[str, list[str]] = {
            "keys": [f"key_{i} = int64(event.{key})" for i, key in keys] + ["mixed = 0"],
            "set_keys": [f"slot.key_{i} = key_{i}" for i, _ in keys],
            "emit_keys": [f"target.{key} = slot.key_{i}" for i, key in keys],
            "same": [" and ".join(f"slot.key_{i} == key_{i}" for i, _ in keys) or "True"],
            "initialise": [],
            "add": [],
            "merge": [],
            "result": [],
        }
        text["keys"] += [f"mixed = (mixed ^ key_{i}) * GOLDEN" for i, _ in keys]
        names: dict[str, Any] = {
            "INPUT_SIZE": self.inputs.size,
            "OUTPUT_DTYPE": self.output.dtype,
            "OUTPUT_SIZE": self.output.size,
            "KEYS": len(self.keys),
            "read_event": self.event_reader(),
        }
        for field, aggregate in self.aggregates.items():
            count = len(aggregate.state_types(self.name))
            for part in ("init", "add", "result", *(["merge"] if isinstance(self.window, Sliding) else [])):
                names[f"user_{part}_{field}"] = jit_user_function(getattr(aggregate, part))

            def state(record: str, field: str = field, count: int = count) -> str:
                parts = [f"{record}.state_{field}_{i}" for i in range(count)]
                return f"({', '.join(parts)})" if count > 1 else parts[0]

            def assign(
                record: str, value: str, state: Any = state, field: str = field, count: int = count
            ) -> list[str]:
                if count == 1:
                    return [f"{state(record)} = {value}"]
                parts = [f"{record}.state_{field}_{i} = value[{i}]" for i in range(count)]
                return [f"value = {value}", *parts]

            text["initialise"] += assign("cell", f"user_init_{field}()")
            text["add"] += assign("cell", f"user_add_{field}({state('cell')}, event)")
            text["merge"] += assign("total", f"user_merge_{field}({state('total')}, {state('cell')})")
            text["result"].append(f"target.{field} = user_result_{field}({state('total')})")
        return text, names

    @abstractmethod
    def table_words(self) -> int:
        """The words of state: a hash table's, then the operator's."""

    def state_words(self) -> int:
        return self.table_words()

    def deploy(self) -> Instance:
        instance = _WindowInstance(self, self.table_words())
        instance.state[4] = 1  # the table's generation; 0 marks a slot never taken
        self.begin(instance)
        self.install(instance)
        return instance

    @abstractmethod
    def begin(self, instance: Instance) -> None:
        """Set the state's words as they are before any event."""

    def replay(self, event: Any) -> None:
        for aggregate in self.aggregates.values():
            aggregate.add(aggregate.init(), event)

    def replay_states(self, state: Any) -> None:
        """Compute the results of one key again, from a record of its states."""
        for field, aggregate in self.aggregates.items():
            values = [state[f"state_{field}_{i}"].item() for i in range(len(aggregate.state_types(field)))]
            aggregate.result(tuple(values) if len(values) > 1 else values[0])

    def replay_record(self, place: int, dtype: np.dtype) -> None:
        self.replay_states(records(place, 1, Schema(dtype))[0])

    def check(self) -> None:
        """An integer state must stay one: it would lose fractions silently."""
        from numba import float64, int64, types, uint64

        from enjima.native.kernels import jit_user_function, result_type

        kinds = {"f": float64, "i": int64, "u": uint64}
        for field, aggregate in self.aggregates.items():
            states = [kinds[kind.kind] for kind in aggregate.state_types(field)]
            state = types.Tuple(states) if len(states) > 1 else states[0]
            result = result_type(jit_user_function(aggregate.add), state, self.event_type())
            results = list(result.types) if isinstance(result, types.BaseTuple) else [result]
            for before, after in zip(states, results, strict=False):
                if isinstance(before, types.Integer) and isinstance(after, types.Float):
                    raise SchemaError(
                        f"window {self.name!r}, {field}: init() starts with an integer, but add() returns a "
                        "float; start with 0.0"
                    )

    def describe(self) -> str:
        keys = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"{self.window} window{keys}: {', '.join(self.aggregates)}"


class _WindowInstance(Instance):
    def close(self) -> None:
        from enjima.native.functions import free

        for word in (0, 3):  # the table's slots and order
            free(int(self.state[word]))
            self.state[word] = 0
