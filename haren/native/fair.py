"""The decisions of `haren.dispatch.fair`, compiled."""

from haren.dispatch import fair as d
from haren.native import words as w
from haren.native.atomics import add_to, call, load, load_acquire, store
from haren.native.turns import claim, claim_of, quota, release

NEVER = 2**63 - 1
FIRST_TURN = 16  # events of an operator whose cost is not known yet
LONGEST = 1 << 30


def next_unit(dispatch, worker, now):
    """Of those that can run, the operator that has had the least time."""
    store(worker + w.WAKE_AT, NEVER)
    floor = load(dispatch + d.CLOCK) - load(dispatch + d.SLICE_NS)
    best = -1
    least = NEVER
    for op in range(load(dispatch + d.OPERATORS)):
        if load_acquire(claim_of(worker, op)) == 0:
            ready = call(load(worker + w.READY_AT), (load(worker + w.ENGINE), op, now))
            had = max(load(load(dispatch + d.HAD) + 8 * op), floor)
            if ready <= now:
                if had < least:
                    best = op
                    least = had
            elif ready < load(worker + w.WAKE_AT):
                store(worker + w.WAKE_AT, ready)
    if best < 0 or not claim(worker, best):
        return -1
    store(load(dispatch + d.HAD) + 8 * best, least)
    store(load(dispatch + d.BEGAN) + 8 * best, now)
    store(dispatch + d.CLOCK, max(load(dispatch + d.CLOCK), least))
    known = load(load(worker + w.OPERATORS) + w.OPERATOR_BYTES * best + w.EVENTS) > 0
    turn = quota(worker, best, LONGEST, load(dispatch + d.SLICE_NS)) if known else FIRST_TURN
    store(worker + w.QUOTA, turn)
    return best


def spare(dispatch, worker, now):
    """Whether another core would find an operator to run."""
    for op in range(load(dispatch + d.OPERATORS)):
        if load_acquire(claim_of(worker, op)) == 0:
            if call(load(worker + w.READY_AT), (load(worker + w.ENGINE), op, now)) <= now:
                return 1
    return 0


def done(dispatch, worker, unit, consumed, now):
    """Count the time it had, and give it back."""
    add_to(load(dispatch + d.HAD) + 8 * unit, now - load(load(dispatch + d.BEGAN) + 8 * unit))
    release(worker, unit)
    return 0
