"""The rows of `reproduce bench ysb` on the real engine, far too short to mean anything."""

from __future__ import annotations

import pytest

from reproduce.bench import ysb

TABLE = [
    ("YSB, 64-byte events, 1 query, 2 threads: share of the fused loop on 2 threads", "higher", 0.4, 0.8),
    ("1 thread: share of the fused loop on 1 thread", "higher", 0.5, 0.9),
    ("2 queries on 2 threads: share of the fused loop on 2 threads", "higher", 0.5, 0.9),
    ("8 queries against 2 queries on 2 threads (own source arrays)", "higher", 0.85, 1),
    ("events/s of the best of these", "higher", None, 140),
    ("mean marker latency at half of the maximum rate, 2 threads", "lower", 2, 0.3),
    ("p99 of the same", "lower", 10, 1),
    ("`import enjima`, Spark not loaded", "lower", 1, 0.4),
    ("first YSB result in a new process, kernels cached on disk", "lower", 2.5, 1),
    ("memory during 1.5 s of overload against its start", "lower", 1.02, 1),
]


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ysb.Plan(1, 0.1, 0.05, 1, 1.0, 1, 1.5)
    monkeypatch.setitem(ysb.PLANS, "quick", plan)
    monkeypatch.setattr(ysb, "EVENTS", 40_000)
    rows = list(ysb.rows("quick"))
    assert [(row.what, row.better, row.bar, row.aim) for row in rows] == TABLE
    assert all(row.value > 0 for row in rows)


def test_a_process_that_fails_is_not_measured() -> None:
    with pytest.raises(RuntimeError, match="ended with code 3"):
        ysb.first_line("import sys; sys.exit(3)")
