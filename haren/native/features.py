"""Refreshing features: what the engine and the worker loop have counted, turned into the values of F."""

from numba import njit

from haren import matrix as m
from haren import spe
from haren.native import words as w
from haren.native.atomics import as_bits, as_float, call, load, store

NEVER = 2**63 - 1


@njit
def measure(worker, op, which, now):
    """Ask the engine for one of its counters."""
    return call(load(worker + w.MEASURE), (load(worker + w.ENGINE), op, which, now))


@njit
def _place(matrix, row, op):
    return load(matrix + m.VALUES) + load(matrix + m.STRIDE) * row + 8 * op


@njit
def _seen(matrix, op):
    return load(matrix + m.SEEN) + m.SEEN_BYTES * op


@njit
def _average(place, value, weight, first):
    """An exponential average; the first measurement stands for itself."""
    if first:
        store(place, as_bits(value))
    else:
        store(place, as_bits(as_float(load(place)) + weight * (value - as_float(load(place)))))


@njit
def refresh_independent(matrix, worker, op, now):
    """Refresh what only the operator's own runs change, from what was counted since it was last done."""
    seen = _seen(matrix, op)
    operator = load(worker + w.OPERATORS) + w.OPERATOR_BYTES * op
    busy = load(operator + w.OPERATOR_BUSY_NS)
    events = load(operator + w.EVENTS)
    new = events - load(seen + m.SEEN_EVENTS)
    first = load(seen + m.SEEN_MEASURED) == 0
    out = 0
    if load(worker + w.MEASURE) != 0:
        out = measure(worker, op, spe.EVENTS_OUT, now)
    entries = load(matrix + m.INDEPENDENT)
    for i in range(load(matrix + m.INDEPENDENT_COUNT)):
        entry = entries + m.ENTRY_BYTES * i
        code = load(entry)
        place = _place(matrix, load(entry + 8), op)
        weight = as_float(load(entry + 16))
        if code == 3:
            store(place, as_bits(float(load(operator + w.LAST_RUN))))
        elif new > 0:
            if code == 0:
                _average(place, (busy - load(seen + m.SEEN_BUSY)) / new, weight, first)
            elif code == 1:
                _average(place, (out - load(seen + m.SEEN_OUT)) / new, weight, first)
            elif code == 2 and load(seen + m.SEEN_AT) > 0:
                elapsed = max(now - load(seen + m.SEEN_AT), 1)
                _average(place, 1e9 * new / elapsed, weight, as_float(load(place)) == 0.0)
    if new > 0:
        store(seen + m.SEEN_BUSY, busy)
        store(seen + m.SEEN_EVENTS, events)
        store(seen + m.SEEN_OUT, out)
        store(seen + m.SEEN_MEASURED, 1)
    if new > 0 or load(seen + m.SEEN_AT) == 0:
        store(seen + m.SEEN_AT, now)


@njit
def refresh_dependent(matrix, worker, op, now):
    """Refresh what runs of other operators change, from the engine as it is now."""
    _refresh_from_engine(matrix, worker, op, now)
    entry = load(matrix + m.GRADIENT)
    if entry != 0:
        _latency_gradient(matrix, worker, op, entry, now)


@njit
def refresh_moment(matrix, worker, op, now):
    """Refresh what may differ from one decision to the next."""
    if load(matrix + m.LAST_ROW) != 0:
        last = load(load(worker + w.OPERATORS) + w.OPERATOR_BYTES * op + w.LAST_RUN)
        store(load(matrix + m.LAST_ROW) + 8 * op, as_bits(float(last)))
    _refresh_from_engine(matrix, worker, op, now)


@njit
def refresh_gradients(matrix, worker, now):
    """Refresh the latency gradient of all operators, those of a query alike."""
    entry = load(matrix + m.GRADIENT)
    if entry == 0:
        return
    queries = load(matrix + m.QUERY)
    for op in range(load(matrix + m.OPERATORS)):
        if op == 0 or load(queries + 8 * op) != load(queries + 8 * op - 8):
            _latency_gradient(matrix, worker, op, entry, now)
        else:
            place = _place(matrix, load(entry + 8), op)
            store(place, load(place - 8))


@njit
def _refresh_from_engine(matrix, worker, op, now):
    entries = load(matrix + m.DEPENDENT)
    for i in range(load(matrix + m.DEPENDENT_COUNT)):
        entry = entries + m.ENTRY_BYTES * i
        code = load(entry)
        place = _place(matrix, load(entry + 8), op)
        if code == 6:
            store(place, measure(worker, op, spe.PENDING, now))
        elif code != 8:
            value = 0
            if code == 4:
                value = measure(worker, op, spe.HEAD_TIME, now)
            elif code == 5:
                value = measure(worker, op, spe.HEAD_TIME, now)
                if value != NEVER:
                    value += (measure(worker, op, spe.TAIL_TIME, now) - value) // 2
            elif code == 7:
                value = measure(worker, op, spe.ROOM, now)
            if value == NEVER:
                store(place, load(entry + 24))
            else:
                store(place, as_bits(float(value)))


@njit
def _latency_gradient(matrix, worker, op, entry, now):
    """How the mean latency of the query's results since the last refresh differs from that before."""
    place = _place(matrix, load(entry + 8), op)
    weight = as_float(load(entry + 16))
    query = load(load(matrix + m.QUERY) + 8 * op)
    bounds = load(matrix + m.SINKS_FROM) + 8 * query
    count = 0
    total = 0
    for i in range(load(bounds), load(bounds + 8)):
        sink = load(load(matrix + m.SINKS) + 8 * i)
        count += measure(worker, sink, spe.LATENCY_COUNT, now)
        total += measure(worker, sink, spe.LATENCY_TOTAL, now)
    seen = _seen(matrix, op)
    new = count - load(seen + m.SEEN_LATENCY_COUNT)
    if new <= 0:
        return
    mean = (total - load(seen + m.SEEN_LATENCY_TOTAL)) / new
    former = as_float(load(seen + m.SEEN_LATENCY_MEAN))
    at = load(seen + m.SEEN_LATENCY_AT)
    if at > 0 and now > at:
        gradient = (mean - former) * 1e9 / (now - at)
        _average(place, gradient, weight, False)
    store(seen + m.SEEN_LATENCY_COUNT, count)
    store(seen + m.SEEN_LATENCY_TOTAL, total)
    store(seen + m.SEEN_LATENCY_MEAN, as_bits(mean))
    store(seen + m.SEEN_LATENCY_AT, now)
