"""What join and co_group share: a hash table of keys with the events of both sides in a chain each.

The slot of a key holds the first and last entry of each chain, so one look-up finds an event's partners and
its own place. Entries lie in one growing array for each side, in order of arrival:

    slot    generation, origin, keys, first left, last left, first right, last right
    entry   number of the next entry of the key (0: none), origin, the event

With tumbling windows a closed window empties everything at once; with sliding ones, entries older than any
open window are skipped, and swept out when they are the greater part.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from enjima.errors import SchemaError
from enjima.operators.merge import Merger, indented, require_time
from enjima.operators.operator import Instance
from enjima.operators.window import Sliding, Tumbling, Window
from enjima.schema import Schema

__all__ = ["PairInstance", "Pairs"]

# state words: a hash table (6 words), then these; the entries of a side: address, count, capacity
_WORDS: tuple[str, ...] = ("ENTRIES_0", "COUNT_0", "CAPACITY_0", "ENTRIES_1", "COUNT_1", "CAPACITY_1")
_WORDS += ("START", "OPEN", "FIRING", "NEXT", "CURSOR", "SIDE", "WINDOW")
_WORDS += ("SCRATCH_0", "SCRATCH_CAPACITY_0", "SCRATCH_1", "SCRATCH_CAPACITY_1")
WORD = {name: 8 * (6 + i) for i, name in enumerate(_WORDS)}
STATE_WORDS = 6 + len(_WORDS)
ENTRY_HEAD = 16  # next, origin

CHOOSE = """
@njit
def choose(ports):
    left = head_0(ports)
    right = head_1(ports + PORT_BYTES)
    if right < left:
        return 1, right, left
    return 0, left, right


@njit
def find(op, state, {parameters}):
    if load(state + TABLE_CAPACITY) == 0:
        grow(op, state, SLOT_SIZE, KEYS)
    mixed = 0
    {mix}
    while True:
        mask = load(state + TABLE_CAPACITY) - 1
        slots = load(state + TABLE_SLOTS)
        generation = load(state + TABLE_GENERATION)
        number = home(mixed, load(state + TABLE_SHIFT))
        slot = slots + number * SLOT_SIZE
        while load(slot) == generation:
            if {same}:
                return slot
            number = (number + 1) & mask
            slot = slots + number * SLOT_SIZE
        taken = load(state + TABLE_TAKEN)
        if 2 * taken < mask:
            break
        grow(op, state, SLOT_SIZE, KEYS)
    store(slot, generation)
    {set_keys}
    for i in range(4):
        store(slot + CHAINS + 8 * i, 0)
    store(load(state + TABLE_ORDER) + 8 * taken, number)
    store(state + TABLE_TAKEN, taken + 1)
    return slot


@njit
def link(state, slot, side, entries, size, number):
    chain = slot + CHAINS + 16 * side
    last = load(chain + 8)
    if last == 0:
        store(chain, number)
    else:
        store(entries + (last - 1) * size, number)
    store(chain + 8, number)


@njit
def forget(state):
    clear(state)
    store(state + COUNT_0, 0)
    store(state + COUNT_1, 0)


"""

SIDE = """
@njit
def keep_{i}(op, state, slot, place, shift, origin):
    count = load(state + COUNT_{i})
    if count == load(state + CAPACITY_{i}):
        capacity = max(64, 2 * count)
        store(state + ENTRIES_{i}, reallocate(load(state + ENTRIES_{i}), capacity * ENTRY_{i}))
        store(state + CAPACITY_{i}, capacity)
        add_to(op + GROWTHS, 1)
    entries = load(state + ENTRIES_{i})
    entry = entries + count * ENTRY_{i}
    store(entry, 0)
    store(entry + 8, origin)
    copy_{i}(entry + 16, place, shift)
    store(state + COUNT_{i}, count + 1)
    link(state, slot, {i}, entries, ENTRY_{i}, count + 1)


@njit
def time_{i}(entry):
    return int64(read_{i}(entry + 16, 0).{time})


@njit
def dead_{i}(state, before):
    entries = load(state + ENTRIES_{i})
    count = load(state + COUNT_{i})
    dead = 0
    while dead < count and time_{i}(entries + dead * ENTRY_{i}) < before:
        dead += 1
    return dead


@njit
def sweep_{i}(op, state, dead):
    entries = load(state + ENTRIES_{i})
    count = load(state + COUNT_{i}) - dead
    for index in range(count):
        entry = entries + index * ENTRY_{i}
        if dead > 0:
            copy(entry, entry + dead * ENTRY_{i}, ENTRY_{i})
        store(entry, 0)
        event = read_{i}(entry + 16, 0)
        slot = find(op, state, {keys})
        link(state, slot, {i}, entries, ENTRY_{i}, index + 1)
    store(state + COUNT_{i}, count)

"""

SWEEP = """
@njit
def sweep(op, state, before):
    left = dead_0(state, before)
    right = dead_1(state, before)
    kept = load(state + COUNT_0) + load(state + COUNT_1) - left - right
    if left + right > kept + 64 or kept == 0:
        clear(state)
        sweep_0(op, state, left)
        sweep_1(op, state, right)
    return kept

"""

LATE = {
    "error": "store(op + ERROR, LATE_EVENT); store(op + ERROR_VALUE, closed); "
    "store(op + BLOCKED_ON, {i} + 1); break",
    "drop": "add_to(op + LATE, 1); latest = time; taken += 1; continue",
}


class Pairs(Merger):
    """Two streams with keys in common, cut into windows."""

    def __init__(
        self,
        name: str,
        inputs: tuple[Schema, Schema],
        times: tuple[str | None, str | None],
        on: str | Sequence[str],
        window: Any,
        unit_ns: int,
        late: str,
    ) -> None:
        self.where = f"{self.label} {name!r}"
        if late not in LATE:
            raise SchemaError(f"{self.where}: late={late!r}; late events are an 'error' or are 'drop'ped")
        self.window = check_window(self.where, window)
        self.length, self.slide = self.window.lengths(unit_ns, self.where)
        self.sliding = isinstance(self.window, Sliding)
        self.late = late
        timed = [require_time(self.where, *pair) for pair in zip(inputs, times, strict=True)]
        self.keys = key_fields(self.where, inputs, on)
        output, time = self.outcome(inputs, timed)
        super().__init__(name, inputs, timed, output, time)
        words = ["generation", "origin", *(f"key_{i}" for i in range(len(self.keys)))]
        self.slot = np.dtype([(word, "i8") for word in [*words, "first_0", "last_0", "first_1", "last_1"]])

    @abstractmethod
    def outcome(self, inputs: Sequence[Schema], times: Sequence[str]) -> tuple[Schema, str]:
        """The schema of the results, and their field of event time."""

    def unique(self, fields: list[tuple[str, Any]]) -> Schema:
        """A schema of these fields, whose names must differ."""
        names = [field for field, _ in fields]
        for field in names:
            if names.count(field) > 1:
                raise SchemaError(
                    f"{self.where}: the result would have two fields {field!r}; rename one with map"
                )
        return Schema(np.dtype(fields))

    def pieces(self) -> tuple[str, dict[str, Any]]:
        """Source and names of the table, the entries and the order of events."""
        heads, names = self.heads(2)
        keys = range(len(self.keys))
        event_keys = ", ".join(f"int64(event.{key})" for key in self.keys)
        source = heads + CHOOSE.format(
            parameters=", ".join(f"key_{i}" for i in keys),
            mix=indented([f"mixed = (mixed ^ key_{i}) * GOLDEN" for i in keys], 4),
            same=" and ".join(f"load(slot + {16 + 8 * i}) == key_{i}" for i in keys),
            set_keys=indented([f"store(slot + {16 + 8 * i}, key_{i})" for i in keys], 4),
        )
        for i, time in enumerate(self.times):
            source += SIDE.format(i=i, time=time, keys=event_keys)
            names[f"ENTRY_{i}"] = entry_size(self.input_schemas[i])
        names |= {
            "LENGTH": self.length,
            "SLIDE": self.slide,
            "KEYS": len(self.keys),
            "SLOT_SIZE": self.slot.itemsize,
            "CHAINS": 16 + 8 * len(self.keys),
            **WORD,
        }
        return source + SWEEP, names

    def state_words(self) -> int:
        return STATE_WORDS

    def deploy(self) -> Instance:
        instance = PairInstance(self, STATE_WORDS)
        instance.state[4] = 1  # the table's generation; 0 marks a slot never taken
        for word, value in {"START": -(2**63), "WINDOW": -(2**63)}.items():
            instance.state[WORD[word] // 8] = value
        self.install(instance)
        return instance

    def describe(self) -> str:
        return f"{self.window} {self.label} by {', '.join(self.keys)}"


class PairInstance(Instance):
    """Frees the table, the entries and the scratch memory."""

    def close(self) -> None:
        from enjima.native.functions import free

        for word in (0, 24, *(WORD[name] for name in ("ENTRIES_0", "ENTRIES_1", "SCRATCH_0", "SCRATCH_1"))):
            free(int(self.state[word // 8]))
            self.state[word // 8] = 0


def entry_size(schema: Schema) -> int:
    """Bytes of an entry, whole words."""
    return ENTRY_HEAD + -(-schema.size // 8) * 8


def key_fields(where: str, inputs: tuple[Schema, Schema], on: str | Sequence[str]) -> tuple[str, ...]:
    """The key fields, which both sides must have, with integers of one kind."""
    keys = (on,) if isinstance(on, str) else tuple(on)
    if not keys or len(set(keys)) != len(keys):
        raise SchemaError(f"{where}: on={on!r}; name at least one field, each once")
    for key in keys:
        kinds = [schema.integer(key, f"{where}, {side}") for schema, side in zip(inputs, SIDES, strict=True)]
        if kinds[0].kind != kinds[1].kind:
            raise SchemaError(
                f"{where}: key {key!r} is {kinds[0]} on the left and {kinds[1]} on the right; "
                "give both the same type with map"
            )
    return keys


def check_window(where: str, window: Any) -> Window:
    """A window, without which both streams would have to be kept for ever."""
    if window is None:
        raise SchemaError(
            f"{where}: without a window both streams would have to be kept for ever; "
            "give one, such as window=Tumbling(seconds=10)"
        )
    if not isinstance(window, (Tumbling, Sliding)):
        raise SchemaError(f"{where}: window={window!r}; give Tumbling(seconds=...) or Sliding(...)")
    return window


SIDES = ("the left stream", "the right stream")
