"""What one run of the engine says, as metrics for the results table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from reproduce.recorder import Metric

LATENCIES = {
    "latency_mean": "mean_ms", "latency_p50": "p50_ms", "latency_p95": "p95_ms", "latency_p99": "p99_ms",
    "latency_max": "max_ms",
}  # fmt: skip
"""Metric -> column of the engine's latency table."""


def of_run(result: Any) -> Iterator[Metric]:
    """Rates, latencies, CPU time and memory of an engine's result.

    A latency nothing was measured for (no window fired, say) is recorded as a count of 0 only, and a
    source without a rate of its own has no offered rate.
    """
    for row in result.throughput.to_dict("records"):
        if not math.isnan(row["offered_rate"]):
            yield Metric("offered_rate", float(row["offered_rate"]), "events/s", query=row["query"])
        yield Metric("delivered_rate", float(row["delivered_rate"]), "events/s", query=row["query"])
    for row in result.latency.to_dict("records"):
        kind, query = row["kind"], row["query"]
        yield Metric("latency_count", float(row["count"]), "samples", kind, query)
        if row["count"]:
            for metric, column in LATENCIES.items():
                yield Metric(metric, float(row[column]), "ms", kind, query)
    yield Metric("cpu", float(result.process["cpu_s"]), "s")
    yield Metric("memory", float(result.process["rss_bytes"]), "bytes")
