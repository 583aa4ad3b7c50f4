"""The one worker loop: ask the dispatch what to run, run it, say it is done; sleep when there is nothing.

Dispatch functions, by address:
    ``next(dispatch, worker, now) -> unit``   NOTHING, or ROUND; sets the worker's QUOTA or WAKE_AT
    ``spare(dispatch, worker, now) -> 0 | 1`` whether a further thread would find work
    ``done(dispatch, worker, unit, consumed, now)``
"""

from numba import njit

from haren.native import words as w
from haren.native.atomics import (
    call,
    compare_exchange,
    fence,
    fetch_add,
    load,
    load_acquire,
    store,
    store_release,
)
from haren.native.clock import BELL_SLEEPERS, monotonic_ns, ring, sleep
from haren.native.rounds import take_part
from haren.spe import EVENTS_OUT

# sleepers with nothing earlier to watch for look this much later, in case that one is busy
WATCH_NS = 1_000_000
FAR = 2**61  # longer than any wait for a time


def work(worker):
    """Run until the stop flag is set; the body of every worker thread."""
    stop = load(worker + w.STOP)
    bell = load(worker + w.BELL)
    now = monotonic_ns()
    while load_acquire(stop) == 0:
        unit = call(load(worker + w.NEXT), (load(worker + w.DISPATCH), worker, now))
        if unit < 0:
            if unit == w.ROUND:
                now = take_part(worker, now)
                continue
            ticket = load_acquire(bell)
            store_release(bell + w.SLEPT, ticket)
            fetch_add(bell + BELL_SLEEPERS, 1)
            fence()  # what is read below is not older than the count above
            now = monotonic_ns()
            unit = call(load(worker + w.NEXT), (load(worker + w.DISPATCH), worker, now))
            if unit == w.NOTHING and load_acquire(stop) == 0:
                wake_at = load(worker + w.WAKE_AT)
                watched = load_acquire(bell + w.WATCHED)
                watching = watched == 0 or wake_at < watched
                if watching:
                    store_release(bell + w.WATCHED, wake_at)
                wait = wake_at - now
                if not watching and wait < FAR:
                    wait += WATCH_NS
                if wait > 0:
                    store(worker + w.SLEEPS, load(worker + w.SLEEPS) + 1)
                    sleep(bell, ticket, wait)
                if watching:
                    compare_exchange(bell + w.WATCHED, wake_at, 0)
            fetch_add(bell + BELL_SLEEPERS, -1)
            now = monotonic_ns()
            if unit < 0:
                continue
        if load_acquire(bell + BELL_SLEEPERS) > 0:
            if call(load(worker + w.SPARE), (load(worker + w.DISPATCH), worker, now)) != 0:
                ring(bell, 1)
        consumed = call(load(worker + w.RUN), (load(worker + w.ENGINE), unit, load(worker + w.QUOTA)))
        end = monotonic_ns()
        account(worker, unit, consumed, now, end)
        call(load(worker + w.DONE), (load(worker + w.DISPATCH), worker, unit, consumed, end))
        now = end
    return 0


@njit
def account(worker, unit, consumed, start, end):
    """Count a run for its worker and its operator, and trace it."""
    store(worker + w.BUSY_NS, load(worker + w.BUSY_NS) + end - start)
    store(worker + w.DECISIONS, load(worker + w.DECISIONS) + 1)
    operator = load(worker + w.OPERATORS) + w.OPERATOR_BYTES * unit
    store(operator + w.RUNS, load(operator + w.RUNS) + 1)
    store(operator + w.OPERATOR_BUSY_NS, load(operator + w.OPERATOR_BUSY_NS) + end - start)
    store(operator + w.LAST_RUN, end)
    store(operator + w.EXECUTED, 1)
    if consumed > 0:  # a run may also only have let time pass, and says nothing of the cost of events
        store(operator + w.EVENTS, load(operator + w.EVENTS) + consumed)
    ring_of_rows = load(worker + w.TRACE)
    if ring_of_rows != 0:
        produced = 0
        if load(worker + w.MEASURE) != 0:
            out = call(load(worker + w.MEASURE), (load(worker + w.ENGINE), unit, EVENTS_OUT, end))
            produced = out - load(operator + w.TRACED_OUT)
            store(operator + w.TRACED_OUT, out)
        number = load(worker + w.TRACED)
        row = ring_of_rows + w.TRACE_BYTES * (number & load(worker + w.TRACE_MASK))
        store(row, start)
        store(row + 8, end)
        store(row + 16, unit | load(worker + w.REASON) << 32)
        store(row + 24, (max(consumed, 0) & 0xFFFFFFFF) | produced << 32)
        store_release(worker + w.TRACED, number + 1)
