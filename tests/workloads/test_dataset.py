"""Preparing a data set: once, whole or not at all."""

import pytest

from workloads.manifest import Manifest
from workloads.ysb import Parameters

pytestmark = pytest.mark.spark

PARAMETERS = Parameters(events=1000, seed=3)


@pytest.fixture
def prepare(spark, tmp_path):
    from workloads.spark import ysb

    return lambda parameters=PARAMETERS: ysb.prepare(parameters, tmp_path / "set")


def files(directory) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def test_prepared_once(prepare, tmp_path) -> None:
    first = prepare()
    before = files(tmp_path / "set")
    assert prepare() == first
    assert files(tmp_path / "set") == before


def test_other_parameters_replace_it(prepare) -> None:
    first = prepare()
    second = prepare(Parameters(events=1000, seed=4))
    assert second.checksum != first.checksum
    assert prepare().checksum == first.checksum


def test_a_run_that_died_leaves_nothing_behind(prepare, tmp_path, monkeypatch) -> None:
    def die(self, directory) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Manifest, "write", die)
        prepare()
    assert not (tmp_path / "set").exists()

    prepare()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["set"]


def test_a_directory_without_a_manifest_is_made_anew(prepare, tmp_path) -> None:
    whole = prepare()
    (tmp_path / "set" / "manifest.json").unlink()
    for part in (tmp_path / "set" / "ads").glob("*.parquet"):
        part.unlink()
    assert prepare() == whole
    assert list((tmp_path / "set" / "ads").glob("*.parquet"))


def test_a_directory_of_something_else_is_not_touched(prepare, tmp_path) -> None:
    thesis = tmp_path / "set" / "thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("three years")
    with pytest.raises(FileExistsError, match=r"thesis\.tex"):
        prepare()
    assert thesis.read_text() == "three years"
