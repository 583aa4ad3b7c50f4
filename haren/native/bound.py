"""The execution task T_E of `haren.dispatch.bound`, compiled: algorithm 1 of the Haren paper.

A thread goes through its ranking from the best operator on and takes the first that can run. Behind it, it
goes on as long as priorities are equal, so that equals take turns; then it begins at the top again.
"""

from numba import njit

from haren.dispatch import bound as b
from haren.dispatch import schedule as s
from haren.native import words as w
from haren.native.atomics import (
    call,
    fetch_add,
    load,
    load_acquire,
    store,
    store_release,
)
from haren.native.clock import BELL_BYTES, BELL_SLEEPERS, ring
from haren.native.schedule import grant, is_eligible, thread_record
from haren.native.turns import claim_of

NEVER = 2**63 - 1


@njit
def _grant(dispatch, worker, op, reason, place, now):
    if load(dispatch + s.CHECK) != 0:
        _assert_no_round(dispatch)
    return grant(dispatch, worker, op, reason, place, now)


@njit
def _assert_no_round(dispatch):
    if load_acquire(dispatch + b.IN_ROUND) != 0:
        fetch_add(dispatch + s.VIOLATIONS, 1)


def next_unit(dispatch, worker, now):
    """The operator to run; -1: none can, with the time to look again; `ROUND`: it is time for T_S."""
    record = thread_record(dispatch, worker)
    if now >= load(record + b.ROUND_END):
        return w.ROUND
    ready_at = load(worker + w.READY_AT)
    engine = load(worker + w.ENGINE)
    while load(record + b.DELAYED_NEXT) < load(record + b.DELAYED_COUNT):
        op = load(load(record + b.DELAYED) + 8 * load(record + b.DELAYED_NEXT))
        store(record + b.DELAYED_NEXT, load(record + b.DELAYED_NEXT) + 1)
        if call(ready_at, (engine, op, now)) <= now:
            return _grant(dispatch, worker, op, w.REASON_DELAYED, 0, now)
    count = load(record + b.COUNT)
    order = load(record + b.ORDER)
    levels = load(record + b.LEVELS)
    i = load(record + b.CURSOR)
    level = load(record + b.LEVEL)
    wake = load(record + b.ROUND_END)
    while True:
        while i < count and (level < 0 or load(levels + 8 * i) == level):
            op = load(order + 8 * i)
            ready = call(ready_at, (engine, op, now))
            if ready <= now:
                if is_eligible(dispatch, worker, op, now):
                    store(record + b.CURSOR, i + 1)
                    store(record + b.LEVEL, load(levels + 8 * i))
                    reason = w.REASON_BEST if level < 0 else w.REASON_EQUAL
                    return _grant(dispatch, worker, op, reason, i, now)
            else:
                wake = min(wake, ready)
            i += 1
        if level < 0:
            break
        i = 0
        level = -1
    store(record + b.CURSOR, 0)
    store(record + b.LEVEL, -1)
    if now >= load(record + b.IDLE_UNTIL):  # else it was woken early, or looks once more before it sleeps
        backoff = load(record + b.BACKOFF)
        store(record + b.IDLE_UNTIL, now + backoff)
        store(record + b.BACKOFF, 2 * min(backoff, load(dispatch + s.PERIOD_NS)))
    store(worker + w.WAKE_AT, min(wake, load(record + b.IDLE_UNTIL)))
    return -1


def spare(dispatch, worker, now):
    """Nobody else sleeps on this thread's bell."""
    return 0


def done(dispatch, worker, op, consumed, now):
    """Give the operator back, and wake threads that can go on because of it."""
    if load(dispatch + s.CHECK) != 0:
        _assert_no_round(dispatch)
    store_release(claim_of(worker, op), 0)
    if load(dispatch + b.EAGER) != 0:
        bounds = load(dispatch + s.BOUNDS) + 8 * op
        for i in range(load(bounds), load(bounds + 8)):
            neighbour = load(load(dispatch + s.NEIGHBOURS) + 8 * i)
            thread = load(load(dispatch + s.ASSIGNMENT) + 8 * neighbour)
            if thread == load(worker + w.THREAD):
                continue
            bell = load(worker + w.BELLS) + BELL_BYTES * thread
            # a sleeper that is missed here wakes by its back-off, so no fence is needed
            if load_acquire(bell + BELL_SLEEPERS) != 0 and load_acquire(bell) == load_acquire(bell + w.SLEPT):
                if call(load(worker + w.READY_AT), (load(worker + w.ENGINE), neighbour, now)) <= now:
                    ring(bell, 1)
    return 0
