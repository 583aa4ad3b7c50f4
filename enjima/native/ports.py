"""The inputs of an operator that has several: offered to its kernel as runs, kept while they must wait.

Events are used in the order of their time over all inputs, so an input may have to wait for another one.
What waits stays in its channel; when that is full it moves to the port's inbox, memory of the operator that
grows. So a waiting input never holds up its writer, which would be a deadlock where that writer also feeds
the input waited for.
"""

from numba import njit

from enjima.memory import layout as at
from enjima.native import words as w
from enjima.native.channel import (
    consume,
    has_news,
    has_room,
    marker_due,
    read_origins,
    read_place,
    read_shift,
    readable,
)
from enjima.native.raw import copy, reallocate
from haren.native.atomics import add_to, load, store


@njit
def can_merge(op):
    """Whether the operator would find something to do; any thread may ask."""
    blocked = load(op + w.BLOCKED_ON)
    for i in range(load(op + w.INPUT_COUNT)):
        port = load(op + w.PORTS) + i * w.PORT_BYTES
        channel = load(port + w.PORT_CHANNEL)
        if blocked == 0 and load(port + w.PORT_INBOX_COUNT) > 0:
            return True
        if blocked == 0 or blocked == i + 1:
            if has_news(channel):
                return True
        if not has_room(channel):
            return True
    return False


@njit
def merged_marker_due(op):
    """Whether a latency marker of some input can be passed on."""
    for i in range(load(op + w.INPUT_COUNT)):
        port = load(op + w.PORTS) + i * w.PORT_BYTES
        if marker_due(load(port + w.PORT_CHANNEL), load(port + w.PORT_PROCESSED)):
            return True
    return False


@njit
def offer_all(ports, inputs):
    """Let the run of a port that has none be the next events of its input, in the inbox or in the channel."""
    for i in range(inputs):
        port = ports + i * w.PORT_BYTES
        if load(port + w.PORT_COUNT) > 0:
            continue
        waiting = load(port + w.PORT_INBOX_COUNT)
        if waiting > 0:
            first = load(port + w.PORT_INBOX_FIRST)
            store(port + w.PORT_EVENTS, load(port + w.PORT_INBOX) + first * load(port + w.PORT_EVENT_BYTES))
            store(port + w.PORT_ORIGINS, load(port + w.PORT_INBOX_ORIGINS) + 8 * first)
            store(port + w.PORT_COUNT, waiting)
            store(port + w.PORT_SHIFT, 0)
            store(port + w.PORT_FROM_INBOX, 1)
        else:
            _offer_channel(port, load(port + w.PORT_CHANNEL))


@njit
def _offer_channel(port, channel):
    pending = readable(channel)
    store(port + w.PORT_EVENTS, read_place(channel))
    store(port + w.PORT_ORIGINS, read_origins(channel))
    store(port + w.PORT_COUNT, pending)
    store(port + w.PORT_SHIFT, read_shift(channel))
    store(port + w.PORT_FROM_INBOX, 0)
    if pending == 0:
        store(port + w.PORT_FRONTIER, load(channel + at.SAFE_WATERMARK))
        store(channel + at.APPLIED_WATERMARK, load(channel + at.SAFE_WATERMARK))


@njit
def use_all(ports, inputs):
    """Account for what the kernel took; how many events that were."""
    used = 0
    for i in range(inputs):
        port = ports + i * w.PORT_BYTES
        taken = load(port + w.PORT_TAKEN)
        if taken > 0:
            if load(port + w.PORT_FROM_INBOX) != 0:
                add_to(port + w.PORT_INBOX_FIRST, taken)
                add_to(port + w.PORT_INBOX_COUNT, -taken)
            else:
                consume(load(port + w.PORT_CHANNEL), taken)
            add_to(port + w.PORT_EVENTS, taken * load(port + w.PORT_EVENT_BYTES))
            add_to(port + w.PORT_ORIGINS, 8 * taken)
            add_to(port + w.PORT_COUNT, -taken)
            store(port + w.PORT_TAKEN, 0)
            add_to(port + w.PORT_PROCESSED, taken)
            used += taken
    return used


@njit
def keep_failed_event(op, ports):
    """Copy the event the kernel stopped at, on the input it names in BLOCKED_ON, for the error's message."""
    if load(op + w.BLOCKED_ON) == 0:
        return
    port = ports + (load(op + w.BLOCKED_ON) - 1) * w.PORT_BYTES
    size = load(port + w.PORT_EVENT_BYTES)
    event = load(op + w.FAILED_EVENT)
    copy(event, load(port + w.PORT_EVENTS) + load(port + w.PORT_TAKEN) * size, size)
    if load(port + w.PORT_TIME_AT) >= 0:
        add_to(event + load(port + w.PORT_TIME_AT), load(port + w.PORT_SHIFT))


@njit
def make_room(op, ports, inputs):
    """Move what fills a channel to the inbox of its port."""
    for i in range(inputs):
        port = ports + i * w.PORT_BYTES
        channel = load(port + w.PORT_CHANNEL)
        if not has_room(channel):
            store(port + w.PORT_COUNT, 0)  # its run may move
            pending = readable(channel)
            while pending > 0:
                _absorb(op, port, channel, pending)
                pending = readable(channel)


@njit
def _absorb(op, port, channel, count):
    size = load(port + w.PORT_EVENT_BYTES)
    _reserve(op, port, count)
    place = load(port + w.PORT_INBOX_FIRST) + load(port + w.PORT_INBOX_COUNT)
    target = load(port + w.PORT_INBOX) + place * size
    copy(target, read_place(channel), count * size)
    copy(load(port + w.PORT_INBOX_ORIGINS) + 8 * place, read_origins(channel), 8 * count)
    shift = read_shift(channel)
    if shift != 0:
        for i in range(count):
            add_to(target + i * size + load(port + w.PORT_TIME_AT), shift)
    consume(channel, count)
    add_to(port + w.PORT_INBOX_COUNT, count)


@njit
def _reserve(op, port, count):
    """Room for ``count`` more events in the inbox: from the place of used ones, or twice the memory."""
    first = load(port + w.PORT_INBOX_FIRST)
    waiting = load(port + w.PORT_INBOX_COUNT)
    capacity = load(port + w.PORT_INBOX_CAPACITY)
    if first + waiting + count <= capacity:
        return
    size = load(port + w.PORT_EVENT_BYTES)
    inbox = load(port + w.PORT_INBOX)
    origins = load(port + w.PORT_INBOX_ORIGINS)
    if first >= waiting and waiting + count <= capacity:
        copy(inbox, inbox + first * size, waiting * size)
        copy(origins, origins + 8 * first, 8 * waiting)
    else:
        capacity = max(1024, 2 * (waiting + count))
        larger = reallocate(0, capacity * size)
        larger_origins = reallocate(0, 8 * capacity)
        copy(larger, inbox + first * size, waiting * size)
        copy(larger_origins, origins + 8 * first, 8 * waiting)
        if inbox != 0:
            reallocate(inbox, 0)
            reallocate(origins, 0)
        store(port + w.PORT_INBOX, larger)
        store(port + w.PORT_INBOX_ORIGINS, larger_origins)
        store(port + w.PORT_INBOX_CAPACITY, capacity)
        add_to(op + w.GROWTHS, 1)
    store(port + w.PORT_INBOX_FIRST, 0)
