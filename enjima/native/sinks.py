"""Sinks without user code: keep every event, or none."""

from enjima.native import words as w
from enjima.native.raw import add_to, copy, reallocate
from haren.native.atomics import load, store, store_release

# the words of a collecting sink
BUFFER = 0
KEPT = 8  # events kept, published
CAPACITY = 16
LIMIT = 24  # keep at most so many
COLLECT_BYTES = 64


def collect(op, events, origins, count, out, out_origins, room):
    """Append the events to a buffer that doubles when it is full."""
    state = load(op + w.STATE)
    size = load(op + w.INPUT_BYTES)
    kept = load(state + KEPT)
    keep = min(count, load(state + LIMIT) - kept)
    if kept + keep > load(state + CAPACITY):
        capacity = max(2 * load(state + CAPACITY), kept + keep, 1024)
        store(state + BUFFER, reallocate(load(state + BUFFER), capacity * size))
        store(state + CAPACITY, capacity)
        add_to(op + w.GROWTHS, 1)
    target = load(state + BUFFER) + kept * size
    copy(target, events, keep * size)
    shift = load(op + w.SHIFT)
    if shift != 0:
        for i in range(keep):
            add_to(target + i * size + load(op + w.TIME_AT), shift)
    store_release(state + KEPT, kept + keep)
    return count


def discard(op, events, origins, count, out, out_origins, room):
    """Accept the events and forget them."""
    return count
