"""Native functions that Python calls, and the generic ones every engine shares, each compiled once."""

import ctypes
from collections.abc import Callable
from functools import cache

from enjima.native import measure, sinks, transfer
from enjima.native.channel import hand_over as add_chunk
from enjima.native.raw import release
from haren.native.compiler import Native, compile_native

__all__ = ["free", "generic", "hand_over", "prepare"]


def _hand_over(channel, chunk):
    add_chunk(channel, chunk)
    return 0


def _free(address):
    release(address)
    return 0


_GENERIC: dict[str, tuple[Callable, int]] = {
    "ready_at": (transfer.ready_at, 3),
    "run": (transfer.run, 3),
    "measure": (measure.measure, 4),
    "collect": (sinks.collect, 7),
    "discard": (sinks.discard, 7),
    "hand_over": (_hand_over, 2),
    "free": (_free, 1),
}


@cache
def generic(name: str) -> Native:
    """The compiled function of this name."""
    function, arguments = _GENERIC[name]
    return compile_native(function, f"int64({', '.join(['int64'] * arguments)})")


def prepare() -> None:
    """Compile everything here, so that no thread has to while it runs."""
    for name in _GENERIC:
        generic(name)


@cache
def _callable(name: str) -> Callable[..., int]:
    arguments = _GENERIC[name][1]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)(generic(name).address)


def hand_over(channel_address: int, chunk: int) -> None:
    """Add a chunk to those a channel's writer can take."""
    _callable("hand_over")(channel_address, chunk)


def free(address: int) -> None:
    """Give back memory that a kernel allocated for its state."""
    if address:
        _callable("free")(address)
