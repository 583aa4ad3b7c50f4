"""What dispatches with a policy have in common: its parameters, and in a run its features and mistakes.

`haren.dispatch.bound` and `haren.dispatch.shared` add how threads get work.
"""

from __future__ import annotations

import ctypes
import traceback
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from haren.dispatch.dedicated import neighbours_of
from haren.dispatch.dispatch import Dispatch, Installed
from haren.errors import PolicyError, PolicyWarning
from haren.graph import Graph, adjacency
from haren.matrix import Matrix
from haren.memory import address, lines
from haren.policy import Policy

if TYPE_CHECKING:
    from haren.execution import Execution

__all__ = ["PolicyDispatch", "Schedule"]

# the words that the memory of every dispatch with a policy begins with
MATRIX = 0
PRIORITIES = 8  # address: a row of DIMS floats for each operator, in force
EVALUATED = 16  # address: the same, as g has just computed them
DIMS = 24
EVALUATE_G = 32
ADAPT = 40
ELIGIBLE = 48
QUANTUM = 56  # addresses of the policy's optional functions; 0: it has none
BATCH = 64
PERIOD_NS = 72
THREADS = 80
CHECK = 88  # 1: assert that no operator runs twice at once, or during T_S
RECORDS = 96  # address: the threads' records
STATISTICS = 104  # address: what the last rounds took
ON_MISTAKE = 112  # address of a function that is told of mistakes of the policy
SNAPSHOTS = 120  # address: what the last rounds decided
SNAPSHOT_BYTES = 128
SNAPSHOT_COUNT = 136
ASSIGNMENT = 144  # address: the thread of each operator, in force; of shared dispatch its condition
BOUNDS = 152  # address: where each operator's neighbours begin, and one word more
NEIGHBOURS = 160
ROUND = 168  # how many there were
MISTAKES = 176
VIOLATIONS = 184  # of what CHECK asserts
MEETING = 192  # threads that take part in a round, the last ones of RECORDS
COMMON_BYTES = 200

# the words that the record of a thread begins with
ANSWER = 0  # where eligible and quantum put their answers
ROUNDS_TAKEN = 8
SLOW_ROUNDS = 16  # how many in a row took longer than the period
COMMON_RECORD_BYTES = 24
RECORD_BYTES = 128

# the words of a row of statistics: one thread in one round
NUMBER, STARTED, REFRESH_NS, COORDINATE_NS, UPDATE_NS, ASSIGN_NS, PRIORITY_NS, SORT_NS = range(0, 64, 8)
TOTAL_NS, CPU_NS, COORDINATE_CPU_NS, EXECUTED, FLAGGED, UPDATED, FULL, SEQUENTIAL = range(64, 128, 8)
ROW_BYTES = 128
KEPT_ROUNDS = 2048
SLOW = 3  # so many slow rounds in a row are the policy's fault

# who made a mistake
ROLE_F, ROLE_G, ROLE_ELIGIBLE, ROLE_QUANTUM, ROLE_SLOW, ROLE_ADAPT, ROLE_FEATURE = 0, 1, 2, 3, 4, 5, 8
ROLES = {ROLE_F: "f", ROLE_G: "g", ROLE_ELIGIBLE: "eligible", ROLE_QUANTUM: "quantum", ROLE_ADAPT: "adapt"}

SNAPSHOT_LIMIT = 16 << 20  # bytes for all snapshots
MOST_SNAPSHOTS = 512
ON_MISTAKE_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)


def check_seconds(name: str, value: float) -> float:
    """A parameter that is a time between rounds."""
    if not 1e-5 <= value <= 3600:
        raise ValueError(f"{name}={value!r} is out of range: seconds from 0.00001 to 3600")
    return value


class PolicyDispatch(Dispatch):
    """A dispatch whose decisions are those of a policy."""

    period_called = "period"

    def __init__(
        self,
        policy: Policy | str,
        period: float,
        batch: int,
        seed: int,
        strict: bool,
        check: bool,
        snapshots: bool,
    ) -> None:
        from haren.registry import make

        self.policy = make(policy)
        if self.policy.dispatch == "dedicated":
            raise PolicyError(
                f"policy {self.policy.name!r} leaves operators to the operating system; run it without "
                f"{type(self).__name__}",
                policy=self.policy.name,
            )
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(f"batch={batch!r}; a whole number of events, at least 1")
        self.period_ns = int(period * 1e9)
        self.batch, self.seed, self.strict, self.check, self.snapshots = batch, seed, strict, check, snapshots

    @abstractmethod
    def schedule(self, graph: Graph, threads: int) -> Schedule:
        """A schedule for a new run."""

    def install(
        self, graph: Graph, threads: int, former: Installed | None = None, kept: Sequence[int] = ()
    ) -> Schedule:
        made = self.schedule(graph, threads)
        if isinstance(former, Schedule):
            made.carry(former, kept)
        return made

    def __repr__(self) -> str:
        policy, period = self.policy.name, self.period_ns / 1e6
        return f"<{type(self).__name__}: {policy}, P = {period:g} ms, b = {self.batch}>"


class Schedule(Installed):
    """A policy in one run: what it knows, what it decided and why, and what deciding took."""

    def __init__(self, how: PolicyDispatch, graph: Graph, threads: int, *, size: int, own: bool) -> None:
        """``size`` bytes of memory; ``own``: rounds have a thread of their own, else all threads meet."""
        from haren.native.functions import Functions

        self.how, self.graph, self.threads = how, graph, threads
        self.policy = how.policy
        self.matrix = Matrix(self.policy, graph, threads, how.seed)
        self.code = Functions(self.matrix)
        self.matrix.install([self.code.addresses[feature.name] for feature in self.matrix.derived])
        self.dims, count = self.code.dims, len(graph)
        self.priorities = np.zeros((count, self.dims))
        self._evaluated = np.zeros((count, self.dims))
        self.assignment = np.zeros(count, np.int64)
        self._neighbours = adjacency(neighbours_of(graph, op) for op in range(count))
        meeting = 1 if own else threads
        rows = KEPT_ROUNDS * meeting * ROW_BYTES // 64
        self.statistics = lines(rows).reshape(-1, meeting, ROW_BYTES // 8)
        self.records = lines((threads + own) * RECORD_BYTES // 64).reshape(-1, RECORD_BYTES // 8)
        words = 2 + count * (1 + len(self.matrix.features) + self.dims + 1)
        fit = min(MOST_SNAPSHOTS, max(4, SNAPSHOT_LIMIT // (8 * words)))
        self.snapshots = np.zeros((fit if how.snapshots else 0, words), np.int64)
        self.mistakes: list[PolicyError] = []
        self._shown: set[str] = set()
        self._execution: Execution | None = None
        self._told = ON_MISTAKE_TYPE(self._on_mistake)
        super().__init__(lines(size // 64), (0, 0, 0))
        self._set(
            {
                MATRIX: address(self.matrix.words),
                PRIORITIES: address(self.priorities),
                EVALUATED: address(self._evaluated),
                DIMS: self.dims,
                EVALUATE_G: self.code.addresses["g"],
                ADAPT: self.code.addresses.get("adapt", 0),
                ELIGIBLE: self.code.addresses.get("eligible", 0),
                QUANTUM: self.code.addresses.get("quantum", 0),
                BATCH: how.batch,
                PERIOD_NS: how.period_ns,
                THREADS: threads,
                MEETING: meeting,
                CHECK: int(how.check),
                RECORDS: address(self.records),
                STATISTICS: address(self.statistics),
                ON_MISTAKE: ctypes.cast(self._told, ctypes.c_void_p).value or 0,
                SNAPSHOTS: address(self.snapshots),
                SNAPSHOT_BYTES: 8 * words,
                SNAPSHOT_COUNT: len(self.snapshots),
                ASSIGNMENT: address(self.assignment),
                BOUNDS: address(self._neighbours[0]),
                NEIGHBOURS: address(self._neighbours[1]),
            }
        )

    def _set(self, values: dict[int, int]) -> None:
        for offset, value in values.items():
            self.words[offset // 8] = value

    def carry(self, former: Schedule, kept: Sequence[int]) -> None:
        """Go on from a former schedule: kept operators keep their features and, under the same policy,
        their priorities."""
        self.matrix.carry(former.matrix, kept)
        if former.policy is self.policy and former.dims == self.dims:
            for op, old in enumerate(kept):
                if old >= 0:
                    self.priorities[op] = former.priorities[old]
        self.mistakes, self._shown = former.mistakes, former._shown
        for word in (MISTAKES // 8, VIOLATIONS // 8):
            self.words[word] = former.words[word]

    @property
    def rounds_taken(self) -> int:
        return int(self.words[ROUND // 8])

    def started(self, execution: Execution) -> None:
        self._execution = execution

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
                f"{self.how.period_called} of {self.how.period_ns / 1e6:g} ms: take a longer "
                f"{self.how.period_called} or a faster function",
                policy=self.policy.name, function="slow",
            )  # fmt: skip
        name = ROLES.get(role) or self.matrix.derived[role - ROLE_FEATURE].name
        return mistake(self.code, name, code, now)

    def _note(self, error: PolicyError) -> None:
        if len(self.mistakes) < 1000:
            self.mistakes.append(error)
        if self.how.strict:
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

    # -- what it was, for `haren.trace` -----------------------------------------------------------

    def statistics_taken(self) -> np.ndarray:
        """What the last rounds took, oldest first: rounds, threads, words."""
        taken = int(self.records[-self.statistics.shape[1] :, ROUNDS_TAKEN // 8].min())
        first = max(0, taken - KEPT_ROUNDS + 1)
        return self.statistics[np.arange(first, taken) % KEPT_ROUNDS].copy()
