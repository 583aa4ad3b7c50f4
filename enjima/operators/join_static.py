"""join_static: add the fields of a table's row to each event with the same key; others are dropped."""

from collections.abc import Callable
from typing import Any

import numpy as np

from enjima.errors import SchemaError
from enjima.native import words as w
from enjima.operators.operator import Compiled, Instance
from enjima.schema import Schema
from haren.memory import address

__all__ = ["JoinStatic"]

# The table's state: slots, mask, base, multiplier, shift. Keys in a narrow range address their slot
# directly (multiplier 1, shift 0), others through a multiplicative hash; one code serves both. An empty
# slot holds a key that belongs elsewhere, so the first look needs no second word, and directly addressed
# tables need no other look.
TEMPLATE = """
def batch(op, events, origins, count, out, out_origins, room):
    event_shift = load(op + SHIFT)
    state = load(op + STATE)
    slots = load(state)
    mask = load(state + 8)
    base = load(state + 16)
    multiplier = load(state + 24)
    shift = load(state + 32)
    hashed = multiplier != 1
    wrote = 0
    for read in range(count):
        key = int64(event(events + read * INPUT_SIZE, event_shift).{key})
        number = (((key - base) * multiplier) >> shift) & mask
        slot = slots + number * SLOT_SIZE
        found = 1
        if load(slot) != key:
            while hashed and load(slot + 8) != 0 and load(slot) != key:
                number = (number + 1) & mask
                slot = slots + number * SLOT_SIZE
            found = load(slot + 8) if hashed else 0
        copy_event(out + wrote * OUTPUT_SIZE, events + read * INPUT_SIZE, event_shift)
        copy(out + wrote * OUTPUT_SIZE + INPUT_SIZE, slot + 16, PAYLOAD_SIZE)
        store(out_origins + 8 * wrote, load(origins + 8 * read))
        wrote += found
    store(op + PRODUCED, wrote)
    return count
"""
GOLDEN = -7046029254386353131


class JoinStatic(Compiled):
    """An inner join with a table that does not change; a key stands in one row at most."""

    kind = w.TRANSFORM
    label = "join_static"

    def __init__(self, name: str, inputs: Schema, time: str | None, table: Any, on: str) -> None:
        rows = _as_records(table, name)
        schema = Schema(rows.dtype)
        key_type = inputs.integer(on, f"join_static {name!r}")
        table_type = schema.integer(on, f"join_static {name!r}, the table")
        if key_type.kind != table_type.kind:
            raise SchemaError(
                f"join_static {name!r}: key {on!r} is {key_type} in the stream and {table_type} in the table"
            )
        payload = [field for field in schema.names if field != on]
        for field in payload:
            if field in inputs.names:
                raise SchemaError(
                    f"join_static {name!r}: both the stream and the table have a field {field!r}; rename one"
                )
        fields = [(field, inputs.dtype[field]) for field in inputs.names]
        output = Schema(np.dtype(fields + [(field, schema.dtype[field]) for field in payload]))
        super().__init__(name, inputs, output, time)
        self.on = on
        self.table = rows
        self._slots, self._parameters = _build(rows, on, payload, name)

    def template(self) -> tuple[str, dict[str, Any]]:
        assert self.inputs is not None and self.output is not None
        names = {
            "INPUT_SIZE": self.inputs.size,
            "OUTPUT_SIZE": self.output.size,
            "PAYLOAD_SIZE": self.output.size - self.inputs.size,
            "SLOT_SIZE": self._slots.dtype.itemsize,
        }
        return TEMPLATE.format(key=self.on), names

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        raise AssertionError("a static join has no user function")

    def state_words(self) -> int:
        return 5

    def deploy(self) -> Instance:
        instance = super().deploy()
        instance.state[:5] = [address(self._slots), *self._parameters]
        return instance

    def describe(self) -> str:
        return f"join_static on {self.on}"


def _as_records(table: Any, name: str) -> np.ndarray:
    """A table given as a structured array, a DataFrame, or a mapping of columns, as records."""
    if hasattr(table, "to_records"):
        table = table.to_records(index=False)
    elif isinstance(table, dict):
        columns = {key: np.asarray(value) for key, value in table.items()}
        lengths = {key: len(value) for key, value in columns.items()}
        if len(set(lengths.values())) != 1:
            raise SchemaError(f"join_static {name!r}: the table's columns have different lengths: {lengths}")
        rows = np.empty(
            len(next(iter(columns.values()))), [(key, value.dtype) for key, value in columns.items()]
        )
        for key, value in columns.items():
            rows[key] = value
        table = rows
    if not isinstance(table, np.ndarray) or table.dtype.names is None:
        raise SchemaError(
            f"join_static {name!r}: the table is a {type(table).__name__}; "
            "give a structured array, a DataFrame or a dict of columns"
        )
    return table


def _build(rows: np.ndarray, on: str, payload: list[str], name: str) -> tuple[np.ndarray, list[int]]:
    """Slots of an open-addressing table, and mask, base, multiplier, shift."""
    keys = rows[on].astype(np.int64)
    unique, first = np.unique(keys, return_index=True)
    if len(unique) != len(keys):
        twice = keys[np.setdiff1d(np.arange(len(keys)), first)[0]]
        raise SchemaError(f"join_static {name!r}: key {on}={twice} stands in more than one row of the table")
    low, high = (int(unique[0]), int(unique[-1])) if len(unique) else (0, 0)
    dense = high - low < max(4 * len(unique), 16)
    width = max(high - low + 1 if dense else 2 * len(unique), len(unique) + 1)  # one slot stays empty
    capacity = 1 << max(4, (width - 1).bit_length())
    multiplier, shift = (1, 0) if dense else (GOLDEN, 32)
    packed = Schema(rows.dtype).dtype
    slots = np.zeros(
        capacity, [("key", "i8"), ("taken", "i8"), *[(field, packed[field]) for field in payload]]
    )

    def home(key: Any) -> Any:
        with np.errstate(over="ignore"):
            return (((key - low) * np.int64(multiplier)) >> shift) & (capacity - 1)

    number = home(keys)
    slots["key"] = low
    elsewhere = (np.int64(low ^ (1 << bit)) for bit in range(62))
    slots["key"][home(np.int64(low))] = next(key for key in elsewhere if home(key) != home(np.int64(low)))
    waiting = np.arange(len(keys))
    while len(waiting):  # each round places the first key that asks for a free slot and moves the others on
        asking = waiting[slots["taken"][number[waiting]] == 0]
        placed = asking[np.unique(number[asking], return_index=True)[1]]
        slots["taken"][number[placed]] = 1
        waiting = np.setdiff1d(waiting, placed)
        number[waiting] = (number[waiting] + 1) & (capacity - 1)
    slots["key"][number] = keys
    for field in payload:
        slots[field][number] = rows[field]
    return slots, [capacity - 1, low, multiplier, shift]
