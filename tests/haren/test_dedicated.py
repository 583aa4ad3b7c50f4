"""A thread per operator: each stays on its own, sleeps when it cannot run, and no wake-up is lost."""

import ctypes
import threading
import time

import numpy as np
import pytest
from numba import njit

import haren
from haren.memory import address, lines
from haren.native.atomics import load, load_acquire, store_release
from haren.native.clock import ring
from haren.native.compiler import compile_native
from haren.native.waiting import prepare, ticket, wait
from haren.spe import NEVER

CONTRACT = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
TOTAL, CAPACITY, START, EVERY, EDGES, EDGE_COUNT, COUNTS, BELL, LAST = (8 * i for i in range(9))


@njit
def _possible(net, operator):
    """Events the operator could pass on: what all its inputs hold and all its outputs have room for."""
    mine = load(net + COUNTS) + 64 * operator
    most = load(net + TOTAL) - load_acquire(mine)
    for i in range(load(net + EDGE_COUNT)):
        upstream = load(load(net + EDGES) + 16 * i)
        downstream = load(load(net + EDGES) + 16 * i + 8)
        if upstream == operator or downstream == operator:
            ahead = load_acquire(load(net + COUNTS) + 64 * upstream)
            waiting = ahead - load_acquire(load(net + COUNTS) + 64 * downstream)
            most = min(most, waiting if downstream == operator else load(net + CAPACITY) - waiting)
    return most


def _net_ready_at(net, operator, now):
    if _possible(net, operator) <= 0:
        return 2**63 - 1
    if operator == 0:
        return load(net + START) + load(net + EVERY) * load_acquire(load(net + COUNTS))
    return 0


def _net_run(net, operator, quota):
    count = min(quota, _possible(net, operator))
    if operator == 0 and load(net + EVERY) > 0:
        count = min(count, 1)
    mine = load(net + COUNTS) + 64 * operator
    store_release(mine, load(mine) + count)
    if operator == load(net + LAST) and load(mine) == load(net + TOTAL):
        ring(load(net + BELL), 1)
    return count


class Net:
    """A compiled engine in which events are only counted: as fast as hand-overs can follow each other.

    Each operator takes an event from every input and puts one into every output; edges hold ``capacity``.
    With ``every``, operator 0 is a source that is due each so many nanoseconds.
    """

    def __init__(self, operators, edges, total, capacity=1, every=0, queries=None, room=64):
        prepare()
        self._code = [
            compile_native(function, "int64(int64, int64, int64)") for function in (_net_ready_at, _net_run)
        ]
        self.ready_at, self.run = (code.address for code in self._code)
        self._counts = lines(room).reshape(-1, 8)
        self._bell = lines(1)
        self._bell[1] = 1
        self._net = lines(2)
        self.handle = address(self._net)
        self.total = total
        words = {TOTAL: total, CAPACITY: capacity, START: time.monotonic_ns(), EVERY: every}
        words |= {COUNTS: address(self._counts), BELL: address(self._bell)}
        for offset, value in words.items():
            self._net[offset // 8] = value
        self.arrange(operators, edges, queries)

    def arrange(self, operators, edges, queries=None):
        """Change the graph; what has been counted stays."""
        self.graph = haren.Graph([f"op{i}" for i in range(operators)], queries or [0] * operators, edges)
        self._edges = np.array(edges, np.int64).reshape(-1, 2)
        for offset, value in {
            EDGES: address(self._edges),
            EDGE_COUNT: len(edges),
            LAST: operators - 1,
        }.items():
            self._net[offset // 8] = value

    @property
    def counts(self):
        return self._counts[: len(self.graph.names), 0].tolist()

    def reaches_the_end(self, seconds=60):
        deadline = time.monotonic() + seconds
        while self.counts[-1] < self.total and time.monotonic() < deadline:
            former = ticket(address(self._bell))
            if self.counts[-1] < self.total:
                wait(address(self._bell), former, deadline - time.monotonic())
        return self.counts[-1] == self.total


def chain(operators):
    return [(i, i + 1) for i in range(operators - 1)]


class Threads:
    """A chain in Python that notes which thread ran what, and lets go of the GIL within every run."""

    handle = 0

    def __init__(self, operators, work):
        self.graph = haren.Graph([f"op{i}" for i in range(operators)], [0] * operators, chain(operators))
        self.work = work
        self.pending = [work] + [0] * (operators - 1)
        self.consumed = [0] * operators
        self.on = [set() for _ in range(operators)]
        self.quotas = set()
        self.runs = 0
        self.finished = threading.Event()
        self._callbacks = CONTRACT(self._ready_at), CONTRACT(self._run)
        self.ready_at, self.run = (ctypes.cast(c, ctypes.c_void_p).value or 0 for c in self._callbacks)

    def _ready_at(self, handle, operator, now):
        return 0 if self.pending[operator] else NEVER

    def _run(self, handle, operator, quota):
        self.on[operator].add(threading.current_thread().name)
        self.quotas.add(quota)
        self.runs += 1
        count = min(quota, self.pending[operator])
        time.sleep(0.0001)
        self.consumed[operator] += count
        if operator + 1 < len(self.consumed):
            self.pending[operator + 1] += count
        self.pending[operator] -= count
        if self.consumed[-1] == self.work:
            self.finished.set()
        return count


def test_each_operator_has_its_thread():
    engine = Threads(operators=4, work=200)
    with haren.Execution(engine, 1, haren.Dedicated(quantum=3)) as execution:
        assert engine.finished.wait(30)
    assert [len(names) for names in engine.on] == [1] * 4
    assert len(set.union(*engine.on)) == 4
    assert max(engine.quotas) == 3
    runs, _, events, _ = execution.operator_statistics().T
    assert events.tolist() == [200] * 4
    assert execution.worker_statistics()[:, 2].tolist() == runs.tolist()
    assert not execution._operators[:, 0].any(), "every claim was given back"


def test_the_dispatch_says_how_many_threads_there_are():
    graph = haren.Graph(["a", "b", "c"], [0, 0, 1], [(0, 1)])
    assert haren.Pool().workers(graph, 7) == 7
    assert haren.Dedicated().workers(graph, 7) == 3


@pytest.mark.parametrize("operators", [2, 3])
def test_ping_pong_loses_no_wake_up(operators):
    """With room for one event, each hand-over needs a wake-up, and one lost is the end."""
    engine = Net(operators, chain(operators), total=20_000)
    with haren.Execution(engine, 1, haren.Dedicated()) as execution:
        assert engine.reaches_the_end(), engine.counts
    assert execution.operator_statistics()[:, 2].tolist() == [20_000] * operators


def test_a_long_chain_of_small_buffers_reaches_its_end():
    engine = Net(40, chain(40), total=2_000, capacity=3)
    with haren.Execution(engine, 1, haren.Dedicated(quantum=2)):
        assert engine.reaches_the_end(), engine.counts
    assert engine.counts == [2_000] * 40


def test_branches_that_meet_again_wait_for_each_other():
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4), (0, 4), (4, 5)]
    engine = Net(6, edges, total=10_000, capacity=2)
    with haren.Execution(engine, 1, haren.Dedicated()):
        assert engine.reaches_the_end(), engine.counts
    assert engine.counts == [10_000] * 6


def test_a_source_that_waited_for_room_learns_when_it_is_due():
    """Room makes it ready at a later time only, which it has to be told all the same."""
    engine = Net(2, chain(2), total=2_000, every=20_000)
    with haren.Execution(engine, 1, haren.Dedicated()):
        assert engine.reaches_the_end(), engine.counts
    assert time.monotonic_ns() >= engine._net[START // 8] + 1_999 * 20_000


def test_two_schedulers_side_by_side():
    dispatch = haren.Dedicated()
    engines = [Net(3, chain(3), total=10_000) for _ in range(3)]
    others = [dispatch, dispatch, haren.Pool()]
    executions = [haren.Execution(e, 2, other) for e, other in zip(engines, others, strict=True)]
    for execution in executions:
        execution.start()
    assert all(engine.reaches_the_end() for engine in engines)
    for execution in executions:
        execution.stop()
    assert [engine.counts for engine in engines] == [[10_000] * 3] * 3


def asleep(execution):
    """Wait until every worker sleeps."""
    for _ in range(3000):
        if (execution._bells[:, 1] == 1).all() and (execution._bells[:, 2] != 0).all():
            return True
        time.sleep(0.01)
    return False


def test_stop_works_while_all_sleep():
    for _ in range(20):
        execution = haren.Execution(Net(5, chain(5), total=0), 1, haren.Dedicated())
        execution.start()
        assert asleep(execution)
        execution.stop()
        execution.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("haren-worker")]


def test_stop_works_while_all_run():
    for _ in range(20):
        execution = haren.Execution(Net(5, chain(5), total=10**9), 1, haren.Dedicated())
        execution.start()
        execution.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("haren-worker")]


@pytest.mark.parametrize("dispatch", [haren.Dedicated(), haren.Pool()])
def test_who_sleeps_does_nothing_until_woken(dispatch):
    engine = Threads(operators=3, work=5)
    engine.pending = [0] * 3
    with haren.Execution(engine, 2, dispatch) as execution:
        for given in range(5):
            assert given or not engine.runs
            engine.pending[0] += 1
            execution.wake()
        assert engine.finished.wait(30)
    assert engine.consumed == [5] * 3


def test_an_operator_held_from_outside_waits_until_it_is_let_go():
    engine = Net(2, chain(2), total=100)
    execution = haren.Execution(engine, 1, haren.Dedicated())
    execution._operators[1, 0] = 99
    with execution:
        assert asleep(execution)
        assert engine.counts == [1, 0]
        execution._operators[1, 0] = 0
        execution.wake()
        assert engine.reaches_the_end()


def test_a_run_without_events_wakes_neighbours_and_costs_nothing_per_event():
    class Time(Threads):
        """Operators that hand on time, not events."""

        def _run(self, handle, operator, quota):
            super()._run(handle, operator, quota)
            return 0

    engine = Time(operators=3, work=50)
    with haren.Execution(engine, 1, haren.Dedicated(quantum=1)) as execution:
        assert engine.finished.wait(30)
    runs, busy, events, last = execution.operator_statistics().T
    assert runs.tolist() == [50] * 3 and not events.any()
    assert busy.all() and last.all()
    assert engine.quotas == {1}


def test_a_slow_operator_gets_short_turns():
    """Its neighbours and a stop wait for the end of a turn."""

    class Slow(Threads):
        def _run(self, handle, operator, quota):
            self.quotas.add(quota)
            time.sleep(0.002)
            if quota < 100:
                self.pending[operator] = 0
                self.finished.set()
            return min(quota, 100)

    engine = Slow(operators=1, work=1)
    with haren.Execution(engine, 1, haren.Dedicated(quantum=10_000)):
        assert engine.finished.wait(30)
    assert max(engine.quotas) == 10_000


@pytest.mark.parametrize("dispatch", [haren.Dedicated(), haren.Pool()])
def test_an_engine_goes_on_with_another_graph(dispatch):
    """Stopped in the middle, it is run by a new execution of the same dispatch, which counts from 0."""
    engine = Net(3, chain(3), total=10**12, capacity=5)
    counted = np.zeros(7, np.int64)
    rearranged = [
        (3, chain(3), None),
        (7, [*chain(3), *((3 + a, 3 + b) for a, b in chain(4))], [0] * 3 + [1] * 4),  # a query more
        (3, chain(3), None),  # and away with it
        (5, chain(5), None),
    ]
    for operators, edges, queries in rearranged:
        engine.arrange(operators, edges, queries)
        before = np.array(engine.counts)
        execution = haren.Execution(engine, 2, dispatch)
        assert not execution.operator_statistics().any()
        with execution:
            for _ in range(3000):
                if (np.array(engine.counts) >= before + 100).all():
                    break
                time.sleep(0.01)
        events = execution.operator_statistics()[:, 2]
        assert (events >= 100).all()
        counted[:operators] += events
        assert counted[:operators].tolist() == engine.counts


@pytest.mark.parametrize("dispatch", [haren.Dedicated(), haren.Pool()])
def test_a_new_execution_may_be_made_before_the_old_one_stops(dispatch):
    engine = Net(3, chain(3), total=30_000, capacity=2)
    old = haren.Execution(engine, 2, dispatch)
    old.start()
    new = haren.Execution(engine, 2, dispatch)
    old.stop()
    with new:
        assert engine.reaches_the_end()
    both = old.operator_statistics()[:, 2] + new.operator_statistics()[:, 2]
    assert both.tolist() == [30_000] * 3


@pytest.mark.parametrize("dispatch", [haren.Dedicated(), haren.Pool()])
def test_a_graph_may_have_no_operators_left(dispatch):
    engine = Net(0, [], total=1)
    with haren.Execution(engine, 2, dispatch) as execution:
        execution.wake()
    assert len(execution.operator_statistics()) == 0


def test_there_is_no_common_bell():
    execution = haren.Execution(Net(2, chain(2), total=1), 1, haren.Dedicated())
    with pytest.raises(RuntimeError, match="wake"):
        _ = execution.bell


def test_a_quantum_is_at_least_one_event():
    with pytest.raises(ValueError, match="at least"):
        haren.Dedicated(quantum=0)


def test_threads_that_cannot_be_had_leave_none_behind(monkeypatch):
    execution = haren.Execution(Net(5, chain(5), total=10), 1, haren.Dedicated())

    def refused():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(execution._threads[3], "start", refused)
    with pytest.raises(RuntimeError, match="can't start"):
        execution.start()
    assert not [t for t in threading.enumerate() if t.name.startswith("haren-worker")]
