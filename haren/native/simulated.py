"""A simulated engine, compiled: operators that only count, on the contract of `haren.spe`.

An event is nothing but the clock time of its origin. A run takes its input when it begins; what it produces
is set aside and becomes visible when it ends, which is when the virtual clock (`haren.native.virtual`) calls
``finish``. Fractions of a selectivity add up until they make an event.
"""

from numba import njit

from haren import spe
from haren.native.atomics import add_to, as_float, load, store
from haren.native.histogram import COUNT, SUM, record

NEVER = 2**63 - 1
ONE = 1 << 32  # selectivities are in fractions of this

# the words of the engine
NOW = 0
TABLE = 8  # address of the operators

# the words of an operator
KIND = 0  # 0: source, 1: in between, 2: sink
COST = 8  # ns per event, in 1/1024
SELECTIVITY = 16
CARRY = 24  # what is left of the last event in, in fractions of an event out
INPUT_COUNT = 32
INPUTS = 40  # address of an array of queues
OUTPUT_COUNT = 48
OUTPUTS = 56
ASIDE = 64  # address: origins of what the present run has produced
ASIDE_COUNT = 72
ASIDE_SIZE = 80
EVENTS_OUT = 88
LATENCY = 96  # address of a sink's histogram
NS_PER_EVENT = 104  # of a source: bits of a float
POSITION = 112
LIMIT = 120
TAKEN = 128  # events of the present run
EVENTS_IN = 136
SIM_OPERATOR_BYTES = 192

# the words of a queue: a ring of origins
HEAD = 0
TAIL = 8
MASK = 16
CAPACITY = 24
RING = 32
QUEUE_BYTES = 64


@njit
def _operator(engine, op):
    return load(engine + TABLE) + SIM_OPERATOR_BYTES * op


@njit
def _queue(place, i):
    return load(place + 8 * i)


@njit
def _waiting(queue):
    return load(queue + TAIL) - load(queue + HEAD)


@njit
def _origin(queue, number):
    return load(load(queue + RING) + 8 * (number & load(queue + MASK)))


@njit
def _room(one):
    room = NEVER
    for i in range(load(one + OUTPUT_COUNT)):
        queue = _queue(load(one + OUTPUTS), i)
        room = min(room, load(queue + CAPACITY) - _waiting(queue))
    return room


@njit
def _next_output(one):
    """How many events the next event in would produce."""
    return (load(one + CARRY) + load(one + SELECTIVITY)) // ONE


@njit
def _due(one, position):
    return int(position * as_float(load(one + NS_PER_EVENT)))


@njit
def _pending(one):
    total = 0
    for i in range(load(one + INPUT_COUNT)):
        total += _waiting(_queue(load(one + INPUTS), i))
    return total


@njit
def _oldest(one):
    """The input whose next event is oldest; -1 if nothing waits."""
    best = -1
    time = NEVER
    for i in range(load(one + INPUT_COUNT)):
        queue = _queue(load(one + INPUTS), i)
        if _waiting(queue) > 0 and _origin(queue, load(queue + HEAD)) < time:
            best = i
            time = _origin(queue, load(queue + HEAD))
    return best


def ready_at(engine, op, now):
    """See `haren.spe`."""
    one = _operator(engine, op)
    if load(one + KIND) == 0:
        if load(one + POSITION) >= load(one + LIMIT) or _room(one) < 1:
            return NEVER
        return _due(one, load(one + POSITION))
    if _pending(one) == 0 or _room(one) < _next_output(one):
        return NEVER
    return 0


def run(engine, op, quota):
    """Take up to ``quota`` events, and set aside what they produce."""
    one = _operator(engine, op)
    store(one + ASIDE_COUNT, 0)
    if load(one + KIND) == 0:
        taken = _run_source(one, quota, load(engine + NOW))
    else:
        taken = _run_operator(one, quota)
    store(one + TAKEN, taken)
    add_to(one + EVENTS_IN, taken)
    return taken


@njit
def _set_aside(one, origin):
    store(load(one + ASIDE) + 8 * load(one + ASIDE_COUNT), origin)
    add_to(one + ASIDE_COUNT, 1)


@njit
def _run_source(one, quota, now):
    room = min(_room(one), load(one + ASIDE_SIZE))
    taken = 0
    while taken < min(quota, room) and load(one + POSITION) < load(one + LIMIT):
        due = _due(one, load(one + POSITION))
        if due > now:
            break
        _set_aside(one, due if as_float(load(one + NS_PER_EVENT)) > 0.0 else now)
        add_to(one + POSITION, 1)
        taken += 1
    return taken


@njit
def _run_operator(one, quota):
    room = min(_room(one), load(one + ASIDE_SIZE))
    sink = load(one + KIND) == 2
    taken = 0
    while taken < quota:
        i = _oldest(one)
        produced = 1 if sink else _next_output(one)
        if i < 0 or load(one + ASIDE_COUNT) + produced > room:
            break
        queue = _queue(load(one + INPUTS), i)
        origin = _origin(queue, load(queue + HEAD))
        add_to(queue + HEAD, 1)
        taken += 1
        if not sink:
            store(one + CARRY, load(one + CARRY) + load(one + SELECTIVITY) - produced * ONE)
        for _ in range(produced):
            _set_aside(one, origin)
    return taken


def finish(engine, op, now):
    """The run is over: what it set aside is there to be read, or has arrived at a sink."""
    one = _operator(engine, op)
    count = load(one + ASIDE_COUNT)
    if load(one + KIND) == 2:
        for i in range(count):
            record(load(one + LATENCY), now - load(load(one + ASIDE) + 8 * i), 1)
        return 0
    for i in range(load(one + OUTPUT_COUNT)):
        queue = _queue(load(one + OUTPUTS), i)
        tail = load(queue + TAIL)
        for j in range(count):
            place = load(queue + RING) + 8 * ((tail + j) & load(queue + MASK))
            store(place, load(load(one + ASIDE) + 8 * j))
        store(queue + TAIL, tail + count)
    add_to(one + EVENTS_OUT, count)
    return 0


def duration(engine, op):
    """How long the run takes that has just begun, in ns; never nothing, so that time goes on."""
    one = _operator(engine, op)
    return max(1, (load(one + COST) * load(one + TAKEN)) >> 10)


def measure(engine, op, which, now):
    """See `haren.spe`."""
    one = _operator(engine, op)
    if which == spe.EVENTS_OUT:
        return load(one + EVENTS_OUT)
    if which == spe.ROOM:
        return _room(one)
    if which == spe.LATENCY_COUNT or which == spe.LATENCY_TOTAL:
        if load(one + KIND) != 2:
            return 0
        return load(load(one + LATENCY) + (COUNT if which == spe.LATENCY_COUNT else SUM))
    if load(one + KIND) == 0:
        return _measure_source(one, which, now)
    if which == spe.PENDING:
        return _pending(one)
    if which == spe.TAIL_TIME:
        newest = 0
        for i in range(load(one + INPUT_COUNT)):
            queue = _queue(load(one + INPUTS), i)
            if _waiting(queue) > 0:
                newest = max(newest, _origin(queue, load(queue + TAIL) - 1))
        return newest
    i = _oldest(one)
    if i < 0:
        return NEVER
    queue = _queue(load(one + INPUTS), i)
    return _origin(queue, load(queue + HEAD))


@njit
def _measure_source(one, which, now):
    position = load(one + POSITION)
    paced = as_float(load(one + NS_PER_EVENT)) > 0.0
    if which == spe.PENDING:
        due = load(one + LIMIT)
        if paced:
            due = min(due, int(now / as_float(load(one + NS_PER_EVENT))) + 1)
        return max(0, due - position)
    if position >= load(one + LIMIT) or not paced:
        return NEVER
    return now if which == spe.TAIL_TIME else _due(one, position)
