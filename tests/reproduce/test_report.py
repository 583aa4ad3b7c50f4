from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reproduce import report, results


def test_report_says_it_all(sample: Path) -> None:
    written = report.write(sample)
    markdown, html = written["markdown"].read_text(), written["html"].read_text()
    for text in (markdown, html):
        assert "ysb-rates: YSB on one engine" in text
        assert "ysb, checksum abc123" in text
        assert "100.0 M events/s at most; at 50% of that the mean marker latency is 1.50 ms" in text
        assert "0 of 8" in text
        assert "not in git" in text
    assert "| The engine's counts equal Spark's to the last one | yes |" in markdown
    figure = written["figure ysb-rates"]
    assert f"]({figure.relative_to(sample).as_posix()})" in markdown
    assert figure.with_suffix(".svg").exists()
    assert 'src="data:image/png;base64,' in html
    assert 'src="http' not in html and "href=" not in html


def test_the_latest_run_is_shown_and_a_failing_claim_stays(sample: Path) -> None:
    frame = results.read(sample)
    later = frame.assign(run_id="run-2", started_at=frame["started_at"] + timedelta(days=1), disturbed=None)
    later.loc[later["metric"] == "oracle_mismatches", "value"] = 3.0
    for _, rows in later.groupby(["point", "repetition"]):
        records = rows.astype(object).where(rows.notna(), None).to_dict("records")
        results.write(sample / "ysb-rates" / "run-2" / "points", records)
    markdown = report.write(sample)["markdown"].read_text()
    assert "run-2" in markdown and "run-1" not in markdown
    assert "| The engine's counts equal Spark's to the last one | NO |" in markdown
    assert "0 of 8, 8 unknown" in markdown


def test_an_unfinished_run_is_not_shown(sample: Path, make_row: Callable[..., dict[str, Any]]) -> None:
    later = make_row()["started_at"] + timedelta(days=1)
    results.write(sample, [make_row(run_id="run-2", started_at=later)])
    assert "run-2" not in report.write(sample)["markdown"].read_text()


def test_no_run_is_finished(tmp_path: Path, make_row: Callable[..., dict[str, Any]]) -> None:
    results.write(tmp_path, [make_row()])
    assert "No run has been finished yet." in report.write(tmp_path)["markdown"].read_text()


def test_a_disturbed_run_is_shown_with_caution(sample: Path, make_row: Callable[..., dict[str, Any]]) -> None:
    assert "Caution" not in report.write(sample)["markdown"].read_text()
    point = {"stage": "maximum"}
    results.write(sample / "ysb-rates" / "run-1" / "points", [make_row(point, value=100e6, disturbed=True)])
    assert "Caution: during 1 of 8 measurements" in report.write(sample)["markdown"].read_text()


def test_nothing_to_report(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(report.NoResults, match="reproduce run --headline"):
            report.write(directory)


def test_text_is_escaped() -> None:
    table = report.Table(("a<b", "x|y"), (("1 & 2", "|"),))
    assert "<th>a&lt;b</th>" in table.html() and "1 &amp; 2" in table.html()
    assert table.markdown().splitlines() == ["| a<b | x\\|y |", "| --- | --- |", "| 1 & 2 | \\| |"]
