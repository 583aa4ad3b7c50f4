"""Measuring a run: snapshots of native counters, samples over time, and the tables made of them."""

import threading
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from enjima.engine import Engine, process_usage
from enjima.errors import QueryError
from enjima.latency import Snapshot
from enjima.native import words as w
from enjima.operators.source import Source, SourceInstance

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Measurement", "Profiler", "RunResult"]


@dataclass(frozen=True)
class Measurement:
    """Every counter at one moment."""

    at_ns: int
    operators: np.ndarray  # runs, busy_ns, events, last_run
    events_in: np.ndarray
    events_out: np.ndarray
    pending: np.ndarray
    positions: dict[int, int]
    latencies: dict[tuple[int, str], Snapshot]
    process: dict[str, float]


class Profiler:
    """Takes measurements of an engine: at the start, at the cuts, at the end, and samples in between."""

    def __init__(self, engine: Engine, sample_every: float) -> None:
        self.engine = engine
        self.sample_every = sample_every
        self.samples: list[dict[str, Any]] = []
        self._stop = threading.Event()
        self.begin = self.measure()
        self._thread = threading.Thread(target=self._sample_for_ever, name="enjima-profiler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End sampling, with a last sample."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def measure(self) -> Measurement:
        deployed = self.engine.deployed
        latencies = {}
        for index, d in enumerate(deployed):
            if d.marker is not None and d.result is not None:
                latencies[index, "marker"] = d.marker.snapshot()
                latencies[index, "result"] = d.result.snapshot()
        return Measurement(
            time.monotonic_ns(),
            self.engine.execution.operator_statistics(),
            np.array([d.word(w.EVENTS_IN) for d in deployed]),
            np.array([d.word(w.EVENTS_OUT) for d in deployed]),
            np.array([d.input.pending if d.input else 0 for d in deployed]),
            {
                i: d.instance.position
                for i, d in enumerate(deployed)
                if isinstance(d.instance, SourceInstance)
            },
            latencies,
            process_usage(),
        )

    def _sample_for_ever(self) -> None:
        former, stopped = self.begin, False
        while not stopped:
            stopped = self._stop.wait(self.sample_every)
            current = self.measure()
            self._add_sample(former, current)
            former = current

    def _add_sample(self, former: Measurement, current: Measurement) -> None:
        seconds = (current.at_ns - former.at_ns) / 1e9
        for query, name in enumerate(self.engine.query_names):
            members = [i for i, d in enumerate(self.engine.deployed) if d.query == query]
            emitted = sum(
                current.positions[i] - former.positions[i] for i in members if i in current.positions
            )
            row: dict[str, Any] = {
                "time_s": (current.at_ns - self.engine.started_ns) / 1e9,
                "query": name,
                "delivered_rate": emitted / seconds,
                "pending": int(sum(current.pending[i] for i in members)),
                "busy_share": float(sum(current.operators[i, 1] - former.operators[i, 1] for i in members))
                / (1e9 * seconds),
                "rss_bytes": current.process["rss_bytes"],
            }
            for kind in ("marker", "result"):
                sinks = [key for key in current.latencies if key[0] in members and key[1] == kind]
                parts = [current.latencies[key] - former.latencies[key] for key in sinks]
                count = sum(part.count for part in parts)
                total = sum(part.total for part in parts)
                row[f"{kind}_latency_ms"] = total / count / 1e6 if count else float("nan")
            self.samples.append(row)


class RunResult:
    """What a run measured: DataFrames, made when asked for.

    ``latency``, ``throughput``, ``operators``, ``memory``, ``workers``, ``samples``; ``process`` is a dict,
    ``errors`` the queries that failed. Warm-up and cool-down are cut from latency, throughput, process and
    the operators' counts (not from ``late`` and ``state_growths``); the others tell of the whole run.
    """

    def __init__(
        self, engine: Engine, first: Measurement, last: Measurement, samples: list[dict[str, Any]]
    ) -> None:
        self._first, self._last = first, last
        self._samples = samples
        self._operators = [d.operator for d in engine.deployed]
        self._queries = [engine.query_names[d.query] for d in engine.deployed]
        self._late = [d.word(w.LATE) for d in engine.deployed]
        self._growths = [d.word(w.GROWTHS) for d in engine.deployed]
        self._channels = [
            {"query": self._queries[i], "channel": f"{d.operator.name} -> {engine.deployed[j].operator.name}"}
            | engine_channel.statistics()
            for (i, j), d, engine_channel in (
                ((i, j), engine.deployed[i], engine.deployed[j].input) for i, j in engine.graph.edges
            )
            if engine_channel is not None
        ]
        self._workers = engine.execution.worker_statistics()
        self.errors: list[QueryError] = list(engine.errors.values())
        self.seconds = (last.at_ns - first.at_ns) / 1e9
        self.process: dict[str, float] = {
            "cpu_s": last.process["cpu_s"] - first.process["cpu_s"],
            "minor_faults": last.process["minor_faults"] - first.process["minor_faults"],
            "major_faults": last.process["major_faults"] - first.process["major_faults"],
            "rss_bytes": last.process["rss_bytes"],
        }

    @cached_property
    def latency(self) -> "pd.DataFrame":
        """Per query, sink and definition of latency: count, mean, p50, p95, p99, max in milliseconds."""
        import pandas as pd

        rows = []
        for (index, kind), snapshot in self._last.latencies.items():
            part = snapshot - self._first.latencies[index, kind]
            rows.append(self._place(index, "sink") | {"kind": kind} | part.summary())
        return pd.DataFrame(rows)

    @cached_property
    def throughput(self) -> "pd.DataFrame":
        """Per source: events/s offered (NaN: as fast as possible) and delivered, events, seconds."""
        import pandas as pd

        rows = []
        for index, position in self._last.positions.items():
            operator = self._operators[index]
            assert isinstance(operator, Source)
            events = position - self._first.positions[index]
            rates = {
                "offered_rate": float("nan") if operator.rate is None else float(operator.rate),
                "delivered_rate": events / self.seconds if self.seconds else float("nan"),
            }
            rows.append(self._place(index, "source") | rates | {"events": events, "seconds": self.seconds})
        return pd.DataFrame(rows)

    @cached_property
    def operators(self) -> "pd.DataFrame":
        """Per operator: events in and out, cost per event, selectivity, pending, runs, busy time."""
        import pandas as pd

        rows = []
        for index, operator in enumerate(self._operators):
            runs, busy, events = (int(v) for v in (self._last.operators - self._first.operators)[index, :3])
            out = int(self._last.events_out[index] - self._first.events_out[index])
            rows.append(
                self._place(index, "operator")
                | {
                    "kind": operator.label,
                    "events_in": int(self._last.events_in[index] - self._first.events_in[index]),
                    "events_out": out,
                    "cost_ns": busy / events if events else float("nan"),
                    "selectivity": out / events if events else float("nan"),
                    "pending": int(self._last.pending[index]),
                    "runs": runs,
                    "busy_s": busy / 1e9,
                    "late": self._late[index],
                    "state_growths": self._growths[index],
                }
            )
        return pd.DataFrame(rows)

    @cached_property
    def memory(self) -> "pd.DataFrame":
        """Per channel: chunks allocated, in use and recycled, requests, stalls, at the end of the run."""
        import pandas as pd

        return pd.DataFrame(self._channels)

    @cached_property
    def workers(self) -> "pd.DataFrame":
        """Per worker thread over the whole run: busy seconds, sleeps, scheduling decisions."""
        import pandas as pd

        frame = pd.DataFrame(self._workers, columns=["busy_s", "sleeps", "decisions"])
        return frame.assign(busy_s=frame["busy_s"] / 1e9).rename_axis("worker").reset_index()

    @cached_property
    def samples(self) -> "pd.DataFrame":
        """Per query over time: delivered rate, pending events, busy share, latencies, memory."""
        import pandas as pd

        return pd.DataFrame(self._samples)

    def _place(self, index: int, role: str) -> dict[str, str]:
        return {"query": self._queries[index], role: self._operators[index].name}

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"<RunResult: {self.seconds:.2f} s, queries: {len(set(self._queries))}{failed}>"

    def _repr_html_(self) -> str:
        parts = (("throughput", self.throughput), ("latency", self.latency), ("operators", self.operators))
        return "".join(f"<h4>{name}</h4>{frame.to_html(index=False)}" for name, frame in parts)
