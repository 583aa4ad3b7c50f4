"""Enjima's way: threads take the best eligible operator of all, and a thread of its own renews priorities.

Every epoch that thread refreshes what the policy knows and ranks all operators anew; in between, whoever has
run an operator ranks it and its neighbours (`haren.native.shared`). Nobody waits for anybody: the priorities
are one array of words, and taking an operator is one exchange of its word.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from haren.dispatch.dispatch import compiled
from haren.dispatch.schedule import COMMON_BYTES, COMMON_RECORD_BYTES, PolicyDispatch, Schedule, check_seconds
from haren.features import Feature
from haren.graph import Graph
from haren.memory import address, lines
from haren.policy import Policy

if TYPE_CHECKING:
    from haren.execution import Execution

__all__ = ["Shared", "SharedSchedule"]

# the words of the dispatch, behind those of `haren.dispatch.schedule`
KEYS = COMMON_BYTES  # address: what each operator is worth, see `haren.native.shared`
EAGER = COMMON_BYTES + 8
METRICS_NS = COMMON_BYTES + 16
CHANGED = COMMON_BYTES + 24  # address: 1 for operators whose own features were refreshed since the last epoch
SOURCES = COMMON_BYTES + 32  # address and number of the sources, which time alone makes eligible
SOURCE_COUNT = COMMON_BYTES + 40
ALL = COMMON_BYTES + 48  # address: the numbers of all operators
DUES = COMMON_BYTES + 56  # address: from when on each source can run, if it could not when last looked at
PLACES = COMMON_BYTES + 64  # address: the place of an operator among the sources; -1: it is none
LAST = 320  # the operator that was taken last: behind it, equals are looked for
NEXT_METRICS = 384  # when the next metrics are due; only the thread of the epochs uses this line
MOVING = 392  # 1: derived features may change every epoch, not only with metrics
SHARED_BYTES = 448

# the words of a thread, behind those of `haren.dispatch.schedule`
IN_VAIN = COMMON_RECORD_BYTES  # 1: it has just looked for work and found none

# the words of the phases' addresses
METRICS, RANK = 0, 8

# what ASSIGNMENT says of an operator: its condition when the epoch began
STOPPED, WAITING, ELIGIBLE, RUNNING = range(4)
CONDITIONS = ("could not run", "could run, was not eligible", "eligible", "was running")


class Shared(PolicyDispatch):
    """One structure of priorities for all threads, with the parameters of the Enjima paper.

    ``epoch``: seconds between updates of all priorities. ``batch``: events an operator may take in one turn,
    if the policy has no quantum. ``metrics``: seconds between measurements of cost, selectivity and the
    latency gradient; then the policy adapts its state, too.

    ``wake`` is what happens to a thread that finds nothing eligible. "eager" (ours): it takes the best
    operator that can run although it is not eligible; if none can, it sleeps, and is woken as soon as one
    becomes eligible. "epoch" (the paper's way): it sleeps until the next epoch.

    f is not used. ``seed``, ``strict``, ``check`` and ``snapshots`` are as in `haren.Bound`.
    """

    period_called = "epoch"

    def __init__(
        self,
        policy: Policy | str,
        *,
        epoch: float = 0.001,
        batch: int = 384,
        metrics: float = 0.05,
        wake: Literal["eager", "epoch"] = "eager",
        seed: int = 0,
        strict: bool = False,
        check: bool = False,
        snapshots: bool = True,
    ) -> None:
        super().__init__(policy, check_seconds("epoch", epoch), batch, seed, strict, check, snapshots)
        if wake not in ("eager", "epoch"):
            raise ValueError(f"wake={wake!r}; 'eager' or 'epoch'")
        self.metrics_ns = int(check_seconds("metrics", metrics) * 1e9)
        self.eager = wake == "eager"
        self.wakes = "spare" if self.eager else "epoch"

    def schedule(self, graph: Graph, threads: int) -> SharedSchedule:
        return SharedSchedule(self, graph, threads)


class SharedSchedule(Schedule):
    """A shared dispatch in one run, with the thread that keeps the epochs."""

    def __init__(self, shared: Shared, graph: Graph, threads: int) -> None:
        from haren.native import shared as decisions

        super().__init__(shared, graph, threads, size=SHARED_BYTES, own=True)
        count = len(graph)
        self.keys = lines(-(-max(count, 1) // 8))
        self.keys[:count] = decisions.NOT
        self._changed = np.zeros(count, np.int64)
        self._sources, self._all = np.array(graph.sources, np.int64), np.arange(count)
        self._dues, self._places = np.zeros(len(self._sources), np.int64), np.full(count, -1)
        self._places[self._sources] = np.arange(len(self._sources))
        self._set(
            {
                KEYS: address(self.keys),
                EAGER: int(shared.eager),
                METRICS_NS: shared.metrics_ns,
                CHANGED: address(self._changed),
                SOURCES: address(self._sources),
                SOURCE_COUNT: len(self._sources),
                ALL: address(self._all),
                DUES: address(self._dues),
                PLACES: address(self._places),
                MOVING: int(any(map(self._moves, self.matrix.derived))),
                LAST: -1,
            }
        )
        self._phases = np.array([native.address for native in _phases()], np.int64)
        self.functions, self.rounds = compiled(decisions), address(self._phases)
        self.epoch_ns = shared.period_ns
        self._keep_epochs = _loop()
        self._thread: threading.Thread | None = None

    def _moves(self, feature: Feature) -> bool:
        """Whether a feature may change from one epoch to the next, though no cost or selectivity did."""
        if not feature.derived:
            return not (feature.static or feature.intrinsic)
        known = self.policy.resolved
        return "now" in self.code.wanted[feature.name] or any(
            self._moves(known[need]) for need in feature.needs
        )

    def epoch_worker(self, execution: Execution) -> np.ndarray:
        """The words of the thread that keeps the epochs: those of a worker, with the next number."""
        from haren.native import words as w

        worker = lines(w.WORKER_BYTES // 64)
        worker[:] = execution._workers[0]
        worker[w.THREAD // 8] = self.threads
        return worker

    def started(self, execution: Execution) -> None:
        super().started(execution)
        if not execution.virtual:
            self._thread = threading.Thread(
                target=self._body, args=(execution,), name="haren-epochs", daemon=True
            )
            self._thread.start()

    def stopped(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _body(self, execution: Execution) -> None:
        from haren.execution import precise_sleep

        precise_sleep()
        worker = self.epoch_worker(execution)
        ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._keep_epochs.address)(address(worker))


@cache
def _phases() -> list[Any]:
    from haren.native import shared
    from haren.native.compiler import compile_native

    return [compile_native(phase, "int64(int64, int64, int64)") for phase in (shared.metrics, shared.rank)]


@cache
def _loop() -> Any:
    from haren.native import shared
    from haren.native.compiler import compile_native

    return compile_native(shared.keep_epochs, "int64(int64)")
