"""to_parquet: files that appear whole or not at all."""

import os

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

import enjima as en
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL, table
from tests.enjima.streams import MODES, mode, none

EVENTS = make_events(1000)


def written(path, data=EVENTS, options=SMALL, build=lambda s: s, **arguments):
    env = en.Environment(**options)
    stream = build(env.source(data, time="time"))
    stream.to_parquet(path, **arguments)
    kept = stream.collect()
    env.run()
    return kept.frame()


@pytest.mark.parametrize("name", MODES)
def test_a_file_holds_what_collect_holds(tmp_path, name):
    frame = written(tmp_path / "events.parquet", options=SMALL | mode(name))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "events.parquet"), frame)
    assert os.listdir(tmp_path) == ["events.parquet"]


def test_fields_of_all_kinds(tmp_path):
    kinds = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
    columns = {f"x_{kind.strip('?')}": np.arange(50).astype(kind) for kind in kinds}
    data = table(**columns, text=np.array([b"ab", b"c"] * 25, "S4"), time=np.arange(50))
    written(tmp_path / "file", data)
    got = parquet.read_table(tmp_path / "file")
    for name in columns:
        assert np.array_equal(got[name].to_numpy(), data[name]), name
    assert got["text"].to_pylist()[:2] == [b"ab", b"c"]


@pytest.mark.parametrize("size", [1, 333, 1000, 5000])
def test_files_of_so_many_rows(tmp_path, size):
    frame = written(tmp_path / "parts", rows_per_file=size) if size > 1 else None
    if size == 1:
        frame = written(tmp_path / "parts", EVENTS[:5], rows_per_file=1)
    names = sorted(os.listdir(tmp_path / "parts"))
    assert names == [f"part-{i:05d}.parquet" for i in range(-(-len(frame) // size))]
    parts = [pd.read_parquet(tmp_path / "parts" / name) for name in names]
    assert all(len(part) == size for part in parts[:-1])
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), frame)


@pytest.mark.parametrize("rows_per_file", [None, 10])
def test_a_stream_without_events_gives_an_empty_file_with_the_schema(tmp_path, rows_per_file):
    written(tmp_path / "out", build=none, rows_per_file=rows_per_file)
    path = tmp_path / "out" if rows_per_file is None else tmp_path / "out" / "part-00000.parquet"
    got = parquet.read_table(path)
    assert got.num_rows == 0 and got.column_names == list(EVENTS.dtype.names)
    assert [str(kind) for kind in got.schema.types] == ["int64", "int32", "double", "int64"]


def test_nothing_is_visible_before_the_stream_has_ended(tmp_path):
    path, seen = tmp_path / "events.parquet", []

    def items():
        for number in range(1000):
            yield number, number
            if number % 100 == 99:
                seen.append(path.exists())

    env = en.Environment(**SMALL)
    env.source(items(), schema="id: i8, time: i8", time="time", rate=1e4).to_parquet(path)
    env.run()
    assert seen == [False] * 10 and len(pd.read_parquet(path)) == 1000


def broken(e):
    if e.value == EVENTS["value"][900]:
        raise ValueError("no")
    return e.key, e.value, e.weight, e.time


@pytest.mark.parametrize("rows_per_file", [None, 10**6])
@pytest.mark.parametrize("name", MODES)
def test_a_query_that_fails_leaves_nothing(tmp_path, rows_per_file, name):
    with pytest.raises(en.QueryError):
        written(
            tmp_path / "out",
            options=SMALL | mode(name),
            build=lambda s: s.map(broken),
            rows_per_file=rows_per_file,
        )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_stop_without_drain_leaves_nothing(tmp_path):
    env = en.Environment(**SMALL)
    env.source(EVENTS, time="time", loop=True, rate=1e5).to_parquet(tmp_path / "out")
    env.start()
    env.stop(drain=False)
    assert os.listdir(tmp_path) == []


def test_a_drained_stop_completes_the_file(tmp_path):
    env = en.Environment(**SMALL)
    stream = env.source(EVENTS, time="time", loop=True, rate=1e5)
    stream.to_parquet(tmp_path / "out")
    kept = stream.collect()
    env.run(seconds=0.1)
    assert os.listdir(tmp_path) == ["out"]
    got, frame = pd.read_parquet(tmp_path / "out"), kept.frame()
    assert len(got) > 0
    pd.testing.assert_frame_equal(got, frame)


@pytest.mark.parametrize("rows_per_file", [None, 400])
def test_an_existing_file_is_not_replaced_unasked(tmp_path, rows_per_file):
    path = tmp_path / "out"
    first = written(path, rows_per_file=rows_per_file)
    with pytest.raises(en.SchemaError, match=r"exists.*overwrite=True"):
        written(path, EVENTS[:10], rows_per_file=rows_per_file)
    pd.testing.assert_frame_equal(pd.read_parquet(path), first)
    second = written(path, EVENTS[:10], rows_per_file=rows_per_file, overwrite=True)
    pd.testing.assert_frame_equal(pd.read_parquet(path), second)


def test_a_failing_query_does_not_touch_what_it_was_to_replace(tmp_path):
    first = written(tmp_path / "out")
    with pytest.raises(en.QueryError):
        written(tmp_path / "out", build=lambda s: s.map(broken), overwrite=True)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out"), first)
    assert os.listdir(tmp_path) == ["out"]


def test_a_place_that_cannot_be_written_to_is_refused_early(tmp_path):
    stream = en.Environment().source(EVENTS, time="time")
    with pytest.raises(en.SchemaError, match="written"):
        stream.to_parquet(tmp_path / "nowhere" / "out.parquet")
    with pytest.raises(en.SchemaError, match="rows_per_file=0"):
        stream.to_parquet(tmp_path / "out.parquet", rows_per_file=0)
    if os.geteuid() != 0:  # root may write everywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(en.SchemaError, match="written"):
            stream.to_parquet(tmp_path / "locked" / "out.parquet")
