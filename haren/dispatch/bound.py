"""Haren's way: f binds operators to threads, g ranks them within a thread, both anew every period.

Between two scheduling tasks (T_S, `haren.native.rounds`) a thread runs the first operator of its ranking that
can run, a batch at a time (T_E, `haren.native.bound`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from haren.dispatch.dispatch import compiled
from haren.dispatch.schedule import COMMON_BYTES, COMMON_RECORD_BYTES, PolicyDispatch, Schedule, check_seconds
from haren.graph import Graph
from haren.memory import address, lines
from haren.numbers import MODULUS, draw
from haren.policy import Policy

if TYPE_CHECKING:
    from haren.execution import Execution

__all__ = ["Bound", "BoundSchedule"]

# the words of the dispatch, behind those of `haren.dispatch.schedule`
DELAY_NS = COMMON_BYTES  # run what has not run for so long; 0: never for that reason
EAGER = COMMON_BYTES + 8  # 1: who makes an operator ready wakes its thread
EVALUATE_F = COMMON_BYTES + 16
PROPOSED = COMMON_BYTES + 24  # address: the thread of each operator as f has just chosen
BACKOFF_NS = COMMON_BYTES + 32  # the first sleep of a thread that finds nothing
ARRIVED = 256  # threads at the barrier
IN_ROUND = 320  # 1 while the sequential part of T_S runs
GENERATION = 328  # grows when the sequential part is done: what threads at the barrier wait for
BOUND_BYTES = 384

# the words of a thread, behind those of `haren.dispatch.schedule`
ROUND_END = COMMON_RECORD_BYTES
CURSOR = 32  # where in its ranking it goes on
LEVEL = 40  # of the operator it ran last in this pass; -1: none
COUNT = 48  # operators it has
ORDER = 56  # address: A, the operators it has, best first
LEVELS = 64  # address: for each of those the number of its priority; equal ones share it
DELAYED = 72  # address: operators to run once because they have not run for d
DELAYED_COUNT = 80
DELAYED_NEXT = 88
BACKOFF = 96
IDLE_UNTIL = 104
SPARE = 112  # address: room for sorting

# the words of the phases' addresses
REFRESH, UPDATE, ASSIGN, PRIORITISE, SORT = range(0, 40, 8)


class Bound(PolicyDispatch):
    """A policy's f and g, with the parameters of the Haren paper.

    ``period`` P: seconds between scheduling tasks. ``batch`` b: events an operator may take before the next
    decision. ``delay`` d: an operator that has not run for so many seconds is run once, if f or g uses
    features that only its runs refresh (default: 2 P). ``seed`` for what is random.

    A thread that finds nothing to run sleeps, first for ``backoff`` seconds, then twice as long each time,
    never past the end of the period. With ``eager`` (ours, default) it is woken when a neighbour makes one of
    its operators ready; ``eager=False`` is the paper's way.

    A policy that fails leaves the last good schedule in force and is shown once; ``strict`` stops the run
    instead. ``check`` asserts that no operator runs on two threads at once or during T_S. ``snapshots`` keeps
    what rounds decided, for `Trace.explain`.
    """

    own_bells = True
    wakes = "neighbours"

    def __init__(
        self,
        policy: Policy | str,
        *,
        period: float = 0.1,
        batch: int = 384,
        delay: float | None = None,
        backoff: float = 20e-6,
        eager: bool = True,
        seed: int = 0,
        strict: bool = False,
        check: bool = False,
        snapshots: bool = True,
    ) -> None:
        super().__init__(policy, check_seconds("period", period), batch, seed, strict, check, snapshots)
        if delay is not None and not delay > 0:
            raise ValueError(f"delay={delay!r} must be positive")
        if not 0 < backoff <= 3600:
            raise ValueError(f"backoff={backoff!r} must be positive")
        self.delay_ns = int((2 * period if delay is None else delay) * 1e9)
        self.backoff_ns = max(1, int(backoff * 1e9))
        self.eager = eager

    def schedule(self, graph: Graph, threads: int) -> BoundSchedule:
        return BoundSchedule(self, graph, threads)


class BoundSchedule(Schedule):
    """A bound dispatch in one run: who runs what in which order."""

    def __init__(self, bound: Bound, graph: Graph, threads: int) -> None:
        from haren.native import bound as decisions

        super().__init__(bound, graph, threads, size=BOUND_BYTES, own=False)
        count = len(graph)
        first = 1 + bound.seed % (MODULUS - 1)
        self.assignment[:] = [draw(first, op) % threads for op in range(count)]
        self._proposed = np.zeros(count, np.int64)
        self._lists = lines(threads * 4 * (-(-max(count, 1) // 8))).reshape(threads, 4, -1)
        self._set(
            {
                DELAY_NS: bound.delay_ns if self.policy.intrinsic else 0,
                EAGER: int(bound.eager),
                EVALUATE_F: self.code.addresses["f"],
                PROPOSED: address(self._proposed),
                BACKOFF_NS: bound.backoff_ns,
            }
        )
        for record, lists in zip(self.records, self._lists, strict=True):
            record[LEVEL // 8] = -1
            record[BACKOFF // 8] = bound.backoff_ns
            for offset, part in zip((ORDER, LEVELS, DELAYED, SPARE), lists, strict=True):
                record[offset // 8] = address(part)
        self._deal()
        self._phases = np.array(_phases(), np.int64)
        self.functions, self.rounds = compiled(decisions), address(self._phases)

    def _deal(self) -> None:
        """Give every thread its operators, with equal priorities: before the first round."""
        for thread, (record, (order, levels, *_)) in enumerate(zip(self.records, self._lists, strict=True)):
            mine = np.flatnonzero(self.assignment == thread)
            order[: len(mine)], levels[: len(mine)] = mine, 0
            record[COUNT // 8] = len(mine)

    def carry(self, former: Schedule, kept: Sequence[int]) -> None:
        """Go on from a former schedule; kept operators stay with their thread, if they can."""
        super().carry(former, kept)
        if isinstance(former, BoundSchedule):
            for op, old in enumerate(kept):
                if old >= 0 and former.assignment[old] < self.threads:
                    self.assignment[op] = former.assignment[old]
        self._deal()

    def started(self, execution: Execution) -> None:
        super().started(execution)
        self.records[:, ROUND_END // 8] = execution.now() + self.how.period_ns


@cache
def _phase_code() -> list[Any]:
    from haren.native import rounds
    from haren.native.compiler import compile_native

    phases: list[Callable] = [rounds.refresh, rounds.update, rounds.assign, rounds.prioritise, rounds.sort]
    return [compile_native(phase, "int64(int64, int64, int64)") for phase in phases]


def _phases() -> list[int]:
    return [native.address for native in _phase_code()]
