"""The rows of `reproduce bench state-based`, on real threads, far too short to mean anything."""

from __future__ import annotations

import pytest

from reproduce import bench
from reproduce.bench import state_based

LATENCY = "mean marker latency at a tenth of the maximum rate, against a thread per operator (TM)"
TABLE = [
    ("one scheduling decision at 60 operators", "us", "lower", 2, 0.3),
    ("one scheduling decision at 600 operators", "us", "lower", 10, 1),
    (f"{LATENCY}: eager", "x", "lower", 1.5, 0.8),
    (f"{LATENCY}: epoch", "x", "lower", None, None),
    ("8 YSB queries saturated against 2", "x", "higher", 0.85, 1),
    (
        "latency-optimized at 90% load, 4 queries: mean latency against the best of the others",
        "x", "lower", None, 1,
    ),
]  # fmt: skip


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(state_based.PLANS, "quick", state_based.Plan(1, 0.15, 0.05))
    monkeypatch.setattr(state_based, "EVENTS", 40_000)
    monkeypatch.setattr(state_based, "DECISIONS", 2_000)
    rows = list(state_based.rows("quick"))
    assert [(row.what, row.unit, row.better, row.bar, row.aim) for row in rows] == TABLE
    assert all(row.value > 0 for row in rows)
    for name in ("FCFS", "ML", "MC", "RR", "HR"):
        assert f"{name} " in rows[-1].note


def test_its_name_has_a_dash() -> None:
    assert "state-based" in bench.names() and "state_based" not in bench.names()
