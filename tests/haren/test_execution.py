"""The worker loop over an engine written in Python: no operator twice at once, nothing forgotten."""

import ctypes
import threading

import pytest

import haren
from haren.spe import NEVER

READY = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)


class Chain:
    """A chain of operators that hand work on; a Python engine behind the native contract."""

    handle = 0

    def __init__(self, operators: int, work: int, queries: int = 1) -> None:
        names = [f"op{i}" for i in range(operators * queries)]
        owners = [i // operators for i in range(operators * queries)]
        edges = [(i, i + 1) for i in range(len(names) - 1) if owners[i] == owners[i + 1]]
        self.graph = haren.Graph(names, owners, edges)
        self.operators = operators
        self.pending = [work if i % operators == 0 else 0 for i in range(len(names))]
        self.total = work * operators * queries
        self.consumed = [0] * len(names)
        self.inside = [threading.Lock() for _ in names]
        self.overlaps = 0
        self.finished = threading.Event()
        self._callbacks = (READY(self._ready_at), READY(self._run))
        self.ready_at, self.run = (ctypes.cast(c, ctypes.c_void_p).value or 0 for c in self._callbacks)

    def _ready_at(self, handle: int, operator: int, now: int) -> int:
        return 0 if self.pending[operator] else NEVER

    def _run(self, handle: int, operator: int, quota: int) -> int:
        if not self.inside[operator].acquire(blocking=False):
            self.overlaps += 1
            return 0
        count = min(quota, self.pending[operator])
        self.pending[operator] -= count
        self.consumed[operator] += count
        self.inside[operator].release()
        if (operator + 1) % self.operators:
            self.pending[operator + 1] += count
        if sum(self.consumed) == self.total:
            self.finished.set()
        return count


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_all_work_is_done_and_no_operator_runs_twice_at_once(threads):
    engine = Chain(operators=4, work=2000)
    with haren.Execution(engine, threads, haren.Pool(quantum=10, shared_quantum=10)) as execution:
        assert engine.finished.wait(30)
    assert engine.consumed == [2000] * 4
    assert engine.overlaps == 0
    statistics = execution.operator_statistics()
    assert statistics[:, 2].tolist() == [2000] * 4
    assert (statistics[:, 0] >= 200).all()
    assert execution.worker_statistics()[:, 2].sum() == statistics[:, 0].sum()


def test_every_query_gets_its_turn():
    engine = Chain(operators=2, work=500, queries=6)
    with haren.Execution(engine, 2, haren.Pool(quantum=5, shared_quantum=5, slice_ms=0.01)):
        assert engine.finished.wait(30)
    assert engine.consumed == [500] * 12


def test_many_executions_follow_each_other():
    for _ in range(20):
        engine = Chain(operators=3, work=10)
        with haren.Execution(engine, 3):
            assert engine.finished.wait(30)
    assert not [t for t in threading.enumerate() if t.name.startswith("haren-worker")]


def test_stop_may_be_called_twice_and_before_work_is_done():
    execution = haren.Execution(Chain(operators=2, work=10**9), 2)
    execution.start()
    execution.stop()
    execution.stop()


@pytest.mark.parametrize(
    "make",
    [
        lambda: haren.Execution(Chain(1, 1), 0),
        lambda: haren.Pool(quantum=0),
        lambda: haren.Pool(slice_ms=0),
    ],
)
def test_parameters_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match=r"at least|positive"):
        make()
