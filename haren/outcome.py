"""What a simulation did, in the tables of a real run, and how fair it was."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from haren.arrivals import Arrivals
from haren.errors import PolicyError
from haren.simulated import SOURCE, SimulatedEngine

if TYPE_CHECKING:
    import pandas as pd

    from haren.trace import Trace
    from haren.virtual import VirtualRun

__all__ = ["SimulationResult"]


class SimulationResult:
    """What a simulation did, in the tables of a real run; busy + idle + overhead is all threads' time."""

    def __init__(self, engine: SimulatedEngine, run: VirtualRun, seconds: float) -> None:
        self._engine, self._run, self.seconds = engine, run, seconds

    @cached_property
    def latency(self) -> pd.DataFrame:
        """Per sink: count, mean, p50, p95, p99, max in ms, of results (from the origin of each event)."""
        import pandas as pd

        rows = [
            self._place(op, "sink") | {"kind": "result"} | histogram.snapshot().summary()
            for op, histogram in self._engine.histograms.items()
        ]
        return pd.DataFrame(rows)

    @cached_property
    def throughput(self) -> pd.DataFrame:
        """Per source: events/s offered (NaN: as fast as possible) and delivered, events, seconds."""
        import pandas as pd

        rows = []
        for op, one in enumerate(self._engine.operators):
            if one.kind == SOURCE:
                events = self._engine.word(op, "EVENTS_OUT")
                offered = float("nan") if one.mean_rate is None else float(one.mean_rate)
                rates = {"offered_rate": offered, "delivered_rate": events / self.seconds}
                rows.append(self._place(op, "source") | rates | {"events": events, "seconds": self.seconds})
        return pd.DataFrame(rows)

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Per operator: events in and out, cost per event, selectivity, pending, runs, busy time."""
        import pandas as pd

        rows = []
        counted = self._run.operator_statistics()
        for op, one in enumerate(self._engine.operators):
            runs, busy, events, _ = counted[op].tolist()
            out = self._engine.word(op, "EVENTS_OUT")
            rows.append(
                self._place(op, "operator")
                | {
                    "kind": ("source", "operator", "sink")[one.kind],
                    "events_in": events if one.kind else 0,
                    "events_out": out,
                    "cost_ns": busy / events if events else float("nan"),
                    "selectivity": out / events if events else float("nan"),
                    "pending": self._pending(op),
                    "mean_pending": self._engine.mean_pending(op, int(self.seconds * 1e9)),
                    "runs": runs,
                    "busy_s": busy / 1e9,
                }
            )
        return pd.DataFrame(rows)

    @cached_property
    def workers(self) -> pd.DataFrame:
        """Per simulated thread: busy and idle seconds, sleeps, decisions."""
        import pandas as pd

        from haren.native import virtual as v

        frame = pd.DataFrame(self._run.worker_statistics(), columns=["busy_s", "sleeps", "decisions"])
        frame = frame.assign(busy_s=frame["busy_s"] / 1e9, idle_s=self._run.seats[:, v.IDLE_NS // 8] / 1e9)
        return frame.rename_axis("worker").reset_index()

    @cached_property
    def fairness(self) -> pd.DataFrame:
        """Per sink: slowdown (mean latency over what its path takes if nothing waits), share of the busy time
        that its query had, share of results later than the deadline (NaN without one).

        ``attrs`` has Jain's index of both, from 1/n (one has it all) to 1 (all have as much).
        """
        import pandas as pd

        busy = self.operators.groupby("query")["busy_s"].sum()
        total = max(float(busy.sum()), 1e-12)
        rows = []
        for op, histogram in self._engine.histograms.items():
            seen, place = histogram.snapshot(), self._place(op, "sink")
            alone = self._alone(op)
            missed = self._engine.word(op, "MISSED") / seen.count if seen.count else float("nan")
            rows.append(
                place
                | {
                    "slowdown": seen.mean / alone if alone > 0 else float("nan"),
                    "busy_share": float(busy[place["query"]]) / total,
                    "missed": missed if self._engine.operators[op].deadline_ns else float("nan"),
                }
            )
        frame = pd.DataFrame(rows, columns=["query", "sink", "slowdown", "busy_share", "missed"])
        shares = (busy / total).to_numpy()
        frame.attrs = {"jain_slowdown": jain(frame["slowdown"].to_numpy()), "jain_busy": jain(shares)}
        return frame

    def backlog(self) -> list[tuple[str, int, float]]:
        """Per source with a rate: its name, events that are due and not emitted, and all that were due."""
        found = []
        for op, one in enumerate(self._engine.operators):
            if one.kind == SOURCE and one.rate is not None:
                rate = one.rate
                due = rate.expected(self.seconds) if isinstance(rate, Arrivals) else rate * self.seconds
                due = min(one.count, due)
                found.append((one.name, max(0, int(due) - self._engine.word(op, "POSITION")), due))
        return found

    def _alone(self, sink: int) -> float:
        """What an event takes on the longest way to a sink if nothing waits, in ns."""
        longest: dict[int, float] = {}
        for op, one in enumerate(self._engine.operators):
            before = [longest[up] for up, down in self._engine.graph.edges if down == op]
            longest[op] = one.mean_cost + max(before, default=0.0)
        return longest[sink]

    @property
    def rounds(self) -> pd.DataFrame:
        """Per scheduling task T_S and thread: what was refreshed, and how long threads waited."""
        return self._run.rounds

    @cached_property
    def trace(self) -> Trace:
        """The runs that threads remember."""
        return self._run.trace

    @property
    def policy_errors(self) -> list[PolicyError]:
        """What went wrong in the policy, the first thousand."""
        return self._run.policy_errors

    def _place(self, op: int, role: str) -> dict[str, str]:
        return {"query": self._engine.graph.query_name(op), role: self._engine.graph.names[op]}

    def _pending(self, op: int) -> int:
        import ctypes

        from haren.spe import PENDING

        measure = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(self._engine.measure)
        return measure(self._engine.handle, op, PENDING, int(self.seconds * 1e9))

    def __repr__(self) -> str:
        return f"<SimulationResult: {self.seconds:g} s, {len(self._engine.operators)} operators>"


def jain(values: np.ndarray) -> float:
    """Jain's index of fairness: 1 if all are alike, 1/n if one has it all."""
    known = values[np.isfinite(values)]
    square = float((known**2).sum())
    return float(known.sum()) ** 2 / (len(known) * square) if square > 0 else float("nan")
