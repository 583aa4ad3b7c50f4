import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from workloads import ysb
from workloads.manifest import ManifestError

SMALL = {"events": 20_000, "seed": 5, "events_per_second": 500}
"""Forty seconds: four windows of ten."""


@pytest.fixture(scope="module")
def loaded(spark, tmp_path_factory) -> ysb.YsbData:
    return ysb.load(data_dir=tmp_path_factory.mktemp("data"), **SMALL)


def test_a_record_is_a_cache_line() -> None:
    assert ysb.AD_EVENT.itemsize == 64


def test_events_are_what_the_benchmark_says() -> None:
    ads = ysb.synthetic(90_000).ads
    assert np.array_equal(ads["event_time"], np.arange(90_000) * 100)
    assert np.array_equal(np.unique(ads["ad_id"]), np.arange(1000))
    assert np.allclose(np.bincount(ads["event_type"]) / len(ads), 1 / 3, atol=0.01)
    for field, size in ysb.UNIFORM.items():
        assert ads[field].min() >= 0
        assert ads[field].max() < size


def test_fields_are_drawn_independently() -> None:
    ads = ysb.synthetic(50_000).ads
    correlations = np.corrcoef([ads[field] for field in (*ysb.UNIFORM, "event_type")])
    assert np.abs(correlations - np.eye(len(correlations))).max() < 0.02


def test_ten_ads_for_each_campaign_and_shuffled() -> None:
    campaigns = ysb.synthetic(1).campaigns
    assert np.array_equal(np.bincount(campaigns["campaign_id"]), np.full(100, 10))
    assert not np.array_equal(campaigns["campaign_id"], np.arange(1000) // 10)
    assert not np.array_equal(campaigns, ysb.synthetic(1, seed=2).campaigns)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_share_of_views_can_be_chosen(share: float) -> None:
    types = ysb.synthetic(50_000, view_share=share).ads["event_type"]
    assert np.mean(types == ysb.VIEW) == pytest.approx(share, abs=0.01)
    others = np.bincount(types[types != ysb.VIEW], minlength=3)[1:]
    assert np.allclose(others, (1 - share) * len(types) / 2, atol=700)


def test_longer_data_begins_with_the_shorter() -> None:
    assert np.array_equal(ysb.synthetic(500).ads, ysb.synthetic(1000).ads[:500])


@pytest.mark.parametrize(
    "wrong",
    [{"events": 0}, {"events_per_second": 0}, {"events_per_second": 2 * ysb.SECOND}, {"view_share": 1.5}],
)
def test_parameters_out_of_range_are_named(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ysb.Parameters(**{"events": 1, **wrong})


def test_expected_counts_by_hand() -> None:
    ads = np.zeros(5, ysb.AD_EVENT)
    ads["ad_id"] = [0, 1, 2, 1, 1]
    ads["event_type"] = [0, 0, 0, 1, 0]
    ads["event_time"] = np.array([0, 1, 9, 9, 10]) * ysb.SECOND
    campaigns = np.array([(0, 7), (1, 7), (2, 3)], ysb.CAMPAIGN)
    counted = ysb.expected(ysb.YsbData(ads, campaigns, ysb.synthetic(1).manifest))
    assert list(counted.columns) == ["window_start", "campaign_id", "views"]
    assert counted.to_numpy().tolist() == [[0, 3, 1], [0, 7, 2], [10 * ysb.SECOND, 7, 1]]


def test_importing_workloads_loads_no_spark() -> None:
    check = "import sys, workloads.ysb; sys.exit('pyspark' in sys.modules or 'enjima' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_what_is_on_disk_needs_no_spark(tmp_path, monkeypatch) -> None:
    whole = write(ysb.synthetic(**SMALL), tmp_path)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert np.array_equal(ysb.load(data_dir=tmp_path, **SMALL).ads, whole.ads)


@pytest.mark.parametrize("rows", [19_999, 20_001])
def test_rows_that_the_manifest_does_not_tell_of_are_an_error(rows: int, tmp_path) -> None:
    whole, other = ysb.synthetic(**SMALL), ysb.synthetic(**{**SMALL, "events": rows})
    write(ysb.YsbData(other.ads, whole.campaigns, whole.manifest), tmp_path)
    with pytest.raises(ManifestError, match="rows"):
        ysb.load(data_dir=tmp_path, **SMALL)


def write(data: ysb.YsbData, data_dir) -> ysb.YsbData:
    """What Spark would leave on disk."""
    directory = ysb.Parameters(**SMALL).directory(data_dir)
    for table in ("ads", "campaigns"):
        (directory / table).mkdir(parents=True)
        records = getattr(data, table)
        frame = pd.DataFrame({name: records[name] for name in records.dtype.names})
        frame.to_parquet(directory / table / "part-0.parquet")
    data.manifest.write(directory)
    return data


@pytest.mark.spark
def test_spark_and_numpy_make_the_same_data(loaded: ysb.YsbData) -> None:
    made = ysb.synthetic(**SMALL)
    assert np.array_equal(loaded.ads, made.ads)
    assert np.array_equal(loaded.campaigns, made.campaigns)
    assert loaded.manifest == made.manifest


@pytest.mark.spark
def test_share_of_views_is_the_same_on_spark(spark, tmp_path) -> None:
    asked = {"events": 5000, "seed": -1, "view_share": 0.7}
    assert np.array_equal(ysb.load(data_dir=tmp_path, **asked).ads, ysb.synthetic(**asked).ads)


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 3, 13])
def test_partitions_change_nothing(spark, loaded: ysb.YsbData, tmp_path, partitions: int) -> None:
    from workloads.spark import ysb as pipeline

    parameters = ysb.Parameters(**SMALL)
    directory = parameters.directory(tmp_path)
    manifest = pipeline.prepare(parameters, directory, partitions)
    assert len(list((directory / "ads").glob("*.parquet"))) == partitions
    assert manifest == loaded.manifest
    assert np.array_equal(ysb.load(data_dir=tmp_path, **SMALL).ads, loaded.ads)


@pytest.mark.spark
@pytest.mark.parametrize("window_seconds", [10, 0.5])
def test_spark_and_pandas_count_the_same(loaded: ysb.YsbData, window_seconds: float) -> None:
    from workloads.spark.oracle import ysb_counts

    expected = ysb.expected(loaded, window_seconds)
    pd.testing.assert_frame_equal(ysb_counts(loaded, window_seconds), expected)
    assert expected.views.sum() == np.sum(loaded.ads["event_type"] == ysb.VIEW)


@pytest.mark.spark
def test_oracle_over_the_first_events(loaded: ysb.YsbData) -> None:
    from workloads.spark.oracle import ysb_counts

    first = ysb.YsbData(loaded.ads[:7001], loaded.campaigns, loaded.manifest)
    pd.testing.assert_frame_equal(ysb_counts(loaded, limit=7001), ysb.expected(first))


@pytest.mark.spark
def test_oracle_wants_data_on_disk() -> None:
    from workloads.spark.oracle import ysb_counts

    with pytest.raises(ValueError, match="on disk"):
        ysb_counts(ysb.synthetic(10))
