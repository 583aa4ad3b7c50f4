"""Tumbling windows in event time, keyed or not: aggregate per key, emit when the window is over.

Events come in order, so one window is open at a time. Windows are aligned to time 0, closed at the start
and open at the end. A window's results are emitted in the order its keys arrived, as room allows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from enjima.aggregates import Aggregate
from enjima.errors import SchemaError
from enjima.native import words as w
from enjima.operators.operator import Compiled, Instance, UserFunction, records, words_at
from enjima.schema import Schema

__all__ = ["Tumbling", "TumblingAggregate"]

NEVER = 2**63 - 1
BEGINNING = -(2**63)

# state words: a hash table (6 words), then these
START, OPEN, FIRING, NEXT, FULL, STATE_WORDS = 6, 7, 8, 9, 10, 11
_STATE = {"START": 8 * START, "OPEN": 8 * OPEN, "FIRING": 8 * FIRING, "NEXT": 8 * NEXT, "FULL": 8 * FULL}

# numba splits blocks at every statement inside try, so the loops stand outside it, in functions; how far
# an interrupted one came is a word of the operator.
TEMPLATE = """
@njit
def emit(op, state, out, out_origins, room, wrote):
    slots = load(state + TABLE_SLOTS)
    order = load(state + TABLE_ORDER)
    index = load(state + NEXT)
    taken = load(state + TABLE_TAKEN)
    while index < taken and wrote < room:
        slot = carray(pointer(slots + load(order + 8 * index) * SLOT_SIZE), (1,), SLOT_DTYPE)[0]
        target = carray(pointer(out + wrote * OUTPUT_SIZE), (1,), OUTPUT_DTYPE)[0]
        store(op + ERROR_VALUE, slots + load(order + 8 * index) * SLOT_SIZE)
        target.window_start = load(state + START)
        {emit}
        store(out_origins + 8 * wrote, slot.origin)
        wrote += 1
        index += 1
    store(state + NEXT, index)
    if index == taken:
        store(state + FIRING, 0)
        store(state + OPEN, 0)
        store(state + NEXT, 0)
        clear(state)
    return wrote

@njit
def fold(op, state, events, origins, count, read):
    shift = load(op + SHIFT)
    if load(state + OPEN) == 0:
        time = int64(read_event(events + read * INPUT_SIZE, shift).{time})
        store(state + START, max(load(state + START), time - time % SIZE))
        store(state + OPEN, 1)
    start = load(state + START)
    generation = load(state + TABLE_GENERATION)
    mask = load(state + TABLE_CAPACITY) - 1
    table_shift = load(state + TABLE_SHIFT)
    slots = load(state + TABLE_SLOTS)
    while read < count:
        event = read_event(events + read * INPUT_SIZE, shift)
        time = int64(event.{time}) - start
        if time >= SIZE:
            store(state + FIRING, 1)
            break
        if time < 0:
            {late}
        {keys}
        number = home(mixed, table_shift)
        slot = carray(pointer(slots + number * SLOT_SIZE), (1,), SLOT_DTYPE)[0]
        while slot.generation == generation and not ({same}):
            number = (number + 1) & mask
            slot = carray(pointer(slots + number * SLOT_SIZE), (1,), SLOT_DTYPE)[0]
        if slot.generation != generation:
            taken = load(state + TABLE_TAKEN)
            if 2 * taken >= mask:
                store(state + FULL, 1)
                break
            {initialise}
            store(load(state + TABLE_ORDER) + 8 * taken, number)
            store(state + TABLE_TAKEN, taken + 1)
            slot.generation = generation
        {add}
        slot.origin = load(origins + 8 * read)
        read += 1
        store(op + PROGRESS, read)
    return read

@njit
def alternate(op, state, events, origins, count, out, out_origins, room):
    read = 0
    wrote = 0
    store(op + PROGRESS, 0)
    while True:
        if load(state + FIRING) != 0:
            wrote = emit(op, state, out, out_origins, room, wrote)
        if load(state + FIRING) != 0 or read == count or load(op + ERROR) != 0:
            break
        if load(state + FULL) != 0:
            grow(op, state, SLOT_SIZE, KEYS)
            store(state + FULL, 0)
        read = fold(op, state, events, origins, count, read)
    store(op + PRODUCED, wrote)
    store(op + PROGRESS, read)

def batch(op, events, origins, count, out, out_origins, room):
    state = load(op + STATE)
    watermark = load(op + TIME)
    if watermark > {BEGINNING} and load(state + OPEN) != 0 and watermark - SIZE >= load(state + START):
        store(state + FIRING, 1)
    try:
        alternate(op, state, events, origins, count, out, out_origins, room)
    except Exception:
        store(op + ERROR, RESULT_ERROR if load(state + FIRING) != 0 else USER_ERROR)
    store(op + MORE, load(state + FIRING))
    if {NEVER} > watermark > {BEGINNING}:
        store(op + TIME, watermark - watermark % SIZE)
    return load(op + PROGRESS)
"""
LATE_ERROR = "store(op + ERROR, LATE_EVENT); store(op + ERROR_VALUE, start); break"
LATE_DROP = "add_to(op + LATE, 1); read += 1; continue"


@dataclass(frozen=True)
class Tumbling:
    """Windows of a fixed length that follow each other: ``Tumbling(seconds=10)``."""

    seconds: float

    def __post_init__(self) -> None:
        if not isinstance(self.seconds, (int, float)) or not 0 < self.seconds < 1e9:
            raise SchemaError(f"a window's length must be a positive number of seconds, not {self.seconds!r}")

    def length(self, unit_ns: int, where: str) -> int:
        """The length in the stream's unit of time."""
        exact = self.seconds * 1e9 / unit_ns
        if round(exact) < 1 or abs(exact - round(exact)) > 1e-6 * exact:
            raise SchemaError(
                f"{where}: {self.seconds} s is not a whole number of the stream's time unit ({unit_ns} ns)"
            )
        return round(exact)


class TumblingAggregate(Compiled):
    """One result per key and window: ``window_start``, the keys, the aggregates."""

    kind = w.TIMED
    label = "window"

    def __init__(
        self,
        name: str,
        inputs: Schema,
        time: str,
        keys: tuple[str, ...],
        window: Tumbling,
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
        self.length = window.length(unit_ns, where)
        self.late = late
        self.functions = [
            UserFunction(a.add, name, 2) for a in self.aggregates.values() if a.built_in is None
        ]
        states = [(f"state_{field}_{i}", kind) for field, i, kind in self._state_fields(where)]
        self.slot = np.dtype(
            [("generation", "i8"), ("origin", "i8")] + [(f"key_{i}", "i8") for i in range(len(keys))] + states
        )

    def _state_fields(self, where: str) -> list[tuple[str, int, np.dtype]]:
        return [
            (field, i, kind)
            for field, aggregate in self.aggregates.items()
            for i, kind in enumerate(aggregate.state_types(where))
        ]

    def template(self) -> tuple[str, dict[str, Any]]:
        assert self.inputs is not None and self.output is not None
        from enjima.native.kernels import jit_user_function

        emit: list[str] = []
        initialise: list[str] = []
        add: list[str] = []
        names: dict[str, Any] = {
            "SIZE": self.length,
            "INPUT_SIZE": self.inputs.size,
            "OUTPUT_DTYPE": self.output.dtype,
            "OUTPUT_SIZE": self.output.size,
            "SLOT_DTYPE": self.slot,
            "SLOT_SIZE": self.slot.itemsize,
            "KEYS": len(self.keys),
            "read_event": self.event_reader(),
            **_STATE,
        }
        for i, key in enumerate(self.keys):
            emit.append(f"target.{key} = slot.key_{i}")
            initialise.append(f"slot.key_{i} = key_{i}")
        for field, aggregate in self.aggregates.items():
            count = len(aggregate.state_types(self.name))
            parts = [f"slot.state_{field}_{i}" for i in range(count)]
            state = f"({', '.join(parts)})" if count > 1 else parts[0]
            for part in ("init", "add", "result"):
                names[f"user_{part}_{field}"] = jit_user_function(getattr(aggregate, part))
            for lines, value in (
                (initialise, f"user_init_{field}()"),
                (add, f"user_add_{field}({state}, event)"),
            ):
                lines.append(f"value = {value}" if count > 1 else f"{state} = {value}")
                lines.extend(f"{part} = value[{i}]" for i, part in enumerate(parts) if count > 1)
            emit.append(f"target.{field} = user_result_{field}({state})")
        keys = [f"key_{i} = int64(event.{key})" for i, key in enumerate(self.keys)] + ["mixed = 0"]
        keys += [f"mixed = (mixed ^ key_{i}) * GOLDEN" for i in range(len(self.keys))]
        same = " and ".join(f"slot.key_{i} == key_{i}" for i in range(len(self.keys))) or "True"
        text = TEMPLATE.format(
            BEGINNING=BEGINNING,
            NEVER=NEVER,
            time=self.input_time,
            emit=_indented(emit, 8),
            late=LATE_ERROR if self.late == "error" else LATE_DROP,
            keys=_indented(keys, 8),
            same=same,
            initialise=_indented(initialise, 12),
            add=_indented(add, 8),
        )
        return text, names

    def state_words(self) -> int:
        return STATE_WORDS

    def deploy(self) -> Instance:
        instance = _WindowInstance(self, STATE_WORDS)
        instance.state[START] = BEGINNING
        instance.state[FULL] = 1  # no slots yet
        instance.state[4] = 1  # the table's generation; 0 marks a slot never taken
        if self.native is not None:
            instance.batch = self.native.address
        else:
            instance.use_python(self.python_batch(instance))
        return instance

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        target = self.output
        assert target is not None
        table: dict[tuple, list] = {}
        waiting: list[tuple[tuple, int]] = []
        start: int | None = None
        closed_before = BEGINNING

        def close_window() -> None:
            nonlocal start
            for key, (origin, *states) in table.items():
                results = [a.result(state) for a, state in zip(self.aggregates.values(), states, strict=True)]
                waiting.append(((start, *key, *results), origin))
            table.clear()
            start = None

        def add(event: Any, origin: int) -> None:
            nonlocal start, closed_before
            time = int(getattr(event, self.input_time))
            if start is not None and time >= start + self.length:
                close_window()
            if start is None and time - time % self.length >= closed_before:
                start = closed_before = time - time % self.length
            if start is None or time < start:
                if self.late == "drop":
                    instance.words[w.LATE // 8] += 1
                else:
                    instance.words[w.ERROR // 8] = w.LATE_EVENT
                    instance.words[w.ERROR_VALUE // 8] = closed_before
                return
            key = tuple(int(getattr(event, name)) for name in self.keys)
            slot = table.setdefault(key, [origin, *(a.init() for a in self.aggregates.values())])
            states = [
                a.add(state, event) for a, state in zip(self.aggregates.values(), slot[1:], strict=True)
            ]
            slot[:] = [origin, *states]

        def batch(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            watermark = int(instance.words[w.TIME // 8])
            instance.progress = 0
            if watermark > BEGINNING and start is not None and watermark >= start + self.length:
                close_window()
            from_origins = words_at(origins, count)
            for index, event in instance.iterate(instance.inputs(events, count)):
                add(event, int(from_origins[index]))
                if instance.words[w.ERROR // 8] or len(waiting) >= room:
                    instance.progress = index + (0 if instance.words[w.ERROR // 8] else 1)
                    break
            wrote = min(room, len(waiting))
            outputs, to_origins = records(out, room, target), words_at(out_origins, room)
            for index in range(wrote):
                outputs[index], to_origins[index] = waiting[index]
            del waiting[:wrote]
            instance.words[w.PRODUCED // 8] = wrote
            instance.words[w.MORE // 8] = int(bool(waiting))
            if BEGINNING < watermark < NEVER:
                instance.words[w.TIME // 8] = watermark - watermark % self.length
            return instance.progress

        return batch

    def replay(self, event: Any) -> None:
        for aggregate in self.aggregates.values():
            aggregate.add(aggregate.init(), event)

    def replay_result(self, slot: int) -> None:
        """Compute the results of one key again, from its state at an address."""
        state = records(slot, 1, Schema(self.slot))[0]
        for field, aggregate in self.aggregates.items():
            values = [state[f"state_{field}_{i}"].item() for i in range(len(aggregate.state_types(field)))]
            aggregate.result(tuple(values) if len(values) > 1 else values[0])

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
        return f"{self.window.seconds:g} s window{keys}: {', '.join(self.aggregates)}"


class _WindowInstance(Instance):
    def close(self) -> None:
        from enjima.native.functions import free

        for word in (0, 3):  # the table's slots and order
            free(int(self.state[word]))
            self.state[word] = 0


def _indented(lines: list[str], indent: int) -> str:
    return ("\n" + " " * indent).join(lines) if lines else "pass"
