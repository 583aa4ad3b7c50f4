from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reproduce import results
from reproduce.recorder import Metric, Recorder


def measure(point: Mapping[str, Any]) -> Iterator[Metric]:
    yield Metric("delivered_rate", point["fraction"] * 10, "events/s", query="q0")
    yield Metric("latency_mean", 1.0, "ms", "marker")


def test_sweep_writes_every_point_and_says_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder("ysb-rates", profile="smoke", out=tmp_path / "run-7", seconds=None, repetitions=2)
    recorder.use_dataset("ysb", "abc")
    recorder.sweep([{"fraction": 0.1}, {"fraction": 0.2}], recorder.parameters["repetitions"], measure)

    frame = results.widen(recorder.results())
    assert len(list((tmp_path / "run-7" / "points").glob("*.parquet"))) == 4
    assert set(frame["threads"]) == {2} and "repetitions" not in frame and "fractions" not in frame
    assert set(frame["run_id"]) == {"run-7"} and set(frame["dataset_checksum"]) == {"abc"}
    rates = frame[frame["metric"] == "delivered_rate"]
    assert rates[["repetition", "fraction", "value"]].values.tolist() == [
        [0, 0.1, 1], [0, 0.2, 2], [1, 0.1, 1], [1, 0.2, 2],
    ]  # fmt: skip

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("ysb-rates: point 1 of 4 (fraction 0.1, repetition 1), ")
    assert "left" not in lines[0] and "s left" in lines[3]


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path) -> None:
    def fail_later(point: Mapping[str, Any]) -> Iterator[Metric]:
        if point["fraction"] > 0.1:
            raise RuntimeError("broken")
        return measure(point)

    recorder = Recorder("ysb-rates", profile="smoke", out=tmp_path / "run")
    with pytest.raises(RuntimeError, match="broken"):
        recorder.sweep([{"fraction": 0.1}, {"fraction": 0.2}], 1, fail_later)
    assert set(results.widen(recorder.results())["fraction"]) == {0.1}


def test_two_runs_do_not_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAREN_LAB_RESULTS", str(tmp_path))
    first, second = Recorder("ysb-rates", profile="smoke"), Recorder("ysb-rates", profile="smoke")
    assert first.directory != second.directory
    assert first.directory.parent == tmp_path / "ysb-rates"


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown profile 'huge'"):
        Recorder("ysb-rates", profile="huge", out=tmp_path)
    with pytest.raises(ValueError, match="has no parameter 'colour'"):
        Recorder("ysb-rates", profile="smoke", out=tmp_path, colour="red")
