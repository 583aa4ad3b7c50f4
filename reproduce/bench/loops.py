"""The limits: what each operator does, written by hand as one loop, with nothing of an engine around it.

A loop reads the same array of records as the engine's source, does the operator's work, and writes its
results to one small buffer again and again, as a pipeline would into blocks that stay in the cache. State
lies in direct-address tables, indexed by key: the bench's keys are dense, so no hashing is faster.

    loop            what it does per event
    scan            reads its time
    keep            copies it if its value is below a limit
    project         computes three fields of the result
    expand          writes none, one or two results
    look_up         copies it with a row of a table
    tumble, slide   adds to the count and sum of its key (of the open pane); windows are written when over
    merge           takes the earlier of two arrays' next events and copies it
    pair, diamond   symmetric join: meets the other side's events of its key, then is kept
    gather          is kept under its key; the window's groups are folded and written when it is over

Each pass over the arrays is later by their span, exactly as when a source loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit

EVENT = np.dtype([("time", "i8"), ("key", "i8"), ("value", "i8"), ("sequence", "i8")])
"""What all loops read, 32 bytes."""

PROJECTED = np.dtype([("time", "i8"), ("key", "i8"), ("value", "i8")])
LOOKED_UP = np.dtype([*((name, "i8") for name in EVENT.names or ()), ("group", "i8")])
COUNTED = np.dtype([("window_start", "i8"), ("key", "i8"), ("events", "i8"), ("total", "i8")])
PAIR = np.dtype([
    (name, "i8") for name in ("time", "key", "value_l", "sequence_l", "value_r", "sequence_r")
])  # fmt: skip
GROUP = np.dtype([("window_start", "i8"), ("key", "i8"), ("events", "i8"), ("difference", "i8")])

WROTE, END, LATEST, KEPT = range(4)
"""What a loop remembers between passes: results so far, the end of the open window or pane (0: none yet),
the latest time, and (two words) where the next event of each side is to be kept."""

ROOM = 4096
"""Results in the buffer; a power of two."""


class Loop:
    """A hand-written loop over arrays of events, and its memory.

    `kernel(*arrays, shift, *state, out, memory)` is one pass; `close(*state, out, memory)` hands over what
    windows are open at the end.
    """

    def __init__(
        self,
        kernel: Callable[..., None],
        arrays: Sequence[np.ndarray],
        result: np.dtype,
        state: Sequence[Any] = (),
        close: Callable[..., None] | None = None,
        room: int = ROOM,
    ) -> None:
        assert room & (room - 1) == 0, "positions in the buffer are masked"
        self.arrays, self.state = arrays, state
        self.out = np.zeros(room, result)
        self.memory = np.zeros(24, np.int64)[8:16]  # no cache line in common with another thread's
        self._kernel, self._close = kernel, close
        self._shift = 0
        times = arrays[0]["time"]
        span = int(times[-1]) - int(times[0])
        self._step = span + max(1, span // max(1, len(times) - 1))

    def again(self) -> int:
        """One more pass over the arrays; the number of their events."""
        self._kernel(*self.arrays, self._shift, *self.state, self.out, self.memory)
        self._shift += self._step
        return sum(map(len, self.arrays))

    def finish(self) -> np.ndarray:
        """Close the open windows; all results, if they fitted into the buffer."""
        if self._close is not None:
            self._close(*self.state, self.out, self.memory)
        wrote = int(self.memory[WROTE])
        assert wrote <= len(self.out), "the buffer was overwritten"
        return self.out[:wrote]


@njit(nogil=True, cache=True)
def scan(events, shift, out, memory):
    latest = memory[LATEST]
    for event in events:
        latest = max(latest, event.time + shift)
    memory[LATEST] = latest


@njit(nogil=True, cache=True)
def keep(events, shift, limit, out, memory):
    wrote, mask = memory[WROTE], len(out) - 1
    for event in events:
        if event.value < limit:
            target = out[wrote & mask]
            target.time = event.time + shift
            target.key = event.key
            target.value = event.value
            target.sequence = event.sequence
            wrote += 1
    memory[WROTE] = wrote


@njit(nogil=True, cache=True)
def project(events, shift, out, memory):
    wrote, mask = memory[WROTE], len(out) - 1
    for event in events:
        target = out[wrote & mask]
        target.time = event.time + shift
        target.key = event.key
        target.value = 2 * event.value + event.sequence
        wrote += 1
    memory[WROTE] = wrote


@njit(nogil=True, cache=True)
def expand(events, shift, out, memory):
    wrote, mask = memory[WROTE], len(out) - 1
    for event in events:
        for copy in range(event.value % 3):
            target = out[wrote & mask]
            target.time = event.time + shift
            target.key = event.key
            target.value = event.value + copy
            wrote += 1
    memory[WROTE] = wrote


@njit(nogil=True, cache=True)
def look_up(events, shift, group_of, out, memory):
    wrote, mask = memory[WROTE], len(out) - 1
    for event in events:
        target = out[wrote & mask]
        target.time = event.time + shift
        target.key = event.key
        target.value = event.value
        target.sequence = event.sequence
        target.group = group_of[event.key]
        wrote += 1
    memory[WROTE] = wrote


@njit(nogil=True, cache=True)
def tumble(events, shift, length, sums, out, memory):
    end = memory[END]
    for event in events:
        now = event.time + shift
        if now >= end:
            close_tumbling(length, sums, out, memory)
            end = now // length * length + length
            memory[END] = end
        sums[event.key, 0] += 1
        sums[event.key, 1] += event.value


@njit(nogil=True, cache=True)
def close_tumbling(length, sums, out, memory):
    """Hand over the counts and sums of the open window and begin the next."""
    wrote, mask = memory[WROTE], len(out) - 1
    for key in range(len(sums)):
        if sums[key, 0] > 0:
            target = out[wrote & mask]
            target.window_start = memory[END] - length
            target.key = key
            target.events = sums[key, 0]
            target.total = sums[key, 1]
            wrote += 1
            sums[key, 0] = sums[key, 1] = 0
    memory[WROTE] = wrote


@njit(nogil=True, cache=True)
def slide(events, shift, pane, panes, out, memory):
    if memory[END] == 0:
        memory[END] = (events[0].time + shift) // pane * pane + pane
    end = memory[END]
    sums = panes[end // pane % len(panes)]
    for event in events:
        now = event.time + shift
        while now >= end:
            close_pane(pane, panes, out, memory)
            end += pane
            memory[END] = end
            sums = panes[end // pane % len(panes)]
        sums[event.key, 0] += 1
        sums[event.key, 1] += event.value


@njit(nogil=True, cache=True)
def close_pane(pane, panes, out, memory):
    """Hand over the window that ends with the open pane, and empty the oldest pane for the next."""
    wrote, mask, end = memory[WROTE], len(out) - 1, memory[END]
    count = len(panes)
    for key in range(panes.shape[1]):
        events = total = 0
        for number in range(count):
            events += panes[number, key, 0]
            total += panes[number, key, 1]
        if events > 0:
            target = out[wrote & mask]
            target.window_start = end - count * pane
            target.key = key
            target.events = events
            target.total = total
            wrote += 1
    panes[(end // pane + 1) % count] = 0
    memory[WROTE] = wrote


@njit(nogil=True, cache=True)
def close_sliding(pane, panes, out, memory):
    for _ in range(len(panes)):
        close_pane(pane, panes, out, memory)
        memory[END] += pane


@njit(nogil=True, cache=True)
def merge(lefts, rights, shift, out, memory):
    wrote, mask = memory[WROTE], len(out) - 1
    left = right = 0
    while left < len(lefts) or right < len(rights):
        if right == len(rights) or (left < len(lefts) and lefts[left].time <= rights[right].time):
            event = lefts[left]
            left += 1
        else:
            event = rights[right]
            right += 1
        target = out[wrote & mask]
        target.time = event.time + shift
        target.key = event.key
        target.value = event.value
        target.sequence = event.sequence
        wrote += 1
    memory[WROTE] = wrote


def tables(keys: int, events: int) -> tuple[np.ndarray, np.ndarray]:
    """State of `pair`, `diamond` and `gather`: per key its first and last events, and all events.

    An event is its value, its sequence and the number of the next of its key (-1: none). `events` is how
    many a window holds at most of one side; memory that is never touched costs nothing.
    """
    return np.full((keys, 4), -1, np.int64), np.empty((2 * events, 3), np.int64)


@njit(nogil=True, cache=True)
def remember(side, event, chains, kept, memory):
    """Keep an event of the open window as the last of its key; the sides take every other place."""
    number = memory[KEPT + side]
    memory[KEPT + side] = number + 2
    place, chain = kept[number], chains[event.key]
    place[0] = event.value
    place[1] = event.sequence
    place[2] = -1
    if chain[2 * side] < 0:
        chain[2 * side] = number
    else:
        kept[chain[2 * side + 1], 2] = number
    chain[2 * side + 1] = number


@njit(nogil=True, cache=True)
def meet(now, side, event, chains, kept, out, wrote):
    """Write a pair with each event of the other side that has the same key; the results so far."""
    mask = len(out) - 1
    number = chains[event.key, 2 - 2 * side]
    while number >= 0:
        place, target = kept[number], out[wrote & mask]
        target.time = now
        target.key = event.key
        if side == 0:
            target.value_l = event.value
            target.sequence_l = event.sequence
            target.value_r = place[0]
            target.sequence_r = place[1]
        else:
            target.value_l = place[0]
            target.sequence_l = place[1]
            target.value_r = event.value
            target.sequence_r = event.sequence
        wrote += 1
        number = place[2]
    return wrote


@njit(nogil=True, cache=True)
def forget(chains, memory):
    """Begin a window with nothing kept."""
    chains[:] = -1
    memory[KEPT], memory[KEPT + 1] = 0, 1


@njit(nogil=True, cache=True)
def pair(lefts, rights, shift, length, chains, kept, out, memory):
    wrote, end = memory[WROTE], memory[END]
    left = right = 0
    while left < len(lefts) or right < len(rights):
        if right == len(rights) or (left < len(lefts) and lefts[left].time <= rights[right].time):
            event, side = lefts[left], 0
            left += 1
        else:
            event, side = rights[right], 1
            right += 1
        now = event.time + shift
        if now >= end:
            forget(chains, memory)
            end = now // length * length + length
        wrote = meet(now, side, event, chains, kept, out, wrote)
        remember(side, event, chains, kept, memory)
    memory[WROTE], memory[END] = wrote, end


@njit(nogil=True, cache=True)
def diamond(events, shift, length, low, high, chains, kept, out, memory):
    """One stream split by value into two sides, which are joined: below `low`, and from `high` on."""
    wrote, end = memory[WROTE], memory[END]
    for event in events:
        if event.value < low:
            side = 0
        elif event.value >= high:
            side = 1
        else:
            continue
        now = event.time + shift
        if now >= end:
            forget(chains, memory)
            end = now // length * length + length
        wrote = meet(now, side, event, chains, kept, out, wrote)
        remember(side, event, chains, kept, memory)
    memory[WROTE], memory[END] = wrote, end


@njit(nogil=True, cache=True)
def gather(lefts, rights, shift, length, chains, kept, out, memory):
    left = right = 0
    while left < len(lefts) or right < len(rights):
        if right == len(rights) or (left < len(lefts) and lefts[left].time <= rights[right].time):
            event, side = lefts[left], 0
            left += 1
        else:
            event, side = rights[right], 1
            right += 1
        now = event.time + shift
        if now >= memory[END]:
            close_groups(length, chains, kept, out, memory)
            memory[END] = now // length * length + length
        remember(side, event, chains, kept, memory)


@njit(nogil=True, cache=True)
def close_groups(length, chains, kept, out, memory):
    """Fold and hand over the groups of the open window and begin the next."""
    wrote, mask = memory[WROTE], len(out) - 1
    for key in range(len(chains)):
        events = difference = 0
        for side in range(2):
            number = chains[key, 2 * side]
            while number >= 0:
                events += 1
                value = kept[number, 0]
                difference += value if side == 0 else -value
                number = kept[number, 2]
        if events > 0:
            target = out[wrote & mask]
            target.window_start = memory[END] - length
            target.key = key
            target.events = events
            target.difference = difference
            wrote += 1
    memory[WROTE] = wrote
    forget(chains, memory)
