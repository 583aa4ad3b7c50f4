"""What dispatches share: an operator's claim, and how long its turn is."""

from numba import njit

from haren.native import words as w
from haren.native.atomics import compare_exchange, load, store_release


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
def quota(worker, unit, events, limit_ns):
    """A turn's events: fewer for operators so slow that others would wait long for its end."""
    cost = load(load(worker + w.OPERATORS) + w.OPERATOR_BYTES * unit + w.COST_NS)
    if cost > 0:
        return min(events, max(1, (limit_ns << 10) // cost))
    return events
