"""Haren's way: f binds operators to threads, g ranks them within a thread, both anew every period.

Between two scheduling tasks (T_S, `haren.native.rounds`) a thread runs the first operator of its ranking that
can run, a batch at a time (T_E, `haren.native.bound`).
"""

from __future__ import annotations

import ctypes
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from haren.dispatch.dedicated import neighbours_of
from haren.dispatch.dispatch import Dispatch, Installed, compiled
from haren.errors import PolicyError, PolicyWarning
from haren.graph import Graph, adjacency
from haren.matrix import Matrix
from haren.memory import address, lines
from haren.numbers import MODULUS, draw
from haren.policy import Policy

if TYPE_CHECKING:
    from haren.execution import Execution

__all__ = ["Bound", "Schedule"]

# the words of the dispatch
THREADS = 0
PERIOD_NS = 8
BATCH = 16
DELAY_NS = 24  # run what has not run for so long; 0: never for that reason
EAGER = 32  # 1: who makes an operator ready wakes its thread
CHECK = 40  # 1: assert that no operator runs twice at once, or during T_S
MATRIX = 48
RECORDS = 56  # address: the threads' records
PRIORITIES = 64  # address: a row of DIMS floats for each operator, in force
EVALUATED = 72  # address: the same, as g has just computed them
DIMS = 80
EVALUATE_G = 88
EVALUATE_F = 96
ELIGIBLE = 104  # addresses of the policy's functions; 0: all are eligible, turns are a batch
QUANTUM = 112
ASSIGNMENT = 120  # address: the thread of each operator, in force
PROPOSED = 128  # address: as f has just chosen
BOUNDS = 136  # address: where each operator's neighbours begin, and one word more
NEIGHBOURS = 144
BACKOFF_NS = 152  # the first and the longest sleep of a thread that finds nothing
ON_MISTAKE = 168  # address of a function that is told of mistakes of the policy
SNAPSHOTS = 176  # address: what the last rounds decided
SNAPSHOT_BYTES = 184
SNAPSHOT_COUNT = 192
STATISTICS = 200  # address: what the last rounds took
ARRIVED = 256  # threads at the barrier
IN_ROUND = 320  # 1 while the sequential part of T_S runs
ROUND = 328  # how many there were
MISTAKES = 336
GENERATION = 352  # grows when the sequential part is done: what threads at the barrier wait for
VIOLATIONS = 344  # of what CHECK asserts
BOUND_BYTES = 384

# the words of a thread
ROUND_END = 0
CURSOR = 8  # where in its ranking it goes on
LEVEL = 16  # of the operator it ran last in this pass; -1: none
COUNT = 24  # operators it has
ORDER = 32  # address: A, the operators it has, best first
LEVELS = 40  # address: for each of those the number of its priority; equal ones share it
DELAYED = 48  # address: operators to run once because they have not run for d
DELAYED_COUNT = 56
DELAYED_NEXT = 64
BACKOFF = 72
IDLE_UNTIL = 80
SPARE = 88  # address: room for sorting
ANSWER = 96  # where eligible and quantum put their answers
ROUNDS_TAKEN = 104
SLOW_ROUNDS = 112  # how many in a row took longer than the period
RECORD_BYTES = 128

# the words of a row of statistics: one thread in one round
NUMBER, STARTED, REFRESH_NS, COORDINATE_NS, UPDATE_NS, ASSIGN_NS, PRIORITY_NS, SORT_NS = range(0, 64, 8)
TOTAL_NS, CPU_NS, COORDINATE_CPU_NS, EXECUTED, FLAGGED, UPDATED, FULL, SEQUENTIAL = range(64, 128, 8)
ROW_BYTES = 128
KEPT_ROUNDS = 2048
SLOW = 3  # so many slow rounds in a row are the policy's fault

# the words of the phases' addresses
REFRESH, UPDATE, ASSIGN, PRIORITISE, SORT = range(0, 40, 8)

# who made a mistake
ROLE_F, ROLE_G, ROLE_ELIGIBLE, ROLE_QUANTUM, ROLE_SLOW, ROLE_FEATURE = 0, 1, 2, 3, 4, 8

SNAPSHOT_LIMIT = 16 << 20  # bytes for all snapshots
MOST_SNAPSHOTS = 512
ON_MISTAKE_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)


class Bound(Dispatch):
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
        from haren.registry import make

        self.policy = make(policy)
        if self.policy.dispatch != "bound":
            raise PolicyError(f"policy {self.policy.name!r} binds no operators; run it without Bound")
        if not 1e-5 <= period <= 3600:
            raise ValueError(f"period={period!r} is out of range: seconds from 0.00001 to 3600")
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(f"batch={batch!r}; a whole number of events, at least 1")
        if delay is not None and not delay > 0:
            raise ValueError(f"delay={delay!r} must be positive")
        if not 0 < backoff <= 3600:
            raise ValueError(f"backoff={backoff!r} must be positive")
        self.period_ns = int(period * 1e9)
        self.batch = batch
        self.delay_ns = int((2 * period if delay is None else delay) * 1e9)
        self.backoff_ns = max(1, int(backoff * 1e9))
        self.eager, self.seed, self.strict, self.check, self.snapshots = eager, seed, strict, check, snapshots

    def install(
        self, graph: Graph, threads: int, former: Installed | None = None, kept: Sequence[int] = ()
    ) -> Schedule:
        schedule = Schedule(self, graph, threads)
        if isinstance(former, Schedule):
            schedule.carry(former, kept)
        return schedule

    def __repr__(self) -> str:
        return f"<Bound: {self.policy.name}, P = {self.period_ns / 1e6:g} ms, b = {self.batch}>"


class Schedule(Installed):
    """A bound dispatch in one run: who runs what in which order, why, and what deciding it took."""

    def __init__(self, bound: Bound, graph: Graph, threads: int) -> None:
        from haren.native import bound as decisions
        from haren.native.functions import Functions

        self.bound, self.graph, self.threads = bound, graph, threads
        self.policy = bound.policy
        self.matrix = Matrix(self.policy, graph, threads, bound.seed)
        self.code = Functions(self.matrix)
        self.matrix.install([self.code.addresses[feature.name] for feature in self.matrix.derived])
        self.dims, count = self.code.dims, len(graph)
        self.priorities = np.zeros((count, self.dims))
        self._evaluated = np.zeros((count, self.dims))
        first = 1 + bound.seed % (MODULUS - 1)
        self.assignment = np.array([draw(first, op) % threads for op in range(count)], np.int64)
        self._proposed = np.zeros(count, np.int64)
        self._neighbours = adjacency(neighbours_of(graph, op) for op in range(count))
        self.statistics = lines(KEPT_ROUNDS * threads * ROW_BYTES // 64).reshape(-1, threads, ROW_BYTES // 8)
        self.records = lines(threads * RECORD_BYTES // 64).reshape(threads, RECORD_BYTES // 8)
        self._lists = lines(threads * 4 * (-(-max(count, 1) // 8))).reshape(threads, 4, -1)
        words = 2 + count * (1 + len(self.matrix.features) + self.dims + 1)
        fit = min(MOST_SNAPSHOTS, max(4, SNAPSHOT_LIMIT // (8 * words)))
        self.snapshots = np.zeros((fit if bound.snapshots else 0, words), np.int64)
        self.mistakes: list[PolicyError] = []
        self._shown: set[str] = set()
        self._execution: Execution | None = None
        self._told = ON_MISTAKE_TYPE(self._on_mistake)
        self.words = lines(BOUND_BYTES // 64)
        intrinsic = self.policy.intrinsic
        for offset, value in {
            THREADS: threads,
            PERIOD_NS: bound.period_ns,
            BATCH: bound.batch,
            DELAY_NS: bound.delay_ns if intrinsic else 0,
            EAGER: int(bound.eager),
            CHECK: int(bound.check),
            MATRIX: address(self.matrix.words),
            RECORDS: address(self.records),
            PRIORITIES: address(self.priorities),
            EVALUATED: address(self._evaluated),
            DIMS: self.dims,
            EVALUATE_G: self.code.addresses["g"],
            EVALUATE_F: self.code.addresses["f"],
            ELIGIBLE: self.code.addresses.get("eligible", 0),
            QUANTUM: self.code.addresses.get("quantum", 0),
            ASSIGNMENT: address(self.assignment),
            PROPOSED: address(self._proposed),
            BOUNDS: address(self._neighbours[0]),
            NEIGHBOURS: address(self._neighbours[1]),
            BACKOFF_NS: bound.backoff_ns,
            ON_MISTAKE: ctypes.cast(self._told, ctypes.c_void_p).value or 0,
            SNAPSHOTS: address(self.snapshots),
            SNAPSHOT_BYTES: 8 * words,
            SNAPSHOT_COUNT: len(self.snapshots),
            STATISTICS: address(self.statistics),
        }.items():
            self.words[offset // 8] = value
        for record, (order, levels, delayed, spare) in zip(self.records, self._lists, strict=True):
            record[LEVEL // 8] = -1
            record[BACKOFF // 8] = bound.backoff_ns
            for offset, part in {ORDER: order, LEVELS: levels, DELAYED: delayed, SPARE: spare}.items():
                record[offset // 8] = address(part)
        self._deal()
        self._phases = np.array(_phases(), np.int64)
        super().__init__(self.words, compiled(decisions), rounds=address(self._phases))

    def _deal(self) -> None:
        """Give every thread its operators, with equal priorities: before the first round."""
        for thread, (record, (order, levels, _, _)) in enumerate(zip(self.records, self._lists, strict=True)):
            mine = np.flatnonzero(self.assignment == thread)
            order[: len(mine)], levels[: len(mine)] = mine, 0
            record[COUNT // 8] = len(mine)

    def carry(self, former: Schedule, kept: Sequence[int]) -> None:
        """Go on from a former schedule: kept operators keep their features and, if they can, their thread."""
        self.matrix.carry(former.matrix, kept)
        same = former.policy is self.policy and former.dims == self.dims
        for op, old in enumerate(kept):
            if old < 0:
                continue
            if former.assignment[old] < self.threads:
                self.assignment[op] = former.assignment[old]
            if same:
                self.priorities[op] = former.priorities[old]
        self.mistakes, self._shown = former.mistakes, former._shown
        for word in (MISTAKES // 8, VIOLATIONS // 8):
            self.words[word] = former.words[word]
        self._deal()

    @property
    def rounds_taken(self) -> int:
        return int(self.words[ROUND // 8])

    def started(self, execution: Execution) -> None:
        self._execution = execution
        first = execution.now() + self.bound.period_ns
        self.records[:, ROUND_END // 8] = first

    # -- mistakes ---------------------------------------------------------------------------------

    def _on_mistake(self, role: int, code: int, now: int) -> int:
        try:
            self._note(self._mistake(role, code, now))
        except BaseException as error:  # also what a warning turned into: it must not be lost in a callback
            if self._execution is not None:
                self._execution.fail(error)
        return 0

    def _mistake(self, role: int, code: int, now: int) -> PolicyError:
        from haren.native.functions import mistake

        if role == ROLE_SLOW:
            return PolicyError(
                f"policy {self.policy.name!r}: scheduling tasks take {code / 1e6:.1f} ms, longer than the "
                f"period of {self.bound.period_ns / 1e6:g} ms: take a longer period or a faster function",
                policy=self.policy.name, function="slow",
            )  # fmt: skip
        names = {ROLE_F: "f", ROLE_G: "g", ROLE_ELIGIBLE: "eligible", ROLE_QUANTUM: "quantum"}
        name = names.get(role) or self.matrix.derived[role - ROLE_FEATURE].name
        return mistake(self.code, name, code, now)

    def _note(self, error: PolicyError) -> None:
        if len(self.mistakes) < 1000:
            self.mistakes.append(error)
        if self.bound.strict:
            if self._execution is not None:
                self._execution.fail(error)
        elif error.function not in self._shown:
            self._shown.add(error.function)
            cause = error.__cause__
            trace = "".join(traceback.format_exception(cause)) if cause is not None else ""
            warnings.warn(
                f"{error}\nQueries go on with the last good schedule; strict=True would stop them.\n{trace}",
                PolicyWarning,
                stacklevel=2,
            )

    @property
    def mistake_count(self) -> int:
        return int(self.words[MISTAKES // 8])

    def check(self) -> None:
        violations = int(self.words[VIOLATIONS // 8])
        if violations:
            raise AssertionError(f"{violations} runs of operators overlapped each other or T_S")


@cache
def _phase_code() -> list[Any]:
    from haren.native import rounds
    from haren.native.compiler import compile_native

    phases: list[Callable] = [rounds.refresh, rounds.update, rounds.assign, rounds.prioritise, rounds.sort]
    return [compile_native(phase, "int64(int64, int64, int64)") for phase in phases]


def _phases() -> list[int]:
    return [native.address for native in _phase_code()]
