"""What a scheduler may ask of an operator: the engine's side of `haren.spe.Engine.measure`.

Asked while no operator runs, or by somebody who can live with a value that is a moment old: cursors are read
and nothing is moved.
"""

from numba import njit

from enjima.memory import layout as at
from enjima.native import words as w
from enjima.native.channel import free_chunks
from haren import spe
from haren.native.atomics import as_float, load, load_acquire
from haren.native.histogram import COUNT, SUM


def measure(engine, index, which, now):
    """One number about operator ``index``; see `haren.spe`."""
    op = load(load(engine + w.OPERATOR_TABLE) + 8 * index)
    if which == spe.EVENTS_OUT:
        return load(op + w.EVENTS_OUT)
    if which == spe.ROOM:
        return _room(op)
    if which == spe.LATENCY_COUNT or which == spe.LATENCY_TOTAL:
        histogram = load(op + w.MARKER_LATENCY)
        if histogram == 0:
            return 0
        return load(histogram + COUNT) if which == spe.LATENCY_COUNT else load(histogram + SUM)
    if load(op + w.KIND) == w.SOURCE:
        return _of_source(op, load(op + w.STATE), which, now)
    if load(op + w.KIND) == w.MERGER:
        return _of_merger(op, which)
    return _of_channel(load(op + w.INPUT), which)


@njit
def _of_source(op, source, which, now):
    position = load(source + w.POSITION)
    ns_per_event = as_float(load(source + w.NS_PER_EVENT))
    limit = load_acquire(source + w.LIMIT)
    if which == spe.PENDING:
        if ns_per_event > 0.0 and load(source + w.STARTED) > 0:
            limit = min(limit, int((now - load(source + w.STARTED)) / ns_per_event) + 1)
        return max(limit - position, 0)
    if load(op + w.DONE) != 0 or ns_per_event == 0.0:
        return at.NEVER  # without a rate an event comes to be when it is emitted, so that none waits
    if which == spe.TAIL_TIME:
        return now
    return load(source + w.STARTED) + int(position * ns_per_event)


@njit
def _of_merger(op, which):
    result = 0 if which == spe.PENDING or which == spe.TAIL_TIME else at.NEVER
    for i in range(load(op + w.INPUT_COUNT)):
        port = load(op + w.PORTS) + i * w.PORT_BYTES
        value = _of_channel(load(port + w.PORT_CHANNEL), which)
        kept = load(port + w.PORT_INBOX_COUNT)
        if which == spe.PENDING:
            result += value + kept
        elif which == spe.TAIL_TIME:
            result = max(result, value)
        else:
            if kept > 0:
                value = load(load(port + w.PORT_INBOX_ORIGINS) + 8 * load(port + w.PORT_INBOX_FIRST))
            result = min(result, value)
    return result


@njit
def _of_channel(channel, which):
    written = load_acquire(channel + at.WRITTEN)
    waiting = written - load_acquire(channel + at.CONSUMED)
    if which == spe.PENDING:
        return max(waiting, 0)
    if which == spe.TAIL_TIME:
        return _tail(channel)
    return _head(channel) if waiting > 0 else at.NEVER


@njit
def _head(channel):
    """The origin of the oldest unread event, wherever the reader's next block is."""
    block = load(channel + at.READER_BLOCK)
    read = load(block + at.READ)
    if load_acquire(block + at.WRITE) <= read:
        read = 0
        if load(channel + at.READER_INDEX) + 1 < load(channel + at.CHUNK_BLOCKS):
            block += load(channel + at.BLOCK_BYTES)
        else:
            chunk = load_acquire(load(channel + at.READER_CHUNK) + at.CHUNK_NEXT)
            if chunk == 0:
                return at.NEVER
            block = chunk + at.CHUNK_BYTES
    return load(block + load(channel + at.ORIGINS) + 8 * read)


@njit
def _tail(channel):
    """The origin of the newest event, or of the oldest where the writer has just begun a block."""
    block = load(channel + at.WRITER_BLOCK)
    written = load_acquire(block + at.WRITE)
    if written == 0:
        return _head(channel)
    return load(block + load(channel + at.ORIGINS) + 8 * (written - 1))


@njit
def _room(op):
    room = at.NEVER
    for i in range(load(op + w.OUTPUT_COUNT)):
        channel = load(load(op + w.OUTPUTS) + 8 * i)
        block = load(channel + at.WRITER_BLOCK)
        size = load(channel + at.BLOCK_EVENTS)
        blocks = load(channel + at.CHUNK_BLOCKS)
        free = load(block + at.SIZE) - load_acquire(block + at.WRITE)
        free += size * (blocks - 1 - load(channel + at.WRITER_INDEX))
        chunks = free_chunks(channel) + load(channel + at.MAX_CHUNKS) - load_acquire(channel + at.ALLOCATED)
        room = min(room, free + size * blocks * max(chunks, 0))
    return room
