"""What a run did and why: the trace of every turn, the statistics of every round, and explanations."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haren.graph import Graph

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ROUND_COLUMNS", "TRACE_COLUMNS", "Recording", "Trace"]

TRACE_COLUMNS = (
    "start_ns", "end_ns", "thread", "operator", "query", "events_in", "events_out", "reason",
)  # fmt: skip
REASONS = (
    "its turn", "best that could run", "equal to the one before", "had not run for d",
    "best that was eligible", "nothing was eligible, best that could run",
)  # fmt: skip

ROUND_COLUMNS = {
    "round": "its number",
    "start_ns": "when the thread came to T_S",
    "refresh_ns": "refreshing independent features of what it ran, flagging what depends on them",
    "coordinate_ns": "algorithm 3: waiting at the barriers, or doing the sequential part",
    "update_ns": "of that, refreshing dependent features (by the thread that is last in)",
    "assign_ns": "of that, f (by the same thread)",
    "priority_ns": "computing priorities with g",
    "sort_ns": "ranking",
    "total_ns": "all of T_S",
    "cpu_ns": "CPU time of all of T_S",
    "coordinate_cpu_ns": "CPU time of algorithm 3",
    "executed": "operators that ran since the round before",
    "flagged": "operators whose dependent features were refreshed",
    "updated": "feature values refreshed",
    "full": "feature values that a full update would refresh (of the thread that is last in)",
    "sequential": "1: it was last in and did the sequential part",
}
"""The columns of `Execution.rounds`, which has a row for each thread and round, and a column ``thread``."""


@dataclass(frozen=True)
class Decisions:
    """What one round decided."""

    number: int
    time: int
    assignment: np.ndarray
    features: dict[str, np.ndarray]
    priorities: np.ndarray
    ranks: np.ndarray
    shared: bool  # one ranking for all threads; the assignment is then each operator's condition


@dataclass(frozen=True)
class Segment:
    """What is remembered of a run between two changes of its graph, threads or policy."""

    graph: Graph
    rows: list[np.ndarray]  # per thread, oldest first
    rounds: np.ndarray  # rounds, threads, words
    decisions: list[Decisions]
    lost: int  # rows that were overwritten


class Recording:
    """Collects segments, and makes tables of them."""

    def __init__(self) -> None:
        self._past: list[Segment] = []

    def add(self, execution: Any) -> None:
        """Keep what an execution remembers, because it is going to change."""
        self._past.append(_segment(execution))

    def with_present(self, execution: Any) -> Recording:
        """This, and what a running execution remembers now."""
        made = Recording()
        made._past = [*self._past, *([_segment(execution)] if execution._threads else [])]
        return made

    def trace(self) -> Trace:
        return Trace(self._past)

    def rounds(self) -> pd.DataFrame:
        import pandas as pd

        frames = [_rounds_frame(segment.rounds) for segment in self._past]
        return pd.concat(frames, ignore_index=True) if frames else _rounds_frame(np.zeros((0, 0, 16)))


def _segment(execution: Any) -> Segment:
    from haren.dispatch.schedule import ROW_BYTES, Schedule
    from haren.native import words as w

    rows, lost = [], 0
    for record, ring in zip(execution._workers, execution._rings, strict=True):
        written, size = int(record[w.TRACED // 8]), len(ring)
        first = max(0, written - size)
        lost += first
        rows.append(ring[np.arange(first, written) % size] if size else ring[:0].copy())
    schedule, graph = execution.installed, execution.graph
    rounds = np.zeros((0, 0, ROW_BYTES // 8), np.int64)
    decisions: list[Decisions] = []
    if isinstance(schedule, Schedule):
        rounds = schedule.statistics_taken()
        decisions = _decisions(schedule)
    return Segment(graph, rows, rounds, decisions, lost)


def _decisions(schedule: Any) -> list[Decisions]:
    from haren.dispatch.shared import SharedSchedule

    count, names = len(schedule.graph), [feature.name for feature in schedule.matrix.features]
    shared, found = isinstance(schedule, SharedSchedule), []
    for snapshot in schedule.snapshots[np.argsort(schedule.snapshots[:, 0])]:
        if snapshot[0] == 0:
            continue
        parts = snapshot[2:].copy()
        features = {}
        for row, name in enumerate(names):
            values = parts[(1 + row) * count : (2 + row) * count]
            features[name] = values.view(np.dtype(schedule.policy.resolved[name].dtype))
        start = (1 + len(names)) * count
        priorities = parts[start : start + count * schedule.dims].view(np.float64)
        priorities, ranks = priorities.reshape(count, schedule.dims), parts[start + count * schedule.dims :]
        if shared:
            ranks = np.empty(count, np.int64)
            ranks[np.lexsort(-priorities.T[::-1])] = np.arange(count)
        number, time = snapshot[:2].tolist()
        found.append(Decisions(number, time, parts[:count], features, priorities, ranks, shared))
    return found


def _rounds_frame(rounds: np.ndarray) -> pd.DataFrame:
    import pandas as pd

    count, threads = rounds.shape[:2]
    frame = pd.DataFrame(rounds.reshape(-1, 16)[:, :16], columns=list(ROUND_COLUMNS))
    frame.insert(1, "thread", np.tile(np.arange(threads), count))
    return frame


class Trace:
    """The runs that threads remember: `frame` has them all, `explain` says why one of them was chosen.

    A ring buffer for each thread keeps the latest; ``lost`` counts those it had no room for.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self.lost = sum(segment.lost for segment in segments)
        self._frame: pd.DataFrame | None = None

    def __len__(self) -> int:
        return sum(len(rows) for segment in self._segments for rows in segment.rows)

    def __repr__(self) -> str:
        lost = f", {self.lost} earlier ones lost" if self.lost else ""
        return f"<Trace: {len(self)} runs{lost}>"

    def _repr_html_(self) -> str:
        return f"<p>{len(self)} runs, {self.lost} earlier ones lost</p>{self.frame.tail(10).to_html()}"

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each run, in the order of their starts; see `TRACE_COLUMNS`."""
        import pandas as pd

        if self._frame is None:
            parts = [_trace_frame(segment) for segment in self._segments]
            parts = [part for part in parts if len(part)] or [pd.DataFrame(columns=list(TRACE_COLUMNS))]
            frame = pd.concat(parts, ignore_index=True)
            self._frame = frame.sort_values(["start_ns", "thread"], kind="stable", ignore_index=True)
        return self._frame

    # -- why --------------------------------------------------------------------------------------

    def explain(self, operator: str | None = None, at: int | None = None) -> pd.DataFrame:
        """Why an operator ran: all candidates of the decision, with what the policy saw of them.

        ``at`` is a clock time (``start_ns`` of a row of `frame`): the last run of ``operator`` begun not
        later is explained; without ``operator`` any run, without ``at`` the last. A row for each operator:
        thread, priority, rank in its thread, verdict, and the features as they were at the last T_S. Of
        shared dispatch, where operators belong to no thread and may have been ranked again since, it says how
        all stood at the last epoch.
        """
        segment, thread, row = self._find(operator, at)
        start, chosen = int(row[0]), int(row[2]) & 0xFFFFFFFF
        reason, place = (int(row[2]) >> 32) & 255, int(row[2]) >> 40
        before = [one for one in segment.decisions if one.time <= start]
        lost = bool(segment.decisions) and segment.decisions[0].number > 1
        if not before and (lost or (segment.rounds[..., 1] <= start).any()):
            raise ValueError("what the round behind this decision decided is not remembered any more")
        return self._candidates(segment, thread, chosen, reason, place, before[-1] if before else None, start)

    def _find(self, operator: str | None, at: int | None) -> tuple[Segment, int, np.ndarray]:
        best: tuple[int, Segment, int, np.ndarray] | None = None
        for segment in self._segments:
            numbers = range(len(segment.graph))
            wanted = [op for op in numbers if operator in (None, segment.graph.names[op])]
            for thread, rows in enumerate(segment.rows):
                found = rows[np.isin(rows[:, 2] & 0xFFFFFFFF, wanted)]
                if at is not None:
                    found = found[found[:, 0] <= at]
                if len(found) and (best is None or found[-1, 0] >= best[0]):
                    best = int(found[-1, 0]), segment, thread, found[-1]
        if best is None:
            names = sorted({name for segment in self._segments for name in segment.graph.names})
            if operator is not None and operator not in names:
                raise ValueError(f"there is no operator {operator!r}; the operators are: {', '.join(names)}")
            raise ValueError(
                f"no run of {operator or 'an operator'} {'' if at is None else f'at or before {at} '}"
                f"is remembered ({self.lost} earlier runs were overwritten)"
            )
        return best[1:]

    def _candidates(
        self,
        segment: Segment,
        thread: int,
        chosen: int,
        reason: int,
        place: int,
        decided: Decisions | None,
        start: int,
    ) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for op, name in enumerate(segment.graph.names):
            row: dict[str, Any] = {"operator": name, "query": segment.graph.query_name(op)}
            if decided is None:
                row |= {"thread": thread if op == chosen else -1, "rank": -1, "priority": None}
                why = "before the first round all are equal" if reason else "its turn, without priorities"
                row["verdict"] = f"chosen: {why}" if op == chosen else "unknown"
            else:
                bound = thread if decided.shared else int(decided.assignment[op])
                row |= {"thread": bound, "rank": int(decided.ranks[op])}
                row["priority"] = tuple(decided.priorities[op].tolist())
                row["verdict"] = (
                    f"chosen: {REASONS[reason]}" if op == chosen
                    else _condition(decided, op) if decided.shared
                    else "bound to another thread" if bound != thread
                    else "passed over: an overdue operator goes first" if reason == 3
                    else _verdict(decided, op, chosen, place)
                )  # fmt: skip
                row |= {name: values[op].item() for name, values in decided.features.items()}
            rows.append(row)
        frame = pd.DataFrame(rows).sort_values(["thread", "rank"], key=_own_first(thread), kind="stable")
        frame.attrs |= {"at_ns": start, "thread": thread, "chosen": segment.graph.names[chosen]}
        return frame.reset_index(drop=True)

    # -- for other tools --------------------------------------------------------------------------

    def to_perfetto(self, path: str | os.PathLike) -> Path:
        """Write the trace for ui.perfetto.dev or chrome://tracing; whole or not at all."""
        target = Path(path)
        content = json.dumps({"displayTimeUnit": "ns", "traceEvents": list(self._events())})
        with tempfile.NamedTemporaryFile("w", dir=target.parent, suffix=".tmp", delete=False) as stream:
            try:
                stream.write(content)
                stream.flush()
                os.replace(stream.name, target)
            except BaseException:
                os.unlink(stream.name)
                raise
        return target

    def _events(self) -> Iterator[dict[str, Any]]:
        threads = max((len(segment.rows) for segment in self._segments), default=0)
        for thread in range(threads):
            name = {"name": f"thread {thread}"}
            yield {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": name}
        for row in self.frame.to_dict("records"):
            yield {
                "ph": "X", "pid": 1, "tid": row["thread"], "name": row["operator"], "cat": row["query"],
                "ts": row["start_ns"] / 1e3, "dur": (row["end_ns"] - row["start_ns"]) / 1e3,
                "args": {key: row[key] for key in ("query", "events_in", "events_out", "reason")},
            }  # fmt: skip
        for segment in self._segments:
            for round_ in _rounds_frame(segment.rounds).to_dict("records"):
                phases = {key: value for key, value in round_.items() if str(key).endswith("_ns")}
                yield {
                    "ph": "X", "pid": 1, "tid": round_["thread"], "name": "T_S", "cat": "scheduling",
                    "ts": round_["start_ns"] / 1e3, "dur": round_["total_ns"] / 1e3, "args": phases,
                }  # fmt: skip


def _verdict(decided: Decisions, op: int, chosen: int, place: int) -> str:
    if decided.ranks[op] > place:
        return "not asked: ranked behind the one chosen"
    if (decided.priorities[op] == decided.priorities[chosen]).all():
        return "could not run, or had its turn in this pass"
    return "asked before: could not run, or was not eligible"


def _condition(decided: Decisions, op: int) -> str:
    from haren.dispatch.shared import CONDITIONS

    return f"at the last epoch: {CONDITIONS[decided.assignment[op]]}"


def _own_first(thread: int) -> Any:
    def key(column: Any) -> Any:
        return column if column.name == "rank" else (column != thread) * (1 + column)

    return key


def _trace_frame(segment: Segment) -> pd.DataFrame:
    import pandas as pd

    names, queries = np.array(segment.graph.names, object), segment.graph.query_name
    labels = np.array([queries(op) for op in range(len(names))], object)
    parts = []
    for thread, rows in enumerate(segment.rows):
        op, reason = rows[:, 2] & 0xFFFFFFFF, (rows[:, 2] >> 32) & 255
        columns = (
            rows[:, 0], rows[:, 1], thread, names[op], labels[op], rows[:, 3] & 0xFFFFFFFF, rows[:, 3] >> 32,
            np.array(REASONS, object)[reason],
        )  # fmt: skip
        parts.append(pd.DataFrame(dict(zip(TRACE_COLUMNS, columns, strict=True))))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(TRACE_COLUMNS))
