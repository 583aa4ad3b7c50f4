"""The protocol of a channel: one writer, one reader, blocks in order, chunks recycled.

The writer publishes events by storing a block's WRITE cursor with release order; the reader acquires it.
A finished chunk goes back to the writer through a ring, and the one that came back last is used first; the
allocator thread hands over new chunks through another, so every ring has one producer and one consumer.
Nothing is allocated here: a writer that takes the last free chunk asks the allocator for one more.

A watermark is read before the cursor it belongs to, so whatever it promises has been seen with it.
"""

from numba import njit

from enjima.memory import layout as at
from haren.native.atomics import add_to, load, load_acquire, store, store_release
from haren.native.clock import ring


@njit
def readable(channel):
    """Events that can be read where the reader stands; moves on from a finished block."""
    while True:
        block = load(channel + at.READER_BLOCK)
        watermark = load_acquire(block + at.WATERMARK)
        if watermark > load(channel + at.SEEN_WATERMARK):
            store(channel + at.SEEN_WATERMARK, watermark)
        written = load_acquire(block + at.WRITE)
        pending = written - load(block + at.READ)
        if pending > 0:
            return pending
        store(channel + at.SAFE_WATERMARK, load(channel + at.SEEN_WATERMARK))
        if written < load(block + at.SIZE) or not _next_reader_block(channel):
            return 0


@njit
def _next_reader_block(channel):
    index = load(channel + at.READER_INDEX) + 1
    if index < load(channel + at.CHUNK_BLOCKS):
        store(channel + at.READER_INDEX, index)
        add_to(channel + at.READER_BLOCK, load(channel + at.BLOCK_BYTES))
        return True
    chunk = load(channel + at.READER_CHUNK)
    successor = load_acquire(chunk + at.CHUNK_NEXT)
    if successor == 0:
        return False
    store(channel + at.READER_CHUNK, successor)
    store(channel + at.READER_BLOCK, successor + at.CHUNK_BYTES)
    store(channel + at.READER_INDEX, 0)
    _recycle(channel, chunk)
    return True


@njit
def _recycle(channel, chunk):
    """Reset a chunk that was read to its end and give it back to the writer."""
    block = chunk + at.CHUNK_BYTES
    for _ in range(load(channel + at.CHUNK_BLOCKS)):
        store(block + at.WRITE, 0)
        store(block + at.READ, 0)
        block += load(channel + at.BLOCK_BYTES)
    store(chunk + at.CHUNK_NEXT, 0)
    tail = load(channel + at.RECYCLED_TAIL)
    slot = tail & load(channel + at.RING_MASK)
    store(load(channel + at.RECYCLED_RING) + 8 * slot, chunk)
    add_to(channel + at.RECYCLED, 1)
    store_release(channel + at.RECYCLED_TAIL, tail + 1)


@njit
def consume(channel, count):
    """Say that ``count`` events of the reader's block have been read."""
    add_to(load(channel + at.READER_BLOCK) + at.READ, count)
    store_release(channel + at.CONSUMED, load(channel + at.CONSUMED) + count)


@njit
def writable(channel):
    """Free slots where the writer stands; moves on from a full block. 0 means back-pressure."""
    while True:
        block = load(channel + at.WRITER_BLOCK)
        free = load(block + at.SIZE) - load(block + at.WRITE)
        if free > 0:
            return free
        if not _next_block_of_chunk(channel) and not _next_writer_chunk(channel):
            add_to(channel + at.STALLS, 1)
            return 0


@njit
def _next_block_of_chunk(channel):
    index = load(channel + at.WRITER_INDEX) + 1
    if index == load(channel + at.CHUNK_BLOCKS):
        return False
    store(channel + at.WRITER_INDEX, index)
    _open_block(channel, load(channel + at.WRITER_BLOCK) + load(channel + at.BLOCK_BYTES))
    return True


@njit
def _open_block(channel, block):
    add_to(channel + at.BLOCKS_USED, 1)
    store(block + at.SEQUENCE, load(channel + at.BLOCKS_USED))
    store(block + at.SIZE, load(channel + at.BLOCK_EVENTS))
    store(block + at.DATA, block + at.BLOCK_PREAMBLE)
    store(block + at.SHIFT, 0)
    store(channel + at.WRITER_BLOCK, block)


@njit
def _next_writer_chunk(channel):
    chunk = _take_warm(channel)
    if chunk == 0:
        chunk = _pop(channel, at.FRESH_RING, at.FRESH_HEAD, at.FRESH_TAIL)
    if not free_chunks(channel):
        _request_chunk(channel)
    if chunk == 0:
        return False
    former = load(channel + at.WRITER_CHUNK)
    store(channel + at.WRITER_CHUNK, chunk)
    store(channel + at.WRITER_INDEX, 0)
    _open_block(channel, chunk + at.CHUNK_BYTES)
    store_release(former + at.CHUNK_NEXT, chunk)
    return True


@njit
def _take_warm(channel):
    """The chunk that came back last, which is likely in a cache; 0 if there is none.

    In the order in which they came back, all chunks that a backlog has ever needed would go round for ever.
    """
    warm = load(channel + at.WARM)
    count = load(channel + at.WARM_COUNT)
    chunk = _pop(channel, at.RECYCLED_RING, at.RECYCLED_HEAD, at.RECYCLED_TAIL)
    while chunk != 0:
        store(warm + 8 * count, chunk)
        count += 1
        chunk = _pop(channel, at.RECYCLED_RING, at.RECYCLED_HEAD, at.RECYCLED_TAIL)
    if count > 0:
        count -= 1
        chunk = load(warm + 8 * count)
    store_release(channel + at.WARM_COUNT, count)
    return chunk


@njit
def _pop(channel, ring_at, head_at, tail_at):
    head = load(channel + head_at)
    if head == load_acquire(channel + tail_at):
        return 0
    chunk = load(load(channel + ring_at) + 8 * (head & load(channel + at.RING_MASK)))
    store(channel + head_at, head + 1)
    return chunk


@njit
def free_chunks(channel):
    """Chunks the writer could take now."""
    recycled = load_acquire(channel + at.RECYCLED_TAIL) - load(channel + at.RECYCLED_HEAD)
    recycled += load_acquire(channel + at.WARM_COUNT)
    return recycled + load_acquire(channel + at.FRESH_TAIL) - load(channel + at.FRESH_HEAD)


@njit
def _request_chunk(channel):
    below = load_acquire(channel + at.ALLOCATED) < load(channel + at.MAX_CHUNKS)
    if below and load_acquire(channel + at.REQUESTED) == 0:
        add_to(channel + at.REQUESTS, 1)
        store_release(channel + at.REQUESTED, 1)
        ring(load(channel + at.ALLOCATOR_BELL), 1)


@njit
def hand_over(channel, chunk):
    """The allocator's side: add a new chunk to those the writer can take."""
    tail = load(channel + at.FRESH_TAIL)
    store(load(channel + at.FRESH_RING) + 8 * (tail & load(channel + at.RING_MASK)), chunk)
    store_release(channel + at.ALLOCATED, load(channel + at.ALLOCATED) + 1)
    store_release(channel + at.FRESH_TAIL, tail + 1)
    store_release(channel + at.REQUESTED, 0)


@njit
def has_room(channel):
    """Whether a writer would find a free slot; any thread may ask, the answer may be a moment old."""
    block = load(channel + at.WRITER_BLOCK)
    if load_acquire(block + at.WRITE) < load(block + at.SIZE):
        return True
    if load(channel + at.WRITER_INDEX) + 1 < load(channel + at.CHUNK_BLOCKS):
        return True
    return free_chunks(channel) > 0


@njit
def publish(channel, count):
    """Make ``count`` events written behind the cursor visible to the reader."""
    cursor = load(channel + at.WRITER_BLOCK) + at.WRITE
    store_release(cursor, load(cursor) + count)
    store_release(channel + at.WRITTEN, load(channel + at.WRITTEN) + count)


@njit
def publish_watermark(channel, watermark):
    """Promise that no later event is older than ``watermark``; needs no free slot."""
    if watermark <= load(channel + at.PUBLISHED_WATERMARK):
        return
    block = load(channel + at.WRITER_BLOCK)
    if load(block + at.WRITE) == load(block + at.SIZE) and _next_block_of_chunk(channel):
        block = load(channel + at.WRITER_BLOCK)
    store_release(block + at.WATERMARK, watermark)
    store_release(channel + at.PUBLISHED_WATERMARK, watermark)


@njit
def write_place(channel):
    """Address of the next free event slot in the writer's block."""
    block = load(channel + at.WRITER_BLOCK)
    return block + at.BLOCK_PREAMBLE + load(block + at.WRITE) * load(channel + at.EVENT_BYTES)


@njit
def write_origins(channel):
    """Address of that slot's origin."""
    block = load(channel + at.WRITER_BLOCK)
    return block + load(channel + at.ORIGINS) + 8 * load(block + at.WRITE)


@njit
def read_place(channel):
    """Address of the next unread event in the reader's block."""
    block = load(channel + at.READER_BLOCK)
    return load(block + at.DATA) + load(block + at.READ) * load(channel + at.EVENT_BYTES)


@njit
def read_shift(channel):
    """What to add to the event time of what lies there."""
    return load(load(channel + at.READER_BLOCK) + at.SHIFT)


@njit
def lend(channel, data, count, shift):
    """Let an empty block's events be the ``count`` ones at ``data``; a block begun so goes on by itself."""
    block = load(channel + at.WRITER_BLOCK)
    if load(block + at.WRITE) == 0:
        store(block + at.SIZE, min(count, load(channel + at.BLOCK_EVENTS)))
        store(block + at.DATA, data)
        store(block + at.SHIFT, shift)
    return load(block + at.SIZE) - load(block + at.WRITE)


@njit
def read_origins(channel):
    """Address of that event's origin."""
    block = load(channel + at.READER_BLOCK)
    return block + load(channel + at.ORIGINS) + 8 * load(block + at.READ)


@njit
def has_marker_room(channel):
    """Whether one more marker fits."""
    waiting = load(channel + at.MARKER_TAIL) - load_acquire(channel + at.MARKER_HEAD)
    return waiting <= load(channel + at.MARKER_MASK)


@njit
def push_marker(channel, stamp):
    """Send a latency marker behind everything written so far; there must be room."""
    tail = load(channel + at.MARKER_TAIL)
    place = load(channel + at.MARKER_RING) + 16 * (tail & load(channel + at.MARKER_MASK))
    store(place, load(channel + at.WRITTEN))
    store(place + 8, stamp)
    store_release(channel + at.MARKER_TAIL, tail + 1)


@njit
def marker_due(channel, consumed):
    """Whether the oldest marker's place in the stream is among the ``consumed`` events."""
    head = load(channel + at.MARKER_HEAD)
    if head == load_acquire(channel + at.MARKER_TAIL):
        return False
    place = load(channel + at.MARKER_RING) + 16 * (head & load(channel + at.MARKER_MASK))
    return load(place) <= consumed


@njit
def first_marker(channel):
    """The stamp of the oldest marker; there must be one."""
    head = load(channel + at.MARKER_HEAD)
    return load(load(channel + at.MARKER_RING) + 16 * (head & load(channel + at.MARKER_MASK)) + 8)


@njit
def drop_marker(channel):
    """Forget the oldest marker, once it has been passed on."""
    store_release(channel + at.MARKER_HEAD, load(channel + at.MARKER_HEAD) + 1)


@njit
def has_news(channel):
    """Whether the reader would find an event or a watermark; any thread may ask."""
    if load_acquire(channel + at.WRITTEN) > load(channel + at.CONSUMED):
        return True
    return load_acquire(channel + at.PUBLISHED_WATERMARK) > load(channel + at.APPLIED_WATERMARK)
