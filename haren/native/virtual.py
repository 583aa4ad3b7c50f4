"""The second driver of the scheduler: K simulated threads in one real one, on a virtual clock.

What `haren.native.worker` does with real threads is done here event by event, in the order of virtual time;
the decisions are the same native functions of the same dispatch. Time is whole nanoseconds, ties go to the
thread with the lower number, so that a run can be repeated to the byte.

Threads that have something to do stand in a heap by time. Those that sleep are let look for work as on real
threads: by who has claimed some and sees more (`spare`), by who has run a neighbour of one of their
operators, or by an epoch only. One sleeper at a time watches for the next source to be due.
"""

from numba import njit

from haren.dispatch import bound as b
from haren.dispatch import schedule as s
from haren.dispatch import shared as d
from haren.native import words as w
from haren.native.atomics import add_to, call, load, store
from haren.native.clock import BELL_SLEEPERS, SIMULATED
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
WAKES = 80  # who lets sleepers look for work, see below
NOW_AT = 88  # address of the engine's word for the time
OVERHEAD = 96  # ns spent on deciding, switching and refilling caches, and in T_S
EPOCH_NS = 104  # how often the keeper of epochs does the phases of T_S; 0: there is none
NEXT_EPOCH = 112
KEEPER = 120  # address of its worker record
HEAP = 128  # address: threads that do something next, the earliest first
HEAP_SIZE = 136
SLEEPERS = 144  # threads that sleep
LOWEST = 152  # no thread below this number sleeps
WATCHER = 160  # the sleeper that watches for the next source; -1: none
DECISION_NS = 168  # what it costs to find out what to run
REFILL_NS = 176  # for an operator that another thread ran last
RAN_BY = 184  # address: which thread ran each operator last; -1: none
UNWATCHED = 192  # 1: there may be a time that no sleeper watches for
DRIVER_BYTES = 256
SPARE, NEIGHBOURS, EPOCH = range(3)  # what WAKES may be

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
PLACE = 72  # in the heap; -1: in none
SEAT_BYTES = 128
RUNNING, IDLE, WAITING = 0, 1, 2


@njit
def _seat(driver, thread):
    return load(driver + SEATS) + SEAT_BYTES * thread


@njit
def _worker(driver, thread):
    return load(driver + WORKERS) + w.WORKER_BYTES * thread


# -- the heap -------------------------------------------------------------------------------------


@njit
def _goes_before(driver, one, other):
    first = load(_seat(driver, one) + AT)
    second = load(_seat(driver, other) + AT)
    return first < second or (first == second and one < other)


@njit
def _put(driver, place, thread):
    store(load(driver + HEAP) + 8 * place, thread)
    store(_seat(driver, thread) + PLACE, place)


@njit
def _settle(driver, place, thread):
    """Put a thread where it belongs, on the way up or down from a place that is free."""
    heap = load(driver + HEAP)
    size = load(driver + HEAP_SIZE)
    while place > 0:
        parent = load(heap + 8 * ((place - 1) >> 1))
        if not _goes_before(driver, thread, parent):
            break
        _put(driver, place, parent)
        place = (place - 1) >> 1
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _goes_before(driver, load(heap + 8 * child + 8), load(heap + 8 * child)):
            child += 1
        if not _goes_before(driver, load(heap + 8 * child), thread):
            break
        _put(driver, place, load(heap + 8 * child))
        place = child
    _put(driver, place, thread)


@njit
def schedule(driver, thread, time):
    """Let a thread do something at a time; NEVER: it waits for somebody else."""
    seat = _seat(driver, thread)
    place = load(seat + PLACE)
    store(seat + AT, time)
    if time < NEVER:
        if place < 0:
            place = load(driver + HEAP_SIZE)
            store(driver + HEAP_SIZE, place + 1)
        _settle(driver, place, thread)
    elif place >= 0:
        last = load(driver + HEAP_SIZE) - 1
        store(driver + HEAP_SIZE, last)
        store(seat + PLACE, -1)
        if place < last:
            _settle(driver, place, load(load(driver + HEAP) + 8 * last))


# -- the driver -----------------------------------------------------------------------------------


def simulate(driver, steps):
    """Go on for so many steps or to the end; 1 if there is more to do."""
    for _ in range(steps):
        thread = -1
        time = NEVER
        if load(driver + HEAP_SIZE) > 0:
            thread = load(load(driver + HEAP))
            time = load(_seat(driver, thread) + AT)
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
    if load(driver + WAKES) == EPOCH:
        while load(driver + SLEEPERS) > 0:
            _wake(driver, _first_sleeper(driver), now)
    elif call(load(keeper + w.SPARE), (dispatch, keeper, now)) != 0:
        _wake_one(driver, now)


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
        if load(driver + WAKES) == NEIGHBOURS:
            _wake_rung(driver, dispatch, unit, now)
        elif load(driver + SLEEPERS) > 0:
            _note_due(driver, worker, unit, now)
    if load(seat + STATE) == IDLE:
        _rise(driver, thread, now)
    following = call(load(worker + w.NEXT), (dispatch, worker, now))
    if following == w.ROUND:
        _arrive(driver, thread, seat, worker, now)
    elif following < 0:
        _lie_down(driver, thread, seat, worker, now)
    else:
        _begin(driver, thread, seat, worker, following, now)
        if load(driver + WAKES) == SPARE and load(driver + SLEEPERS) > 0:
            if load(driver + UNWATCHED) != 0 or call(load(worker + w.SPARE), (dispatch, worker, now)) != 0:
                _wake_one(driver, now)  # who finds nothing lies down again, and watches


@njit
def _note_due(driver, worker, unit, now):
    """A source that has just run may be due before anything that is watched for."""
    due = call(load(worker + w.READY_AT), (load(worker + w.ENGINE), unit, now))
    if now < due < NEVER:
        watcher = load(driver + WATCHER)
        if watcher < 0 or due < load(_seat(driver, watcher) + AT):
            store(driver + UNWATCHED, 1)


@njit
def _begin(driver, thread, seat, worker, unit, now):
    overhead = load(driver + DECISION_NS)
    if unit != load(seat + LAST):
        overhead += load(driver + SWITCH_NS)
    ran_by = load(driver + RAN_BY) + 8 * unit
    if load(ran_by) != thread:
        if load(ran_by) >= 0:
            overhead += load(driver + REFILL_NS)
        store(ran_by, thread)
    add_to(driver + OVERHEAD, overhead)
    start = now + overhead
    store(load(driver + NOW_AT), now)
    consumed = call(load(worker + w.RUN), (load(worker + w.ENGINE), unit, load(worker + w.QUOTA)))
    store(seat + UNIT, unit)
    store(seat + LAST, unit)
    store(seat + CONSUMED, consumed)
    store(seat + BEGAN, start)
    store(seat + STATE, RUNNING)
    schedule(driver, thread, start + call(load(driver + DURATION), (load(worker + w.ENGINE), unit)))


# -- sleeping and waking --------------------------------------------------------------------------


@njit
def _lie_down(driver, thread, seat, worker, now):
    """Sleep until somebody wakes the thread, or until what it watches for."""
    store(seat + STATE, IDLE)
    store(seat + IDLE_SINCE, now)
    add_to(worker + w.SLEEPS, 1)
    bell = load(worker + w.BELL)
    store(bell + w.SLEPT, load(bell))
    store(seat + TICKET, load(bell))
    add_to(bell + BELL_SLEEPERS, SIMULATED)
    add_to(driver + SLEEPERS, 1)
    store(driver + LOWEST, min(load(driver + LOWEST), thread))
    wake = load(worker + w.WAKE_AT)
    if load(driver + WAKES) == SPARE:
        store(driver + UNWATCHED, 0)
        watcher = load(driver + WATCHER)
        if wake <= now or (watcher >= 0 and load(_seat(driver, watcher) + AT) <= wake):
            wake = NEVER
        elif wake < NEVER:
            if watcher >= 0:
                schedule(driver, watcher, NEVER)
            store(driver + WATCHER, thread)
            store(bell + w.WATCHED, wake)
    schedule(driver, thread, wake if wake == NEVER else max(wake, now + 1))


@njit
def _rise(driver, thread, now):
    seat = _seat(driver, thread)
    store(seat + STATE, RUNNING)
    add_to(seat + IDLE_NS, now - load(seat + IDLE_SINCE))
    bell = load(_worker(driver, thread) + w.BELL)
    add_to(bell + BELL_SLEEPERS, -SIMULATED)
    add_to(driver + SLEEPERS, -1)
    if load(driver + WATCHER) == thread:
        store(driver + WATCHER, -1)
        store(driver + UNWATCHED, 1)
        store(bell + w.WATCHED, 0)


@njit
def _wake(driver, thread, now):
    """Let a sleeper look for work now; it counts as a sleeper no more."""
    _rise(driver, thread, now)
    schedule(driver, thread, now)


@njit
def _first_sleeper(driver):
    """The sleeper with the lowest number; there must be one."""
    thread = load(driver + LOWEST)
    while load(_seat(driver, thread) + STATE) != IDLE:
        thread += 1
    store(driver + LOWEST, thread)
    return thread


@njit
def _wake_one(driver, now):
    if load(driver + SLEEPERS) > 0:
        _wake(driver, _first_sleeper(driver), now)


@njit
def _wake_rung(driver, dispatch, unit, now):
    """Wake the threads of neighbours whose bell was rung."""
    bounds = load(dispatch + s.BOUNDS) + 8 * unit
    for i in range(load(bounds), load(bounds + 8)):
        neighbour = load(load(dispatch + s.NEIGHBOURS) + 8 * i)
        thread = load(load(dispatch + s.ASSIGNMENT) + 8 * neighbour)
        seat = _seat(driver, thread)
        if load(seat + STATE) == IDLE and load(load(_worker(driver, thread) + w.BELL)) != load(seat + TICKET):
            _wake(driver, thread, now)


@njit
def _arrive(driver, thread, seat, worker, now):
    """Wait at the barrier; the last one lets all go through the phases of T_S."""
    store(seat + STATE, WAITING)
    store(seat + IDLE_SINCE, now)
    schedule(driver, thread, NEVER)
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
        schedule(driver, i, end)
