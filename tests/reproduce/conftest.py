"""A small hand-made result set, and an engine that answers without running."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from reproduce import results
from reproduce.fingerprint import fingerprint, identifier

MACHINE = fingerprint()
START = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def make_row() -> Callable[..., dict[str, Any]]:
    """A valid row, with the values a test cares about."""

    def make(point: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "experiment": "ysb-rates",
            "run_id": "run-1",
            "point": results.point_json(point or {"stage": "rate", "fraction": 0.5}),
            "repetition": 0,
            "metric": "delivered_rate",
            "value": 1e6,
            "unit": "events/s",
            "latency_kind": None,
            "query": "q0",
            "mode": "real",
            "profile": "smoke",
            "dataset": "ysb",
            "dataset_checksum": "abc123",
            "machine_id": identifier(MACHINE),
            "machine": json.dumps(MACHINE),
            "git_revision": None,
            "started_at": START,
            "duration_s": 1.5,
            "disturbed": False,
        } | values

    return make


@pytest.fixture
def sample(tmp_path: Path, make_row: Callable[..., dict[str, Any]]) -> Path:
    """A results directory with one run of ysb-rates: exactness, maximum, two fractions, two repetitions."""
    directory = tmp_path / "results"
    points = directory / "ysb-rates" / "run-1" / "points"
    common: dict[str, Any] = {"query": None, "unit": "counts"}
    exactness = {"stage": "exactness"}
    results.write(points, [
        make_row(exactness, metric="oracle_counts", value=1000, **common),
        make_row(exactness, metric="oracle_mismatches", value=0, **common),
    ])  # fmt: skip
    for repetition in (0, 1):
        results.write(points, [make_row({"stage": "maximum"}, repetition=repetition, value=100e6)])
        for fraction in (0.25, 0.5):
            point = {"stage": "rate", "fraction": fraction, "threads": 2}
            values = {"repetition": repetition, "started_at": START + timedelta(seconds=repetition)}
            rows = [
                make_row(point, metric="offered_rate", value=fraction * 100e6, **values),
                make_row(point, metric="delivered_rate", value=fraction * 100e6, **values),
            ]
            for kind in ("marker", "result"):
                for metric, value in (("latency_mean", 1.0 + repetition), ("latency_p99", 5.0)):
                    rows.append(
                        make_row(point, metric=metric, value=value, unit="ms", latency_kind=kind, **values)
                    )
            results.write(points, rows)
    results.write(points, [make_row({"threads": 2}, metric="run_duration", value=9.0, unit="s", query=None)])
    return directory


class FakeEnvironment:
    """Delivers what is offered up to 80 M events/s, and answers queries with pandas."""

    def __init__(self, **settings: Any) -> None:
        self.rate: float | None = None

    def run(self, **settings: Any) -> SimpleNamespace:
        offered = float("nan") if self.rate is None else self.rate
        delivered = 80e6 if self.rate is None else min(self.rate, 80e6)
        latency = {"query": "q0", "sink": "sink", "mean_ms": 1.0, "p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0,
                   "max_ms": 4.0}  # fmt: skip
        return SimpleNamespace(
            throughput=pd.DataFrame(
                [{"query": "q0", "source": "ads", "offered_rate": offered, "delivered_rate": delivered}]
            ),
            latency=pd.DataFrame([
                latency | {"kind": "marker", "count": 100},
                latency | {"kind": "result", "count": 0, "mean_ms": float("nan")},
            ]),
            process={"cpu_s": 1.0, "rss_bytes": 1000},
        )  # fmt: skip


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fakes instead of the engine and of Spark."""
    from workloads import ysb

    def query(env: FakeEnvironment, data: Any, rate: float | None = None, **settings: Any) -> SimpleNamespace:
        env.rate = rate
        return SimpleNamespace(frame=lambda: ysb.expected(data, settings["window_seconds"]))

    fake, oracle = ModuleType("enjima"), ModuleType("workloads.spark.oracle")
    fake.Environment = FakeEnvironment  # type: ignore[attr-defined]
    oracle.ysb_counts = ysb.expected  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "enjima", fake)
    monkeypatch.setitem(sys.modules, "workloads.spark.oracle", oracle)
    monkeypatch.setattr("workloads.spark.oracle", oracle, raising=False)
    monkeypatch.setattr(ysb, "query", query)
    monkeypatch.setattr(ysb, "load", ysb.synthetic)
