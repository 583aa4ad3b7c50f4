"""The rows of `reproduce bench virtual`, far too short to mean anything."""

from __future__ import annotations

import pytest

from reproduce.bench import virtual


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "QUERIES", 4)
    monkeypatch.setitem(virtual.ROUNDS, "quick", 1)
    rows = {row.what: row for row in virtual.rows("quick")}
    assert [(row.unit, row.bar, row.aim) for row in rows.values()] == [
        *[("M/s", 2, 10)] * 4,
        ("s", 60, 10),
        ("M/s", None, None),
        *[("", None, 0)] * 2,
    ]
    assert all(row.value > 0 for what, row in rows.items() if "growth" not in what)
