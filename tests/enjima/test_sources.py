"""Sources: arrays once, n times and for ever; functions; iterators; rates; event time."""

import itertools
import threading

import numpy as np
import pandas as pd
import pytest

import enjima as en
from tests.enjima.queries import SMALL, outcome, rows, table, unchanged

TICKS = table(id=np.arange(5), time=np.array([10, 11, 13, 13, 18]))
SCHEMA = "id: i8, time: i8"


# -- arrays -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [None, False, 1])
def test_an_array_is_replayed_once(loop):
    assert outcome(TICKS, unchanged, time="time", loop=loop) == rows(TICKS)


@pytest.mark.parametrize("width", ["i8", "i4", "u4", "i2"])
def test_an_array_in_a_loop_goes_on_in_event_time(width):
    """The span is 8 and the mean gap 2, so each pass begins 10 later; narrow times are copied, not lent."""
    ticks = TICKS.astype([("id", "i8"), ("time", width)])
    expected = [(i, time + 10 * loop) for loop in range(3) for i, time in rows(TICKS)]
    assert outcome(ticks, unchanged, time="time", loop=3) == expected


@pytest.mark.parametrize("width", ["i8", "i4"])
def test_every_operator_sees_shifted_event_times(width):
    ticks = TICKS.astype([("id", "i8"), ("time", width)])
    got = outcome(ticks, lambda s: s.filter(lambda e: e.time >= 23), time="time", loop=2)
    assert got == [(2, 23), (3, 23), (4, 28)]
    got = outcome(ticks, lambda s: s.map(lambda e: (e.id, e.time + 1)), time="time", loop=2)
    assert got[5:] == [(0, 21), (1, 22), (2, 24), (3, 24), (4, 29)]
    got = outcome(ticks, lambda s: s.join_static({"id": [1], "x": [5]}, on="id"), time="time", loop=2)
    assert got == [(1, 11, 5), (1, 21, 5)]
    window = en.Tumbling(seconds=10e-9)
    got = outcome(ticks, lambda s: s.window(window).aggregate(n=en.count()), time="time", loop=2)
    assert got == [(10, 5), (20, 5)]


def test_callbacks_see_shifted_event_times():
    env = en.Environment(**SMALL)
    stream = env.source(TICKS, time="time", loop=2)
    single, batches = [], []
    stream.for_each(lambda e: single.append((int(e.id), int(e.time))))
    stream.for_each_batch(lambda events: batches.extend(rows(events)))
    env.run()
    assert single == batches == rows(TICKS) + [(i, time + 10) for i, time in rows(TICKS)]


def test_a_loop_of_one_event_advances_time():
    assert outcome(TICKS[:1], unchanged, time="time", loop=3) == [(0, 10), (0, 11), (0, 12)]


def test_a_loop_without_event_time_repeats_the_events():
    assert outcome(TICKS, unchanged, loop=2) == 2 * rows(TICKS)


def test_a_loop_for_ever_ends_with_the_run():
    env = en.Environment(threads=2)
    sink = env.source(TICKS, time="time", loop=True).collect()
    env.run(seconds=0.05)
    got = sink.array()
    assert len(got) > 0
    number = np.arange(len(got))
    assert np.array_equal(got["id"], number % 5)
    assert np.array_equal(got["time"], TICKS["time"][number % 5] + 10 * (number // 5))


def test_looping_past_the_end_of_a_narrow_event_time_is_an_error():
    ticks = table(id=np.arange(2), time=np.array([0, 30_000], "i2"))
    with pytest.raises((en.SchemaError, en.QueryError), match="time"):
        outcome(ticks, unchanged, time="time", loop=3)


def test_count_takes_the_first_events_of_an_array():
    assert outcome(TICKS, unchanged, count=2) == rows(TICKS)[:2]


def test_arrays_that_are_strided_padded_or_of_other_byte_order_are_read_right():
    aligned = np.dtype({"names": ["id", "time"], "formats": ["i2", "i8"]}, align=True)
    assert outcome(TICKS.astype(aligned), unchanged) == rows(TICKS)
    assert outcome(TICKS.astype([("id", ">i8"), ("time", ">i4")]), unchanged, time="time") == rows(TICKS)
    assert outcome(TICKS[::2], unchanged) == rows(TICKS[::2])


def test_a_data_frame_is_a_source():
    frame = pd.DataFrame({"time": [1, 2, 3], "price": [0.5, 1.5, 2.5], "sold": [True, False, True]})
    env = en.Environment(**SMALL)
    sink = env.source(frame, time="time").filter(lambda e: e.sold).collect()
    env.run()
    expected = frame[frame["sold"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(sink.frame(), expected)


# -- rates ------------------------------------------------------------------------------------------


def test_a_rate_limits_what_is_delivered():
    env = en.Environment(threads=2)
    env.source(TICKS, rate=20_000, loop=True, time="time").null()
    result = env.run(seconds=0.3)
    source = result.throughput.iloc[0]
    assert source["offered_rate"] == 20_000
    assert 0 < source["events"] <= 20_000 * source["seconds"] + 20_000 * 0.2
    assert source["delivered_rate"] == pytest.approx(source["events"] / source["seconds"])


@pytest.mark.parametrize("rate", [1e6, np.float32(5e5), np.int64(1_000_000), 1e12])
def test_a_paced_source_delivers_every_event(rate):
    assert outcome(TICKS, unchanged, time="time", rate=rate, loop=4) == outcome(
        TICKS, unchanged, time="time", loop=4
    )


def test_a_paced_iterator_and_a_paced_function_deliver_every_event():
    assert outcome(list(range(50)), unchanged, schema="id: i8", rate=1e5) == [(i,) for i in range(50)]
    assert outcome(lambda i: i, unchanged, schema="id: i8", rate=1e5, count=50) == [(i,) for i in range(50)]


# -- functions --------------------------------------------------------------------------------------


def test_a_function_of_the_events_number_is_a_source():
    got = outcome(lambda i: (i * i, i // 2), unchanged, schema=SCHEMA, time="time", count=6)
    assert got == [(0, 0), (1, 0), (4, 1), (9, 1), (16, 2), (25, 2)]


def test_a_function_that_does_not_compile_is_a_source_too():
    with pytest.warns(en.PythonFallbackWarning, match="squares"):

        def squares(i):
            return int(format(i * i, "d")), i // 2

        got = outcome(squares, unchanged, schema=SCHEMA, time="time", count=6)
    assert got == [(0, 0), (1, 0), (4, 1), (9, 1), (16, 2), (25, 2)]


def test_a_function_without_count_ends_with_the_run():
    env = en.Environment()
    sink = env.source(lambda i: i, schema="id: i8").collect()
    env.run(seconds=0.02)
    assert np.array_equal(sink.array()["id"], np.arange(len(sink.array())))


def test_a_function_counted_to_zero_ends_at_once():
    assert outcome(lambda i: i, unchanged, schema="id: i8", count=0) == []


# -- iterators --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        rows(TICKS),
        [list(row) for row in rows(TICKS)],
        [{"time": time, "id": i} for i, time in rows(TICKS)],
        [TICKS[:2], TICKS[2:2], TICKS[2:]],
        [*rows(TICKS)[:2], TICKS[2:]],
        list(TICKS),
    ],
    ids=["tuples", "lists", "dicts", "arrays", "mixed", "records"],
)
def test_items_of_an_iterable(items):
    assert outcome(items, unchanged, schema=SCHEMA, time="time") == rows(TICKS)


def test_single_values_of_an_iterable():
    assert outcome(range(5), unchanged, schema="id: i4") == [(i,) for i in range(5)]
    assert outcome((x / 2 for x in range(3)), unchanged, schema="x: f8") == [(0.0,), (0.5,), (1.0,)]


def test_an_iterator_longer_than_its_ring():
    count = 3 * en.operators.IteratorSource.ring_events + 17
    whole = table(id=np.arange(count))
    env = en.Environment(threads=2)
    sink = env.source([whole[:5], whole[5:]], schema="id: i8").collect()
    env.run()
    assert np.array_equal(sink.array(), whole)


def test_an_empty_iterable_is_an_empty_stream():
    assert outcome([], unchanged, schema="id: i8") == []


def test_an_endless_iterator_ends_with_the_run():
    env = en.Environment()
    sink = env.source(itertools.count(), schema="id: i8").collect()
    env.run(seconds=0.05)
    got = sink.array()["id"]
    assert np.array_equal(got, np.arange(len(got)))


def test_events_arrive_while_the_iterator_waits():
    arrived, go_on = threading.Event(), threading.Event()

    def items():
        yield 1
        assert arrived.wait(20)
        yield 2
        assert go_on.wait(20)

    env = en.Environment()
    got = []
    env.source(items(), schema="id: i8").for_each(lambda e: (got.append(int(e.id)), arrived.set()))
    with env:
        assert arrived.wait(20)
        go_on.set()
    assert got == [1, 2]


def test_an_iterator_that_raises_stops_its_query():
    def items():
        yield 1
        raise OSError("the line is cut")

    env = en.Environment(**SMALL)
    env.source(items(), schema="id: i8", name="line", query="lost").null()
    kept = env.source(TICKS, query="kept").collect()
    with pytest.raises(en.QueryError, match="the line is cut") as caught:
        env.run()
    assert (caught.value.query, caught.value.operator) == ("lost", "line")
    assert isinstance(caught.value.__cause__, OSError)
    assert rows(kept.array()) == rows(TICKS)


def test_an_iterator_cannot_be_used_twice_but_a_list_can():
    env = en.Environment(**SMALL)
    env.source([7, 8], schema="id: i8", name="again").null()
    env.source(iter([1, 2]), schema="id: i8", name="once").null()
    env.run()
    with pytest.raises(en.SchemaError, match=r"'once'.*used by an earlier run"):
        env.run()
    assert not env.running


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([(1, 2, 3)], "3 values for the 2 fields"),
        ([{"id": 1}], "lacks field 'time'"),
        ([table(x=[1])], "fields"),
        ([("a", 1)], "invalid literal|could not convert"),
    ],
)
def test_items_that_do_not_fit_the_schema(items, message):
    with pytest.raises(en.QueryError, match=message):
        outcome(items, unchanged, schema=SCHEMA)


# -- event time backwards ---------------------------------------------------------------------------


def test_an_array_backwards_in_time_is_refused_when_the_query_is_built():
    with pytest.raises(en.SchemaError, match=r"'ads'.*row 3: time=9 after 13"):
        en.Environment().source(table(time=[10, 11, 13, 9]), time="time", name="ads")


@pytest.mark.parametrize("compiled", [True, False])
def test_a_function_backwards_in_time_stops_its_query(compiled):
    env = en.Environment(**SMALL)
    if compiled:
        stream = env.source(lambda i: (i, i % 7), schema=SCHEMA, time="time", name="clock")
    else:
        with pytest.warns(en.PythonFallbackWarning):
            stream = env.source(
                lambda i: (i, int(format(i % 7, "d"))), schema=SCHEMA, time="time", name="clock"
            )
    sink = stream.collect()
    with pytest.raises(en.QueryError, match="'clock', event 7: event time runs backwards, below 6") as caught:
        env.run()
    assert (caught.value.operator, caught.value.number) == ("clock", 7)
    assert len(sink.array()) <= 7


@pytest.mark.parametrize("items", [[(0, 5), (1, 4)], [table(id=[0, 1], time=[5, 4])]])
def test_an_iterator_backwards_in_time_stops_its_query(items):
    with pytest.raises(en.QueryError, match="backwards: time=4 after 5"):
        outcome(items, unchanged, schema=SCHEMA, time="time")


# -- what is not a source ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.arange(3), {}, "structured array"),
        (TICKS[:0], {}, "empty"),
        (TICKS, {"loop": 0}, "loop=0"),
        (TICKS, {"loop": -1}, "loop=-1"),
        (TICKS, {"loop": 1.5}, "loop=1.5"),
        (TICKS, {"time": "when"}, "no field 'when'.*id, time"),
        (TICKS, {"time_unit": "hours"}, "time_unit='hours'"),
        (TICKS, {"count": -1}, "count=-1"),
        (table(x=[0.5]), {"time": "x"}, "must be an integer"),
        (table(when=np.zeros(1, "M8[s]")), {}, "field 'when'"),
        (pd.DataFrame({"name": ["a"]}), {}, "field 'name'"),
        ([1], {}, "schema="),
        ([1], {"schema": "id: i8", "loop": 2}, "only an array"),
        ([1], {"schema": "id: i8", "count": 1}, "count"),
        (7, {"schema": "id: i8"}, "a int is not a source"),
        (lambda i: i, {"schema": "id: i8", "count": 1.5}, "count=1.5"),
        (lambda i: i, {"schema": "id: i8", "count": -1}, "count=-1"),
    ],
)
def test_what_is_not_a_source_is_refused_with_a_reason(data, options, message):
    with pytest.raises(en.SchemaError, match=message):
        en.Environment().source(data, **options)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e13, "fast"])
def test_a_rate_out_of_range_is_refused(rate):
    with pytest.raises(en.SchemaError, match=r"'ads': rate=.* is out of range"):
        en.Environment().source(TICKS, rate=rate, name="ads")


def test_event_times_may_span_almost_all_there_are():
    times = np.array([-4 * 10**18, 4 * 10**18])
    assert [row[0] for row in outcome(table(time=times), unchanged, time="time")] == times.tolist()
