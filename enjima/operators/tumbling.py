"""Tumbling windows, keyed or not: aggregate per key, emit when the window is over.

Events come in order, so one window is open at a time. Its results are emitted in the order its keys
arrived, as room allows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from enjima.native import words as w
from enjima.operators.merge import indented
from enjima.operators.operator import Instance, words_at
from enjima.operators.window import BEGINNING, LATE_DROP, LATE_ERROR, NEVER, WindowAggregate

__all__ = ["TumblingAggregate"]

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
        total = slot
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
            cell = slot
            {initialise}
            store(load(state + TABLE_ORDER) + 8 * taken, number)
            store(state + TABLE_TAKEN, taken + 1)
            slot.generation = generation
        cell = slot
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


class TumblingAggregate(WindowAggregate):
    """The aggregate of windows that follow each other; the state of a key lies in its slot."""

    @property
    def slot(self) -> np.dtype:
        keys = [(f"key_{i}", "i8") for i in range(len(self.keys))]
        return np.dtype([("generation", "i8"), ("origin", "i8"), *keys, *self.states])

    def template(self) -> tuple[str, dict[str, Any]]:
        text, names = self.pieces()
        names |= {"SIZE": self.length, "SLOT_DTYPE": self.slot, "SLOT_SIZE": self.slot.itemsize, **_STATE}
        source = TEMPLATE.format(
            BEGINNING=BEGINNING,
            NEVER=NEVER,
            time=self.input_time,
            emit=indented(text["emit_keys"] + text["result"], 8),
            late=LATE_ERROR if self.late == "error" else LATE_DROP,
            keys=indented(text["keys"], 8),
            same=text["same"][0],
            initialise=indented(text["set_keys"] + text["initialise"], 12),
            add=indented(text["add"], 8),
        )
        return source, names

    def table_words(self) -> int:
        return STATE_WORDS

    def begin(self, instance: Instance) -> None:
        instance.state[START] = BEGINNING
        instance.state[FULL] = 1  # no slots yet

    def python_batch(self, instance: Instance) -> Callable[..., int]:
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
            instance.flush(waiting, out, out_origins, room)
            if BEGINNING < watermark < NEVER:
                instance.words[w.TIME // 8] = watermark - watermark % self.length
            return instance.progress

        return batch

    def replay_result(self, state: int) -> None:
        self.replay_record(state, self.slot)
