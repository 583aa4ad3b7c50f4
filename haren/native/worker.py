"""The one worker loop: ask the dispatch what to run, run it, say it is done; sleep when there is nothing.

Dispatch functions, by address:
    ``next(dispatch, worker, now) -> unit``   -1 if nothing; sets the worker's QUOTA or WAKE_AT
    ``spare(dispatch, worker, now) -> 0 | 1`` whether a further thread would find work
    ``done(dispatch, worker, unit, consumed, now)``
"""

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

# the words of a worker
THREAD = 0
STOP = 8  # address of the stop flag
BELL = 16  # address of the bell this worker sleeps on when idle
ENGINE = 24
RUN = 32
DISPATCH = 40
NEXT = 48
DONE = 56
SPARE = 64
OPERATORS = 72  # address of the operator records
READY_AT = 80
BELLS = 88  # address of all bells, a cache line each
QUOTA = 128
WAKE_AT = 136
BUSY_NS = 144
SLEEPS = 152
DECISIONS = 160
WORKER_BYTES = 192

# the words of an operator, as the scheduler sees it; its claim has a cache line of its own
CLAIM = 0  # 0, or 1 + the thread that runs it
RUNS = 64
OPERATOR_BUSY_NS = 72
EVENTS = 80
LAST_RUN = 88
COST_NS = 96  # recent nanoseconds per event, in 1/1024
OPERATOR_BYTES = 128

# further words of a bell
WATCHED = 16  # the time a sleeper already watches for; 0 if none does
SLEPT = 24  # the ticket the last sleeper had read
WATCH_NS = (
    1_000_000  # sleepers with nothing earlier to watch for look this much later, in case that one is busy
)


FAR = 2**61  # longer than any wait for a time


def work(worker):
    """Run until the stop flag is set; the body of every worker thread."""
    stop = load(worker + STOP)
    bell = load(worker + BELL)
    now = monotonic_ns()
    while load_acquire(stop) == 0:
        unit = call(load(worker + NEXT), (load(worker + DISPATCH), worker, now))
        if unit < 0:
            ticket = load_acquire(bell)
            store_release(bell + SLEPT, ticket)
            fetch_add(bell + BELL_SLEEPERS, 1)
            fence()  # what is read below is not older than the count above
            now = monotonic_ns()
            unit = call(load(worker + NEXT), (load(worker + DISPATCH), worker, now))
            if unit < 0 and load_acquire(stop) == 0:
                wake_at = load(worker + WAKE_AT)
                watched = load_acquire(bell + WATCHED)
                watching = watched == 0 or wake_at < watched
                if watching:
                    store_release(bell + WATCHED, wake_at)
                wait = wake_at - now
                if not watching and wait < FAR:
                    wait += WATCH_NS
                if wait > 0:
                    store(worker + SLEEPS, load(worker + SLEEPS) + 1)
                    sleep(bell, ticket, wait)
                if watching:
                    compare_exchange(bell + WATCHED, wake_at, 0)
            fetch_add(bell + BELL_SLEEPERS, -1)
            now = monotonic_ns()
            if unit < 0:
                continue
        if load_acquire(bell + BELL_SLEEPERS) > 0:
            if call(load(worker + SPARE), (load(worker + DISPATCH), worker, now)) != 0:
                ring(bell, 1)
        consumed = call(load(worker + RUN), (load(worker + ENGINE), unit, load(worker + QUOTA)))
        end = monotonic_ns()
        store(worker + BUSY_NS, load(worker + BUSY_NS) + end - now)
        store(worker + DECISIONS, load(worker + DECISIONS) + 1)
        operator = load(worker + OPERATORS) + OPERATOR_BYTES * unit
        store(operator + RUNS, load(operator + RUNS) + 1)
        store(operator + OPERATOR_BUSY_NS, load(operator + OPERATOR_BUSY_NS) + end - now)
        store(operator + LAST_RUN, end)
        if consumed > 0:  # a run may also only have let time pass, and says nothing of the cost of events
            store(operator + EVENTS, load(operator + EVENTS) + consumed)
            recent = ((end - now) << 10) // consumed
            store(operator + COST_NS, load(operator + COST_NS) + ((recent - load(operator + COST_NS)) >> 3))
        call(load(worker + DONE), (load(worker + DISPATCH), worker, unit, consumed, end))
        now = end
    return 0
