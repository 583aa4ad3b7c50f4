"""How an operator runs: move batches through its kernel until quota, input or room is used up.

A kernel sees only contiguous memory: ``batch(operator, events, origins, count, out, out_origins, room)``
reads up to ``count`` events, writes at most ``room``, and returns how many it consumed; what it
produced, why it stopped and whether it has more to say are words of the operator. All that is common to
operators (blocks, overflow, fan-out, markers, watermarks, end of stream, latency) lives here, once.
"""

from numba import carray, int64, njit

from enjima.memory import layout as at
from enjima.native import words as w
from enjima.native.channel import (
    consume,
    drop_marker,
    first_marker,
    has_marker_room,
    has_news,
    has_room,
    lend,
    marker_due,
    publish,
    publish_watermark,
    push_marker,
    read_origins,
    read_place,
    read_shift,
    readable,
    writable,
    write_origins,
    write_place,
)
from enjima.native.ports import can_merge, keep_failed_event, make_room, merged_marker_due, offer_all, use_all
from enjima.native.raw import copy
from haren.native.atomics import (
    add_to,
    as_float,
    call,
    load,
    load_acquire,
    pointer,
    prefetch,
    store,
    store_release,
)
from haren.native.clock import monotonic_ns, ring
from haren.native.histogram import record

UNLIMITED = 1 << 40


@njit
def _operator(engine, index):
    return load(load(engine + w.OPERATOR_TABLE) + 8 * index)


@njit
def _output(op, index):
    return load(load(op + w.OUTPUTS) + 8 * index)


# -- when an operator can run ---------------------------------------------------------------------


def ready_at(engine, index, now):
    """The clock time from which operator ``index`` can run: past, a paced source's due time, or NEVER."""
    op = _operator(engine, index)
    if load_acquire(op + w.DONE) != 0 or load_acquire(load(op + w.QUERY_FAILED)) != 0:
        return at.NEVER
    for i in range(load(op + w.OUTPUT_COUNT)):
        if not has_room(_output(op, i)):
            return at.NEVER
    if load(op + w.KIND) == w.SOURCE:
        return _source_due_at(op, load(op + w.STATE))
    if load(op + w.MORE) != 0 or load(op + w.SPILL_COUNT) != 0:
        return 0
    if load(op + w.KIND) == w.MERGER:
        return 0 if can_merge(op) or (merged_marker_due(op) and _marker_room(op)) else at.NEVER
    channel = load(op + w.INPUT)
    if has_news(channel) or (marker_due(channel, load(channel + at.CONSUMED)) and _marker_room(op)):
        return 0
    return at.NEVER


@njit
def _source_due_at(op, source):
    if load_acquire(source + w.STOPPED) != 0 or load(source + w.STARTED) == 0:
        return 0
    position = load(source + w.POSITION)
    marker = at.NEVER
    if load(source + w.MARKER_EVERY) > 0 and _marker_room(op):
        marker = load(source + w.NEXT_MARKER)
    if position >= load_acquire(source + w.LIMIT):
        return 0 if load_acquire(source + w.FINAL) != 0 else marker
    ns_per_event = as_float(load(source + w.NS_PER_EVENT))
    if ns_per_event == 0.0:
        return 0
    due = load(source + w.STARTED) + int(position * ns_per_event)
    return min(max(due, load(source + w.NEXT_RUN)), marker)


# -- running an operator --------------------------------------------------------------------------


def run(engine, index, quota):
    """Run operator ``index`` for up to ``quota`` events; the events it consumed, or minus an error."""
    op = _operator(engine, index)
    if load(op + w.KIND) == w.SOURCE:
        return _run_source(engine, op, quota)
    if load(op + w.KIND) == w.MERGER:
        return _run_merger(engine, op, quota)
    channel = load(op + w.INPUT)
    consumed = 0
    if load(op + w.EVENTWISE) != 0:
        consumed = _one_at_a_time(op, channel, quota)
    else:
        while consumed < quota:
            took = _batch(op, channel, quota - consumed, UNLIMITED)
            if took < 0:
                break
            consumed += took
            if _is_idle(op, channel):
                break
    if load(op + w.ERROR) != 0:
        return -_fail(engine, op)
    readable(channel)
    _pass_watermark(engine, op, channel)
    _pass_markers(op, channel, load(channel + at.CONSUMED))
    if load(op + w.ERROR) != 0:
        return -_fail(engine, op)
    return consumed


@njit
def _is_idle(op, channel):
    """Whether all that was sent is consumed, and nothing is kept: one more call would find nothing."""
    if load_acquire(channel + at.WRITTEN) != load(channel + at.CONSUMED):
        return False
    return load(op + w.MORE) == 0 and load(op + w.SPILL_COUNT) == 0


@njit
def _batch(op, channel, limit, most):
    """One call of the kernel: min(pending in, free out, ``most``); -1 when nothing can be done."""
    room = min(_room(op), most)
    if room == 0:
        return -1
    if load(op + w.SPILL_COUNT) != 0:
        _flush_spill(op, room)
        return 0
    pending = readable(channel)
    if pending == 0 and load(op + w.MORE) == 0:
        return -1
    count = min(pending, min(limit, most))
    if load(op + w.KIND) == w.TRANSFORM:
        count = min(count, room)
    store(op + w.TIME, at.BEGINNING)
    store(op + w.SHIFT, read_shift(channel))
    took = _call_kernel(op, read_place(channel), read_origins(channel), count, room)
    if took > 0:
        if load(op + w.KIND) == w.SINK:
            _record_results(op, read_origins(channel), took)
        consume(channel, took)
        add_to(op + w.EVENTS_IN, took)
    if load(op + w.ERROR) != 0:
        _keep_failed_event(op, channel)
        return -1
    if took == 0 and load(op + w.PRODUCED) == 0:
        return -1  # a Python kernel that was told to stop
    return took


@njit
def _keep_failed_event(op, channel):
    event = load(op + w.FAILED_EVENT)
    copy(event, read_place(channel), load(op + w.INPUT_BYTES))
    if load(op + w.TIME_AT) >= 0:
        add_to(event + load(op + w.TIME_AT), load(op + w.SHIFT))


@njit
def _one_at_a_time(op, channel, quota):
    """Queue memory: take an event, work on it, hand its result on, and only then the next.

    As lean as a queue of one writer and one reader can be: what the other side has done is read again only
    when all that was known of is used up.
    """
    consumed = 0
    size = load(channel + at.EVENT_BYTES)
    while consumed < quota:
        if load(op + w.SPILL_COUNT) != 0 or load(op + w.MORE) != 0:
            took = _batch(op, channel, 1, 1)
            if took < 0:
                break
            consumed += took
            continue
        pending = min(readable(channel), quota - consumed)
        place = read_place(channel)
        origins = read_origins(channel)
        store(op + w.TIME, at.BEGINNING)
        store(op + w.SHIFT, read_shift(channel))
        store(op + w.PRODUCED, 0)
        used = 0
        while used < pending and _room(op) > 0:
            if _call_kernel(op, place + used * size, origins + 8 * used, 1, 1) == 0:
                break
            consume(channel, 1)
            used += 1
            if load(op + w.SPILL_COUNT) != 0 or load(op + w.MORE) != 0:
                break
        if load(op + w.KIND) == w.SINK and used > 0:
            _record_results(op, origins, used)
        add_to(op + w.EVENTS_IN, used)
        consumed += used
        if load(op + w.ERROR) != 0:
            _keep_failed_event(op, channel)
            break
        if used == 0 and load(op + w.PRODUCED) == 0:
            break
    return consumed


@njit
def _run_merger(engine, op, quota):
    """The same for an operator with several inputs, whose kernel takes events from all of them by time."""
    ports = load(op + w.PORTS)
    inputs = load(op + w.INPUT_COUNT)
    consumed = 0
    while consumed < quota:
        room = _room(op)
        if room == 0:
            break
        if load(op + w.SPILL_COUNT) != 0:
            _flush_spill(op, room)
            continue
        limit = quota - consumed
        if load(op + w.EVENTWISE) != 0:
            limit = 1
            room = 1
        offer_all(ports, inputs)
        store(op + w.BLOCKED_ON, 0)
        _call_kernel(op, ports, inputs, limit, room)
        if load(op + w.ERROR) != 0:
            keep_failed_event(op, ports)
        took = use_all(ports, inputs)
        add_to(op + w.EVENTS_IN, took)
        consumed += took
        if load(op + w.ERROR) != 0:
            return -_fail(engine, op)
        if took == 0 and load(op + w.PRODUCED) == 0:
            break
    if load(op + w.BLOCKED_ON) != 0:
        make_room(op, ports, inputs)
    promise = load(op + w.TIME)
    if promise > at.BEGINNING and load(op + w.MORE) == 0 and load(op + w.SPILL_COUNT) == 0:
        for i in range(load(op + w.OUTPUT_COUNT)):
            publish_watermark(_output(op, i), promise)
        if promise == at.NEVER:
            _finish(engine, op)
    for i in range(inputs):
        port = ports + i * w.PORT_BYTES
        _pass_markers(op, load(port + w.PORT_CHANNEL), load(port + w.PORT_PROCESSED))
    return consumed


@njit
def _room(op):
    room = UNLIMITED
    for i in range(load(op + w.OUTPUT_COUNT)):
        room = min(room, writable(_output(op, i)))
    return room


@njit
def _call_kernel(op, events, origins, count, room):
    out = 0
    out_origins = 0
    outputs = load(op + w.OUTPUT_COUNT)
    if outputs > 0:
        out = write_place(_output(op, 0))
        out_origins = write_origins(_output(op, 0))
    store(op + w.PRODUCED, 0)
    took = call(load(op + w.BATCH), (op, events, origins, count, out, out_origins, room))
    if outputs > 0:
        _publish_all(op, out, out_origins, load(op + w.PRODUCED))
    return took


@njit
def _publish_all(op, out, out_origins, count):
    """Publish what stands in the first output's block, copied to the others (fan-out)."""
    if count == 0:
        return
    for i in range(1, load(op + w.OUTPUT_COUNT)):
        copy(write_place(_output(op, i)), out, count * load(op + w.EVENT_OUT_BYTES))
        copy(write_origins(_output(op, i)), out_origins, 8 * count)
        _publish(op, _output(op, i), count)
    _publish(op, _output(op, 0), count)
    add_to(op + w.EVENTS_OUT, count)


@njit
def _publish(op, channel, count):
    if load(op + w.EVENTWISE) != 0:
        for _ in range(count):
            publish(channel, 1)
    else:
        publish(channel, count)


@njit
def _flush_spill(op, room):
    """Send overflow that the operator kept; it goes before anything new."""
    first = load(op + w.SPILL_NEXT)
    count = min(room, load(op + w.SPILL_COUNT) - first)
    size = load(op + w.EVENT_OUT_BYTES)
    out = write_place(_output(op, 0))
    out_origins = write_origins(_output(op, 0))
    copy(out, load(op + w.SPILL) + first * size, count * size)
    copy(out_origins, load(op + w.SPILL_ORIGINS) + 8 * first, 8 * count)
    _publish_all(op, out, out_origins, count)
    if first + count == load(op + w.SPILL_COUNT):
        store(op + w.SPILL_COUNT, 0)
        store(op + w.SPILL_NEXT, 0)
    else:
        store(op + w.SPILL_NEXT, first + count)


@njit
def _record_results(op, origins, count):
    now = monotonic_ns()
    histogram = load(op + w.RESULT_LATENCY)
    i = 0
    while i < count:  # events of a batch mostly share their origin
        origin = load(origins + 8 * i)
        first = i
        while i < count and load(origins + 8 * i) == origin:
            i += 1
        record(histogram, now - origin, i - first)


# -- what travels beside events -------------------------------------------------------------------


@njit
def _pass_watermark(engine, op, channel):
    watermark = load(channel + at.SAFE_WATERMARK)
    if watermark <= load(channel + at.APPLIED_WATERMARK) or load(op + w.MORE) != 0:
        return
    if load(op + w.SPILL_COUNT) != 0:
        return
    promise = watermark
    if load(op + w.MOVED) != 0 and watermark != at.NEVER:
        promise = load(op + w.LATEST)
    if load(op + w.KIND) == w.TIMED:
        while True:
            room = _room(op)
            if room == 0:
                return
            store(op + w.TIME, watermark)
            _call_kernel(op, 0, 0, 0, room)
            if load(op + w.ERROR) != 0:
                return
            if load(op + w.MORE) == 0:
                break
        promise = load(op + w.TIME)
    store(channel + at.APPLIED_WATERMARK, watermark)
    for i in range(load(op + w.OUTPUT_COUNT)):
        publish_watermark(_output(op, i), promise)
    if watermark == at.NEVER:
        if load(op + w.WANTS_END) != 0:
            _call_kernel(op, 0, 0, 0, 0)
            if load(op + w.ERROR) != 0:
                return
        _finish(engine, op)


@njit
def _finish(engine, op):
    store_release(op + w.DONE, 1)
    if load(op + w.OUTPUT_COUNT) == 0:
        ring(load(engine + w.MAIN_BELL), 1)


@njit
def _fail(engine, op):
    """Stop the operator's whole query; others go on."""
    store_release(load(op + w.QUERY_FAILED), 1)
    ring(load(engine + w.MAIN_BELL), 1)
    return load(op + w.ERROR)


@njit
def _pass_markers(op, channel, consumed):
    while marker_due(channel, consumed):
        if load(op + w.KIND) == w.SINK:
            record(load(op + w.MARKER_LATENCY), monotonic_ns() - first_marker(channel), 1)
        elif not _push_marker_everywhere(op, first_marker(channel)):
            return
        drop_marker(channel)


@njit
def _marker_room(op):
    for i in range(load(op + w.OUTPUT_COUNT)):
        if not has_marker_room(_output(op, i)):
            return False
    return True


@njit
def _push_marker_everywhere(op, stamp):
    if not _marker_room(op):
        return False
    for i in range(load(op + w.OUTPUT_COUNT)):
        push_marker(_output(op, i), stamp)
    return True


# -- sources --------------------------------------------------------------------------------------


@njit
def _run_source(engine, op, quota):
    source = load(op + w.STATE)
    now = monotonic_ns()
    if load(source + w.STARTED) == 0:
        store(source + w.NEXT_MARKER, now)
        store_release(source + w.STARTED, now)
    stopped = load_acquire(source + w.STOPPED) != 0
    final = load_acquire(source + w.FINAL) != 0
    limit = load_acquire(source + w.LIMIT)
    emitted = 0
    if not stopped:
        emitted = _emit(op, source, min(quota, _due(source, limit, now)), now)
        if load(op + w.ERROR) != 0:
            return -_fail(engine, op)
        _emit_markers(op, source, now, emitted)
        store(source + w.NEXT_RUN, now + load(source + w.GRANULARITY))
    if stopped or (final and load(source + w.POSITION) == limit):
        for i in range(load(op + w.OUTPUT_COUNT)):
            publish_watermark(_output(op, i), at.NEVER)
        store_release(op + w.DONE, 1)
    return emitted


@njit
def _due(source, limit, now):
    """Events that should have been generated by now and have not been."""
    ns_per_event = as_float(load(source + w.NS_PER_EVENT))
    position = load(source + w.POSITION)
    if ns_per_event > 0.0:
        limit = min(limit, int((now - load(source + w.STARTED)) / ns_per_event) + 1)
    return max(limit - position, 0)


@njit
def _emit(op, source, count, now):
    emitted = 0
    while emitted < count:
        room = _room(op)
        if room == 0:
            break
        position = load(source + w.POSITION)
        batch = min(room, count - emitted)
        if load(source + w.LENDS) != 0:
            took = _lend(op, source, position, batch, now)
        else:
            _stamp_origins(source, write_origins(_output(op, 0)), position, batch, now)
            took = _call_kernel(op, position, 0, batch, batch)
        store_release(source + w.POSITION, position + took)
        emitted += took
        if load(op + w.ERROR) != 0 or took == 0:
            break
    if load(source + w.LENDS) != 0 and emitted > 0:
        _note_lent_time(op, source, emitted)
    if emitted > 0 and load(op + w.TIME) > at.BEGINNING:
        for i in range(load(op + w.OUTPUT_COUNT)):
            publish_watermark(_output(op, i), load(op + w.TIME))
    return emitted


@njit
def _lend(op, source, position, count, now):
    """Emit events where they lie in the array: readers meet them first, in their own caches."""
    length = load(source + w.LENGTH)
    index = load(source + w.LENT_INDEX)
    if index == length:
        index = 0
        add_to(source + w.LENT_SHIFT, load(source + w.TIME_SHIFT))
    data = load(source + w.RECORDS) + index * load(op + w.EVENT_OUT_BYTES)
    for i in range(load(op + w.OUTPUT_COUNT)):
        count = min(count, lend(_output(op, i), data, length - index, load(source + w.LENT_SHIFT)))
    for i in range(load(op + w.OUTPUT_COUNT)):
        _stamp_origins(source, write_origins(_output(op, i)), position, count, now)
        publish(_output(op, i), count)
    add_to(op + w.EVENTS_OUT, count)
    store(source + w.LENT_INDEX, index + count)
    return count


@njit
def _note_lent_time(op, source, emitted):
    """The event time of the last event lent, read once a turn because it comes from main memory; that of
    the next turn is on its way meanwhile, if it is as long as this one."""
    if load(op + w.TIME_AT) >= 0:
        size = load(op + w.EVENT_OUT_BYTES)
        place = load(source + w.RECORDS) + (load(source + w.LENT_INDEX) - 1) * size + load(op + w.TIME_AT)
        prefetch(place + emitted * size)
        store(op + w.TIME, load(place) + load(source + w.LENT_SHIFT))


@njit
def _stamp_origins(source, origins, position, count, now):
    """The intended clock time of each event: its place on the rate's grid, or now."""
    ns_per_event = as_float(load(source + w.NS_PER_EVENT))
    column = carray(pointer(origins), (count,), int64)  # an array, not words, so that LLVM vectorises
    if ns_per_event == 0.0:
        for i in range(count):
            column[i] = now
    else:
        started = load(source + w.STARTED)
        for i in range(count):
            column[i] = started + int((position + i) * ns_per_event)


@njit
def _emit_markers(op, source, now, emitted):
    """Markers carry the time they were meant to start, so that a stalled source hides nothing."""
    every = load(source + w.MARKER_EVERY)
    if every == 0 and emitted > 0:
        ns_per_event = as_float(load(source + w.NS_PER_EVENT))
        intended = now
        if ns_per_event > 0.0:
            intended = load(source + w.STARTED) + int((load(source + w.POSITION) - 1) * ns_per_event)
        _push_marker_everywhere(op, intended)
    elif every > 0:
        reached = now
        ns_per_event = as_float(load(source + w.NS_PER_EVENT))
        if ns_per_event > 0.0 and load(source + w.POSITION) < load_acquire(source + w.LIMIT):
            reached = min(now, load(source + w.STARTED) + int(load(source + w.POSITION) * ns_per_event))
        while load(source + w.NEXT_MARKER) <= reached:
            if ns_per_event == 0.0:
                store(source + w.NEXT_MARKER, now)
            if not _push_marker_everywhere(op, load(source + w.NEXT_MARKER)):
                return
            add_to(source + w.NEXT_MARKER, every)
