from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reproduce import results
from reproduce.results import ResultsError

MakeRow = Callable[..., dict[str, Any]]


def test_round_trip(tmp_path: Path, make_row: MakeRow) -> None:
    row = make_row(value=np.float64(2.5))
    path = results.write(tmp_path, [row])
    frame = results.read(tmp_path)
    assert list(frame.columns) == [column.name for column in results.COLUMNS]
    back = frame.iloc[0].to_dict()
    for name, value in row.items():
        assert pd.isna(back[name]) if value is None else back[name] == value, name
    assert path.name.startswith("run-1-") and path.name.endswith("-0.parquet")


def test_appending_adds_files_and_writing_again_replaces(tmp_path: Path, make_row: MakeRow) -> None:
    results.write(tmp_path / "a", [make_row()])
    results.write(tmp_path / "b", [make_row(repetition=1), make_row(repetition=1, metric="other")])
    results.write(tmp_path / "b", [make_row({"fraction": 0.7}, repetition=1)])
    assert len(results.read(tmp_path)) == 4
    results.write(tmp_path / "a", [make_row(value=7.0)])
    assert len(results.read(tmp_path)) == 4
    assert 7.0 in results.read(tmp_path)["value"].tolist()


def test_equal_points_are_equal_text() -> None:
    assert results.point_json({"a": 1, "b": [0.5]}) == results.point_json({"b": [0.5], "a": 1})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("schema_version", 2),
        ("experiment", ""),
        ("point", "not json"),
        ("point", "[1]"),
        ("repetition", -1),
        ("repetition", 1.5),
        ("metric", None),
        ("value", float("nan")),
        ("value", None),
        ("value", True),
        ("value", "7"),
        ("unit", 3),
        ("latency_kind", "wall"),
        ("query", ""),
        ("mode", "imaginary"),
        ("profile", "huge"),
        ("machine", None),
        ("started_at", datetime(2025, 1, 1)),
        ("duration_s", -0.1),
        ("disturbed", 1),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    column: str, value: object, tmp_path: Path, make_row: MakeRow
) -> None:
    with pytest.raises(ResultsError) as caught:
        results.write(tmp_path, [make_row(), make_row() | {column: value}])
    assert repr(column) in str(caught.value) and repr(value) in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_unknown_and_missing_columns_are_refused(tmp_path: Path, make_row: MakeRow) -> None:
    with pytest.raises(ResultsError, match=r"unknown column 'colour' \(value 'red'\)"):
        results.write(tmp_path, [make_row(colour="red")])
    row = make_row()
    del row["unit"]
    with pytest.raises(ResultsError, match="column 'unit' is missing"):
        results.write(tmp_path, [row])


def test_a_latency_says_which_it_is(tmp_path: Path, make_row: MakeRow) -> None:
    with pytest.raises(ResultsError, match="which latency 'latency_mean' is: marker or result"):
        results.write(tmp_path, [make_row(metric="latency_mean", unit="ms")])


def test_a_file_holds_one_measurement(tmp_path: Path, make_row: MakeRow) -> None:
    with pytest.raises(ResultsError, match="not of 2"):
        results.write(tmp_path, [make_row(), make_row(repetition=1)])
    with pytest.raises(ResultsError, match="not of 0"):
        results.write(tmp_path, [])


def test_a_failed_write_leaves_nothing_to_read(
    tmp_path: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        results.write(tmp_path, [make_row()])
    assert results.read(tmp_path).empty


def test_a_newer_version_is_refused(tmp_path: Path, make_row: MakeRow) -> None:
    future = {**make_row(), "schema_version": 2, "more": 1}
    pq.write_table(pa.Table.from_pylist([future]), tmp_path / "future.parquet")
    with pytest.raises(ResultsError, match=r"future\.parquet was written with schema version 2.* up to 1"):
        results.read(tmp_path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ResultsError, match="no column 'schema_version'"):
        results.read(tmp_path)
    pq.write_table(pa.table({"schema_version": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ResultsError, match="does not have the columns"):
        results.read(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    assert results.read(tmp_path).empty
    assert list(results.read(tmp_path).columns) == results.SCHEMA.names
    assert results.latest_run(results.read(tmp_path)).empty
    with pytest.raises(FileNotFoundError, match="no results directory"):
        results.read(tmp_path / "nowhere")


def test_widen_and_latest_run(tmp_path: Path, make_row: MakeRow) -> None:
    row = make_row({"fraction": 0.25}, metric="run_duration")
    results.write(tmp_path, [row])
    later = {"run_id": "run-2", "started_at": row["started_at"] + timedelta(hours=1)}
    results.write(tmp_path, [make_row(**later)])
    frame = results.read(tmp_path)
    assert results.widen(frame)["fraction"].tolist() == [0.25, 0.5]
    assert set(results.latest_run(frame)["run_id"]) == {"run-1"}
    results.write(tmp_path, [make_row(**later), make_row(**later, metric="run_duration")])
    assert set(results.latest_run(results.read(tmp_path))["run_id"]) == {"run-2"}
    results.write(tmp_path, [make_row({"value": 1})])
    with pytest.raises(ResultsError, match="named like columns of the schema: value"):
        results.widen(results.read(tmp_path))
