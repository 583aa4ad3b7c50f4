"""Time and waiting for native threads: the monotonic clock and Linux futexes."""

import platform

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from haren.native.atomics import WORD, fence, fetch_add, load_acquire

CLOCK_MONOTONIC = 1
CLOCK_THREAD_CPUTIME = 3
FUTEX_WAIT_PRIVATE = 128
FUTEX_WAKE_PRIVATE = 129
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)

if platform.system() != "Linux" or SYS_FUTEX < 0:
    raise ImportError(
        f"haren's native threads wait on Linux futexes (x86-64 or ARM64); this is {platform.platform()}. "
        "Use a Linux machine, container or virtual machine."
    )


def _extern(builder, name, result, parameters):
    module = builder.module
    if name in module.globals:
        return module.globals[name]
    return ir.Function(module, ir.FunctionType(result, parameters), name)


def _read_clock(clock):
    def codegen(context, builder, signature, args):
        int32 = ir.IntType(32)
        with builder.goto_entry_block():
            timespec = builder.alloca(WORD, 2)
        gettime = _extern(builder, "clock_gettime", int32, [int32, WORD.as_pointer()])
        builder.call(gettime, [int32(clock), timespec])
        seconds = builder.load(timespec)
        nanoseconds = builder.load(builder.gep(timespec, [WORD(1)]))
        return builder.add(builder.mul(seconds, WORD(1_000_000_000)), nanoseconds)

    return types.int64(), codegen


@intrinsic
def monotonic_ns(typingctx):
    """The monotonic clock in nanoseconds: the same clock as ``time.monotonic_ns``."""
    return _read_clock(CLOCK_MONOTONIC)


@intrinsic
def thread_cpu_ns(typingctx):
    """The CPU time of this thread in nanoseconds; reading it costs ten times the monotonic clock."""
    return _read_clock(CLOCK_THREAD_CPUTIME)


@intrinsic
def _futex_wait(typingctx, address, expected, timeout_ns):
    def codegen(context, builder, signature, args):
        address, expected, timeout = args
        with builder.goto_entry_block():
            timespec = builder.alloca(WORD, 2)
        billion = WORD(1_000_000_000)
        builder.store(builder.sdiv(timeout, billion), timespec)
        builder.store(builder.srem(timeout, billion), builder.gep(timespec, [WORD(1)]))
        syscall = _extern(builder, "syscall", WORD, [WORD] * 7)
        timespec_word = builder.ptrtoint(timespec, WORD)
        arguments = [
            WORD(SYS_FUTEX),
            address,
            WORD(FUTEX_WAIT_PRIVATE),
            expected,
            timespec_word,
            WORD(0),
            WORD(0),
        ]
        return builder.call(syscall, arguments)

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def _futex_wake(typingctx, address, count):
    def codegen(context, builder, signature, args):
        syscall = _extern(builder, "syscall", WORD, [WORD] * 7)
        zero = WORD(0)
        return builder.call(
            syscall, [WORD(SYS_FUTEX), args[0], WORD(FUTEX_WAKE_PRIVATE), args[1], zero, zero, zero]
        )

    return types.int64(types.int64, types.int64), codegen


# A bell is two words: a ticket that grows with every ring, and the number of sleepers. Ringing costs
# a fence and a load when nobody sleeps; a ring between `ticket = load_acquire(bell)` and `sleep` is
# never missed, because the futex compares the ticket again.
BELL_SLEEPERS = 8
BELL_BYTES = 64


@njit
def sleep(bell, ticket, timeout_ns):
    """Sleep until the bell rings after ``ticket`` was read, or for ``timeout_ns``.

    The caller has counted itself among the sleepers before its last look for work.
    """
    _futex_wait(bell, ticket & 0xFFFFFFFF, min(timeout_ns, 3_600_000_000_000))


SIMULATED = 1 << 40  # so many sleepers and more are not of this world, and need no system call


@njit
def ring(bell, count):
    """Wake up to ``count`` sleepers, if there are any."""
    fence()
    sleepers = load_acquire(bell + BELL_SLEEPERS)
    if sleepers > 0:
        fetch_add(bell, 1)
        if sleepers < SIMULATED:
            _futex_wake(bell, count)
