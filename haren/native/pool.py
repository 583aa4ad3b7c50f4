"""The decisions of `haren.dispatch.pool`, compiled: which operator a thread claims next."""

from numba import njit

from haren.dispatch import pool as p
from haren.native import words as w
from haren.native.atomics import call, fetch_add, load, load_acquire, store
from haren.native.turns import claim, claim_of, quota, release

NEVER = 2**63 - 1
LINE = 64


@njit
def _record(pool, worker):
    return load(pool + p.THREADS) + LINE * load(worker + w.THREAD)


@njit
def _occupancy(pool, query):
    return load(pool + p.OCCUPANCY) + LINE * query


@njit
def _claim_in_query(pool, worker, query, start, now):
    """Claim the first runnable operator of ``query`` at or behind ``start``, going round; -1 if none."""
    first = load(load(pool + p.BOUNDS) + 16 * query)
    behind = load(load(pool + p.BOUNDS) + 16 * query + 8)
    unit = start if first <= start < behind else first
    for _ in range(behind - first):
        if load_acquire(claim_of(worker, unit)) == 0:
            ready = call(load(worker + w.READY_AT), (load(worker + w.ENGINE), unit, now))
            if ready <= now:
                if claim(worker, unit):
                    return unit
            elif ready < load(worker + w.WAKE_AT):
                store(worker + w.WAKE_AT, ready)
        unit = unit + 1 if unit + 1 < behind else first
    return -1


@njit
def _attach(pool, record, query, now):
    former = load(record + p.QUERY)
    if former != query:
        if former >= 0:
            fetch_add(_occupancy(pool, former), -1)
        if query >= 0:
            fetch_add(_occupancy(pool, query), 1)
        store(record + p.QUERY, query)
    store(record + p.SINCE, now)


@njit
def _grant(pool, worker, record, query, unit):
    """Set the quota."""
    store(record + p.LAST, unit)
    alone = load_acquire(_occupancy(pool, query)) <= 1
    quantum = load(pool + p.QUANTUM) if alone else load(pool + p.SHARED_QUANTUM)
    store(worker + w.QUOTA, quota(worker, unit, quantum, load(pool + p.TURN_NS)))
    return unit


def next_unit(pool, worker, now):
    """Claim the next operator for this thread; -1 if none can run, with the time to look again."""
    store(worker + w.WAKE_AT, NEVER)
    record = _record(pool, worker)
    query = load(record + p.QUERY)
    if query >= 0 and now - load(record + p.SINCE) < load(pool + p.SLICE_NS):
        unit = _claim_in_query(pool, worker, query, load(record + p.LAST) + 1, now)
        if unit >= 0:
            return _grant(pool, worker, record, query, unit)
    queries = load(pool + p.QUERIES)
    if queries == 0:
        return -1
    start = max(query, 0) if query >= 0 else load(worker + w.THREAD) % queries - 1
    for shared in range(2):
        for step in range(1, queries + 1):
            candidate = (start + step) % queries
            others = load_acquire(_occupancy(pool, candidate)) - (1 if candidate == query else 0)
            if (others > 0) == (shared == 1):
                unit = _claim_in_query(pool, worker, candidate, load(record + p.LAST) + 1, now)
                if unit >= 0:
                    _attach(pool, record, candidate, now)
                    return _grant(pool, worker, record, candidate, unit)
    _attach(pool, record, -1, now)
    return -1


def spare(pool, worker, now):
    """Whether another thread would find an operator to run."""
    behind = load(load(pool + p.BOUNDS) + 16 * load(pool + p.QUERIES) - 8)
    for unit in range(behind):
        if load_acquire(claim_of(worker, unit)) == 0:
            if call(load(worker + w.READY_AT), (load(worker + w.ENGINE), unit, now)) <= now:
                return 1
    return 0


def done(pool, worker, unit, consumed, now):
    """Give the operator back."""
    release(worker, unit)
    return 0
