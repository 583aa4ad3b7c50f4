"""Sliding windows: one result per key and window, at every multiple of the distance."""

import time as clock

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL, table
from tests.enjima.streams import MODES, TEN, TEN_BY_FIVE, TINY, combined, late_events, mode, none, ran

AGGREGATES = {
    "n": en.count(),
    "total": en.sum("value"),
    "low": en.min("value"),
    "high": en.max("weight"),
    "middle": en.mean("weight"),
}


def counts(times, window=TEN_BY_FIVE, options=SMALL, **source):
    events = table(time=np.asarray(times))
    return combined(lambda s: s.window(window).aggregate(n=en.count()), events, options=options, **source)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("sizes", [SMALL, TINY, {}])
def test_windows_overlap(name, sizes):
    got = counts([0, 4, 5, 9, 10, 14], options=sizes | mode(name))
    assert got == [(-5, 2), (0, 4), (5, 4), (10, 2)]


def test_negative_time():
    assert counts([-11, -10, -1, 0]) == [(-20, 1), (-15, 2), (-10, 2), (-5, 2), (0, 1)]


def test_a_distance_that_does_not_divide_the_length():
    window = en.Sliding(seconds=10e-9, every=4e-9)
    assert counts([0, 3, 4, 9, 10], window) == [(-8, 1), (-4, 3), (0, 4), (4, 3), (8, 2)]


def test_a_distance_equal_to_the_length_is_a_tumbling_window():
    assert counts([0, 9, 10, 25], en.Sliding(seconds=10e-9, every=10e-9)) == [(0, 2), (10, 1), (20, 1)]


@pytest.mark.parametrize(("unit", "scale"), [("us", 10**6), ("ms", 10**3), ("s", 1)])
def test_lengths_are_in_the_streams_unit_of_time(unit, scale):
    window = en.Sliding(seconds=10, every=5)
    times = np.array([0, 5 * scale, 10 * scale - 1, 10 * scale])
    starts = [start // scale for start, _ in counts(times, window, time_unit=unit)]
    assert starts == [-5, 0, 5, 10]


@pytest.mark.parametrize("kind", ["i2", "u4", "u8"])
def test_event_times_of_every_width(kind):
    assert counts(np.array([6, 9, 10, 30_000], kind)) == [(0, 2), (5, 3), (10, 1), (29_995, 1), (30_000, 1)]


def test_windows_without_events_give_no_result_and_cost_nothing():
    began = clock.perf_counter()
    window = en.Sliding(seconds=10e-9, every=1e-9)
    got = counts([0, 10**15, 4 * 10**18], window)
    assert clock.perf_counter() - began < 10
    assert len(got) == 30
    assert counts([-(10**18), 10**18], window)[-1] == (10**18, 1)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize(
    "window",
    [TEN_BY_FIVE, en.Sliding(seconds=60e-9, every=25e-9), en.Sliding(seconds=100e-9, every=1e-9)],
)
def test_random_events(name, window):
    build = lambda s: s.key_by("key").window(window).aggregate(**AGGREGATES)  # noqa: E731
    combined(build, make_events(700), options=SMALL | mode(name))


def test_a_window_over_all_events_and_over_windows():
    build = lambda s: s.window(TEN_BY_FIVE).aggregate(**AGGREGATES)  # noqa: E731
    combined(build, make_events(2000))
    again = lambda s: build(s).window(en.Sliding(seconds=20e-9, every=5e-9)).aggregate(m=en.sum("n"))  # noqa: E731
    combined(again, make_events(2000))


@pytest.mark.parametrize("kind", ["?", "i1", "i4", "i8", "u1", "u2", "u8"])
def test_keys_of_all_kinds(kind):
    limits = (0, 1) if kind == "?" else (np.iinfo(kind).min, np.iinfo(kind).max)
    events = table(key=np.array([*limits, limits[1]], kind), time=[0, 1, 7])
    got = combined(lambda s: s.key_by("key").window(TEN_BY_FIVE).aggregate(n=en.count()), events)
    assert sorted(got) == sorted(
        [(-5, limits[0], 1), (-5, limits[1], 1), (0, limits[0], 1), (0, limits[1], 2), (5, limits[1], 1)]
    )


def test_several_keys():
    events = make_events(1500)
    combined(lambda s: s.key_by("key", "value").window(TEN_BY_FIVE).aggregate(n=en.count()), events)


def test_many_keys_that_come_and_go():
    """The table grows, and keys without events in any open window are dropped from it."""
    random = np.random.default_rng(3)
    numbers = np.arange(100_000)
    keys = random.permutation(100_000) * 7919 - 10**8
    env = en.Environment()
    stream = env.source(table(key=keys, time=numbers), time="time")
    window = en.Sliding(seconds=20_000e-9, every=10_000e-9)
    sink = stream.key_by("key").window(window).aggregate(n=en.count()).collect()
    env.run()
    got = sink.array()
    assert len(got) == 200_000 and (got["n"] == 1).all()
    assert np.array_equal(np.unique(got["window_start"]), np.arange(-10_000, 100_000, 10_000))
    assert np.array_equal(np.sort(got["key"]), np.sort(np.repeat(keys, 2)))


def test_own_aggregates_compiled_and_in_python():
    own = en.Aggregate(lambda: 0, lambda s, e: s + e.value, lambda a, b: a + b, lambda s: s, dtype="i8")
    slow = en.Aggregate(
        lambda: 0, lambda s, e: s + int(format(e.value, "d")), lambda a, b: a + b, lambda s: s, dtype="i8"
    )
    events = make_events(600)
    got = combined(lambda s: s.key_by("key").window(TEN_BY_FIVE).aggregate(x=own), events)
    with pytest.warns(en.PythonFallbackWarning):
        same = combined(lambda s: s.key_by("key").window(TEN_BY_FIVE).aggregate(x=slow), events)
    assert sorted(got) == sorted(same)


def test_a_stream_without_events():
    assert combined(lambda s: none(s).window(TEN_BY_FIVE).aggregate(n=en.count()), make_events(50)) == []


def test_a_window_fires_while_the_stream_goes_on():
    import threading

    fired = threading.Event()

    def items():
        yield 1, 0
        for time in range(1, 100):
            yield 0, time * 10
        assert fired.wait(20)

    env = en.Environment(**SMALL)
    stream = env.source(items(), schema="id: i8, time: i8", time="time").filter(lambda e: e.id == 1)
    stream.window(TEN_BY_FIVE).aggregate(n=en.count()).for_each(lambda e: fired.set())
    env.run()
    assert fired.is_set()


# -- late events and what is refused ------------------------------------------------------------------

ORDERLY = table(id=np.arange(6), time=[0, 5, 15, 16, 25, 26])


def one_late(e):
    return e.id, (4 if e.id == 3 else e.time)


def one_half_late(e):
    return e.id, (9 if e.id == 3 else e.time)


def test_late_events():
    def build(late):
        return lambda s: s.map(one_late).window(TEN_BY_FIVE, late=late).aggregate(n=en.count(), name="w")

    with pytest.raises(en.QueryError, match="late") as caught:
        combined(build("error"), ORDERLY)
    error = caught.value
    assert (error.operator, error.number, error.event) == ("w", 3, {"id": 3, "time": 4})
    result, got = ran(build("drop"), ORDERLY)
    assert got == [(-5, 1), (0, 2), (5, 1), (10, 1), (15, 1), (20, 2), (25, 2)]
    assert late_events(result, "w") == 1


def test_an_event_counts_in_those_of_its_windows_that_have_not_fired():
    """Time 9 comes behind 14: [0, 10) is over and [5, 15) is not."""
    events = table(id=np.arange(6), time=[0, 5, 14, 14, 25, 26])
    build = lambda s: s.map(one_half_late).window(TEN_BY_FIVE).aggregate(n=en.count())  # noqa: E731
    assert combined(build, events) == [(-5, 1), (0, 2), (5, 3), (10, 1), (20, 2), (25, 2)]


@pytest.mark.parametrize("shift", [-1000, 1000])
@pytest.mark.parametrize("block_events", [1, 7])
def test_a_map_may_move_all_event_times(shift, block_events):
    events = table(id=np.arange(2000), time=np.arange(2000))
    options = {"threads": 2, "block_events": block_events, "max_chunks": 2}
    move = (lambda e: (e.id, e.time - 1000)) if shift < 0 else (lambda e: (e.id, e.time + 1000))
    build = lambda s: s.map(move).window(TEN_BY_FIVE).aggregate(n=en.count())  # noqa: E731
    got = combined(build, events, options=options, rate=1e6)
    assert len(got) == 401 and sum(n for _, n in got) == 4000


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "10", None, True])
def test_lengths_and_distances_are_positive(value):
    with pytest.raises(en.SchemaError, match="positive number of seconds"):
        en.Sliding(seconds=value, every=1)
    with pytest.raises(en.SchemaError, match="positive number of seconds"):
        en.Sliding(seconds=10, every=value)


def test_windows_must_not_leave_out_events():
    with pytest.raises(en.SchemaError, match="every"):
        en.Sliding(seconds=5, every=10)


@pytest.mark.parametrize(
    "window",
    [en.Sliding(seconds=1, every=0.5), en.Sliding(seconds=1.5, every=1), en.Sliding(seconds=10**6, every=7)],
)
def test_lengths_that_do_not_fit_the_unit_or_are_too_fine(window):
    stream = en.Environment().source(ORDERLY, time="time", time_unit="s")
    with pytest.raises(en.SchemaError, match=r"whole number|panes"):
        stream.window(window).aggregate(n=en.count())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.window(TEN_BY_FIVE).aggregate(), "at least one aggregate"),
        (lambda s: s.window(TEN_BY_FIVE, late="keep").aggregate(n=en.count()), "late='keep'"),
        (lambda s: s.window(TEN_BY_FIVE).aggregate(window_start=en.count()), "two fields 'window_start'"),
        (lambda s: s.map(lambda e: (e.id,), schema="id: i8").window(TEN_BY_FIVE), "no event time"),
        (lambda s: s.window((10, 5)).aggregate(n=en.count()), "window"),
    ],
)
def test_a_window_that_cannot_be_is_refused(build, message):
    with pytest.raises(en.SchemaError, match=message):
        build(en.Environment().source(ORDERLY, time="time"))


def test_tumbling_is_not_touched():
    assert counts([0, 9, 10], TEN) == [(0, 2), (10, 1)]
