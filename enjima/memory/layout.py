"""Where every word of the block memory lies, in bytes: the one description both sides read.

    chunk = preamble line + K blocks          block = writer line, reader line, context line,
                                                      N events, N origins (both padded to lines)

A line is one cache line. The writer's and the reader's cursors have lines of their own, because cursors
that share a line cost speed; the context line carries what travels with the block. ``origin`` is the
intended clock time of the latest source event behind an event: what result latency is measured from.
"""

LINE = 64
NEVER = 2**63 - 1  # the watermark that ends a stream, and the time that never comes
BEGINNING = -(2**63)  # the watermark before any event

# chunk preamble
CHUNK_NEXT = 0  # address of the chunk written after this one; 0 until there is one
CHUNK_BYTES = LINE

# block preamble
WRITE = 0  # events written, published by the writer
READ = LINE  # events read, kept by the reader
WATERMARK = 2 * LINE  # no event written later is older than this
SEQUENCE = WATERMARK + 8  # how many blocks the channel had used before this one
SIZE = WATERMARK + 16  # events the block takes: N, or fewer where a lent array ends
DATA = WATERMARK + 24  # address of its events: its own, or a place in an array that is lent to the reader
SHIFT = WATERMARK + 32  # to be added to the event time of lent events
BLOCK_PREAMBLE = 3 * LINE

# channel: constants
EVENT_BYTES = 0
BLOCK_EVENTS = 8
CHUNK_BLOCKS = 16
BLOCK_BYTES = 24
ORIGINS = 32  # offset of the origin column within a block
RING_MASK = 40
RECYCLED_RING = 48  # chunks the reader gives back, a ring of addresses
FRESH_RING = 56  # chunks the allocator hands over, a ring of addresses
MARKER_MASK = 64
MARKER_RING = 72  # pairs (position, stamp)
ALLOCATOR_BELL = 80
MAX_CHUNKS = 88
WARM = 96  # a stack of addresses: recycled chunks that the writer has fetched
# channel: the writer's lines
WRITER_CHUNK = 128
WRITER_BLOCK = 136
WRITER_INDEX = 144  # of its block within its chunk
RECYCLED_HEAD = 152
FRESH_HEAD = 160
REQUESTS = 168
STALLS = 176
BLOCKS_USED = 184
WRITTEN = 192  # events ever written, published
PUBLISHED_WATERMARK = 200
MARKER_TAIL = 208
WARM_COUNT = 216
# channel: the reader's line
READER_CHUNK = 256
READER_BLOCK = 264
READER_INDEX = 272
CONSUMED = 280  # events ever read, published
APPLIED_WATERMARK = 288
SEEN_WATERMARK = 296  # holds once everything seen with it is consumed
SAFE_WATERMARK = 304  # holds now
MARKER_HEAD = 312
# channel: the line on which reader and allocator hand chunks over
RECYCLED_TAIL = 320
RECYCLED = 328
# channel: the allocator's line
FRESH_TAIL = 384
ALLOCATED = 392
REQUESTED = 448  # 1 while a request is under way
CHANNEL_BYTES = 512


def padded(size: int) -> int:
    """``size`` rounded up to whole cache lines."""
    return -(-size // LINE) * LINE


def block_bytes(event_bytes: int, block_events: int) -> int:
    """The size of one block: preamble, events, origins."""
    return BLOCK_PREAMBLE + padded(event_bytes * block_events) + padded(8 * block_events)


def chunk_bytes(event_bytes: int, block_events: int, blocks: int) -> int:
    """The size of one chunk: preamble and its blocks."""
    return CHUNK_BYTES + blocks * block_bytes(event_bytes, block_events)
