"""The plain pool over an engine in Python that lets go of the GIL in the middle of every run."""

import ctypes
import threading
import time

import numpy as np
import pytest

import haren
from haren.spe import NEVER

CONTRACT = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)


class Sleepy:
    """Operators 0..n-1 in a chain; each run sleeps, so that a second thread in it would be noticed."""

    handle = 0

    def __init__(self, operators: int, work: int, queries: list[int] | None = None) -> None:
        self.graph = haren.Graph([f"op{i}" for i in range(operators)], queries or [0] * operators)
        self.work = work
        self.pending = [work] + [0] * (operators - 1) if queries is None else [work] * operators
        self.chained = queries is None
        self.consumed = [0] * operators
        self.runs: list[int] = []
        self.quotas: set[int] = set()
        self.inside = [0] * operators
        self.overlaps = 0
        self.finished = threading.Event()
        self._callbacks = CONTRACT(self._ready_at), CONTRACT(self._run)
        self.ready_at, self.run = (ctypes.cast(c, ctypes.c_void_p).value or 0 for c in self._callbacks)

    def _ready_at(self, handle: int, operator: int, now: int) -> int:
        return 0 if self.pending[operator] else NEVER

    def _run(self, handle: int, operator: int, quota: int) -> int:
        self.inside[operator] += 1
        self.overlaps += self.inside[operator] > 1
        self.runs.append(operator)
        self.quotas.add(quota)
        count = min(quota, self.pending[operator])
        self.pending[operator] -= count
        time.sleep(0.0002)
        self.consumed[operator] += count
        if self.chained and operator + 1 < len(self.consumed):
            self.pending[operator + 1] += count
        self.inside[operator] -= 1
        if self.consumed == [self.work] * len(self.consumed):
            self.finished.set()
        return count


def test_no_operator_runs_on_two_threads_at_once():
    engine = Sleepy(operators=4, work=500)
    with haren.Execution(engine, 8, haren.Pool(quantum=3, shared_quantum=3)):
        assert engine.finished.wait(30)
    assert engine.overlaps == 0
    assert engine.consumed == [500] * 4


def test_a_quantum_bounds_every_turn():
    engine = Sleepy(operators=2, work=200)
    with haren.Execution(engine, 2, haren.Pool(quantum=5, shared_quantum=7)):
        assert engine.finished.wait(30)
    assert max(engine.quotas) <= 7 and min(engine.quotas) >= 1


def test_one_thread_goes_round_its_operators():
    """Round robin: no operator waits for more turns than there are operators."""
    engine = Sleepy(operators=3, work=60, queries=[0, 0, 0])
    with haren.Execution(engine, 1, haren.Pool(quantum=1, shared_quantum=1, slice_ms=1000)):
        assert engine.finished.wait(30)
    assert all(sorted(engine.runs[turn : turn + 3]) == [0, 1, 2] for turn in range(150))


def test_every_query_moves_on_while_all_have_work():
    engine = Sleepy(operators=8, work=10**9, queries=list(range(8)))
    with haren.Execution(engine, 2, haren.Pool(quantum=1, shared_quantum=1, slice_ms=2)):
        enough = threading.Event()
        for _ in range(3000):
            if min(engine.consumed) >= 20 or enough.wait(0.01):
                break
    assert min(engine.consumed) >= 20


@pytest.mark.parametrize("threads", [1, 4])
def test_idle_threads_wake_for_work_from_outside(threads):
    from haren.native.waiting import ring_all

    engine = Sleepy(operators=1, work=3)
    engine.pending = [0]
    with haren.Execution(engine, threads) as execution:
        for _ in range(3):
            engine.pending[0] += 1
            ring_all(execution.bell)
        assert engine.finished.wait(30)
    assert engine.consumed == [3]


def test_work_that_is_due_later_runs_when_it_is_due():
    class Later(Sleepy):
        def _ready_at(self, handle, operator, now):
            return self.due if self.pending[operator] else NEVER

    engine = Later(operators=1, work=1)
    engine.due = time.monotonic_ns() + 50_000_000
    with haren.Execution(engine, 2):
        assert engine.finished.wait(30)
    assert time.monotonic_ns() >= engine.due
    assert engine.consumed == [1]


def test_an_operator_whose_run_fails_does_not_stop_the_others():
    class Failing(Sleepy):
        def _run(self, handle, operator, quota):
            if operator == 0:
                self.pending[0] = 0
                self.consumed[0] = self.work
                return -1
            return super()._run(handle, operator, quota)

    engine = Failing(operators=2, work=50, queries=[0, 1])
    with haren.Execution(engine, 2, haren.Pool(quantum=5, shared_quantum=5)) as execution:
        assert engine.finished.wait(30)
    assert execution.operator_statistics()[:, 2].tolist() == [0, 50]


def test_a_pool_serves_several_executions():
    """Each has memory of its own, which lives as long as it does."""
    pool = haren.Pool(quantum=1, shared_quantum=1)
    engines = [Sleepy(operators=2, work=50) for _ in range(4)]
    executions = [haren.Execution(engine, 2, pool) for engine in engines]
    memory = {int(e._workers[0, 5]) for e in executions}  # where each one's dispatch has its words
    assert len(memory) == 4
    rubbish = [np.full(8, -7) for _ in range(1000)]
    for place in memory:
        words = np.ctypeslib.as_array((ctypes.c_int64 * 8).from_address(place))
        assert words[0] == 1 and words[5] == 1  # one query, and the quantum
    assert len(rubbish) == 1000


def test_query_numbers_leave_no_gap():
    with pytest.raises(ValueError, match="quer"):
        haren.Graph(["a", "b"], [0, 2])
    with pytest.raises(ValueError, match="quer"):
        haren.Graph(["a"], [-1])


def test_an_execution_starts_once():
    execution = haren.Execution(Sleepy(operators=1, work=1), 1)
    with execution, pytest.raises(RuntimeError):
        execution.start()
