"""What the decisions of all dispatches with a policy share; their memory is `haren.dispatch.schedule`."""

from numba import njit

from haren import matrix as m
from haren.dispatch import schedule as s
from haren.native import words as w
from haren.native.atomics import (
    add_to,
    call,
    compare_exchange,
    fetch_add,
    load,
    store,
    store_release,
)
from haren.native.turns import claim_of


@njit
def thread_record(dispatch, worker):
    return load(dispatch + s.RECORDS) + s.RECORD_BYTES * load(worker + w.THREAD)


@njit
def row_of(dispatch, worker):
    """Where this thread keeps the statistics of the present round."""
    number = load(thread_record(dispatch, worker) + s.ROUNDS_TAKEN) % s.KEPT_ROUNDS
    meeting = load(dispatch + s.MEETING)
    place = number * meeting + load(worker + w.THREAD) % meeting
    return load(dispatch + s.STATISTICS) + s.ROW_BYTES * place


@njit
def finish_row(dispatch, worker, row, longest):
    """Number the row, and let slow rounds be told: ``longest`` is what the policy's functions took."""
    record = thread_record(dispatch, worker)
    number = load(record + s.ROUNDS_TAKEN) + 1
    store(record + s.ROUNDS_TAKEN, number)
    store(row + s.NUMBER, number)
    if longest <= load(dispatch + s.PERIOD_NS):
        store(record + s.SLOW_ROUNDS, 0)
        return
    add_to(record + s.SLOW_ROUNDS, 1)
    if load(record + s.SLOW_ROUNDS) >= s.SLOW:  # one may be slow because the thread had lost its core
        store(record + s.SLOW_ROUNDS, 0)
        report(dispatch, s.ROLE_SLOW, longest, load(row + s.STARTED))


@njit
def report(dispatch, role, code, now):
    """Tell the Python side of a mistake of a policy's function; it decides whether to go on."""
    fetch_add(dispatch + s.MISTAKES, 1)
    call(load(dispatch + s.ON_MISTAKE), (role, code, now))


# -- the policy's functions -----------------------------------------------------------------------


@njit
def is_eligible(dispatch, worker, op, now):
    """Whether the policy lets the operator run; an operator it fails on may."""
    function = load(dispatch + s.ELIGIBLE)
    if function == 0:
        return True
    answer = thread_record(dispatch, worker) + s.ANSWER
    code = call(function, (load(dispatch + s.MATRIX), 0, op, answer, now))
    if code != 0:
        report(dispatch, s.ROLE_ELIGIBLE, code, now)
        return True
    return load(answer) != 0


@njit
def grant(dispatch, worker, op, reason, place, now):
    """Take the operator, and say for how many events."""
    turn = load(dispatch + s.BATCH)
    function = load(dispatch + s.QUANTUM)
    if function != 0:
        answer = thread_record(dispatch, worker) + s.ANSWER
        code = call(function, (load(dispatch + s.MATRIX), 0, op, answer, now))
        if code != 0:
            report(dispatch, s.ROLE_QUANTUM, code, now)
        else:
            turn = load(answer)
    if load(dispatch + s.CHECK) != 0:
        if not compare_exchange(claim_of(worker, op), 0, 1 + load(worker + w.THREAD)):
            fetch_add(dispatch + s.VIOLATIONS, 1)
    else:
        store_release(claim_of(worker, op), 1 + load(worker + w.THREAD))
    store(worker + w.QUOTA, turn)
    store(worker + w.REASON, reason | place << 8)
    return op


@njit
def rank_with(dispatch, operators, count, now):
    """g for these operators; their former priorities stay if it fails."""
    matrix = load(dispatch + s.MATRIX)
    fresh = load(dispatch + s.EVALUATED)
    code = call(load(dispatch + s.EVALUATE_G), (matrix, operators, count, fresh, now))
    if code != 0:
        report(dispatch, s.ROLE_G, code, now)
        return
    size = 8 * load(dispatch + s.DIMS)
    for i in range(count):
        op = load(operators + 8 * i)
        for offset in range(0, size, 8):
            value = load(fresh + size * op + offset)
            store(load(dispatch + s.PRIORITIES) + size * op + offset, value)


@njit
def adapt_with(dispatch, operators, count, now):
    """Let the policy change its state for these operators."""
    if load(dispatch + s.ADAPT) != 0:
        code = call(load(dispatch + s.ADAPT), (load(dispatch + s.MATRIX), operators, count, 0, now))
        if code != 0:
            report(dispatch, s.ROLE_ADAPT, code, now)


@njit
def compute_derived(dispatch, now):
    """The derived features of all flagged operators, in the order in which they need each other."""
    matrix = load(dispatch + s.MATRIX)
    derived = load(matrix + m.DERIVED_COUNT)
    for i in range(derived):
        code = call(load(load(matrix + m.DERIVED) + 8 * i), (matrix, 0, 0, 0, now))
        if code != 0:
            report(dispatch, s.ROLE_FEATURE + i, code, now)
    return derived


# -- what was decided, for `trace.explain` --------------------------------------------------------


@njit
def _snapshot(dispatch):
    number = load(dispatch + s.ROUND) % load(dispatch + s.SNAPSHOT_COUNT)
    return load(dispatch + s.SNAPSHOTS) + load(dispatch + s.SNAPSHOT_BYTES) * number


@njit
def keep_values(dispatch, now):
    """The number and time of the round, the assignment, the values of all features."""
    matrix = load(dispatch + s.MATRIX)
    add_to(dispatch + s.ROUND, 1)
    if load(dispatch + s.SNAPSHOT_COUNT) == 0:
        return
    place = _snapshot(dispatch)
    operators = load(matrix + m.OPERATORS)
    store(place, load(dispatch + s.ROUND))
    store(place + 8, now)
    place += 16
    for op in range(operators):
        store(place + 8 * op, load(load(dispatch + s.ASSIGNMENT) + 8 * op))
    for feature in range(load(matrix + m.NAMED)):
        place += 8 * operators
        values = load(matrix + m.VALUES) + load(matrix + m.STRIDE) * feature
        for op in range(operators):
            store(place + 8 * op, load(values + 8 * op))


@njit
def keep_priorities(dispatch, order, count):
    """The priorities of these operators, and their places in this ranking."""
    if load(dispatch + s.SNAPSHOT_COUNT) == 0:
        return
    matrix = load(dispatch + s.MATRIX)
    operators = load(matrix + m.OPERATORS)
    dims = load(dispatch + s.DIMS)
    place = _snapshot(dispatch) + 16 + 8 * operators * (1 + load(matrix + m.NAMED))
    ranks = place + 8 * operators * dims
    for i in range(count):
        op = load(order + 8 * i)
        for d in range(dims):
            store(place + 8 * (op * dims + d), load(load(dispatch + s.PRIORITIES) + 8 * (op * dims + d)))
        store(ranks + 8 * op, i)
