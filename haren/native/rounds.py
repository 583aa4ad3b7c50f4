"""The scheduling task T_S of a bound dispatch: algorithms 2 and 3 of the Haren paper, phase by phase.

Each phase is a function ``phase(dispatch, worker, now)`` of the dispatch's memory. `take_part` is how a real
thread goes through them, meeting the others at a barrier; the virtual clock (`haren.native.virtual`) calls
the same phases for its simulated threads.
"""

from numba import njit

from haren import matrix as m
from haren.dispatch import bound as b
from haren.dispatch import schedule as s
from haren.native import words as w
from haren.native.atomics import (
    add_to,
    as_float,
    call,
    fence,
    fetch_add,
    load,
    load_acquire,
    store,
    store_release,
)
from haren.native.clock import BELL_SLEEPERS, monotonic_ns, ring, sleep, thread_cpu_ns
from haren.native.features import refresh_dependent, refresh_independent
from haren.native.schedule import (
    adapt_with,
    compute_derived,
    finish_row,
    keep_priorities,
    keep_values,
    rank_with,
    report,
    row_of,
    thread_record,
)
from haren.numbers import FACTOR, MODULUS


def refresh(dispatch, worker, now):
    """In parallel: independent features of what this thread ran, and flags for what depends on it."""
    matrix = load(dispatch + s.MATRIX)
    record = thread_record(dispatch, worker)
    flags = load(matrix + m.FLAGS)
    order = load(record + b.ORDER)
    executed = 0
    for i in range(load(record + b.COUNT)):
        op = load(order + 8 * i)
        operator = load(worker + w.OPERATORS) + w.OPERATOR_BYTES * op
        if load(operator + w.EXECUTED) != 0:
            store(operator + w.EXECUTED, 0)
            executed += 1
            refresh_independent(matrix, worker, op, now)
            store(flags + 8 * op, 1)
            bounds = load(matrix + m.DEPENDENTS_FROM) + 8 * op
            for j in range(load(bounds), load(bounds + 8)):
                store(flags + 8 * load(load(matrix + m.DEPENDENTS) + 8 * j), 1)
    row = row_of(dispatch, worker)
    store(row + s.EXECUTED, executed)
    store(row + s.UPDATED, executed * load(matrix + m.INDEPENDENT_COUNT))
    return 0


def update(dispatch, worker, now):
    """By one thread, while the others wait: dependent features of the flagged operators, and no others."""
    matrix = load(dispatch + s.MATRIX)
    flags = load(matrix + m.FLAGS)
    operators = load(matrix + m.OPERATORS)
    store(matrix + m.SEED, load(matrix + m.SEED) * FACTOR % MODULUS)
    for i in range(load(matrix + m.ARRIVALS_COUNT)):
        store(flags + 8 * load(load(matrix + m.ARRIVALS) + 8 * i), 1)
    flagged = 0
    for op in range(operators):
        if load(flags + 8 * op) != 0:
            flagged += 1
            refresh_dependent(matrix, worker, op, now)
    derived = compute_derived(dispatch, now)
    for op in range(operators):
        store(flags + 8 * op, 0)
    row = row_of(dispatch, worker)
    add_to(row + s.UPDATED, flagged * (load(matrix + m.DEPENDENT_COUNT) + derived))
    store(row + s.FLAGGED, flagged)
    store(row + s.FULL, operators * load(matrix + m.DYNAMIC))
    return 0


def assign(dispatch, worker, now):
    """By the same thread: f, and the lists A of all threads; the former assignment stays if f fails."""
    matrix = load(dispatch + s.MATRIX)
    operators = load(matrix + m.OPERATORS)
    chosen = load(dispatch + b.PROPOSED)
    code = call(load(dispatch + b.EVALUATE_F), (matrix, 0, 0, chosen, now))
    if code != 0:
        report(dispatch, s.ROLE_F, code, now)
    else:
        for op in range(operators):
            store(load(dispatch + s.ASSIGNMENT) + 8 * op, load(chosen + 8 * op))
    deal(dispatch)
    keep_values(dispatch, now)
    return 0


@njit
def deal(dispatch):
    """Make every thread's list of operators from the assignment, in topological order."""
    matrix = load(dispatch + s.MATRIX)
    for thread in range(load(dispatch + s.THREADS)):
        store(load(dispatch + s.RECORDS) + s.RECORD_BYTES * thread + b.COUNT, 0)
    for op in range(load(matrix + m.OPERATORS)):
        thread = load(load(dispatch + s.ASSIGNMENT) + 8 * op)
        record = load(dispatch + s.RECORDS) + s.RECORD_BYTES * thread
        store(load(record + b.ORDER) + 8 * load(record + b.COUNT), op)
        add_to(record + b.COUNT, 1)
        if load(matrix + m.THREAD_ROW) != 0:
            store(load(matrix + m.THREAD_ROW) + 8 * op, thread)


def prioritise(dispatch, worker, now):
    """In parallel: state and priorities of this thread's operators."""
    record = thread_record(dispatch, worker)
    adapt_with(dispatch, load(record + b.ORDER), load(record + b.COUNT), now)
    rank_with(dispatch, load(record + b.ORDER), load(record + b.COUNT), now)
    return 0


def sort(dispatch, worker, now):
    """In parallel: rank this thread's operators, and begin its next execution task T_E."""
    record = thread_record(dispatch, worker)
    order = load(record + b.ORDER)
    count = load(record + b.COUNT)
    priorities = load(dispatch + s.PRIORITIES)
    dims = load(dispatch + s.DIMS)
    _merge_sort(priorities, dims, order, load(record + b.SPARE), count)
    level = 0
    for i in range(count):
        if i > 0 and _compare(priorities, dims, load(order + 8 * i), load(order + 8 * i - 8)) != 0:
            level += 1
        store(load(record + b.LEVELS) + 8 * i, level)
    keep_priorities(dispatch, order, count)
    begin(dispatch, worker, record, now)
    return 0


@njit
def begin(dispatch, worker, record, now):
    """Start an execution task: its end, its back-off, and which operators have not run for d."""
    delay = load(dispatch + b.DELAY_NS)
    delayed = 0
    if delay > 0:
        for i in range(load(record + b.COUNT)):
            op = load(load(record + b.ORDER) + 8 * i)
            last = load(load(worker + w.OPERATORS) + w.OPERATOR_BYTES * op + w.LAST_RUN)
            if now - last > delay:
                store(load(record + b.DELAYED) + 8 * delayed, op)
                delayed += 1
    store(record + b.DELAYED_COUNT, delayed)
    store(record + b.DELAYED_NEXT, 0)
    store(record + b.CURSOR, 0)
    store(record + b.LEVEL, -1)
    store(record + b.BACKOFF, load(dispatch + b.BACKOFF_NS))
    store(record + b.IDLE_UNTIL, 0)
    store(record + b.ROUND_END, now + load(dispatch + s.PERIOD_NS))
    store(load(dispatch + s.MATRIX) + m.ROUND_END, now + load(dispatch + s.PERIOD_NS))


@njit
def _compare(priorities, dims, first, second):
    """-1 if ``first`` goes before ``second``, 0 if they are equal, 1 otherwise; higher values go first."""
    for d in range(dims):
        one = as_float(load(priorities + 8 * (dims * first + d)))
        other = as_float(load(priorities + 8 * (dims * second + d)))
        if one != other:
            return -1 if one > other else 1
    return 0


@njit
def _merge_sort(priorities, dims, order, spare, count):
    """Stable, so that equal operators stay in topological order."""
    width = 1
    source = order
    target = spare
    while width < count:
        for start in range(0, count, 2 * width):
            middle = min(start + width, count)
            end = min(start + 2 * width, count)
            i = start
            j = middle
            for k in range(start, end):
                left = i < middle
                if left and j < end:
                    left = _compare(priorities, dims, load(source + 8 * i), load(source + 8 * j)) <= 0
                if left:
                    store(target + 8 * k, load(source + 8 * i))
                    i += 1
                else:
                    store(target + 8 * k, load(source + 8 * j))
                    j += 1
        source, target = target, source
        width *= 2
    if source != order:
        for i in range(count):
            store(order + 8 * i, load(source + 8 * i))


# -- a real thread's way through T_S --------------------------------------------------------------


@njit
def take_part(worker, began):
    """Go through T_S with the other threads; the clock time at its end. Stops short if the run is stopped.

    The last thread to arrive does the sequential part (t* of the paper) while the others wait: entry and
    exit barrier in one. The bell only wakes the others, who look at the generation: anyone may ring it.
    """
    dispatch = load(worker + w.DISPATCH)
    rounds = load(worker + w.ROUNDS)
    bell = load(worker + w.BELLS) + 64 * load(dispatch + s.THREADS)
    row = row_of(dispatch, worker)
    cpu_start = thread_cpu_ns()
    store(row + s.STARTED, began)
    call(load(rounds + b.REFRESH), (dispatch, worker, began))
    refreshed = monotonic_ns()
    cpu_entry = thread_cpu_ns()
    generation = load_acquire(dispatch + b.GENERATION)
    sequential = 0
    updated = refreshed
    assigned = refreshed
    if fetch_add(dispatch + b.ARRIVED, 1) + 1 == load(dispatch + s.THREADS):
        sequential = 1
        store_release(dispatch + b.IN_ROUND, 1)
        entered = monotonic_ns()
        call(load(rounds + b.UPDATE), (dispatch, worker, entered))
        updated = monotonic_ns()
        call(load(rounds + b.ASSIGN), (dispatch, worker, updated))
        assigned = monotonic_ns()
        updated, assigned = updated - entered, assigned - updated
        store_release(dispatch + b.ARRIVED, 0)
        store_release(dispatch + b.IN_ROUND, 0)
        store_release(dispatch + b.GENERATION, generation + 1)
        ring(bell, 2**31 - 1)
    else:
        fetch_add(bell + BELL_SLEEPERS, 1)
        while load_acquire(dispatch + b.GENERATION) == generation:
            if load_acquire(load(worker + w.STOP)) != 0:
                break
            ticket = load_acquire(bell)
            fence()
            if load_acquire(dispatch + b.GENERATION) == generation:
                sleep(bell, ticket, 100_000_000)
        fetch_add(bell + BELL_SLEEPERS, -1)
        updated, assigned = 0, 0
    if load_acquire(load(worker + w.STOP)) != 0:
        return monotonic_ns()
    coordinated = monotonic_ns()
    cpu_exit = thread_cpu_ns()
    call(load(rounds + b.PRIORITISE), (dispatch, worker, coordinated))
    ranked = monotonic_ns()
    call(load(rounds + b.SORT), (dispatch, worker, ranked))
    now = monotonic_ns()
    store(row + s.SEQUENTIAL, sequential)
    store(row + s.REFRESH_NS, refreshed - began)
    store(row + s.COORDINATE_NS, coordinated - refreshed)
    store(row + s.UPDATE_NS, updated)
    store(row + s.ASSIGN_NS, assigned)
    store(row + s.PRIORITY_NS, ranked - coordinated)
    store(row + s.SORT_NS, now - ranked)
    store(row + s.TOTAL_NS, now - began)
    store(row + s.COORDINATE_CPU_NS, cpu_exit - cpu_entry)
    store(row + s.CPU_NS, thread_cpu_ns() - cpu_start)
    longest = max(load(row + s.UPDATE_NS) + load(row + s.ASSIGN_NS), load(row + s.PRIORITY_NS))
    finish_row(dispatch, worker, row, longest)
    return now
