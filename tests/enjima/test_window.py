"""Tumbling windows: alignment, keys, late events, growth, windows of windows."""

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import EVENT, make_events
from tests.enjima.queries import SMALL, outcome, rows, table

TEN = en.Tumbling(seconds=10e-9)
SCHEMA = "id: i8, time: i8"


def counts(times, window=TEN, **source):
    events = table(time=np.asarray(times))
    return outcome(events, lambda s: s.window(window).aggregate(n=en.count()), time="time", **source)


def test_windows_are_closed_at_the_start_and_open_at_the_end():
    assert counts([0, 9, 10, 19, 20]) == [(0, 2), (10, 2), (20, 1)]


def test_windows_are_aligned_to_zero_in_negative_time_too():
    assert counts([-21, -20, -11, -10, -1, 0]) == [(-30, 1), (-20, 2), (-10, 2), (0, 1)]


def test_windows_without_events_give_no_result():
    assert counts([5, 1_000_005]) == [(0, 1), (1_000_000, 1)]


@pytest.mark.parametrize(("unit", "seconds", "length"), [("us", 1, 10**6), ("ms", 0.5, 500), ("s", 10, 10)])
def test_lengths_are_in_the_streams_unit_of_time(unit, seconds, length):
    window = en.Tumbling(seconds=seconds)
    assert counts([0, length - 1, length], window, time_unit=unit) == [(0, 2), (length, 1)]


@pytest.mark.parametrize("kind", ["i2", "u4", "u8"])
def test_event_times_of_every_width(kind):
    assert counts(np.array([3, 9, 10, 30_000], kind)) == [(0, 2), (10, 1), (30_000, 1)]


def test_results_come_in_the_order_keys_arrived():
    events = table(key=[5, -3, 5, 9, -3, 5], time=[0, 1, 2, 3, 10, 11])
    got = outcome(events, lambda s: s.key_by("key").window(TEN).aggregate(n=en.count()), time="time")
    assert got == [(0, 5, 2), (0, -3, 1), (0, 9, 1), (10, -3, 1), (10, 5, 1)]


def test_several_keys_of_several_types():
    events = table(
        a=np.array([1, 1, 0], "i1"),
        b=np.array([True, False, True]),
        c=[2**63 - 1, -(2**63), 7],
        time=[0, 1, 2],
    )
    got = outcome(events, lambda s: s.key_by("b", "c", "a").window(TEN).aggregate(n=en.count()), time="time")
    assert got == [(0, True, 2**63 - 1, 1, 1), (0, False, -(2**63), 1, 1), (0, True, 7, 0, 1)]


def test_unsigned_keys_of_64_bits():
    events = table(key=np.array([2**64 - 1, 2**63 + 5, 1, 2**63 + 5], "u8"), time=[0, 1, 2, 3])
    got = outcome(events, lambda s: s.key_by("key").window(TEN).aggregate(n=en.count()), time="time")
    assert got == [(0, 2**64 - 1, 1), (0, 2**63 + 5, 2), (0, 1, 1)]


def test_keys_that_are_multiples_of_large_powers_stay_apart():
    keys = np.concatenate([np.arange(1000) << 32, np.arange(1, 1000) << 48, np.arange(1, 1000) * 2**20 + 1])
    events = table(key=keys, time=np.zeros(len(keys), "i8"))
    got = outcome(events, lambda s: s.key_by("key").window(TEN).aggregate(n=en.count()), time="time")
    expected = dict(zip(*(part.tolist() for part in np.unique(keys, return_counts=True)), strict=True))
    assert {key: n for _, key, n in got} == expected
    assert len(got) == len(expected)


def test_two_hundred_thousand_keys_in_one_window():
    """The table grows many times over, and all results leave through blocks far smaller than it."""
    random = np.random.default_rng(3)
    keys = random.permutation(np.concatenate([np.arange(200_000) * 7919 - 10**9] * 2))
    events = table(key=keys, time=np.arange(len(keys)))
    env = en.Environment(threads=2)
    window = en.Tumbling(seconds=1)
    sink = env.source(events, time="time").key_by("key").window(window).aggregate(n=en.count()).collect()
    result = env.run()
    got = sink.array()
    _, first = np.unique(keys, return_index=True)
    assert np.array_equal(got["key"], keys[np.sort(first)])
    assert (got["n"] == 2).all()
    growths = result.operators.set_index("operator")["state_growths"]
    assert growths["window"] >= 10


def test_a_window_over_the_results_of_a_window():
    events = table(key=[1, 2, 1, 1, 2, 2, 1], time=[0, 3, 5, 12, 19, 20, 45])
    by_key = lambda s: s.key_by("key").window(TEN).aggregate(n=en.count())  # noqa: E731
    twenty = en.Tumbling(seconds=20e-9)
    got = outcome(
        events, lambda s: by_key(s).window(twenty).aggregate(most=en.max("n"), rows=en.count()), time="time"
    )
    assert got == [(0, 2, 4), (20, 1, 1), (40, 1, 1)]


def test_a_window_after_a_filter_that_drops_everything_for_long_still_fires():
    """Watermarks pass where events do not."""
    import threading

    fired = threading.Event()

    def items():
        yield 1, 0
        for time in range(1, 100):
            yield 0, time * 10
        assert fired.wait(20)

    env = en.Environment(**SMALL)
    stream = env.source(items(), schema=SCHEMA, time="time").filter(lambda e: e.id == 1)
    stream.window(TEN).aggregate(n=en.count()).for_each(lambda e: fired.set())
    env.run()
    assert fired.is_set()


# -- late events ------------------------------------------------------------------------------------

ORDERLY = table(id=np.arange(6), time=[0, 5, 15, 16, 25, 26])


def one_late(e):
    return e.id, (4 if e.id == 3 else e.time)


def test_a_late_event_is_an_error_that_names_it():
    with pytest.raises(en.QueryError, match=r"window 'w'|operator 'w'") as caught:
        outcome(
            ORDERLY,
            lambda s: s.map(one_late).window(TEN).aggregate(name="w", n=en.count()),
            time="time",
        )
    error = caught.value
    assert (error.operator, error.number, error.event) == ("w", 3, {"id": 3, "time": 4})
    assert "late" in str(error) and "before 10 are closed" in str(error)


@pytest.mark.parametrize("name", ["n", "to"])
def test_late_events_are_dropped_and_counted(name):
    """Whatever the aggregate is called: its name must not meet a name of the kernel."""
    env = en.Environment(**SMALL)
    stream = env.source(ORDERLY, time="time").map(one_late).window(TEN, late="drop")
    sink = stream.aggregate(**{name: en.count()}).collect()
    result = env.run()
    assert rows(sink.array()) == [(0, 2), (10, 1), (20, 2)]
    assert result.operators.set_index("operator")["late"]["window"] == 1


def test_dropped_late_events_in_python(recwarn):
    total = en.Aggregate(
        init=lambda: 0,
        add=lambda state, e: state + int(format(e.id, "d")),
        merge=lambda a, b: a + b,
        result=lambda state: state,
        dtype="i8",
    )
    env = en.Environment(**SMALL)
    stream = env.source(ORDERLY, time="time").map(one_late).window(TEN, late="drop")
    sink = stream.aggregate(total=total).collect()
    result = env.run()
    assert rows(sink.array()) == [(0, 1), (10, 2), (20, 9)]
    assert result.operators.set_index("operator")["late"]["window"] == 1
    assert [warning.category for warning in recwarn] == [en.PythonFallbackWarning]


@pytest.mark.parametrize("shift", [-1000, 1000])
@pytest.mark.parametrize("block_events", [1, 7])
def test_a_map_may_move_all_event_times(shift, block_events):
    """Results depend on the events, not on when a watermark of the times before the map arrives."""
    events = table(id=np.arange(2000), time=np.arange(2000))
    options = {"threads": 2, "block_events": block_events, "max_chunks": 2}
    move = (lambda e: (e.id, e.time - 1000)) if shift < 0 else (lambda e: (e.id, e.time + 1000))
    got = outcome(
        events, lambda s: s.map(move).window(TEN).aggregate(n=en.count()), options, time="time", rate=1e6
    )
    assert got == [(start + shift, 10) for start in range(0, 2000, 10)]


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "10", None])
def test_a_window_has_a_positive_length(seconds):
    with pytest.raises(en.SchemaError, match="positive number of seconds"):
        en.Tumbling(seconds=seconds)


def test_a_window_is_a_whole_number_of_time_units():
    stream = en.Environment().source(ORDERLY, time="time", time_unit="s")
    with pytest.raises(en.SchemaError, match=r"0\.5 s is not a whole number"):
        stream.window(en.Tumbling(seconds=0.5)).aggregate(n=en.count())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.window(TEN).aggregate(), "at least one aggregate"),
        (lambda s: s.window(TEN).aggregate(n=3), "n=3 is not an aggregate"),
        (lambda s: s.window(TEN).aggregate(n=en.count), "is not an aggregate"),
        (lambda s: s.window(TEN, late="keep").aggregate(n=en.count()), "late='keep'"),
        (lambda s: s.window(10).aggregate(n=en.count()), r"window\(10\)"),
        (lambda s: s.window(TEN).aggregate(window_start=en.count()), "two fields 'window_start'"),
        (lambda s: s.key_by("id").window(TEN).aggregate(id=en.count()), "two fields 'id'"),
        (lambda s: s.key_by("id", "id").window(TEN).aggregate(n=en.count()), "'id'"),
        (
            lambda s: (
                s.window(TEN)
                .aggregate(n=en.count())
                .key_by("window_start")
                .window(TEN)
                .aggregate(m=en.count())
            ),
            "'window_start'",
        ),
        (lambda s: s.key_by(), "at least one field"),
        (lambda s: s.key_by("nope"), "no field 'nope'; the stream has id, time"),
        (lambda s: s.map(lambda e: (e.id * 0.5, e.time), schema="x: f8, time: i8").key_by("x"), "integer"),
        (lambda s: s.map(lambda e: (e.id,), schema="id: i8").window(TEN), "no event time"),
        (lambda s: s.window(TEN).aggregate(x=en.sum("nope")), "no field 'nope'; the stream has id, time"),
    ],
)
def test_a_window_that_cannot_be_is_refused(build, message):
    with pytest.raises(en.SchemaError, match=message):
        build(en.Environment().source(ORDERLY, time="time"))


def test_an_aggregate_may_have_any_name():
    names = ("key", "key_0", "slot", "state", "time", "op", "value", "origin", "generation", "SIZE")
    aggregates = {name: en.count() for name in names}
    got = outcome(ORDERLY, lambda s: s.key_by("id").window(TEN).aggregate(**aggregates), time="time")
    assert [row[2:] for row in got] == [(1,) * len(names)] * 6


def test_growth_keeps_what_is_there():
    """Many windows, each with more keys than the last, against a plain count."""
    from enjima.testing import assert_exact

    env = en.Environment(**SMALL)
    events = make_events(4000, keys=900, gap=5)
    assert events.dtype == EVENT
    window = en.Tumbling(seconds=1e-6)
    sink = env.source(events, time="time").key_by("key").window(window).aggregate(n=en.count()).collect()
    env.run()
    assert_exact(env, sink)
