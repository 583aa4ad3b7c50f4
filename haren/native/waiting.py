"""Bells for Python threads: ring the workers from outside, wait for them without the GIL."""

import ctypes
from functools import cache

from haren.native.atomics import fetch_add, load_acquire
from haren.native.clock import BELL_BYTES, ring, sleep
from haren.native.compiler import compile_native

__all__ = ["prepare", "ring_all", "ring_bells", "ticket", "wait"]


def _ring_all(bell):
    fetch_add(bell, 1)
    ring(bell, 2**31 - 1)
    return 0


def _ring_bells(first, count):
    for i in range(count):
        fetch_add(first + BELL_BYTES * i, 1)
        ring(first + BELL_BYTES * i, 2**31 - 1)
    return 0


def _ticket(bell):
    return load_acquire(bell)


def _wait(bell, former, timeout_ns):
    if load_acquire(bell) == former:
        sleep(bell, former, timeout_ns)
    return 0


@cache
def _function(body, arguments):
    native = compile_native(body, f"int64({', '.join(['int64'] * arguments)})")
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)(native.address)
    return function, native


def prepare() -> None:
    """Compile everything here, so that no thread has to while it runs."""
    for body, arguments in ((_ring_all, 1), (_ring_bells, 2), (_ticket, 1), (_wait, 3)):
        _function(body, arguments)


def ring_all(bell: int) -> None:
    """Wake every thread that sleeps on the bell."""
    _function(_ring_all, 1)[0](bell)


def ring_bells(first: int, count: int) -> None:
    """Wake every thread that sleeps on one of ``count`` bells, which follow each other."""
    _function(_ring_bells, 2)[0](first, count)


def ticket(bell: int) -> int:
    """The bell's ticket, to be read before the last look for work."""
    return _function(_ticket, 1)[0](bell)


def wait(bell: int, former: int, seconds: float) -> None:
    """Sleep until the bell has rung since ``former`` was read, at most ``seconds``; releases the GIL."""
    _function(_wait, 3)[0](bell, former, int(seconds * 1e9))
