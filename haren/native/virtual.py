"""The second driver of the scheduler: K simulated threads in one real one, on a virtual clock.

What `haren.native.worker` does with real threads is done here event by event, in the order of virtual time;
the decisions are the same native functions of the same dispatch. Time is whole nanoseconds, ties go to the
thread with the lower number, so that a run can be repeated to the byte.
"""

from numba import njit

from haren.dispatch import bound as b
from haren.dispatch import schedule as s
from haren.dispatch import shared as d
from haren.native import words as w
from haren.native.atomics import add_to, call, load, store
from haren.native.clock import BELL_SLEEPERS
from haren.native.schedule import finish_row, row_of
from haren.native.worker import account

NEVER = 2**63 - 1

# the words of the driver
THREADS = 0
WORKERS = 8  # address of the worker records
SEATS = 16  # address of the simulated threads
END = 24  # the time at which the run ends
TIME = 32  # the present
FINISH = 40  # address: lets the results of a run be seen
DURATION = 48  # address: how long the run takes that has just begun
SWITCH_NS = 56  # for a thread that goes over to another operator
ROUND_NS = 64  # for T_S, from the arrival of the last thread on
ARRIVED = 72  # threads at the barrier
BELLS = 80  # 1: a sleeper is woken by its own bell; 0: by every run that ends
NOW_AT = 88  # address of the engine's word for the time
OVERHEAD = 96  # ns spent on switching, and in T_S
EPOCH_NS = 104  # how often the keeper of epochs does the phases of T_S; 0: there is none
NEXT_EPOCH = 112
KEEPER = 120  # address of its worker record
DRIVER_BYTES = 128

# the words of a simulated thread
AT = 0  # when it does something next
UNIT = 8  # what it runs; -1: nothing
BEGAN = 16
CONSUMED = 24
LAST = 32  # what it ran last
STATE = 40
TICKET = 48
IDLE_NS = 56
IDLE_SINCE = 64  # or at the barrier since
SEAT_BYTES = 128
RUNNING, IDLE, WAITING = 0, 1, 2


@njit
def _seat(driver, thread):
    return load(driver + SEATS) + SEAT_BYTES * thread


@njit
def _worker(driver, thread):
    return load(driver + WORKERS) + w.WORKER_BYTES * thread


def simulate(driver, steps):
    """Go on for so many steps or to the end; 1 if there is more to do."""
    threads = load(driver + THREADS)
    for _ in range(steps):
        thread = -1
        time = NEVER
        for i in range(threads):
            if load(_seat(driver, i) + AT) < time:
                thread = i
                time = load(_seat(driver, i) + AT)
        if load(driver + EPOCH_NS) > 0 and load(driver + NEXT_EPOCH) <= min(time, load(driver + END)):
            _keep_epoch(driver, load(driver + NEXT_EPOCH))
            continue
        if thread < 0 or time > load(driver + END):
            store(driver + TIME, load(driver + END))
            return 0
        store(driver + TIME, time)
        _step(driver, thread, _seat(driver, thread), _worker(driver, thread), time)
    return 1


@njit
def _keep_epoch(driver, now):
    """The phases of T_S of a dispatch whose threads do not meet for them; takes no time."""
    keeper = load(driver + KEEPER)
    dispatch = load(keeper + w.DISPATCH)
    phases = load(keeper + w.ROUNDS)
    row = row_of(dispatch, keeper)
    store(driver + TIME, now)
    store(row + s.STARTED, now)
    call(load(phases + d.METRICS), (dispatch, keeper, now))
    call(load(phases + d.RANK), (dispatch, keeper, now))
    finish_row(dispatch, keeper, row, 0)
    store(driver + NEXT_EPOCH, now + load(driver + EPOCH_NS))
    _rouse(driver, -1, now)


@njit
def _step(driver, thread, seat, worker, now):
    """What a thread does at a time of its own: end a run, then decide what is next."""
    dispatch = load(worker + w.DISPATCH)
    unit = load(seat + UNIT)
    if unit >= 0:
        call(load(driver + FINISH), (load(worker + w.ENGINE), unit, now))
        account(worker, unit, load(seat + CONSUMED), load(seat + BEGAN), now)
        call(load(worker + w.DONE), (dispatch, worker, unit, load(seat + CONSUMED), now))
        store(seat + UNIT, -1)
        _rouse(driver, thread, now)
    if load(seat + STATE) == IDLE:
        _wake(seat, worker, now)
    following = call(load(worker + w.NEXT), (dispatch, worker, now))
    if following == w.ROUND:
        _arrive(driver, seat, worker, now)
    elif following < 0:
        wake = load(worker + w.WAKE_AT)
        if load(driver + BELLS) == 0 and wake <= now:
            wake = NEVER
        store(seat + AT, max(wake, now + 1))
        store(seat + STATE, IDLE)
        store(seat + IDLE_SINCE, now)
        add_to(worker + w.SLEEPS, 1)
        bell = load(worker + w.BELL)
        store(bell + w.SLEPT, load(bell))
        store(seat + TICKET, load(bell))
        add_to(bell + BELL_SLEEPERS, 1)
    else:
        _begin(driver, seat, worker, following, now)


@njit
def _begin(driver, seat, worker, unit, now):
    start = now
    if unit != load(seat + LAST) and load(driver + SWITCH_NS) > 0:
        start += load(driver + SWITCH_NS)
        add_to(driver + OVERHEAD, load(driver + SWITCH_NS))
    store(load(driver + NOW_AT), now)
    consumed = call(load(worker + w.RUN), (load(worker + w.ENGINE), unit, load(worker + w.QUOTA)))
    store(seat + UNIT, unit)
    store(seat + LAST, unit)
    store(seat + CONSUMED, consumed)
    store(seat + BEGAN, start)
    store(seat + STATE, RUNNING)
    store(seat + AT, start + call(load(driver + DURATION), (load(worker + w.ENGINE), unit)))


@njit
def _wake(seat, worker, now):
    store(seat + STATE, RUNNING)
    add_to(seat + IDLE_NS, now - load(seat + IDLE_SINCE))
    add_to(load(worker + w.BELL) + BELL_SLEEPERS, -1)


@njit
def _rouse(driver, thread, now):
    """Let sleepers look that were rung for, or all of them if there are no bells to ring."""
    for i in range(load(driver + THREADS)):
        seat = _seat(driver, i)
        if i != thread and load(seat + STATE) == IDLE:
            bell = load(_worker(driver, i) + w.BELL)
            if load(driver + BELLS) == 0 or load(bell) != load(seat + TICKET):
                store(seat + AT, now)


@njit
def _arrive(driver, seat, worker, now):
    """Wait at the barrier; the last one lets all go through the phases of T_S."""
    store(seat + STATE, WAITING)
    store(seat + IDLE_SINCE, now)
    store(seat + AT, NEVER)
    store(row_of(load(worker + w.DISPATCH), worker) + s.STARTED, now)
    add_to(driver + ARRIVED, 1)
    threads = load(driver + THREADS)
    if load(driver + ARRIVED) < threads:
        return
    store(driver + ARRIVED, 0)
    dispatch = load(worker + w.DISPATCH)
    phases = load(worker + w.ROUNDS)
    end = now + load(driver + ROUND_NS)
    for i in range(threads):
        call(load(phases + b.REFRESH), (dispatch, _worker(driver, i), now))
    call(load(phases + b.UPDATE), (dispatch, worker, now))
    call(load(phases + b.ASSIGN), (dispatch, worker, now))
    for i in range(threads):
        other = _worker(driver, i)
        row = row_of(dispatch, other)
        call(load(phases + b.PRIORITISE), (dispatch, other, now))
        call(load(phases + b.SORT), (dispatch, other, end))
        store(row + s.SEQUENTIAL, 1 if other == worker else 0)
        store(row + s.COORDINATE_NS, end - load(row + s.STARTED))
        store(row + s.TOTAL_NS, end - load(row + s.STARTED))
        add_to(driver + OVERHEAD, end - load(row + s.STARTED))
        finish_row(dispatch, other, row, 0)
        store(_seat(driver, i) + STATE, RUNNING)
        store(_seat(driver, i) + AT, end)
