"""Chunks of block memory, mapped and pre-faulted by one background thread.

Operators never allocate: a writer that is handed its last free chunk has a request noted on its channel
and this thread woken, so the next chunk is there before it is needed.
"""

import ctypes
import mmap
import threading
from collections.abc import Callable, Sequence

import numpy as np

from enjima.errors import MemoryLimitError
from enjima.memory import layout as at
from haren.memory import address, lines

__all__ = ["Allocator", "Channel", "ChannelLimits"]


class ChannelLimits:
    """Block size, blocks a chunk and chunks a channel, validated."""

    def __init__(self, block_events: int = 384, blocks_per_chunk: int = 4, max_chunks: int = 32) -> None:
        bounds = {
            "block_events": (block_events, 1, 1 << 20),
            "blocks_per_chunk": (blocks_per_chunk, 1, 1 << 16),
        }
        for name, (value, low, high) in bounds.items():
            if not isinstance(value, int) or not low <= value <= high:
                raise MemoryLimitError(f"{name}={value!r} is out of range: an integer from {low} to {high}")
        if not isinstance(max_chunks, int) or not 2 <= max_chunks <= 1 << 20:
            raise MemoryLimitError(
                f"max_chunks={max_chunks!r} is too small or too large: a channel starts with two chunks "
                f"(one written while the other is read) and takes at most {1 << 20}"
            )
        self.block_events = block_events
        self.blocks_per_chunk = blocks_per_chunk
        self.max_chunks = max_chunks

    def as_queue(self) -> "ChannelLimits":
        """The same memory as one run of slots a chunk, for queues."""
        limits = ChannelLimits(max_chunks=self.max_chunks)
        limits.block_events, limits.blocks_per_chunk = self.block_events * self.blocks_per_chunk, 1
        return limits


class Channel:
    """One edge of the graph: its native words, and what they say; its chunks' memory."""

    def __init__(self, event_bytes: int, limits: ChannelLimits, allocator_bell: int) -> None:
        self.chunk_size = at.chunk_bytes(event_bytes, limits.block_events, limits.blocks_per_chunk)
        self.limits = limits
        self.maps: list[mmap.mmap] = []
        self.error: BaseException | None = None  # why it got no further chunk
        ring = 1 << (limits.max_chunks - 1).bit_length()
        markers = 1 << max(8, (2 * limits.max_chunks * limits.blocks_per_chunk - 1).bit_length())
        markers = min(markers, 1 << 14)
        sizes = (ring, ring, ring, 2 * markers)
        self._recycled, self._warm, self._fresh, self._markers = (lines(-(-n // 8)) for n in sizes)
        self.words = lines(at.CHANNEL_BYTES // 8 // 8)
        self.address = address(self.words)
        for offset, value in {
            at.EVENT_BYTES: event_bytes,
            at.BLOCK_EVENTS: limits.block_events,
            at.CHUNK_BLOCKS: limits.blocks_per_chunk,
            at.BLOCK_BYTES: at.block_bytes(event_bytes, limits.block_events),
            at.ORIGINS: at.BLOCK_PREAMBLE + at.padded(event_bytes * limits.block_events),
            at.RING_MASK: ring - 1,
            at.RECYCLED_RING: address(self._recycled),
            at.FRESH_RING: address(self._fresh),
            at.WARM: address(self._warm),
            at.MARKER_MASK: markers - 1,
            at.MARKER_RING: address(self._markers),
            at.ALLOCATOR_BELL: allocator_bell,
            at.MAX_CHUNKS: limits.max_chunks,
            at.PUBLISHED_WATERMARK: at.BEGINNING,
            at.APPLIED_WATERMARK: at.BEGINNING,
            at.SEEN_WATERMARK: at.BEGINNING,
            at.SAFE_WATERMARK: at.BEGINNING,
        }.items():
            self.words[offset // 8] = value

    def word(self, offset: int) -> int:
        return int(self.words[offset // 8])

    def begin(self, chunk: int) -> None:
        """Let writer and reader start at the first block of ``chunk``."""
        for offset in (at.WRITER_CHUNK, at.READER_CHUNK):
            self.words[offset // 8] = chunk
        for offset in (at.WRITER_BLOCK, at.READER_BLOCK):
            self.words[offset // 8] = chunk + at.CHUNK_BYTES

    def close(self) -> None:
        """Unmap the chunks."""
        for chunk in self.maps:
            chunk.close()
        self.maps.clear()

    def hand_over(self, chunk: int) -> None:
        """Give the writer a new chunk. Only the allocator calls this."""
        from enjima.native.functions import hand_over

        hand_over(self.address, chunk)

    @property
    def pending(self) -> int:
        """Events written and not yet read."""
        return self.word(at.WRITTEN) - self.word(at.CONSUMED)

    def statistics(self) -> dict[str, int]:
        """Chunks and bytes, requests and stalls so far."""
        allocated = self.word(at.ALLOCATED)
        recycled_waiting = self.word(at.RECYCLED_TAIL) - self.word(at.RECYCLED_HEAD)
        recycled_waiting += self.word(at.WARM_COUNT)
        fresh_waiting = self.word(at.FRESH_TAIL) - self.word(at.FRESH_HEAD)
        return {
            "chunk_bytes": self.chunk_size,
            "chunks_allocated": allocated,
            "chunks_in_use": allocated - recycled_waiting - fresh_waiting,
            "chunks_recycled": self.word(at.RECYCLED),
            "chunk_requests": self.word(at.REQUESTS),
            "stalls": self.word(at.STALLS),
            "max_chunks": self.limits.max_chunks,
            "pending": self.pending,
        }


class Allocator:
    """Maps chunks for the channels of one engine; `close` gives all of them back."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake  # the workers, who may have waited for a chunk
        self._bell = lines(1)
        self._bell[1] = 1  # always counts as a sleeper, so that every request rings
        self._channels: list[Channel] = []
        self._lock = threading.Lock()  # over the list and everything mapped
        self._stop = False
        self._thread = threading.Thread(target=self._serve, name="enjima-allocator", daemon=True)

    @property
    def bell(self) -> int:
        return address(self._bell)

    def channel(self, event_bytes: int, limits: ChannelLimits) -> Channel:
        """A new channel with its first two chunks."""
        channel = Channel(event_bytes, limits, self.bell)
        try:
            channel.begin(self._map(channel))
            channel.words[at.ALLOCATED // 8] = 1
            channel.hand_over(self._map(channel))
        except BaseException:
            channel.close()
            raise
        with self._lock:
            self._channels.append(channel)
        return channel

    def release(self, channels: Sequence[Channel]) -> None:
        """Unmap these channels' memory; no operator may use them any more."""
        with self._lock:
            gone = set(channels)
            self._channels = [channel for channel in self._channels if channel not in gone]
            for channel in channels:
                channel.close()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread and unmap everything; no operator may run any more."""
        from haren.native.waiting import ring_all

        self._stop = True
        while self._thread.is_alive():
            ring_all(self.bell)
            self._thread.join(0.05)
        self.release(self._channels)

    def _map(self, channel: Channel) -> int:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        try:
            memory = mmap.mmap(-1, channel.chunk_size, flags=flags)
        except OSError as error:
            raise MemoryLimitError(f"no memory for a chunk of {channel.chunk_size} bytes: {error}") from error
        channel.maps.append(memory)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        blocks = channel.limits.blocks_per_chunk
        block_size = channel.word(at.BLOCK_BYTES)
        words = np.frombuffer(memory, np.int64)
        for block in range(blocks):
            offset = at.CHUNK_BYTES + block * block_size
            words[(offset + at.WATERMARK) // 8] = at.BEGINNING
            words[(offset + at.SIZE) // 8] = channel.limits.block_events
            words[(offset + at.DATA) // 8] = start + offset + at.BLOCK_PREAMBLE
        del words
        return start

    def _serve(self) -> None:
        from haren.native.waiting import ticket, wait

        while not self._stop:
            former = ticket(self.bell)
            if self._answer():
                self._wake()
            if not self._stop:
                wait(self.bell, former, 3600)

    def _answer(self) -> bool:
        """Serve the requests there are; whether there was one."""
        served = False
        with self._lock:
            for channel in self._channels:
                if channel.word(at.REQUESTED) and channel.error is None:
                    served = True
                    try:
                        channel.hand_over(self._map(channel))
                    except BaseException as error:
                        channel.error = error
        return served
