"""A simulated engine, compiled: operators that only count, on the contract of `haren.spe`.

An event is nothing but the clock time of its origin, and events that follow each other evenly are one
*stretch*: how many, the first one's origin and the last one's. What is drawn at random is a stretch of one
event. A run takes its input when it begins; what it produces is set aside and becomes visible when it ends,
which is when the virtual clock (`haren.native.virtual`) calls ``finish``. Fractions of a selectivity add up
until they make an event.
"""

from numba import njit

from haren import spe
from haren.native.atomics import add_to, as_float, load, store
from haren.native.chance import draw_from
from haren.native.histogram import COUNT, SUM, record, record_between
from haren.simulated import SINK, SOURCE

NEVER = 2**63 - 1
ONE = 1 << 32  # selectivities are in fractions of this
MOST = 1 << 20  # events a run takes at the most

# the words of the engine
NOW = 0
TABLE = 8  # address of the operators

# the words of an operator
KIND = 0
COST = 8  # ns per event, in 1/1024
SELECTIVITY = 16
CARRY = 24  # what is left of the last event in, in fractions of an event out
INPUT_COUNT = 32
INPUTS = 40  # address of an array of queues
OUTPUT_COUNT = 48
OUTPUTS = 56
ASIDE = 64  # address: stretches that the present run has produced
ASIDE_COUNT = 72
ASIDE_SIZE = 80  # events
ASIDE_EVENTS = 88
EVENTS_OUT = 96
LATENCY = 104  # address of a sink's histogram
NS_PER_EVENT = 112  # of a source: bits of a float
POSITION = 120
LIMIT = 128
TAKEN = 136  # events of the present run
EVENTS_IN = 144
SEED = 152  # state of the operator's generator
COST_TABLE = 160  # addresses of heads of tables, see `haren.native.chance`; 0: the constant above
SELECTIVITY_TABLE = 168
GAP_TABLE = 176
NEXT_DUE = 184  # of a source that is not constant: when its next event comes, in ns and
DUE_FRACTION = 192  # 1/1024 ns
RATE_STEPS = 200  # address: from when on (ns), the gap between two events (1/1024 ns; 0: none come)
RATE_COUNT = 208
RATE_PERIOD = 216  # ns after which the steps begin anew; 0: never
TIMES = 224  # address of replayed times; 0: the source is not a replay
WINDOW_NS = 232  # of a window: its length; 0: the operator is none
WINDOW_END = 240
WINDOW_LATEST = 248  # origin of the latest event in it; -1: it is empty
RESULTS = 256  # events it produces when it fires
FIRING = 264  # of those, how many are still to be produced
FIRED_ORIGIN = 272
RESULT_COST = 280  # ns for each of them, in 1/1024
PRODUCED = 288  # results of the present run
WAITED = 296  # of a source: ns from when events were meant to come until they were emitted, summed up
DEADLINE = 304  # of a sink: latencies above it are counted; 0: none are
MISSED = 312
BUSY = 320  # events times ns in runs
GRANULARITY = 328  # of a source: it is not ready again for so many ns after a run
NEXT_RUN = 336
SIM_OPERATOR_BYTES = 384

# the words of a queue: a ring of stretches
HEAD = 0
TAIL = 8
MASK = 16
CAPACITY = 24  # events
RING = 32
EVENTS = 40
AREA = 48  # events times ns, until SINCE
SINCE = 56
QUEUE_BYTES = 64

# the words of a stretch
COUNT_OF, FIRST, LAST = 0, 8, 16
STRETCH_BYTES = 24


@njit
def _operator(engine, op):
    return load(engine + TABLE) + SIM_OPERATOR_BYTES * op


@njit
def _queue(place, i):
    return load(place + 8 * i)


# -- stretches ------------------------------------------------------------------------------------


@njit
def _origin(count, first, last, i):
    """The origin of event number i of a stretch."""
    if count == 1:
        return first
    return first + (last - first) * i // (count - 1)


@njit
def _head(queue):
    return load(queue + RING) + STRETCH_BYTES * (load(queue + HEAD) & load(queue + MASK))


@njit
def _note_length(queue, now):
    add_to(queue + AREA, load(queue + EVENTS) * (now - load(queue + SINCE)))
    store(queue + SINCE, now)


@njit
def _push(queue, count, first, last, now):
    _note_length(queue, now)
    place = load(queue + RING) + STRETCH_BYTES * (load(queue + TAIL) & load(queue + MASK))
    store(place + COUNT_OF, count)
    store(place + FIRST, first)
    store(place + LAST, last)
    add_to(queue + TAIL, 1)
    add_to(queue + EVENTS, count)


@njit
def _take(queue, count, now):
    """Take events off the first stretch."""
    _note_length(queue, now)
    place = _head(queue)
    size = load(place + COUNT_OF)
    if count == size:
        add_to(queue + HEAD, 1)
        if load(queue + HEAD) == load(queue + TAIL):  # begin anew, where memory is warm
            store(queue + HEAD, 0)
            store(queue + TAIL, 0)
    else:
        store(place + FIRST, _origin(size, load(place + FIRST), load(place + LAST), count))
        store(place + COUNT_OF, size - count)
    add_to(queue + EVENTS, -count)


@njit
def _room(one):
    room = NEVER
    for i in range(load(one + OUTPUT_COUNT)):
        queue = _queue(load(one + OUTPUTS), i)
        room = min(room, load(queue + CAPACITY) - load(queue + EVENTS))
    return room


@njit
def _set_aside(one, count, first, last):
    place = load(one + ASIDE) + STRETCH_BYTES * load(one + ASIDE_COUNT)
    store(place + COUNT_OF, count)
    store(place + FIRST, first)
    store(place + LAST, last)
    add_to(one + ASIDE_COUNT, 1)
    add_to(one + ASIDE_EVENTS, count)


# -- when an operator can run ---------------------------------------------------------------------


@njit
def _most_output(one):
    """How many events the next event in can produce, at the most."""
    if load(one + KIND) == SINK or load(one + WINDOW_NS) > 0:
        return 0
    if load(one + SELECTIVITY_TABLE) != 0:
        return load(one + RESULTS)
    return (load(one + CARRY) + load(one + SELECTIVITY)) // ONE


@njit
def _pending(one):
    total = 0
    for i in range(load(one + INPUT_COUNT)):
        total += load(_queue(load(one + INPUTS), i) + EVENTS)
    return total


@njit
def _oldest(one):
    """The input whose next event is oldest; -1 if nothing waits."""
    best = -1
    time = NEVER
    for i in range(load(one + INPUT_COUNT)):
        queue = _queue(load(one + INPUTS), i)
        if load(queue + EVENTS) > 0 and load(_head(queue) + FIRST) < time:
            best = i
            time = load(_head(queue) + FIRST)
    return best


def ready_at(engine, op, now):
    """See `haren.spe`."""
    one = _operator(engine, op)
    if load(one + KIND) == SOURCE:
        if load(one + POSITION) >= load(one + LIMIT) or _room(one) < 1:
            return NEVER
        return max(_due(one), load(one + NEXT_RUN))
    if load(one + FIRING) > 0:
        return 0 if _room(one) > 0 else NEVER
    if _pending(one) == 0 or _room(one) < _most_output(one):
        return NEVER
    return 0


# -- sources --------------------------------------------------------------------------------------


@njit
def _constant(one):
    return load(one + RATE_COUNT) == 0 and load(one + TIMES) == 0


@njit
def _due(one):
    """When the next event is meant to come."""
    if _constant(one):
        return int(load(one + POSITION) * as_float(load(one + NS_PER_EVENT)))
    return load(one + NEXT_DUE)


def begin(engine, op, now):
    """Find out when the first event of a source is meant to come, if its rate is not constant."""
    one = _operator(engine, op)
    if load(one + KIND) == SOURCE and not _constant(one):
        if load(one + TIMES) != 0:
            store(one + NEXT_DUE, load(load(one + TIMES)))
        else:
            _advance(one)
    return 0


@njit
def _advance(one):
    """Go on to the next event: a gap of the rate there is; where the rate changes, the rest of it is one of
    the new rate."""
    if load(one + TIMES) != 0:
        if load(one + POSITION) < load(one + LIMIT):
            store(one + NEXT_DUE, load(load(one + TIMES) + 8 * load(one + POSITION)))
        return
    at = load(one + NEXT_DUE)
    fraction = load(one + DUE_FRACTION)
    part = 1 << 30
    if load(one + GAP_TABLE) != 0:
        part = draw_from(load(one + GAP_TABLE), one + SEED)
    while True:
        gap, until = _gap(one, at)
        if gap > 0:
            total = _scaled(gap, part) + fraction
            if until == NEVER or at + (total >> 10) < until:
                store(one + NEXT_DUE, at + (total >> 10))
                store(one + DUE_FRACTION, total & 1023)
                return
            part = max(part - _share(((until - at) << 10) - fraction, gap), 0)
        if until == NEVER:
            store(one + NEXT_DUE, NEVER)
            return
        at = until
        fraction = 0


@njit
def _share(time, gap):
    """What a time is of a gap, in 1/2**30, without leaving 63 bits."""
    shift = 0
    while gap >> shift >= 1 << 32:
        shift += 1
    return (time // gap << 30) + (((time % gap) >> shift) << 30) // (gap >> shift)


@njit
def _scaled(gap, part):
    """A gap times a part of it in 1/2**30, without leaving 63 bits."""
    if part < 1 << 42:
        high = gap >> 20
        if high < 1 << 20:
            return (high * part >> 10) + ((gap & 0xFFFFF) * part >> 30)
    if (gap >> 10) > (1 << 60) // max(part >> 20, 1):
        return 1 << 60
    return (gap >> 10) * (part >> 20)


@njit
def _gap(one, at):
    """The gap between two events at a time, and until when it is that."""
    begin = 0
    phase = at
    period = load(one + RATE_PERIOD)
    if period > 0:
        begin = at // period * period
        phase = at - begin
    count = load(one + RATE_COUNT)
    step = 0
    while step + 1 < count and load(load(one + RATE_STEPS) + 16 * (step + 1)) <= phase:
        step += 1
    until = NEVER
    if step + 1 < count:
        until = begin + load(load(one + RATE_STEPS) + 16 * (step + 1))
    elif period > 0:
        until = begin + period
    return load(load(one + RATE_STEPS) + 16 * step + 8), until


@njit
def _run_source(one, quota, now):
    most = min(min(quota, MOST), min(_room(one), load(one + ASIDE_SIZE)))
    most = min(most, load(one + LIMIT) - load(one + POSITION))
    if most <= 0:
        return 0
    if not _constant(one):
        taken = 0
        while taken < most and load(one + NEXT_DUE) <= now:
            due = load(one + NEXT_DUE)
            _set_aside(one, 1, due, due)
            add_to(one + WAITED, now - due)
            add_to(one + POSITION, 1)
            taken += 1
            _advance(one)
        return taken
    spacing = as_float(load(one + NS_PER_EVENT))
    position = load(one + POSITION)
    if spacing == 0.0:
        _set_aside(one, most, now, now)
        store(one + POSITION, position + most)
        return most
    due = int(now / spacing) + 1
    while int(due * spacing) <= now:
        due += 1
    while due > position and int((due - 1) * spacing) > now:
        due -= 1
    taken = min(most, due - position)
    if taken <= 0:
        return 0
    first, last = int(position * spacing), int((position + taken - 1) * spacing)
    _set_aside(one, taken, first, last)
    add_to(one + WAITED, taken * (now - first - (last - first) // 2))
    store(one + POSITION, position + taken)
    return taken


# -- running --------------------------------------------------------------------------------------


def run(engine, op, quota):
    """Take up to ``quota`` events, and set aside what they produce."""
    one = _operator(engine, op)
    now = load(engine + NOW)
    store(one + ASIDE_COUNT, 0)
    store(one + ASIDE_EVENTS, 0)
    store(one + PRODUCED, 0)
    if load(one + KIND) == SOURCE:
        taken = _run_source(one, quota, now)
        store(one + NEXT_RUN, now + load(one + GRANULARITY))
    else:
        taken = _run_operator(one, quota, now)
    store(one + TAKEN, taken)
    add_to(one + EVENTS_IN, taken)
    return taken


@njit
def _run_operator(one, quota, now):
    room = min(_room(one), load(one + ASIDE_SIZE))
    left = min(min(quota, MOST), (1 << 62) // max(load(one + COST), 1))
    taken = 0
    while left > 0:
        if load(one + FIRING) > 0:
            results = min(load(one + FIRING), room - load(one + ASIDE_EVENTS))
            if results <= 0:
                break
            _set_aside(one, results, load(one + FIRED_ORIGIN), load(one + FIRED_ORIGIN))
            add_to(one + FIRING, -results)
            add_to(one + PRODUCED, results)
            continue
        i = _oldest(one)
        if i < 0:
            break
        queue = _queue(load(one + INPUTS), i)
        place = _head(queue)
        count, first, last = load(place + COUNT_OF), load(place + FIRST), load(place + LAST)
        some = min(left, _before_others(one, i, count, first, last))
        if load(one + KIND) == SINK:
            _set_aside(one, some, first, _origin(count, first, last, some - 1))
        elif load(one + WINDOW_NS) > 0:
            some = _into_window(one, some, count, first, last)
            if some == 0:
                continue  # it fires first
        else:
            some = _transform(one, some, count, first, last, room - load(one + ASIDE_EVENTS))
            if some == 0:
                break
        _take(queue, some, now)
        taken += some
        left -= some
    return taken


@njit
def _before_others(one, i, count, first, last):
    """How many events of this input's stretch are not younger than the next one of any other input."""
    some = count
    for j in range(load(one + INPUT_COUNT)):
        queue = _queue(load(one + INPUTS), j)
        if j != i and load(queue + EVENTS) > 0:
            some = min(some, max(1, _until(count, first, last, load(_head(queue) + FIRST))))
    return some


@njit
def _until(count, first, last, time):
    """How many events of a stretch have origins up to a time."""
    if last <= time:
        return count
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) >> 1
        if _origin(count, first, last, middle) <= time:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def _transform(one, some, count, first, last, room):
    """Set aside what up to ``some`` events of a stretch produce; how many were used."""
    carry = load(one + CARRY)
    if load(one + SELECTIVITY_TABLE) != 0:
        for i in range(some):
            if room < load(one + RESULTS):
                return i
            total = load(one + CARRY) + draw_from(load(one + SELECTIVITY_TABLE), one + SEED)
            store(one + CARRY, total & 1023)
            if total >> 10 > 0:
                origin = _origin(count, first, last, i)
                _set_aside(one, total >> 10, origin, origin)
                room -= total >> 10
        return some
    rate = load(one + SELECTIVITY)
    if rate == 0:
        return some
    some = min(some, (1 << 61) // rate)
    if carry + some * rate >= (room + 1) * ONE:
        some = ((room + 1) * ONE - 1 - carry) // rate
    if some <= 0:
        return 0
    total = carry + some * rate
    results = total >> 32
    store(one + CARRY, total & (ONE - 1))
    if results > 0:  # event number i, from 1 on, makes the result that carry + i * rate first reaches
        begins = max(1, -(-(ONE - carry) // rate))
        ends = max(1, -(-(results * ONE - carry) // rate))
        _set_aside(
            one, results, _origin(count, first, last, begins - 1), _origin(count, first, last, ends - 1)
        )
    return some


@njit
def _into_window(one, some, count, first, last):
    """Add events that belong to the window; 0 if it has to fire, or to move on, before the next one."""
    length = load(one + WINDOW_NS)
    if first >= load(one + WINDOW_END):
        if load(one + WINDOW_LATEST) >= 0:
            store(one + FIRING, load(one + RESULTS))
            store(one + FIRED_ORIGIN, load(one + WINDOW_LATEST))
            store(one + WINDOW_LATEST, -1)
        store(one + WINDOW_END, first // length * length + length)
        return 0
    some = min(some, _until(count, first, last, load(one + WINDOW_END) - 1))
    store(one + WINDOW_LATEST, max(load(one + WINDOW_LATEST), _origin(count, first, last, some - 1)))
    return some


def finish(engine, op, now):
    """The run is over: what it set aside is there to be read, or has arrived at a sink."""
    one = _operator(engine, op)
    for i in range(load(one + ASIDE_COUNT)):
        place = load(one + ASIDE) + STRETCH_BYTES * i
        count, first, last = load(place + COUNT_OF), load(place + FIRST), load(place + LAST)
        if load(one + KIND) == SINK:
            _arrive(one, count, now - last, now - first)
        for j in range(load(one + OUTPUT_COUNT)):
            _push(_queue(load(one + OUTPUTS), j), count, first, last, now)
    if load(one + KIND) != SINK:
        add_to(one + EVENTS_OUT, load(one + ASIDE_EVENTS))
    return 0


@njit
def _arrive(one, count, least, most):
    if count == 1:
        record(load(one + LATENCY), least, 1)
    else:
        record_between(load(one + LATENCY), least, most, count)
    deadline = load(one + DEADLINE)
    if deadline > 0:
        add_to(one + MISSED, count - _until(count, least, most, deadline))


def duration(engine, op):
    """How long the run takes that has just begun, in ns; never nothing, so that time goes on."""
    one = _operator(engine, op)
    taken = load(one + TAKEN)
    total = 0
    if load(one + COST_TABLE) != 0:
        for _ in range(taken):
            total += draw_from(load(one + COST_TABLE), one + SEED)
    else:
        total = load(one + COST) * taken
    total += load(one + RESULT_COST) * load(one + PRODUCED)
    took = max(1, total >> 10)
    add_to(one + BUSY, taken * took)
    return took


# -- features -------------------------------------------------------------------------------------


def measure(engine, op, which, now):
    """See `haren.spe`."""
    one = _operator(engine, op)
    if which == spe.EVENTS_OUT:
        return load(one + EVENTS_OUT)
    if which == spe.ROOM:
        return _room(one)
    if which == spe.LATENCY_COUNT or which == spe.LATENCY_TOTAL:
        if load(one + KIND) != SINK:
            return 0
        return load(load(one + LATENCY) + (COUNT if which == spe.LATENCY_COUNT else SUM))
    if load(one + KIND) == SOURCE:
        return _measure_source(one, which, now)
    if which == spe.PENDING:
        return _pending(one)
    if which == spe.TAIL_TIME:
        newest = 0
        for i in range(load(one + INPUT_COUNT)):
            queue = _queue(load(one + INPUTS), i)
            if load(queue + EVENTS) > 0:
                tail = (load(queue + TAIL) - 1) & load(queue + MASK)
                newest = max(newest, load(load(queue + RING) + STRETCH_BYTES * tail + LAST))
        return newest
    i = _oldest(one)
    if i < 0:
        return NEVER
    return load(_head(_queue(load(one + INPUTS), i)) + FIRST)


@njit
def _replayed(one, now):
    """How many of the replayed times are not after now."""
    low, high = 0, load(one + LIMIT)
    while low < high:
        middle = (low + high) >> 1
        if load(load(one + TIMES) + 8 * middle) <= now:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def _measure_source(one, which, now):
    position = load(one + POSITION)
    spacing = as_float(load(one + NS_PER_EVENT))
    if which == spe.PENDING:
        due = load(one + LIMIT)
        if load(one + TIMES) != 0:
            due = min(due, _replayed(one, now))
        elif not _constant(one):  # what is due behind the next event is not drawn yet, and so an estimate
            waits = now - load(one + NEXT_DUE)
            gap, _ = _gap(one, now)
            more = (waits << 10) // gap if gap > 0 else 0
            due = min(due, position + (more + 1 if waits >= 0 else 0))
        elif spacing > 0.0:
            due = min(due, int(now / spacing) + 1)
        return max(0, due - position)
    if position >= load(one + LIMIT) or (spacing == 0.0 and _constant(one)):
        return NEVER
    return now if which == spe.TAIL_TIME else _due(one)
