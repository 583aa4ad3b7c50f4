"""co_group: for each key and window, a function over the events of both streams, when the window is over."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from enjima.errors import SchemaError
from enjima.native import words as w
from enjima.operators.map import assignments, check_yields
from enjima.operators.merge import indented
from enjima.operators.operator import (
    Instance,
    Operator,
    UserFunction,
    field_values,
    records,
    words_at,
)
from enjima.operators.pairs import LATE, WORD, Pairs, entry_size
from enjima.schema import Schema

__all__ = ["CoGroup"]

NEVER = 2**63 - 1
BEGINNING = -(2**63)

# START is the first window that has not fired; all events kept are of [START, START + LENGTH).
SIDE = """
@njit
def take_{i}(op, state, port, limit, bound):
    events = load(port + PORT_EVENTS)
    origins = load(port + PORT_ORIGINS)
    shift = load(port + PORT_SHIFT)
    latest = load(port + PORT_LATEST)
    taken = load(port + PORT_TAKEN)
    count = min(load(port + PORT_COUNT), taken + limit)
    while taken < count:
        place = events + taken * SIZE_{i}
        event = read_{i}(place, shift)
        own = int64(event.{time})
        time = max(latest, own)
        if time {beyond} bound or due(state, time):
            break
        closed = max(load(state + START), (time - LENGTH) // SLIDE * SLIDE + SLIDE)
        if own < closed:
            {late}
        if load(state + OPEN) == 0:
            store(state + START, closed)
            store(state + OPEN, 1)
        slot = find(op, state, {keys})
        keep_{i}(op, state, slot, place, shift, load(origins + 8 * taken))
        latest = time
        taken += 1
    store(port + PORT_LATEST, latest)
    store(port + PORT_TAKEN, taken)


@njit
def gather_{i}(op, state, slot, start):
    entries = load(state + ENTRIES_{i})
    number = load(slot + CHAINS + 16 * {i})
    count = 0
    while number != 0:
        entry = entries + (number - 1) * ENTRY_{i}
        if time_{i}(entry) >= start:
            if count == load(state + SCRATCH_CAPACITY_{i}):
                capacity = max(64, 2 * count)
                store(state + SCRATCH_{i}, reallocate(load(state + SCRATCH_{i}), capacity * SIZE_{i}))
                store(state + SCRATCH_CAPACITY_{i}, capacity)
                add_to(op + GROWTHS, 1)
            copy(load(state + SCRATCH_{i}) + count * SIZE_{i}, entry + 16, SIZE_{i})
            store(slot + 8, max(load(slot + 8), load(entry + 8)))
            count += 1
        number = load(entry)
    return count

"""

# A key's results are published together: what a failing function had produced for it is taken back.
BATCH = """
@njit
def due(state, now):
    return now > BEGINNING and load(state + OPEN) != 0 and now - LENGTH >= load(state + START)


@njit
def fire(op, state, out, out_origins, room):
    start = load(state + START)
    while load(state + NEXT) < load(state + TABLE_TAKEN) and load(op + PRODUCED) < room:
        number = load(load(state + TABLE_ORDER) + 8 * load(state + NEXT))
        slot = load(state + TABLE_SLOTS) + number * SLOT_SIZE
        store(slot + 8, BEGINNING)
        store(op + ERROR_VALUE, slot)
        lefts = gather_0(op, state, slot, start)
        rights = gather_1(op, state, slot, start)
        if lefts + rights > 0:
            wrote = load(op + PRODUCED)
            for result in function(
                carray(pointer(load(state + SCRATCH_0)), (lefts,), DTYPE_0),
                carray(pointer(load(state + SCRATCH_1)), (rights,), DTYPE_1),
            ):
                if wrote < room:
                    place = out + wrote * OUTPUT_SIZE
                    store(out_origins + 8 * wrote, load(slot + 8))
                    wrote += 1
                else:
                    place = spill(op, load(slot + 8))
                target = carray(pointer(place), (1,), OUTPUT_DTYPE)[0]
                target.window_start = start
                {assign_keys}
                {assign}
            store(op + PRODUCED, wrote)
        add_to(state + NEXT, 1)
    if load(state + NEXT) == load(state + TABLE_TAKEN):
        store(state + FIRING, 0)
        store(state + NEXT, 0)
        store(state + START, start + SLIDE)
        if sweep(op, state, start + SLIDE) == 0:
            store(state + OPEN, 0)


@njit
def alternate(op, ports, limit, out, out_origins, room):
    state = load(op + STATE)
    right = ports + PORT_BYTES
    while True:
        if load(state + FIRING) != 0:
            fire(op, state, out, out_origins, room)
        side, now, bound = choose(ports)
        if load(state + FIRING) == 0 and due(state, now):
            store(state + FIRING, 1)
        if load(state + FIRING) != 0:
            if load(op + PRODUCED) == room or load(op + SPILL_COUNT) != 0:
                break
            continue
        promise = now
        if NEVER > now > BEGINNING:
            promise = (now - LENGTH) // SLIDE * SLIDE + SLIDE
        store(op + TIME, promise)
        used = load(ports + PORT_TAKEN) + load(right + PORT_TAKEN)
        port = ports + side * PORT_BYTES
        if load(port + PORT_TAKEN) == load(port + PORT_COUNT):
            store(op + BLOCKED_ON, side + 1 if now != NEVER else 0)
            break
        if used >= limit or load(op + ERROR) != 0:
            break
        if side == 0:
            take_0(op, state, port, limit - used, bound)
        else:
            take_1(op, state, port, limit - used, bound)


def batch(op, ports, inputs, limit, out, out_origins, room):
    state = load(op + STATE)
    try:
        alternate(op, ports, limit, out, out_origins, room)
    except Exception:
        store(op + ERROR, RESULT_ERROR)
        store(op + SPILL_COUNT, 0)
    store(op + MORE, load(state + FIRING))
    return load(ports + PORT_TAKEN) + load(ports + PORT_BYTES + PORT_TAKEN)
"""


class CoGroup(Pairs):
    """Results are the window's start, the keys, and what the function yields."""

    label = "co_group"
    swappable = "function"

    def __init__(
        self,
        name: str,
        inputs: tuple[Schema, Schema],
        times: tuple[str | None, str | None],
        on: str | Sequence[str],
        window: Any,
        unit_ns: int,
        function: Callable,
        results: Any,
        late: str,
    ) -> None:
        if results is None:
            raise SchemaError(f"co_group {name!r}: say what its function yields, such as schema='toll: i8'")
        self.results = Schema(results)
        super().__init__(name, inputs, times, on, window, unit_ns, late)
        self.function = UserFunction(function, name, ("the left events", "the right events"))
        self.functions = [self.function]

    def outcome(self, inputs: Sequence[Schema], times: Sequence[str]) -> tuple[Schema, str]:
        keys = [(key, inputs[0].dtype[key]) for key in self.keys]
        yields = [(name, self.results.dtype[name]) for name in self.results.names]
        return self.unique([("window_start", np.dtype("i8")), *keys, *yields]), "window_start"

    def template(self) -> tuple[str, dict[str, Any]]:
        assert self.output is not None
        source, names = self.pieces()
        self._jitted = self.function.compiled()
        rest = BATCH.replace("{assign_keys}", indented(self._key_lines(), 16)).replace(
            "{assign}", assignments(self.results, 16)
        )
        due, rest = rest[: rest.index("@njit\ndef fire")], rest[rest.index("@njit\ndef fire") :]
        source += due
        for i in (0, 1):
            source += SIDE.format(
                i=i,
                time=self.times[i],
                beyond=(">", ">=")[i],
                keys=", ".join(f"int64(event.{key})" for key in self.keys),
                late=LATE[self.late].format(i=i),
            )
            names[f"DTYPE_{i}"] = self.input_schemas[i].dtype
        names |= {
            "function": self._jitted,
            "OUTPUT_DTYPE": self.output.dtype,
            "OUTPUT_SIZE": self.output.size,
        }
        return source + rest, names

    def _key_lines(self) -> list[str]:
        return [f"target.{key} = load(slot + {16 + 8 * i})" for i, key in enumerate(self.keys)]

    def check(self) -> None:
        from numba import from_dtype, types

        from enjima.native.kernels import result_type

        arrays = [types.Array(from_dtype(schema.dtype), 1, "C") for schema in self.input_schemas]
        result = result_type(self._jitted, *arrays)
        check_yields(result, self.results, self.label, self.name, self.function.name)

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        return _PythonCoGroup(self, instance).batch

    def prepare(self) -> None:
        try:
            super().prepare()
        except KeyError as error:  # numba's way to say that a record has no such field
            left, right = (", ".join(schema.names) for schema in self.input_schemas)
            raise SchemaError(
                f"operator {self.name!r}, {self.function.name}: there is no field {error}; "
                f"the left stream has {left}, the right one {right}"
            ) from error

    def swapped(self, function: Callable) -> Operator:
        new = super().swapped(function)
        if (cast(CoGroup, new).native is None) != (self.native is None):
            raise SchemaError(
                f"operator {self.name!r}: a function that compiles and one that runs as Python cannot be "
                "swapped for each other, because they keep their windows in different ways"
            )
        return new

    def install(self, instance: Instance) -> None:
        if self.native is not None or instance.batch == 0:  # a Python kernel looks its function up
            super().install(instance)

    def replay_result(self, state: int) -> None:
        """Call the function again on the events of one key, from its slot at an address."""
        latest: _GroupInstance = self._latest
        list(self.function.python(*latest.groups(state)))

    def deploy(self) -> Instance:
        instance = super().deploy()
        self._latest = _GroupInstance(self, instance)
        return instance


class _GroupInstance:
    """Reads a deployed co_group's entries from Python, to replay a function that failed."""

    def __init__(self, operator: CoGroup, instance: Instance) -> None:
        self.operator, self.instance = operator, instance

    def groups(self, slot: int) -> list[list[Any]]:
        operator, state = self.operator, self.instance.state
        chains = words_at(slot, operator.slot.itemsize // 8)[2 + len(operator.keys) :]
        start = int(state[WORD["START"] // 8])
        result = []
        for i, schema in enumerate(operator.input_schemas):
            entries, size = int(state[WORD[f"ENTRIES_{i}"] // 8]), entry_size(schema)
            events, number = [], int(chains[2 * i])
            while number:
                entry = entries + (number - 1) * size
                (event,) = schema.events(records(entry + 16, 1, schema))
                if getattr(event, operator.times[i]) >= start:
                    events.append(event)
                number = int(words_at(entry, 1)[0])
            result.append(events)
        return result


class _PythonCoGroup:
    """The kernel as Python: the same order, windows and results."""

    def __init__(self, operator: CoGroup, instance: Instance) -> None:
        self.operator, self.instance = operator, instance
        self.kept: dict[tuple, tuple[list, list]] = {}  # key -> (time, event, origin) of either side
        self.waiting: list[tuple[tuple, int]] = []
        self.start = BEGINNING

    def batch(
        self, op: int, ports: int, inputs: int, limit: int, out: int, out_origins: int, room: int
    ) -> int:
        operator, words = self.operator, self.instance.words
        table = words_at(ports, inputs * w.PORT_BYTES // 8).reshape(inputs, -1)
        sides = [self._side(port, schema) for port, schema in zip(table, operator.input_schemas, strict=True)]
        used = 0
        while len(self.waiting) < room and not words[w.ERROR // 8] and not self.instance.stop_flag():
            heads = [self._head(i, table[i], sides[i]) for i in (0, 1)]
            side = 1 if heads[1] < heads[0] else 0
            now, port = heads[side], table[side]
            if self.kept and now > BEGINNING and now - operator.length >= self.start:
                self._fire()
                continue
            ahead = now if now in (NEVER, BEGINNING) else self._first_start(now)
            words[w.TIME // 8] = ahead
            taken = int(port[w.PORT_TAKEN // 8])
            if taken == len(sides[side][0]):
                words[w.BLOCKED_ON // 8] = side + 1 if now != NEVER else 0
                break
            if used == limit:
                break
            self._take(side, now, *(column[taken] for column in sides[side]))
            if not words[w.ERROR // 8]:
                port[w.PORT_TAKEN // 8] += 1
                port[w.PORT_LATEST // 8] = now
                used += 1
        full = len(self.waiting) >= room  # it stopped for want of room, and is to be called again
        self.instance.flush(self.waiting, out, out_origins, room)
        words[w.MORE // 8] = int(full)
        return used

    def _side(self, port: np.ndarray, schema: Schema) -> tuple[list, list]:
        count = int(port[w.PORT_COUNT // 8])
        events = records(int(port[w.PORT_EVENTS // 8]), count, schema).copy()
        shift = int(port[w.PORT_SHIFT // 8])
        if shift:
            i = [s is schema for s in self.operator.input_schemas].index(True)
            events[self.operator.times[i]] += shift
        origins = words_at(int(port[w.PORT_ORIGINS // 8]), count).tolist()
        return list(schema.events(events)), origins

    def _head(self, i: int, port: np.ndarray, side: tuple[list, list]) -> int:
        taken, latest = int(port[w.PORT_TAKEN // 8]), int(port[w.PORT_LATEST // 8])
        if taken < len(side[0]):
            return max(latest, int(getattr(side[0][taken], self.operator.times[i])))
        return max(latest, int(port[w.PORT_FRONTIER // 8]))

    def _first_start(self, time: int) -> int:
        return (
            time - self.operator.length
        ) // self.operator.slide * self.operator.slide + self.operator.slide

    def _take(self, side: int, now: int, event: Any, origin: int) -> None:
        operator, words = self.operator, self.instance.words
        own = int(getattr(event, operator.times[side]))
        closed = max(self.start, self._first_start(now))
        if own < closed:
            if operator.late == "drop":
                words[w.LATE // 8] += 1
            else:
                words[w.ERROR // 8], words[w.ERROR_VALUE // 8] = w.LATE_EVENT, closed
                words[w.BLOCKED_ON // 8] = side + 1
            return
        if not self.kept:
            self.start = closed
        key = tuple(int(getattr(event, name)) for name in operator.keys)
        self.kept.setdefault(key, ([], []))[side].append((own, event, origin))

    def _fire(self) -> None:
        operator = self.operator
        for key, sides in self.kept.items():
            groups = [[entry for entry in side if entry[0] >= self.start] for side in sides]
            if not any(groups):
                continue
            origin = max(entry[2] for group in groups for entry in group)
            results = operator.function.python(*([entry[1] for entry in group] for group in groups))
            rows = [field_values(result, operator.results, operator.name) for result in results]
            self.waiting += [((self.start, *key, *row), origin) for row in rows]
        self.start += operator.slide
        for key, sides in list(self.kept.items()):
            for side in sides:
                side[:] = [entry for entry in side if entry[0] >= self.start]
            if not any(sides):
                del self.kept[key]
