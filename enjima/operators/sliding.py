"""Sliding windows by panes: each event is added up once, in its pane, and windows are merged from panes.

A pane is the greatest common measure of length and distance. A key's slot has as many cells as a window has
panes, used in turn: the events of all open windows lie within one length. Results of a window are emitted as
room allows; keys without events in any open window are dropped when they are the greater part.
"""

from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np

from enjima.native import words as w
from enjima.operators.merge import indented
from enjima.operators.operator import Instance, words_at
from enjima.operators.window import BEGINNING, LATE_DROP, LATE_ERROR, NEVER, WindowAggregate

__all__ = ["SlidingAggregate"]

# state words: a hash table (6 words), then these, then the cell in which a window's result is merged
START, OPEN, FIRING, NEXT, FULL, ALIVE, TOTAL = 6, 7, 8, 9, 10, 11, 12
_STATE = {
    name: 8 * word
    for name, word in {
        "START": START,
        "OPEN": OPEN,
        "FIRING": FIRING,
        "NEXT": NEXT,
        "FULL": FULL,
        "ALIVE": ALIVE,
        "TOTAL": TOTAL,
    }.items()
}

# START is the first window that has not fired; all events kept are of [START, START + LENGTH).
TEMPLATE = """
@njit
def cell_of(slot_place, pane):
    return slot_place + CELLS + pane % PANES * CELL_SIZE

@njit
def emit(op, state, out, out_origins, room, wrote):
    slots = load(state + TABLE_SLOTS)
    order = load(state + TABLE_ORDER)
    index = load(state + NEXT)
    taken = load(state + TABLE_TAKEN)
    start = load(state + START)
    first = start // PANE
    total = carray(pointer(state + TOTAL), (1,), CELL_DTYPE)[0]
    while index < taken and wrote < room:
        place = slots + load(order + 8 * index) * SLOT_SIZE
        slot = carray(pointer(place), (1,), SLOT_DTYPE)[0]
        found = 0
        latest = BEGINNING
        for pane in range(first, first + PANES):
            where = cell_of(place, pane)
            if load(where) == pane:
                cell = carray(pointer(where), (1,), CELL_DTYPE)[0]
                if found == 0:
                    copy(state + TOTAL, where, CELL_SIZE)
                else:
                    {merge}
                    total.origin = max(total.origin, cell.origin)
                found = 1
                latest = pane
        if found != 0:
            target = carray(pointer(out + wrote * OUTPUT_SIZE), (1,), OUTPUT_DTYPE)[0]
            store(op + ERROR_VALUE, state + TOTAL)
            target.window_start = start
            {emit}
            store(out_origins + 8 * wrote, total.origin)
            wrote += 1
            if latest * PANE >= start + SLIDE:
                add_to(state + ALIVE, 1)
        index += 1
    store(state + NEXT, index)
    if index == taken:
        store(state + FIRING, 0)
        store(state + NEXT, 0)
        store(state + START, start + SLIDE)
        if load(state + ALIVE) == 0:
            store(state + OPEN, 0)
            clear(state)
        elif 2 * load(state + ALIVE) < taken and taken > 64:
            drop_dead(op, state)
        store(state + ALIVE, 0)
    return wrote

@njit
def alive(place, first):
    for pane in range(first, first + PANES):
        if load(cell_of(place, pane)) == pane:
            return True
    return False

@njit
def drop_dead(op, state):
    slots = load(state + TABLE_SLOTS)
    order = load(state + TABLE_ORDER)
    first = load(state + START) // PANE
    kept = 0
    for index in range(load(state + TABLE_TAKEN)):
        number = load(order + 8 * index)
        if alive(slots + number * SLOT_SIZE, first):
            store(order + 8 * kept, number)
            kept += 1
    store(state + TABLE_TAKEN, kept)
    rehash(state, SLOT_SIZE, KEYS)

@njit
def fold(op, state, events, origins, count, read):
    shift = load(op + SHIFT)
    if load(state + OPEN) == 0:
        time = int64(read_event(events + read * INPUT_SIZE, shift).{time})
        store(state + START, max(load(state + START), (time - LENGTH) // SLIDE * SLIDE + SLIDE))
        store(state + OPEN, 1)
    start = load(state + START)
    generation = load(state + TABLE_GENERATION)
    mask = load(state + TABLE_CAPACITY) - 1
    table_shift = load(state + TABLE_SHIFT)
    slots = load(state + TABLE_SLOTS)
    pane = 0
    pane_start = 0
    pane_at = CELLS
    while read < count:
        event = read_event(events + read * INPUT_SIZE, shift)
        time = int64(event.{time})
        if time - start >= LENGTH:
            store(state + FIRING, 1)
            break
        if time < start:
            {late}
        if time < pane_start or time - pane_start >= PANE:
            pane = time // PANE
            pane_start = pane * PANE
            pane_at = cell_of(0, pane)
        {keys}
        number = home(mixed, table_shift)
        place = slots + number * SLOT_SIZE
        slot = carray(pointer(place), (1,), SLOT_DTYPE)[0]
        while slot.generation == generation and not ({same}):
            number = (number + 1) & mask
            place = slots + number * SLOT_SIZE
            slot = carray(pointer(place), (1,), SLOT_DTYPE)[0]
        if slot.generation != generation:
            taken = load(state + TABLE_TAKEN)
            if 2 * taken >= mask:
                store(state + FULL, 1)
                break
            {set_keys}
            for i in range(PANES):
                store(place + CELLS + i * CELL_SIZE, BEGINNING)
            store(load(state + TABLE_ORDER) + 8 * taken, number)
            store(state + TABLE_TAKEN, taken + 1)
            slot.generation = generation
        cell = carray(pointer(place + pane_at), (1,), CELL_DTYPE)[0]
        if cell.pane != pane:
            {initialise}
            cell.pane = pane
        {add}
        cell.origin = load(origins + 8 * read)
        read += 1
        store(op + PROGRESS, read)
    return read

@njit
def due(state, watermark):
    return watermark > BEGINNING and load(state + OPEN) != 0 and watermark - LENGTH >= load(state + START)

@njit
def alternate(op, state, watermark, events, origins, count, out, out_origins, room):
    read = 0
    wrote = 0
    store(op + PROGRESS, 0)
    while True:
        if due(state, watermark):
            store(state + FIRING, 1)
        if load(state + FIRING) != 0:
            wrote = emit(op, state, out, out_origins, room, wrote)
        if wrote == room or load(op + ERROR) != 0:
            break
        if load(state + FIRING) != 0 or due(state, watermark):
            continue
        if read == count:
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
    try:
        alternate(op, state, watermark, events, origins, count, out, out_origins, room)
    except Exception:
        store(op + ERROR, RESULT_ERROR if load(state + FIRING) != 0 else USER_ERROR)
    store(op + MORE, 1 if load(state + FIRING) != 0 or due(state, watermark) else 0)
    if NEVER > watermark > BEGINNING:
        store(op + TIME, (watermark - LENGTH) // SLIDE * SLIDE + SLIDE)
    return load(op + PROGRESS)
"""


class SlidingAggregate(WindowAggregate):
    """The aggregate of overlapping windows; a key's slot has a cell for each pane of a window."""

    @property
    def pane(self) -> int:
        return gcd(self.length, self.slide)

    @property
    def panes(self) -> int:
        return self.length // self.pane

    @property
    def cell(self) -> np.dtype:
        return np.dtype([("pane", "i8"), ("origin", "i8"), *self.states])

    def template(self) -> tuple[str, dict[str, Any]]:
        text, names = self.pieces()
        slot = np.dtype(
            [("generation", "i8"), ("origin", "i8")] + [(f"key_{i}", "i8") for i in range(len(self.keys))]
        )
        names |= {
            "LENGTH": self.length,
            "SLIDE": self.slide,
            "PANE": self.pane,
            "PANES": self.panes,
            "CELLS": slot.itemsize,
            "CELL_DTYPE": self.cell,
            "CELL_SIZE": self.cell.itemsize,
            "SLOT_DTYPE": slot,
            "SLOT_SIZE": slot.itemsize + self.panes * self.cell.itemsize,
            **_STATE,
        }
        source = TEMPLATE.format(
            time=self.input_time,
            merge=indented(text["merge"], 20),
            emit=indented(text["emit_keys"] + text["result"], 12),
            late=LATE_ERROR if self.late == "error" else LATE_DROP,
            keys=indented(text["keys"], 8),
            same=text["same"][0],
            set_keys=indented(text["set_keys"], 12),
            initialise=indented(text["initialise"], 12),
            add=indented(text["add"], 8),
        )
        return source, names

    def table_words(self) -> int:
        return TOTAL + self.cell.itemsize // 8

    def begin(self, instance: Instance) -> None:
        instance.state[START] = BEGINNING
        instance.state[FULL] = 1  # no slots yet

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        aggregates = list(self.aggregates.values())
        panes: dict[int, dict[tuple, list]] = {}  # pane -> key -> origin, states
        waiting: list[tuple[tuple, int]] = []
        start = BEGINNING

        def fire() -> None:
            nonlocal start
            merged: dict[tuple, list] = {}
            for pane in range(start // self.pane, (start + self.length) // self.pane):
                for key, (origin, *states) in panes.get(pane, {}).items():
                    if key in merged:
                        former = merged[key]
                        joined = [
                            a.merge(x, y) for a, x, y in zip(aggregates, former[1:], states, strict=True)
                        ]
                        merged[key] = [max(former[0], origin), *joined]
                    else:
                        merged[key] = [origin, *states]
            for key, (origin, *states) in merged.items():
                results = [a.result(state) for a, state in zip(aggregates, states, strict=True)]
                waiting.append(((start, *key, *results), origin))
            start += self.slide
            for pane in [pane for pane in panes if pane * self.pane < start]:
                del panes[pane]

        def add(event: Any, origin: int) -> None:
            nonlocal start
            time = int(getattr(event, self.input_time))
            while panes and time - start >= self.length:
                fire()
            if not panes:
                start = max(start, (time - self.length) // self.slide * self.slide + self.slide)
            if time < start:
                if self.late == "drop":
                    instance.words[w.LATE // 8] += 1
                else:
                    instance.words[w.ERROR // 8] = w.LATE_EVENT
                    instance.words[w.ERROR_VALUE // 8] = start
                return
            key = tuple(int(getattr(event, name)) for name in self.keys)
            pane = panes.setdefault(time // self.pane, {})
            slot = pane.setdefault(key, [origin, *(a.init() for a in aggregates)])
            slot[:] = [origin, *(a.add(s, event) for a, s in zip(aggregates, slot[1:], strict=True))]

        def batch(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            watermark = int(instance.words[w.TIME // 8])
            instance.progress = 0
            while watermark > BEGINNING and panes and watermark - self.length >= start:
                fire()
            from_origins = words_at(origins, count)
            for index, event in instance.iterate(instance.inputs(events, count)):
                add(event, int(from_origins[index]))
                if instance.words[w.ERROR // 8] or len(waiting) >= room:
                    instance.progress = index + (0 if instance.words[w.ERROR // 8] else 1)
                    break
            instance.flush(waiting, out, out_origins, room)
            if BEGINNING < watermark < NEVER:
                instance.words[w.TIME // 8] = (
                    watermark - self.length
                ) // self.slide * self.slide + self.slide
            return instance.progress

        return batch

    def replay_result(self, state: int) -> None:
        self.replay_record(state, self.cell)
