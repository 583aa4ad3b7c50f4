"""The decisions of `haren.dispatch.shared`, compiled: algorithm 2 of the Enjima paper, without its queue.

Each operator has one word, its key. It says that a thread has it (`CLAIMED`), that it cannot run (`NOT`), or
what it is worth: the first number of its priority, from 0 on if it is eligible and below if it only could
run, so that the largest key is that of the operator to take. Whoever finds an operator changed *looks*: asks
whether it can run, ranks it, and exchanges its key, unless it is claimed or has changed meanwhile.

No look is lost: a thread that gives an operator back sets its key to NOT before it looks, and one that has
brought an operator work does so before it reads the key. So one of the two sees what the other has done.
"""

from numba import carray, int64, njit

from haren import matrix as m
from haren.dispatch import schedule as s
from haren.dispatch import shared as d
from haren.native import words as w
from haren.native.atomics import (
    as_bits,
    as_float,
    call,
    compare_exchange,
    fence,
    fetch_add,
    load,
    load_acquire,
    pointer,
    store,
    store_release,
)
from haren.native.clock import BELL_BYTES, BELL_SLEEPERS, monotonic_ns, ring, sleep, thread_cpu_ns
from haren.native.features import refresh_gradients, refresh_independent, refresh_moment
from haren.native.schedule import (
    adapt_with,
    compute_derived,
    finish_row,
    grant,
    is_eligible,
    keep_priorities,
    keep_values,
    rank_with,
    row_of,
    thread_record,
)
from haren.native.turns import release
from haren.numbers import FACTOR, MODULUS

NEVER = 2**63 - 1
CLAIMED = -(2**63)
NOT = CLAIMED + 1
HALF = 2**62


@njit
def key_of(priority, eligible):
    """A priority as a key: in the order of numbers, whether eligible before all else."""
    bits = as_bits(priority + 0.0)  # -0.0 is 0.0
    if bits < 0:
        bits ^= NEVER
    return (bits >> 1) + (HALF if eligible else -HALF)


@njit
def _highest(dispatch):
    """The largest key: a plain loop, which the compiler makes go over several words at a time."""
    count = load(load(dispatch + s.MATRIX) + m.OPERATORS)
    keys = carray(pointer(load(dispatch + d.KEYS)), (count,), int64)
    best = NOT
    for i in range(count):
        best = max(best, keys[i])
    return best


@njit
def _may_be_taken(dispatch, key):
    """Whether a thread may take the operator with this key: only eager ones take what is not eligible."""
    return key >= 0 or (key != NOT and load(dispatch + d.EAGER) != 0)


@njit
def _owner(dispatch, key):
    """The operator with this key; of several the best by the further numbers of its priority, of equals the
    first behind the one that was taken last; -1 if it has gone."""
    count = load(load(dispatch + s.MATRIX) + m.OPERATORS)
    keys = carray(pointer(load(dispatch + d.KEYS)), (count,), int64)
    dims = load(dispatch + s.DIMS)
    rows = load(dispatch + s.PRIORITIES)
    last = load(dispatch + d.LAST)
    best = -1
    for step in range(count):
        op = last + 1 + step
        if op >= count:
            op -= count
        if keys[op] != key:
            continue
        if dims == 1:
            return op
        if best < 0 or _goes_before(rows, dims, op, best):
            best = op
    return best


@njit
def _goes_before(rows, dims, one, other):
    for i in range(1, dims):
        mine = as_float(load(rows + 8 * (dims * one + i)))
        its = as_float(load(rows + 8 * (dims * other + i)))
        if mine != its:
            return mine > its
    return False


@njit
def _look(dispatch, worker, op, now):
    """Renew an operator's key, unless it is claimed, and of a source when it is due."""
    place = load(dispatch + d.KEYS) + 8 * op
    source = load(load(dispatch + d.PLACES) + 8 * op)
    while True:
        former = load_acquire(place)
        if former == CLAIMED:
            return
        refresh_moment(load(dispatch + s.MATRIX), worker, op, now)
        ready = call(load(worker + w.READY_AT), (load(worker + w.ENGINE), op, now))
        key = NOT
        if ready <= now:
            rank_with(dispatch, load(dispatch + d.ALL) + 8 * op, 1, now)
            priority = as_float(load(load(dispatch + s.PRIORITIES) + 8 * load(dispatch + s.DIMS) * op))
            key = key_of(priority, is_eligible(dispatch, worker, op, now))
        if source >= 0:
            store_release(load(dispatch + d.DUES) + 8 * source, ready if ready > now else NEVER)
            fence()  # whoever claims it from here on does so behind this
        if key == former:
            if load_acquire(place) == key:
                return
        elif compare_exchange(place, former, key) and key != NOT:
            return  # with NOT it looks once more: the former key may have been a newer one of the same value


@njit
def _first_due(dispatch, now):
    """From when on some source can run that could not when it was last looked at."""
    count = load(dispatch + d.SOURCE_COUNT)
    dues = carray(pointer(load(dispatch + d.DUES)), (count,), int64)
    first = NEVER
    for i in range(count):
        first = min(first, dues[i])
    if first > now:
        return first
    first = NEVER  # it may be an old time of one that runs now
    for i in range(count):
        key = load_acquire(load(dispatch + d.KEYS) + 8 * load(load(dispatch + d.SOURCES) + 8 * i))
        if key != CLAIMED:
            first = min(first, dues[i])
    return first


@njit
def _look_at_sources(dispatch, worker, now):
    """Look at sources that have become due: nobody but time has changed them."""
    if _first_due(dispatch, now) > now:
        return
    for i in range(load(dispatch + d.SOURCE_COUNT)):
        if load(load(dispatch + d.DUES) + 8 * i) <= now:
            _look(dispatch, worker, load(load(dispatch + d.SOURCES) + 8 * i), now)


@njit
def _look_at_all(dispatch, worker, now):
    for op in range(load(load(dispatch + s.MATRIX) + m.OPERATORS)):
        _look(dispatch, worker, op, now)


def next_unit(dispatch, worker, now):
    """Claim the best operator; -1: there is none, with the time to look again.

    An eager thread looks at sources that have become due before it chooses, and at everything before it
    sleeps: at its second attempt, since the worker loop makes two.
    """
    keys = load(dispatch + d.KEYS)
    eager = load(dispatch + d.EAGER) != 0
    in_vain = thread_record(dispatch, worker) + d.IN_VAIN
    if eager:
        _look_at_sources(dispatch, worker, now)
    looked = not eager
    while True:
        best = _highest(dispatch)
        if best == NOT and not looked and load(in_vain) != 0:
            _look_at_all(dispatch, worker, now)
            looked = True
            continue
        if not _may_be_taken(dispatch, best):
            store(in_vain, 1 - load(in_vain))
            store(worker + w.WAKE_AT, _first_due(dispatch, now) if eager else NEVER)
            return -1
        op = _owner(dispatch, best)
        if op < 0 or not compare_exchange(keys + 8 * op, best, CLAIMED):
            continue
        if call(load(worker + w.READY_AT), (load(worker + w.ENGINE), op, now)) <= now:
            store(in_vain, 0)
            store(dispatch + d.LAST, op)
            if load(load(dispatch + d.PLACES) + 8 * op) >= 0:
                store(load(dispatch + d.DUES) + 8 * load(load(dispatch + d.PLACES) + 8 * op), NEVER)
            reason = w.REASON_ELIGIBLE if best >= 0 else w.REASON_ANYWAY
            return grant(dispatch, worker, op, reason, 0, now)
        _give_back(dispatch, op)
        _look(dispatch, worker, op, now)


@njit
def _give_back(dispatch, op):
    store_release(load(dispatch + d.KEYS) + 8 * op, NOT)
    fence()  # what is looked at from here on is not older


def spare(dispatch, worker, now):
    """Whether a sleeper would find an operator to run, or a source that nobody watches for."""
    return _spare(dispatch, worker, now)


@njit
def _spare(dispatch, worker, now):
    if load(dispatch + d.EAGER) == 0:
        return 0  # they sleep until the next epoch
    if _highest(dispatch) != NOT:
        return 1
    watched = load_acquire(load(worker + w.BELL) + w.WATCHED)
    due = _first_due(dispatch, now)
    return 1 if due < NEVER and (watched == 0 or due < watched) else 0


def done(dispatch, worker, op, consumed, now):
    """Measure the operator if it is time, give it back, and look at it and its neighbours."""
    matrix = load(dispatch + s.MATRIX)
    seen = load(matrix + m.SEEN) + m.SEEN_BYTES * op
    age = now - load(seen + m.SEEN_AT)
    if age >= load(dispatch + d.METRICS_NS) or load(seen + m.SEEN_MEASURED) == 0:
        refresh_independent(matrix, worker, op, now)
        store_release(load(dispatch + d.CHANGED) + 8 * op, 1)
    release(worker, op)
    _give_back(dispatch, op)
    _look(dispatch, worker, op, now)
    bounds = load(dispatch + s.BOUNDS) + 8 * op
    for i in range(load(bounds), load(bounds + 8)):
        _look(dispatch, worker, load(load(dispatch + s.NEIGHBOURS) + 8 * i), now)
    return 0


# -- the epochs -----------------------------------------------------------------------------------


def metrics(dispatch, worker, now):
    """Renew derived features, and when metrics are due the latency gradient and the policy's state."""
    matrix = load(dispatch + s.MATRIX)
    operators = load(matrix + m.OPERATORS)
    store(matrix + m.SEED, load(matrix + m.SEED) * FACTOR % MODULUS)
    period = load(dispatch + s.PERIOD_NS)
    end = load(matrix + m.ROUND_END) + period
    store(matrix + m.ROUND_END, end if end > now else now + period)
    due = now >= load(dispatch + d.NEXT_METRICS)
    if due:
        store(dispatch + d.NEXT_METRICS, now + load(dispatch + d.METRICS_NS))
        refresh_gradients(matrix, worker, now)
    flagged = _flag(dispatch, matrix, operators)
    derived = compute_derived(dispatch, now) if flagged > 0 else 0
    flags = load(matrix + m.FLAGS)
    for op in range(operators):
        store(flags + 8 * op, 0)
    if due:
        adapt_with(dispatch, load(dispatch + d.ALL), operators, now)
    row = row_of(dispatch, worker)
    store(row + s.FLAGGED, flagged)
    store(row + s.UPDATED, flagged * derived)
    store(row + s.FULL, operators * load(matrix + m.DYNAMIC))
    return 0


@njit
def _flag(dispatch, matrix, operators):
    """Flag what depends on operators that were measured; how many are flagged."""
    flags = load(matrix + m.FLAGS)
    changed = load(dispatch + d.CHANGED)
    moving = load(dispatch + d.MOVING) != 0
    for op in range(operators):
        if load_acquire(changed + 8 * op) != 0:
            store_release(changed + 8 * op, 0)
            fence()  # a measurement from here on sets it again
            store(flags + 8 * op, 1)
            bounds = load(matrix + m.DEPENDENTS_FROM) + 8 * op
            for i in range(load(bounds), load(bounds + 8)):
                store(flags + 8 * load(load(matrix + m.DEPENDENTS) + 8 * i), 1)
    flagged = 0
    for op in range(operators):
        if moving:
            store(flags + 8 * op, 1)
        flagged += load(flags + 8 * op)
    return flagged


def rank(dispatch, worker, now):
    """Look at all operators, keep what is found, and wake threads that can go on because of it."""
    matrix = load(dispatch + s.MATRIX)
    operators = load(matrix + m.OPERATORS)
    if load(dispatch + s.SNAPSHOT_COUNT) != 0:
        rank_with(dispatch, load(dispatch + d.ALL), operators, now)  # also those that cannot run
    _look_at_all(dispatch, worker, now)
    for op in range(operators):
        key = load_acquire(load(dispatch + d.KEYS) + 8 * op)
        condition = d.ELIGIBLE
        if key < 0:
            condition = d.RUNNING if key == CLAIMED else d.STOPPED if key == NOT else d.WAITING
        store(load(dispatch + s.ASSIGNMENT) + 8 * op, condition)
    keep_values(dispatch, now)
    keep_priorities(dispatch, load(dispatch + d.ALL), operators)
    bell = load(worker + w.BELLS)
    if load(dispatch + d.EAGER) == 0:
        ring(bell, 2**31 - 1)
    elif _spare(dispatch, worker, now) != 0:
        ring(bell, 1)
    return 0


def keep_epochs(worker):
    """Keep the epochs until the stop flag is set: the body of a thread of its own."""
    dispatch = load(worker + w.DISPATCH)
    phases = load(worker + w.ROUNDS)
    stop = load(worker + w.STOP)
    bell = load(worker + w.BELLS) + BELL_BYTES
    while load_acquire(stop) == 0:
        began = monotonic_ns()
        cpu = thread_cpu_ns()
        row = row_of(dispatch, worker)
        store(row + s.STARTED, began)
        call(load(phases + d.METRICS), (dispatch, worker, began))
        updated = monotonic_ns()
        call(load(phases + d.RANK), (dispatch, worker, updated))
        now = monotonic_ns()
        store(row + s.UPDATE_NS, updated - began)
        store(row + s.PRIORITY_NS, now - updated)
        store(row + s.TOTAL_NS, now - began)
        store(row + s.CPU_NS, thread_cpu_ns() - cpu)
        finish_row(dispatch, worker, row, load(row + s.CPU_NS))  # it may lose its core to the workers
        _wait(stop, bell, load(load(dispatch + s.MATRIX) + m.ROUND_END))
    return 0


@njit
def _wait(stop, bell, until):
    """Sleep until a clock time; whoever stops the run rings the bell."""
    fetch_add(bell + BELL_SLEEPERS, 1)
    while True:
        ticket = load_acquire(bell)
        fence()
        wait = until - monotonic_ns()
        if wait <= 0 or load_acquire(stop) != 0:
            break
        sleep(bell, ticket, wait)
    fetch_add(bell + BELL_SLEEPERS, -1)
