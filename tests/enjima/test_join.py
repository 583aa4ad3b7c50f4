"""join of two streams: pairs in a common window, when the later of the two arrives."""

import time as clock

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL, outcome, rows, table
from tests.enjima.streams import MODES, TEN, TEN_BY_FIVE, TINY, combined, late_events, mode, none, ran

LEFT = table(key=[1, 2, 1, 1], a=[10, 20, 30, 40], time=[0, 3, 9, 10])
RIGHT = table(b=[0.5, 1.5, 2.5, 3.5], key=[1, 1, 2, 1], time=[5, 10, 11, 12])


def join(window=TEN, **options):
    return lambda left, right: left.join(right, on="key", window=window, **options)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("sizes", [SMALL, TINY, {}])
def test_pairs_of_a_tumbling_window(name, sizes):
    got = combined(join(), LEFT, RIGHT, options=sizes | mode(name))
    assert got == [(5, 1, 10, 0.5), (9, 1, 30, 0.5), (10, 1, 40, 1.5), (12, 1, 40, 3.5)]


def test_pairs_of_sliding_windows_once_for_each_common_window():
    left, right = table(key=[1, 1], a=[1, 2], time=[4, 7]), table(key=[1, 1], b=[3, 4], time=[8, 14])
    got = combined(join(TEN_BY_FIVE), left, right)
    assert got == [(8, 0, 1, 1, 3), (8, 0, 1, 2, 3), (8, 5, 1, 2, 3), (14, 5, 1, 2, 4)]


def test_the_fields_of_a_result():
    env = en.Environment()
    left, right = env.source(LEFT, time="time"), env.source(RIGHT, time="time")
    assert str(left.join(right, on="key", window=TEN).schema) == "time: i8, key: i8, a: i8, b: f8"
    sliding = left.join(right, on="key", window=TEN_BY_FIVE)
    assert str(sliding.schema) == "time: i8, window_start: i8, key: i8, a: i8, b: f8"
    assert sliding.time == "time"
    other = right.map(lambda e: (e.key, e.b, e.time), schema="key: i8, a: f8, time: i8")
    suffixed = left.join(other, on="key", window=TEN, suffixes=("_l", "_r"))
    assert str(suffixed.schema) == "time: i8, key: i8, a_l: i8, a_r: f8"


def test_the_time_of_a_result_is_called_as_on_the_left():
    env = en.Environment(**SMALL)
    counts = env.source(RIGHT, time="time").key_by("key").window(TEN).aggregate(n=en.count())
    joined = counts.join(env.source(LEFT, time="time"), on="key", window=TEN)
    sink = joined.collect()
    env.run()
    assert joined.time == "window_start" and joined.schema.names == ("window_start", "key", "n", "a")
    assert rows(sink.array()) == [(0, 1, 1, 10), (9, 1, 1, 30), (10, 1, 2, 40)]


def test_windows_are_closed_at_the_start_and_open_at_the_end_in_negative_time_too():
    left, right = (
        table(key=[1] * 4, a=range(4), time=[-20, -11, -1, 9]),
        table(key=[1] * 3, time=[-10, -1, 0]),
    )
    assert combined(join(), left, right) == [(-1, 1, 2), (-1, 1, 2), (9, 1, 3)]
    got = combined(join(TEN_BY_FIVE), left, right)
    pairs = [(lt, rt) for rt in (-10, -1, 0) for lt in (-20, -11, -1, 9)]
    common = [
        (max(pair), start)
        for pair in pairs
        for start in range(-40, 40, 5)
        if start <= min(pair) and max(pair) < start + 10
    ]
    assert sorted(row[:2] for row in got) == sorted(common)


@pytest.mark.parametrize(("unit", "seconds", "length"), [("us", 1, 10**6), ("ms", 0.5, 500), ("s", 10, 10)])
def test_lengths_are_in_the_streams_unit_of_time(unit, seconds, length):
    left, right = table(key=[1, 1], time=[0, length]), table(key=[1], b=[7], time=[length - 1])
    got = combined(join(en.Tumbling(seconds=seconds)), left, right, time_unit=unit)
    assert got == [(length - 1, 1, 7)]


@pytest.mark.parametrize(
    "window", [en.Sliding(seconds=10e-9, every=3e-9), en.Sliding(seconds=7e-9, every=7e-9)]
)
def test_distances_that_do_not_divide_the_length_or_equal_it(window):
    left, right = make_events(300, 1), make_events(300, 2)
    got = combined(join(window, suffixes=("_l", "_r")), left, right)
    assert len(got) > 100


@pytest.mark.parametrize("window", [TEN, TEN_BY_FIVE])
def test_long_gaps_cost_nothing(window):
    times = [0, 1, 10**15, 10**15 + 1, 4 * 10**18]
    began = clock.perf_counter()
    got = combined(join(window), table(key=[1] * 5, time=times), table(key=[1] * 5, b=range(5), time=times))
    assert clock.perf_counter() - began < 20
    assert len({(row[0], row[-1]) for row in got}) >= 7


KINDS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_all_kinds(kind):
    limits = (0, 1) if kind == "?" else (np.iinfo(kind).min, np.iinfo(kind).max)
    left = table(key=np.array([limits[0], limits[1], 1], kind), time=[0, 1, 2])
    right = table(key=np.array([limits[1], limits[0]], kind), b=[5, 6], time=[3, 4])
    got = [(time, int(key), b) for time, key, b in combined(join(), left, right)]
    assert [row for row in got if kind != "?" or row[0] == 4] == [
        *([(3, limits[1], 5)] if kind != "?" else []),
        (4, limits[0], 6),
    ]


def test_several_keys_and_narrow_times():
    left = table(
        a=np.array([1, 1, 2], "u1"), b=[2**40, 5, 2**40], x=[1, 2, 3], time=np.array([0, 1, 2], "i4")
    )
    right = table(
        b=[2**40, 2**40, 5], a=np.array([2, 1, 2], "u1"), y=[7, 8, 9], time=np.array([1, 1, 3], "u2")
    )
    got = combined(lambda s, t: s.join(t, on=["a", "b"], window=TEN), left, right)
    assert got == [(1, 1, 2**40, 1, 8), (2, 2, 2**40, 3, 7)]


def test_many_keys():
    random = np.random.default_rng(1)
    keys = random.permutation(100_000) * 7919 - 10**8
    env = en.Environment()
    left = env.source(table(key=keys, a=np.arange(100_000), time=np.arange(100_000)), time="time")
    right = env.source(table(key=keys[::-1], b=np.arange(100_000), time=np.arange(100_000)), time="time")
    sink = left.join(right, on="key", window=en.Tumbling(seconds=1)).collect()
    env.run()
    got = sink.array()
    assert np.array_equal(np.sort(got["key"]), np.sort(keys))
    assert np.array_equal(got["a"] + got["b"], np.full(100_000, 99_999))
    assert np.array_equal(got["time"], np.maximum(got["a"], got["b"]))


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("window", [TEN, TEN_BY_FIVE])
def test_one_event_with_thousands_of_partners_through_blocks_of_one_event(name, window):
    many = table(key=[1] * 3000, a=np.arange(3000), time=np.full(3000, 7))
    one = table(key=[1], b=[-1], time=[8])
    windows = 1 if window is TEN else 2
    options = TINY | mode(name)
    for build in (join(window), lambda s, t: t.join(s, on="key", window=window)):
        got = combined(build, many, one, options=options)
        assert [row[-1] + row[-2] + 1 for row in got] == np.repeat(np.arange(3000), windows).tolist()


def test_self_join():
    env = en.Environment(**SMALL)
    stream = env.source(LEFT, time="time")
    sink = stream.join(stream, on="key", window=TEN, suffixes=("_l", "_r")).collect()
    env.run()
    assert rows(sink.array()) == [
        (0, 1, 10, 10),
        (3, 2, 20, 20),
        (9, 1, 30, 10),
        (9, 1, 10, 30),
        (9, 1, 30, 30),
        (10, 1, 40, 40),
    ]


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("window", [TEN, TEN_BY_FIVE])
def test_a_side_without_events(name, window):
    options = TINY | mode(name)
    build = join(window)
    assert combined(lambda s, t: build(none(s), t), LEFT, RIGHT, options=options) == []
    assert combined(lambda s, t: build(s, none(t)), LEFT, RIGHT, options=options) == []
    assert combined(lambda s, t: build(none(s), none(t)), LEFT, RIGHT, options=options) == []


def test_a_side_that_ends_early():
    long = table(key=np.arange(5000) % 3, a=np.arange(5000), time=np.arange(5000))
    got = combined(join(en.Tumbling(seconds=1)), long, table(key=[1], b=[5], time=[0]))
    assert len(got) == 1667


def test_random_streams():
    for window in (TEN, TEN_BY_FIVE, en.Sliding(seconds=100e-9, every=30e-9)):
        combined(join(window, suffixes=("_l", "_r")), make_events(1500, 1), make_events(900, 2, gap=5))


# -- late events ------------------------------------------------------------------------------------


def back(e):
    return e.key, e.a, (4 if e.a == 40 else e.time)


@pytest.mark.parametrize("window", [TEN, en.Sliding(seconds=4e-9, every=2e-9)])
def test_late_events(window):
    """The last of the left, of time 4, comes when 30 has been reached."""
    left = table(key=[1, 2, 1, 1], a=[10, 20, 30, 40], time=[0, 3, 30, 31])
    right = table(key=[1, 1, 1], b=[1, 2, 3], time=[4, 31, 33])
    with pytest.raises(en.QueryError, match="late") as caught:
        combined(lambda s, t: join(window, name="j")(s.map(back), t), left, right)
    assert (caught.value.operator, caught.value.event) == ("j", {"key": 1, "a": 40, "time": 4})
    result, got = ran(lambda s, t: join(window, name="j", late="drop")(s.map(back), t), left, right)
    assert late_events(result, "j") == 1
    assert {row[-2] for row in got} <= {10, 30}


@pytest.mark.parametrize("window", [TEN, TEN_BY_FIVE])
def test_a_map_may_move_all_event_times(window):
    events = table(key=np.arange(2000) % 5, a=np.arange(2000), time=np.arange(2000))
    moved = lambda s: s.map(lambda e: (e.key, e.a, e.time - 1000))  # noqa: E731
    build = join(window, suffixes=("_l", "_r"))
    got = combined(lambda s: build(moved(s), s), events, options=TINY)
    assert len(got) > 1000


# -- Linear Road ------------------------------------------------------------------------------------


def toll(lefts, rights):
    for left in lefts:
        if len(rights) == 0 and left.speed < 40 and left.cars > 2:
            yield 2 * (left.cars - 2) ** 2
        else:
            yield 0


@pytest.mark.parametrize("name", MODES)
def test_tolls_of_linear_road(name):
    """Mean speed joined with the number of cars, then co-grouped with accidents, by segment and minute."""
    minute = en.Tumbling(seconds=60)
    reports = table(
        time=[0, 5, 10, 20, 30, 40, 61, 62, 63, 130],
        segment=np.array([7, 7, 7, 8, 8, 8, 7, 7, 7, 8], "i4"),
        speed=[30, 35, 40, 0, 10, 20, 20, 20, 20, 90],
    )
    env = en.Environment(**SMALL | mode(name))
    stream = env.source(reports, time="time", time_unit="s")
    speed = stream.key_by("segment").window(minute).aggregate(speed=en.mean("speed"))
    cars = stream.key_by("segment").window(minute).aggregate(cars=en.count())
    stopped = stream.filter(lambda e: e.speed == 0).key_by("segment").window(minute).aggregate(n=en.count())
    joined = speed.join(cars, on="segment", window=minute)
    tolls = joined.co_group(stopped, on="segment", window=minute, apply=toll, schema="toll: i8").collect()
    env.run()
    assert rows(tolls.array()) == [(0, 7, 2), (0, 8, 0), (60, 7, 2), (120, 8, 0)]


# -- what is refused --------------------------------------------------------------------------------


def stream(env=None, data=LEFT, **options):
    return (env or en.Environment()).source(data, **{"time": "time"} | options)


OTHER_KINDS = table(key=np.array([1], "u8"), b=[1], time=[0])
FLOATS = table(key=[0.5], b=[1], time=[0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, t, env: s.join(t, on="key"), "window"),
        (lambda s, t, env: s.join(t, on="key", window=10), "window=10"),
        (lambda s, t, env: s.join(t, on="nope", window=TEN), "'nope'"),
        (lambda s, t, env: s.join(t, on="a", window=TEN), "no field 'a'"),
        (lambda s, t, env: s.join(t, on=[], window=TEN), "at least one"),
        (lambda s, t, env: s.join(t, on=["key", "key"], window=TEN), "key"),
        (lambda s, t, env: s.join(stream(env, OTHER_KINDS), on="key", window=TEN), "u?int64"),
        (lambda s, t, env: s.join(stream(env, FLOATS), on="key", window=TEN), "integer"),
        (lambda s, t, env: s.join(s, on="key", window=TEN), "'a'.*suffixes"),
        (lambda s, t, env: s.join(s, on="key", window=TEN, suffixes=("_x", "_x")), "suffixes"),
        (lambda s, t, env: s.join(t, on="key", window=TEN, late="keep"), "late='keep'"),
        (lambda s, t, env: s.join(stream(env, RIGHT, time=None), on="key", window=TEN), "no event time"),
        (lambda s, t, env: stream(env, time=None).join(t, on="key", window=TEN), "no event time"),
        (lambda s, t, env: s.join(stream(env, RIGHT, time_unit="ms"), on="key", window=TEN), "unit"),
        (lambda s, t, env: s.join(stream(None, RIGHT), on="key", window=TEN), "environment"),
        (lambda s, t, env: s.join(RIGHT, on="key", window=TEN), "not a stream"),
        (lambda s, t, env: s.join(t, on="key", window=en.Tumbling(seconds=1e-10)), "whole number"),
    ],
)
def test_a_join_that_cannot_be_is_refused(build, message):
    env = en.Environment()
    with pytest.raises((en.SchemaError, en.GraphError), match=message):
        build(stream(env), stream(env, RIGHT), env)


def test_a_join_refused_leaves_the_environment_usable():
    def build(s):
        with pytest.raises(en.SchemaError):
            s.join(s, on="key", window=TEN)
        return s

    assert outcome(LEFT, build, time="time") == rows(LEFT)
