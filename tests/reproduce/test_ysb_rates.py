from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from reproduce import results
from reproduce.experiments import ysb_rates
from reproduce.recorder import Recorder


@pytest.mark.usefixtures("engine")
def test_the_notebooks_steps(tmp_path: Path) -> None:
    recorder = Recorder("ysb-rates", profile="smoke", out=tmp_path / "run", fractions=[0.25, 0.5, 1.1])
    data = ysb_rates.prepare(recorder)
    ysb_rates.verify(recorder, data)
    highest = ysb_rates.maximum(recorder, data)
    ysb_rates.sweep(recorder, data, highest)
    recorder.finish()

    assert highest == 80e6
    frame = results.latest_run(recorder.results())
    assert set(frame["dataset_checksum"]) == {data.manifest.checksum}
    counted = frame.set_index("metric")["value"]
    assert counted["oracle_mismatches"] == 0
    assert counted["oracle_counts"] >= 100 * ysb_rates.WINDOWS
    summary, table = ysb_rates.summary(frame), ysb_rates.table(frame)
    assert summary.index.tolist() == [0.25, 0.5, 1.1]
    assert summary["offered, M events/s"].tolist() == pytest.approx([20, 40, 88])
    assert summary["delivered, M events/s"].tolist() == pytest.approx([20, 40, 80])
    assert table["delivered, M events/s"].tolist() == ["20", "40", "80"]
    assert set(table["result mean, ms"]) == {"–"}
    assert "80.0 M events/s at most; at 50%" in ysb_rates.sentence(frame)
    assert [claim.holds(frame) for claim in ysb_rates.EXPERIMENT.claims] == [True, True]


def test_claims_fail_on_wrong_results(sample: Path) -> None:
    frame = results.read(sample)
    exact, follows = ysb_rates.EXPERIMENT.claims
    assert exact.holds(frame) and follows.holds(frame)
    wrong = frame.copy()
    wrong.loc[wrong["metric"] == "oracle_mismatches", "value"] = 1
    wrong.loc[wrong["metric"] == "delivered_rate", "value"] *= 0.9
    assert not exact.holds(wrong) and not follows.holds(wrong)
    assert not exact.holds(frame[frame["metric"] != "oracle_counts"])
    assert "DIFFER" in ysb_rates.sentence(wrong)


def test_mismatches() -> None:
    spark = pd.DataFrame({"window_start": [0, 0, 10], "campaign_id": [1, 2, 1], "views": [5, 6, 7]})
    assert ysb_rates.mismatches(spark.sample(frac=1, random_state=1), spark) == 0
    assert ysb_rates.mismatches(spark.assign(views=[5, 6, 8]), spark) == 1
    assert ysb_rates.mismatches(spark.iloc[:2], spark) == 1
    assert ysb_rates.mismatches(pd.concat([spark, spark.iloc[:1]]), spark) == 1
