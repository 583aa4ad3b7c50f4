"""The decisions of `haren.dispatch.dedicated`, compiled: thread i has operator i, and wakes its neighbours.

Why no wake-up is lost: an operator's readiness is changed by turns of its neighbours (or from outside,
with a ring for everybody). Who changes it does so, passes a fence, then reads whether the operator's thread
is among the sleepers; who goes to sleep counts itself, passes a fence, then reads whether it can run. Of
two fences one is first, so either the sleeper sees the change or the changer sees the sleeper. The same
holds for two neighbours of which both must act (news and room): the one whose fence is last sees both.
"""

from numba import njit

from haren.dispatch import dedicated as d
from haren.native import words as w
from haren.native.atomics import call, fence, load, load_acquire, store
from haren.native.clock import BELL_BYTES, BELL_SLEEPERS, ring
from haren.native.turns import claim, quota, release

NEVER = 2**63 - 1


@njit
def _ready_at(worker, unit, now):
    return call(load(worker + w.READY_AT), (load(worker + w.ENGINE), unit, now))


def next_unit(dispatch, worker, now):
    """This thread's own operator, if it can run; else -1, with the time from which it can."""
    unit = load(worker + w.THREAD)
    ready = _ready_at(worker, unit, now)
    if ready <= now:
        if claim(worker, unit):
            turn = quota(worker, unit, load(dispatch + d.QUANTUM), load(dispatch + d.TURN_NS))
            store(worker + w.QUOTA, turn)
            return unit
        ready = NEVER  # held by somebody outside, who rings when it is free
    store(worker + w.WAKE_AT, ready)
    return -1


def spare(dispatch, worker, now):
    """Nobody else sleeps on this thread's bell."""
    return 0


def done(dispatch, worker, unit, consumed, now):
    """Give the operator back, and wake neighbours that can run, also if no event was consumed."""
    release(worker, unit)
    fence()
    bounds = load(dispatch + d.BOUNDS) + 8 * unit
    for i in range(load(bounds), load(bounds + 8)):
        neighbour = load(load(dispatch + d.NEIGHBOURS) + 8 * i)
        bell = load(worker + w.BELLS) + BELL_BYTES * neighbour
        if load_acquire(bell + BELL_SLEEPERS) != 0:
            _rouse(worker, neighbour, bell, now)
    return 0


@njit
def _rouse(worker, unit, bell, now):
    """Wake a sleeping operator's thread if it can run earlier than it would wake.

    Earlier is not only now: a paced source that waited for room has to learn when it is due.
    """
    if load_acquire(bell) != load_acquire(bell + w.SLEPT):
        return  # woken already, and not yet on a core
    watched = load_acquire(bell + w.WATCHED)
    if _ready_at(worker, unit, now) < (watched if watched != 0 else NEVER):
        ring(bell, 1)
