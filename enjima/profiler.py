"""Measuring a run: snapshots of native counters, samples over time, and the tables made of them."""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from enjima.deployed import Deployed, RunningQuery
from enjima.engine import Engine, errors_of
from enjima.errors import QueryError
from enjima.native import words as w
from enjima.operators.source import Source, SourceInstance
from haren import PolicyError, Trace
from haren.latency import EMPTY, Snapshot

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Measurement", "Profiler", "RunResult"]


@dataclass(frozen=True)
class Counts:
    """An operator's counters at one moment."""

    runs: int = 0
    busy_ns: int = 0
    events: int = 0
    events_in: int = 0
    events_out: int = 0
    pending: int = 0
    position: int = 0  # events a source has emitted


@dataclass(frozen=True)
class Measurement:
    """Every counter at one moment; what came later counts from nothing."""

    at_ns: int
    operators: dict[Deployed, Counts]
    latencies: dict[tuple[Deployed, str], Snapshot]
    process: dict[str, float]

    def counts(self, deployed: Deployed) -> Counts:
        return self.operators.get(deployed, Counts())

    def latency(self, deployed: Deployed, kind: str) -> Snapshot:
        return self.latencies.get((deployed, kind), EMPTY)


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

    def last_of(self, query: RunningQuery) -> "RunResult":
        """What was measured of a query that leaves now."""
        since = (query.began_ns - self.engine.started_ns) / 1e9
        samples = [row for row in self.samples if row["query"] == query.name and row["time_s"] >= since]
        return RunResult(self.engine, [query], self.begin, self.measure(), samples)

    def forget(self, query: RunningQuery) -> None:
        """A query has left."""
        for one in query.deployed:
            self.begin.operators.pop(one, None)
            for kind in ("marker", "result"):
                self.begin.latencies.pop((one, kind), None)

    def measure(self) -> Measurement:
        """All counters now."""
        with self.engine.lock:
            counts = self.engine.operator_counts()
            operators = {
                one: Counts(
                    runs=int(counted[0]),
                    busy_ns=int(counted[1]),
                    events=int(counted[2]),
                    events_in=one.word(w.EVENTS_IN),
                    events_out=one.word(w.EVENTS_OUT),
                    pending=one.pending,
                    position=one.instance.position if isinstance(one.instance, SourceInstance) else 0,
                )
                for one, counted in counts.items()
            }
        latencies = {
            (one, kind): histogram.snapshot()
            for one in operators
            for kind, histogram in (("marker", one.marker), ("result", one.result))
            if histogram is not None
        }
        return Measurement(time.monotonic_ns(), operators, latencies, process_usage())

    def _sample_for_ever(self) -> None:
        former, stopped = self.begin, False
        while not stopped:
            stopped = self._stop.wait(self.sample_every)
            current = self.measure()
            self._add_sample(former, current)
            former = current

    def _add_sample(self, former: Measurement, current: Measurement) -> None:
        seconds = (current.at_ns - former.at_ns) / 1e9
        for query in self.engine.queries:
            if query.deployed[0] not in current.operators:
                continue  # it came after the measurement
            pairs = [(former.counts(one), current.counts(one)) for one in query.deployed]
            row: dict[str, Any] = {
                "time_s": (current.at_ns - self.engine.started_ns) / 1e9,
                "query": query.name,
                "delivered_rate": sum(now.position - then.position for then, now in pairs) / seconds,
                "pending": sum(now.pending for _, now in pairs),
                "busy_share": sum(now.busy_ns - then.busy_ns for then, now in pairs) / (1e9 * seconds),
                "rss_bytes": current.process["rss_bytes"],
            }
            for kind in ("marker", "result"):
                parts = [current.latency(one, kind) - former.latency(one, kind) for one in query.deployed]
                count = sum(part.count for part in parts)
                total = sum(part.total for part in parts)
                row[f"{kind}_latency_ms"] = total / count / 1e6 if count else float("nan")
            self.samples.append(row)


class RunResult:
    """What a run measured: DataFrames, made when asked for.

    ``latency``, ``throughput``, ``operators``, ``memory``, ``workers``, ``samples``, ``rounds``; ``trace``;
    ``process`` is a dict, ``errors`` the queries that failed, ``policy_errors`` what a policy did wrong.
    Warm-up and cool-down are cut from latency, throughput, process and the operators' counts (not from
    ``late`` and ``state_growths``); the others tell of the whole run.
    """

    def __init__(
        self,
        engine: Engine,
        queries: Sequence[RunningQuery],
        first: Measurement,
        last: Measurement,
        samples: list[dict[str, Any]],
    ) -> None:
        self._samples = samples
        rows = [(query.name, one) for query in queries for one in query.deployed]
        self._operators = [
            _Row(query, one, first, last)
            for query in queries
            for one in query.deployed
            if one in last.operators  # else it came after the cut
        ]
        self._channels = [
            {"query": name, "channel": f"{up.operator.name} -> {one.operator.name}"} | channel.statistics()
            for name, one in rows
            for up, channel in zip(one.upstream, one.inputs, strict=True)
        ]
        self._workers = engine.worker_counts()
        self._recording = engine.recording
        self.policy_errors: list[PolicyError] = engine.policy_errors
        self.errors: list[QueryError] = errors_of(queries)
        self.seconds = (last.at_ns - first.at_ns) / 1e9
        self.process: dict[str, float] = {
            "cpu_s": last.process["cpu_s"] - first.process["cpu_s"],
            "minor_faults": last.process["minor_faults"] - first.process["minor_faults"],
            "major_faults": last.process["major_faults"] - first.process["major_faults"],
            "rss_bytes": last.process["rss_bytes"],
        }
        for error in self.errors:
            error.result = self

    @cached_property
    def latency(self) -> "pd.DataFrame":
        """Per query, sink and definition of latency: count, mean, p50, p95, p99, max in milliseconds."""
        import pandas as pd

        rows = [
            row.place("sink") | {"kind": kind} | snapshot.summary()
            for row in self._operators
            for kind, snapshot in row.latencies.items()
        ]
        return pd.DataFrame(rows)

    @cached_property
    def throughput(self) -> "pd.DataFrame":
        """Per source: events/s offered (NaN: as fast as possible) and delivered, events, seconds."""
        import pandas as pd

        rows = []
        for row in self._operators:
            if isinstance(row.operator, Source):
                rate = row.operator.rate
                events, seconds = row.count("position"), row.seconds
                rates: dict[str, Any] = {
                    "offered_rate": float("nan") if rate is None else float(rate),
                    "delivered_rate": events / seconds if seconds else float("nan"),
                }
                counted = {"events": events, "seconds": seconds}
                rows.append(row.place("source") | rates | counted)
        return pd.DataFrame(rows)

    @cached_property
    def operators(self) -> "pd.DataFrame":
        """Per operator: events in and out, cost per event, selectivity, pending, runs, busy time."""
        import pandas as pd

        rows = []
        for row in self._operators:
            busy, events, out = row.count("busy_ns"), row.count("events"), row.count("events_out")
            rows.append(
                row.place("operator")
                | {
                    "kind": row.operator.label,
                    "events_in": row.count("events_in"),
                    "events_out": out,
                    "cost_ns": busy / events if events else float("nan"),
                    "selectivity": out / events if events else float("nan"),
                    "pending": row.last.pending,
                    "runs": row.count("runs"),
                    "busy_s": busy / 1e9,
                    "late": row.late,
                    "state_growths": row.growths,
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

    @cached_property
    def trace(self) -> Trace:
        """The turns that threads remember: ``.frame``, ``.explain(...)``, ``.to_perfetto(...)``."""
        return self._recording.trace()

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """Per scheduling task T_S and thread, over the whole run: what each phase took and refreshed."""
        return self._recording.rounds()

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        queries = len({row.query for row in self._operators})
        return f"<RunResult: {self.seconds:.2f} s, queries: {queries}{failed}>"

    def _repr_html_(self) -> str:
        parts = (("throughput", self.throughput), ("latency", self.latency), ("operators", self.operators))
        return "".join(f"<h4>{name}</h4>{frame.to_html(index=False)}" for name, frame in parts)


class _Row:
    """What a run says of one operator; keeps nothing of the engine's memory."""

    def __init__(self, query: RunningQuery, one: Deployed, first: Measurement, last: Measurement) -> None:
        self.query, self.operator = query.name, one.operator
        self.seconds = (last.at_ns - max(first.at_ns, query.began_ns)) / 1e9
        self.first, self.last = first.counts(one), last.counts(one)
        self.late, self.growths = one.word(w.LATE), one.word(w.GROWTHS)
        kinds = ("marker", "result") if one.marker is not None else ()
        self.latencies = {kind: last.latency(one, kind) - first.latency(one, kind) for kind in kinds}

    def count(self, name: str) -> int:
        return getattr(self.last, name) - getattr(self.first, name)

    def place(self, role: str) -> dict[str, str]:
        return {"query": self.query, role: self.operator.name}


def process_usage() -> dict[str, float]:
    """What the process has used so far: CPU seconds, page faults, resident bytes."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "rss_bytes": resident,
    }
