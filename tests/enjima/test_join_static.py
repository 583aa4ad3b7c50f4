"""join_static: dense and sparse keys, negative ones, missing ones, tables of every form."""

import time

import numpy as np
import pandas as pd
import pytest

import enjima as en
from tests.enjima.queries import SMALL, outcome, table


def joined(keys, build_table, on="key"):
    """The events of ``keys`` that find a row, with the row's fields."""
    events = table(key=np.asarray(keys), n=np.arange(len(keys)))
    return outcome(events, lambda s: s.join_static(build_table, on=on))


def test_rows_are_added_and_events_without_one_dropped():
    campaigns = {"key": [3, 1, 2], "campaign": [30, 10, 20], "weight": [0.3, 0.1, 0.2]}
    assert joined([1, 4, 3, 0, 1], campaigns) == [(1, 0, 10, 0.1), (3, 2, 30, 0.3), (1, 4, 10, 0.1)]


@pytest.mark.parametrize("form", ["dict", "array", "frame"])
def test_a_table_is_a_dict_an_array_or_a_frame(form):
    columns = {"key": np.array([1, 2]), "x": np.array([0.5, 1.5])}
    forms = {"dict": columns, "array": table(**columns), "frame": pd.DataFrame(columns)}
    assert joined([2, 1, 0], forms[form]) == [(2, 0, 1.5), (1, 1, 0.5)]


def test_a_table_of_keys_alone_is_a_semi_join():
    assert joined([5, 6, 5, 7], {"key": [5, 7]}) == [(5, 0), (5, 2), (7, 3)]


def test_an_empty_table_drops_everything():
    assert joined([0, 1, -1, 16], {"key": np.zeros(0, "i8"), "x": np.zeros(0)}) == []


EXTREMES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**62, 2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize("keys", [EXTREMES, EXTREMES[:1], EXTREMES[-1:], EXTREMES[2:5], EXTREMES[-2:]])
def test_keys_at_the_ends_of_64_bits(keys):
    got = joined(np.array(EXTREMES), {"key": np.array(keys), "x": np.arange(len(keys))})
    assert got == [(key, EXTREMES.index(key), keys.index(key)) for key in EXTREMES if key in keys]


@pytest.mark.parametrize("size", [15, 16, 17, 31, 32, 33, 1000, 1024])
@pytest.mark.parametrize("first", [0, -7, 10**15])
def test_full_dense_tables(size, first):
    keys = np.arange(first, first + size)
    asked = np.arange(first - 40, first + size + 40)
    got = joined(asked, {"key": keys[::-1], "x": keys[::-1] * 2})
    assert [(row[0], row[2]) for row in got] == [(key, key * 2) for key in keys.tolist()]


@pytest.mark.parametrize("seed", range(3))
def test_sparse_random_keys(seed):
    random = np.random.default_rng(seed)
    keys = np.unique(random.integers(-(2**63), 2**63 - 1, 3000))
    asked = random.permutation(np.concatenate([keys, random.integers(-(2**63), 2**63 - 1, 3000), keys + 1]))
    got = joined(asked, {"key": keys, "x": np.arange(len(keys))})
    place = {key: i for i, key in enumerate(keys.tolist())}
    assert got == [(key, n, place[key]) for n, key in enumerate(asked.tolist()) if key in place]


def test_keys_that_share_their_low_bits():
    keys = np.arange(500) << 40
    got = joined(np.concatenate([keys, keys + 1]), {"key": keys, "x": np.arange(500)})
    assert got == [(i << 40, i, i) for i in range(500)]


@pytest.mark.parametrize("kind", ["i1", "i4", "u1", "u4"])
def test_narrow_keys(kind):
    keys = np.array([1, 100, 3], kind)
    got = joined(np.array([100, 2, 1], kind), {"key": keys, "x": [10, 20, 30]})
    assert got == [(100, 0, 20), (1, 2, 10)]


def test_unsigned_keys_of_64_bits():
    keys = np.array([2**63 + 5, 1, 2**64 - 1], "u8")
    got = joined(keys[::-1].copy(), {"key": keys, "x": [10, 20, 30]})
    assert got == [(2**64 - 1, 0, 30), (1, 1, 20), (2**63 + 5, 2, 10)]


def test_keys_beside_a_large_dense_table_are_missed_quickly():
    """Not by a walk over a million rows for each event."""
    size = 1 << 20
    table_ = {"key": np.arange(size - 1), "x": np.zeros(size - 1, "i1")}
    env = en.Environment(**SMALL)
    sink = env.source(table(key=np.full(1000, size + 1))).join_static(table_, on="key").collect()
    began = time.process_time()
    env.run()
    assert len(sink.array()) == 0
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("table_", "on", "message"),
    [
        (
            {"key": [1, 2, 1], "x": [0, 0, 0]},
            "key",
            "join_static 'look up': key key=1 stands in more than one row",
        ),
        ({"other": [1], "x": [0]}, "key", "the table: there is no field 'key'; .*other, x"),
        ({"key": [1], "x": [0]}, "x", "there is no field 'x'; the stream has key, n"),
        ({"key": [1], "n": [0]}, "key", "both .* have a field 'n'"),
        ({"key": [1.5], "x": [0]}, "key", "must be an integer"),
        ({"key": np.array([1], "u8"), "x": [0]}, "key", "is int64 in the stream and uint64 in the table"),
        ({"key": [1, 2], "x": ["a", "b"]}, "key", "field 'x'"),
        ({"key": [1, 2, 3], "x": [0, 1]}, "key", "'x'.*2.*3|different lengths"),
        ({}, "key", "table"),
        ([1, 2], "key", "the table is a list"),
        (np.arange(3), "key", "the table is a ndarray"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table_, on, message):
    stream = en.Environment().source(table(key=[1], n=[2]))
    with pytest.raises(en.SchemaError, match=message):
        stream.join_static(table_, on=on, name="look up")
