"""The rows of `reproduce bench operators` on the real engine, far too short to mean anything."""

from __future__ import annotations

import pytest

from reproduce.bench import operators

ALONE = {
    "source": None,
    "filter": 0.5,
    "map": 0.5,
    "flat_map": 0.5,
    "join_static": 0.5,
    "tumbling window": 0.4,
    "sliding window": 0.4,
    "union": None,
    "join": 0.3,
    "co_group": None,
}
SHARES = ["TQ", "SQ", "TM", "Enjima", "Enjima, lending"]
RATIOS = ["Enjima", "TM", "SQ"]


@pytest.mark.filterwarnings("error::enjima.PythonFallbackWarning")
def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operators.PLANS, "quick", operators.Plan(1, 0.1, 0.05))
    monkeypatch.setattr(operators, "EVENTS", 40_000)
    rows = list(operators.rows("quick"))
    alone, ways = rows[: len(ALONE)], rows[len(ALONE) :]
    assert [row.bar for row in alone] == list(ALONE.values())
    assert all(row.what.startswith(name) for row, name in zip(alone, ALONE, strict=True))
    assert [row.what for row in ways] == [
        text
        for query in ("YSB", "a diamond with a join")
        for text in (
            *(f"{way} on {query}: share of the fused loop on 2 threads" for way in SHARES),
            *(f"{way} / TQ on {query}" for way in RATIOS),
        )
    ]
    assert all(row.value > 0 for row in rows)
    assert [row.what for row in rows if "the paper says 6.3x" in row.note] == ["Enjima / TQ on YSB"]


@pytest.mark.parametrize(
    ("value", "spread", "disturbed", "found"),
    [
        (6.0, 0.5, False, "reproduced"),
        (2.0, 0.5, False, "partly reproduced"),
        (1.2, 0.3, False, "not reproduced"),
        (0.8, 0.0, False, "not reproduced"),
        (7.0, 0.1, True, "undecided"),
    ],
)
def test_verdicts(value: float, spread: float, disturbed: bool, found: str) -> None:
    text = operators.verdict(value, spread, 6.3, disturbed)
    assert text == f"the paper says 6.3x: {found}, against our own model of queues"
