import numpy as np
import pytest

from workloads.manifest import Manifest, ManifestError, describe

RECORDS = np.array([(1, 2), (3, 4), (5, 6)], dtype=[("a", "i8"), ("b", "i8")])


@pytest.fixture
def manifest() -> Manifest:
    return Manifest("numbers", {"seed": 1, "share": None}, {"pairs": describe(RECORDS)})


def test_survives_the_disk(manifest: Manifest, tmp_path) -> None:
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_no_manifest_is_none(tmp_path) -> None:
    assert Manifest.read(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"tables": {"pairs": {"rows": 1}}}'])
def test_what_is_no_manifest_is_named(text: str, tmp_path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ManifestError, match=str(tmp_path)):
        Manifest.read(tmp_path)


def test_describes_only_what_was_asked_for(manifest: Manifest) -> None:
    assert manifest.describes("numbers", {"seed": 1, "share": None})
    assert not manifest.describes("numbers", {"seed": 2, "share": None})
    assert not manifest.describes("letters", {"seed": 1, "share": None})


def test_checksum_is_of_the_rows_and_not_of_their_order() -> None:
    assert describe(RECORDS[::-1]) == describe(RECORDS)
    changed = RECORDS.copy()
    changed["b"][1] = 0
    assert describe(changed).checksum != describe(RECORDS).checksum
    assert describe(np.repeat(RECORDS, 3)).checksum != describe(RECORDS).checksum


def test_checksum_of_a_data_set_covers_every_table(manifest: Manifest) -> None:
    other = Manifest(manifest.name, manifest.parameters, {"pairs": describe(RECORDS[:2])})
    assert other.checksum != manifest.checksum


@pytest.mark.spark
@pytest.mark.parametrize("rows", [0, 3])
def test_spark_describes_the_same(spark, rows: int) -> None:
    from workloads.spark import dataset

    frame = spark.createDataFrame(RECORDS[:rows].tolist(), "a bigint, b bigint")
    assert dataset.describe(frame) == describe(RECORDS[:rows])
