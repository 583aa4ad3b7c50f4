"""The rows of `reproduce bench scheduler`, on real threads, far too short to mean anything."""

from __future__ import annotations

import pytest

from reproduce.bench import scheduler

POLICIES = ("fcfs", "hr", "chain")
LAYOUTS = ("10 operators of 2 chains", "the source of each chain")
UPDATED = "share of feature values updated per round"
TABLE = [
    *(
        (f"T_S share of CPU time, 240 operators, 4 threads, P = 100 ms, {policy}", "%", "lower", 1, 0.1)
        for policy in POLICIES
    ),
    ("T_S share of wall time, 240 operators, 2 threads on 2 cores, P = 100 ms, fcfs", "%", "lower", 2, 1),
    ("coordinate share of CPU time, 240 operators, 4 threads, P = 10 ms, fcfs", "%", "lower", 5, 1),
    *(
        (f"{UPDATED}, {policy}: {layout} ran", "x", "lower", 0.3, 0.15)
        for layout in LAYOUTS
        for policy in POLICIES
    ),
    ("YSB, 4 queries, 2 threads, f by query, FCFS, b = 384, against the plain pool", "x", "higher", 0.85, 1),
    ("the same, trace on against off", "x", "higher", 0.97, 1),
    ("the same, a g in Python against the compiled one", "x", "higher", None, None),
]


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scheduler.PLANS, "quick", scheduler.Plan(1, 0.2, 0.05))
    monkeypatch.setattr(scheduler, "EVENTS", 40_000)
    monkeypatch.setattr(scheduler, "QUERIES", 3)
    rows = list(scheduler.rows("quick"))
    assert [(row.what, row.unit, row.better, row.bar, row.aim) for row in rows] == TABLE
    assert all(row.value > 0 for row in rows)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layout", ["few chains", "all sources"])
def test_shares_of_values_updated_are_exact(policy: str, layout: str) -> None:
    """20 of 240 operators run, on the virtual clock: the numbers are those of any machine."""
    active, stages = {"few chains": (2, 9), "all sources": (20, 0)}[layout]
    row = scheduler.updated_share(policy, layout, active, stages)
    assert row.note == "20 of 240 operators ran"
    assert 20 / 240 <= row.value <= 0.3
    assert row.value == scheduler.updated_share(policy, layout, active, stages).value
