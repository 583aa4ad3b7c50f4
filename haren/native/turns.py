"""What dispatches share: an operator's claim, and how long its turn is."""

from numba import njit

from haren.native import words as w
from haren.native.atomics import add_to, compare_exchange, load, store, store_release


@njit
def claim_of(worker, unit):
    """The address of an operator's claim."""
    return load(worker + w.OPERATORS) + w.OPERATOR_BYTES * unit + w.CLAIM


@njit
def claim(worker, unit):
    """Take an operator, unless it is taken; True if this thread now has it."""
    return compare_exchange(claim_of(worker, unit), 0, 1 + load(worker + w.THREAD))


@njit
def release(worker, unit):
    """Give an operator back."""
    store_release(claim_of(worker, unit), 0)


@njit
def recent_cost(worker, unit):
    """Nanoseconds per event in 1/1024, an average over turns; 0 before the first. For who has it."""
    operator = load(worker + w.OPERATORS) + w.OPERATOR_BYTES * unit
    busy = load(operator + w.OPERATOR_BUSY_NS)
    events = load(operator + w.EVENTS)
    new = events - load(operator + w.COSTED_EVENTS)
    if new > 0:
        recent = ((busy - load(operator + w.COSTED_NS)) << 10) // new
        add_to(operator + w.COST_NS, (recent - load(operator + w.COST_NS)) >> 3)
        store(operator + w.COSTED_NS, busy)
        store(operator + w.COSTED_EVENTS, events)
    return load(operator + w.COST_NS)


@njit
def quota(worker, unit, events, limit_ns):
    """A turn's events: fewer for operators so slow that others would wait long for its end."""
    cost = recent_cost(worker, unit)
    if cost > 0:
        return min(events, max(1, (limit_ns << 10) // cost))
    return events
