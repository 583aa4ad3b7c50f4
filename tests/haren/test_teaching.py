"""An engine in Python under every policy: the results of plain Python, whatever changes while it runs."""

import itertools
import threading
import time
from pathlib import Path

import pytest

import haren
import haren.teaching
from haren import spe
from haren.teaching import Teaching

SECONDS = 30  # only so that a test that fails ends


def dispatch_of(name):
    if name == "os":
        return "os"
    policy = haren.make(name, high="fcfs", low="hr") if name == "multi-class" else haren.make(name)
    return haren.Bound(policy, period=0.005, batch=3, check=True)


def two_queries(engine, count=300):
    """A chain that filters, and a diamond of a higher class; a function that compares their results."""
    numbers = engine.source(range(count))
    evens = engine.operator(lambda x: [x] if x % 2 == 0 else [], numbers)
    twice = engine.operator(lambda x: [x, -x], evens)
    letters = engine.source((f"{i}" for i in range(count)), query_class=1)
    left = engine.operator(lambda x: [("left", x)], letters)
    right = engine.operator(lambda x: [("right", x)] if len(x) > 1 else [], letters)
    both = engine.operator(lambda pair: [pair], left, right)
    chain, diamond = engine.sink(twice), engine.sink(both)

    def check():
        assert engine.results(chain) == [y for x in range(0, count, 2) for y in (x, -x)]
        found = engine.results(diamond)
        assert [x for side, x in found if side == "left"] == [str(i) for i in range(count)]
        assert [x for side, x in found if side == "right"] == [str(i) for i in range(10, count)]
        assert len(found) == 2 * count - 10

    return check


def until(enough):
    """0, 1, 2 and so on, until the event is set."""
    return itertools.takewhile(lambda _: not enough.is_set(), itertools.count())


def grows(values, more=50):
    """Wait until a list has so many more entries."""
    wanted = len(values) + more
    deadline = time.monotonic() + SECONDS
    while len(values) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.0005)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("name", haren.policies())
def test_results_are_those_of_plain_python(name, threads):
    engine = Teaching(capacity=20)
    check = two_queries(engine)
    with haren.Execution(engine, threads, dispatch_of(name)) as execution:
        assert engine.wait(SECONDS)
    check()
    events = dict(zip(engine.graph.names, execution.operator_statistics()[:, 2].tolist(), strict=True))
    assert events["source-0"] == events["operator-1"] == events["source-3"] == 300
    assert events["sink-7"] == 300 and events["sink-8"] == 590


@pytest.mark.parametrize("dispatch", [None, "os", haren.Bound("rr", batch=1, period=0.005, check=True)])
@pytest.mark.parametrize("branches", [1, 2, 5])
def test_a_diamond_with_room_for_one_event(dispatch, branches):
    """A queue is never longer than its capacity, but by what the last event became."""
    engine, most = Teaching(capacity=1), []

    def once_or_thrice(x):
        most.append(max(len(queue) for one in engine.operators for queue in one.inputs))
        return [x] * (3 if x % 7 == 0 else 1)

    source = engine.source(range(200))
    ways = [engine.operator(once_or_thrice, source) for _ in range(branches)]
    sink = engine.sink(*ways)
    with haren.Execution(engine, 2, dispatch):
        assert engine.wait(SECONDS)
    assert sorted(engine.results(sink)) == sorted(
        branches * [y for x in range(200) for y in once_or_thrice(x)]
    )
    assert max(most) <= 3


@pytest.mark.parametrize("dispatch", [None, "os", "fcfs"])
@pytest.mark.parametrize("leave", ["with", "stop"])
def test_what_a_function_raises_ends_the_run_and_loses_no_event(dispatch, leave):
    engine = Teaching(capacity=10)
    quotient = engine.operator(lambda x: [100 // (50 - x)], engine.source(itertools.count()))
    sink = engine.sink(quotient)
    execution = haren.Execution(engine, 2, dispatch)
    if leave == "with":
        with pytest.raises(ZeroDivisionError), execution:
            assert not engine.wait(SECONDS)
    else:
        execution.start()
        assert not engine.wait(SECONDS)
        with pytest.raises(ZeroDivisionError):
            execution.stop()
        execution.stop()
    assert quotient.inputs[0][0][1] == 50, "what it could not do still waits"
    done = engine.results(sink) + [value for _, value in sink.inputs[0]]
    assert done == [100 // (50 - x) for x in range(50)]


def test_a_source_that_raises_ends_the_run():
    engine = Teaching()
    engine.sink(engine.source(int(text) for text in ["1", "2", "x"]))
    with pytest.raises(ValueError, match="'x'"), haren.Execution(engine, 1, "rr"):
        assert not engine.wait(SECONDS)


def test_changes_while_running_lose_nothing():
    engine, enough = Teaching(capacity=7), threading.Event()
    source = engine.source(until(enough))
    ways = [engine.operator(lambda x, i=i: [(i, x)], source) for i in range(3)]
    sink = engine.sink(engine.operator(lambda pair: [pair], *ways))
    changes = [
        {"dispatch": haren.Bound("fcfs", period=0.002, batch=2, check=True)},
        {"threads": 4},
        {"dispatch": "os"},
        {"threads": 1, "dispatch": haren.Pool()},
        {"dispatch": haren.Bound("hr", period=0.002, batch=5, check=True), "threads": 3},
        {"dispatch": haren.Bound("longest-queue", period=0.002, batch=1, check=True)},
        {"threads": 2, "dispatch": haren.Pool(quantum=3, shared_quantum=3)},
        {"dispatch": "chain"},
        {},
    ]
    with haren.Execution(engine, 2, haren.Bound("rr", period=0.002, batch=2, check=True)) as execution:
        for change in changes * 3:
            grows(sink.results)
            execution.update(**change)
        grows(sink.results)
        enough.set()
        assert engine.wait(SECONDS)
    total = source.events_out
    assert execution.operator_statistics()[:, 2].tolist() == [total] * 4 + [3 * total] * 2
    for i in range(3):
        assert [x for way, x in engine.results(sink) if way == i] == list(range(total))


@pytest.mark.parametrize("dispatch", [None, "os", haren.Bound("hr", period=0.005, batch=3, check=True)])
def test_queries_grow_while_they_run(dispatch):
    """A query more; then one more reader of a source; then an operator that makes two queries one."""
    engine, enough = Teaching(capacity=10), threading.Event()
    numbers = engine.source(until(enough))
    sinks = [engine.sink(numbers)]

    def grow(*, sink, kept):
        """Resume with one more sink and let it get results."""
        assert engine.kept(former) == kept
        sinks.append(sink)
        execution.resume(engine.kept(former))
        grows(sink.results)
        execution.pause()
        return engine.graph

    with haren.Execution(engine, 2, dispatch) as execution:
        grows(sinks[0].results)
        execution.pause()
        former = engine.graph
        others = engine.source(until(enough))
        former = grow(sink=engine.sink(others), kept=[0, 1, -1, -1])
        assert former.names == ["source-0", "sink-1", "source-2", "sink-3"]
        assert former.queries == [0, 0, 1, 1]
        start, late = numbers.events_out, engine.operator(lambda x: [x], numbers)
        former = grow(sink=engine.sink(late), kept=[2, 3, 0, 1, -1, -1])
        assert former.queries == [0, 0, 1, 1, 1, 1]
        starts, both = (numbers.events_out, others.events_out), engine.operator(str, numbers, others)
        former = grow(sink=engine.sink(both), kept=[*range(6), -1, -1])
        assert former.query_count == 1
        execution.resume()
        enough.set()
        assert engine.wait(SECONDS)
    events = dict(zip(former.names, execution.operator_statistics()[:, 2].tolist(), strict=True))
    assert events["source-0"] == events["sink-1"] == numbers.events_out, "counts go on"
    assert engine.results(sinks[0]) == list(range(numbers.events_out))
    assert engine.results(sinks[1]) == list(range(others.events_out))
    assert engine.results(sinks[2]) == list(range(start, numbers.events_out))
    digits = [str(i) for i in (*range(starts[0], numbers.events_out), *range(starts[1], others.events_out))]
    assert sorted(engine.results(sinks[3])) == sorted("".join(digits))


def test_wait_after_the_end_and_again_for_what_is_added():
    engine = Teaching()
    assert engine.wait(0), "an engine without operators has nothing to do"
    sinks = []
    with haren.Execution(engine, 2) as execution:
        for i in range(3):
            execution.pause()
            former = engine.graph
            sinks.append(engine.sink(engine.source([i, i])))
            execution.resume(engine.kept(former))
            assert engine.wait(SECONDS)
            assert engine.wait(0)
    assert [engine.results(sink) for sink in sinks] == [[0, 0], [1, 1], [2, 2]]


def test_what_is_measured_is_exact():
    now = 100
    engine = Teaching(capacity=4, clock=lambda: now)
    paced = engine.source(range(6), rate=3e8)  # events are due 0, 3, 6, 10, 13 and 16 ns after the first run
    free = engine.source([7, 8, 9])
    engine.sink(engine.operator(lambda x: [x, x], paced, free))
    assert engine.graph.names == ["source-0", "source-1", "operator-2", "sink-3"]
    assert engine.graph.edges == [(0, 2), (1, 2), (2, 3)]
    never = spe.NEVER

    def asked(op):
        """Events out, head and tail time, pending, room, latencies: count and total."""
        return [engine.measure(op, which, now) for which in range(7)]

    assert [engine.ready_at(op, now) for op in range(4)] == [100, 100, never, never]
    assert asked(0) == [0, 100, 100, 1, 4, 0, 0]
    assert asked(1) == [0, never, 0, 3, 4, 0, 0], (
        "without a rate, events have no time before they are emitted"
    )
    assert asked(2) == [0, never, 0, 0, 4, 0, 0]
    assert asked(3) == [0, never, 0, 0, never, 0, 0]
    assert engine.run(0, 10) == 1
    assert asked(0) == [1, 103, 103, 0, 3, 0, 0]
    assert engine.ready_at(0, now) == 103
    now = 109
    assert asked(0) == [1, 103, 106, 2, 3, 0, 0]
    now = 110
    assert asked(0) == [1, 103, 110, 3, 3, 0, 0]
    assert engine.run(0, 2) == 2
    now = 111
    assert engine.run(1, 10) == 3
    assert asked(1) == [3, never, 0, 0, 1, 0, 0]
    assert asked(2) == [0, 100, 111, 6, 4, 0, 0]
    assert engine.run(2, 5) == 2, "one event of each input; then there is no room"
    assert asked(2) == [4, 103, 111, 4, 0, 0, 0]
    assert engine.ready_at(2, now) == never and engine.run(2, 5) == 0
    now = 120
    assert asked(0) == [3, 110, 116, 3, 2, 0, 0], "no more are due than there are"
    assert engine.run(3, 3) == 3
    assert engine.run(2, 1) == 1
    assert asked(3) == [0, 103, 111, 3, never, 3, 20 + 20 + 9], "the oldest is not the first in the queue"
    assert not engine.wait(0)
    while not engine.wait(0):
        assert sum(engine.run(op, 10) for op in range(4) if engine.ready_at(op, now) <= now)
    assert asked(0) == [6, never, 0, 0, 4, 0, 0]
    assert asked(3)[5:] == [18, 2 * (20 + 17 + 14 + 10 + 7 + 4) + 6 * 9]


def test_a_paced_source_emits_nothing_before_its_time():
    engine = Teaching()
    source = engine.source(range(100), rate=5_000)
    late = engine.sink(engine.operator(lambda i: [engine.clock() - source.due(i, 0)], source))
    with haren.Execution(engine, 2, "fcfs"):
        assert engine.wait(SECONDS)
    assert len(late.results) == late.latency_count == 100
    assert min(late.results) >= 0
    assert late.latency_total >= sum(late.results), "the sink comes after the operator"


def test_questions_are_allowed_while_operators_run():
    engine = Teaching(capacity=50)
    check = two_queries(engine)
    stop, wrong = threading.Event(), []

    def ask():
        try:
            while not stop.wait(0.0005):
                for op, which in itertools.product(range(9), range(7)):
                    engine.measure(op, which, engine.clock())
        except Exception as error:
            wrong.append(error)

    asking = threading.Thread(target=ask)
    with haren.Execution(engine, 2, haren.Bound("fcfs", period=0.005, batch=3, check=True)):
        asking.start()
        assert engine.wait(SECONDS)
        stop.set()
        asking.join()
    check()
    assert not wrong


def test_mistakes_in_making_a_query_are_told_at_once():
    engine = Teaching()
    with pytest.raises(ValueError, match="capacity=0"):
        Teaching(capacity=0)
    with pytest.raises(ValueError, match="rate=0"):
        engine.source([], rate=0)
    with pytest.raises(TypeError, match="first"):
        engine.operator(str)
    with pytest.raises(TypeError, match="not iterable"):
        engine.source(7)
    assert len(engine.graph) == 0


def test_the_engine_can_be_read_in_one_sitting():
    assert len(Path(haren.teaching.__file__).read_text().splitlines()) < 200
