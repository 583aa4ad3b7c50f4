"""What `make reproduce` does, at smoke size: Spark, engine, notebook, results, report."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduce import cli, results


@pytest.mark.spark
def test_the_headline_at_smoke(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--headline", "--profile", "smoke", "--out", str(tmp_path)]) == 0
    shown = capfd.readouterr()
    assert "ysb-rates: point 2 of 2" in shown.err
    assert str(tmp_path / "report.html") in shown.out
    frame = results.latest_run(results.read(tmp_path))
    counted = frame.set_index("metric")["value"]
    assert counted["oracle_counts"] >= 1000 and counted["oracle_mismatches"] == 0
    assert {"marker", "result"} <= set(frame["latency_kind"].dropna())
    assert frame["dataset_checksum"].notna().all()
    for pattern in ("figures/*.png", "figures/*.svg", "points/*.parquet", "notebook.ipynb", "log.txt"):
        assert list(tmp_path.glob(f"ysb-rates/*/{pattern}")), pattern
