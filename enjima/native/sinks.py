"""Sinks without user code: keep every event, or none."""

from numba import njit

from enjima.native import words as w
from enjima.native.raw import copy, reallocate
from haren.native.atomics import add_to, load, store, store_release

# the words of a collecting sink; its segments double in size and never move, so they can be read meanwhile
KEPT = 0  # events kept, published
LIMIT = 8  # keep at most so many
SEGMENT = 16  # the one being filled
USED = 24  # events in it
ADDRESSES = 64  # of the segments
FIRST_SEGMENT = 1024
SEGMENTS = 40
COLLECT_BYTES = ADDRESSES + 8 * SEGMENTS


def collect(op, events, origins, count, out, out_origins, room):
    """Append the events to the last segment, and to a new one when it is full."""
    state = load(op + w.STATE)
    size = load(op + w.INPUT_BYTES)
    keep = min(count, load(state + LIMIT) - load(state + KEPT))
    done = 0
    while done < keep:
        segment = load(state + SEGMENT)
        capacity = FIRST_SEGMENT << segment
        if load(state + ADDRESSES + 8 * segment) == 0:
            store(state + ADDRESSES + 8 * segment, reallocate(0, capacity * size))
            add_to(op + w.GROWTHS, 1)
        used = load(state + USED)
        part = min(keep - done, capacity - used)
        _append(op, load(state + ADDRESSES + 8 * segment) + used * size, events + done * size, part, size)
        store(state + USED, used + part)
        if used + part == capacity:
            store(state + SEGMENT, segment + 1)
            store(state + USED, 0)
        done += part
    store_release(state + KEPT, load(state + KEPT) + keep)
    return count


@njit
def _append(op, target, events, count, size):
    copy(target, events, count * size)
    shift = load(op + w.SHIFT)
    if shift != 0:
        for i in range(count):
            add_to(target + i * size + load(op + w.TIME_AT), shift)


def discard(op, events, origins, count, out, out_origins, room):
    """Accept the events and forget them."""
    return count
