"""Bad input: refused when the query is built if that can be, else the query stops and says where."""

import re

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL, outcome, rows, table

EVENTS = make_events(2000)
TEN = en.Tumbling(seconds=10e-9)
FIELDS = "the stream has key, value, weight, time"
LENGTHS = np.arange(10)


def stream(**options):
    return en.Environment().source(EVENTS, time="time", **options)


# -- when the query is built ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.filter(lambda e: e.price > 3, name="here"),
        lambda s: s.map(lambda e: (e.key, e.price), schema="a: i8, b: i8", name="here"),
        lambda s: s.flat_map(lambda e: [(e.price,)], schema="a: i8", name="here"),
        lambda s: s.filter(lambda e: (lambda f: f.price > 3)(e), name="here"),
        lambda s: s.window(TEN).aggregate(
            x=en.Aggregate(lambda: 0, lambda s, e: s + e.price, lambda a, b: a, lambda s: s), name="here"
        ),
        lambda s: s.window(TEN).aggregate(x=en.sum("price"), name="here"),
        lambda s: s.key_by("key").window(TEN).aggregate(x=en.mean("price"), name="here"),
        lambda s: s.join_static({"price": [1], "x": [1]}, on="price", name="here"),
        lambda s: s.key_by("price"),
    ],
)
def test_a_field_that_does_not_exist(build):
    with pytest.raises(en.SchemaError) as caught:
        build(stream())
    assert "'price'" in str(caught.value)
    assert FIELDS in str(caught.value)
    if build.__code__.co_consts and "here" in build.__code__.co_consts:
        assert "'here'" in str(caught.value)


def test_a_field_that_python_alone_would_miss():
    """The function does not compile for another reason, so the field is missed at the first event."""
    with (
        pytest.warns(en.PythonFallbackWarning),
        pytest.raises((en.SchemaError, en.QueryError), match="price"),
    ):
        outcome(EVENTS, lambda s: s.filter(lambda e: format(getattr(e, "price"), "d") == "3"))  # noqa: B009


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.filter(3), "'filter' needs a function, not int 3"),
        (lambda s: s.map("x"), "'map' needs a function, not str 'x'"),
        (lambda s: s.flat_map(None), "'flat_map' needs a function"),
        (lambda s: s.for_each(None), "'for_each' needs a function"),
        (lambda s: s.filter(lambda e: (e.key, 1)), "returns .*; a filter returns a boolean"),
        (lambda s: s.filter(lambda e: None), "a filter returns a boolean"),
        (lambda s: s.map(lambda e: e.key), "returns 1 values for the 4 fields of schema key: i8"),
        (lambda s: s.map(lambda e: (e.key, 1, 2), schema="a: i8, b: i8"), "3 values for the 2 fields"),
        (lambda s: s.map(lambda e: ("a", 1), schema="a: i8, b: i8"), "for field 'a'"),
        (lambda s: s.map(lambda e: None, schema="a: i8"), "returns none for field 'a'"),
        (lambda s: s.flat_map(lambda e: e.key, schema="a: i8"), "needs a generator or a list"),
        (lambda s: s.flat_map(lambda e: [(e.key, 1)], schema="a: i8"), "2 values for the 1 fields"),
        (lambda s: s.map(lambda: 1, schema="a: i8"), "takes 0|no argument|one argument|takes the event"),
        (lambda s: s.filter(lambda a, b: True), "takes 2|one argument|takes the event"),
        (lambda s: s.collect(limit=-1), "limit=-1"),
        (lambda s: s.collect(limit=1.5), "limit=1.5"),
    ],
)
def test_a_function_or_argument_of_the_wrong_type(build, message):
    with pytest.raises(en.SchemaError, match=message):
        build(stream())


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("a i8", "not of the form"),
        ("", "not of the form"),
        ("a: nonsense", "not valid"),
        ("a: i8, a: i8", "not valid|twice"),
        ("a: O", "field 'a'"),
        ("a: U4", "field 'a'"),
        ({"a": "M8[s]"}, "field 'a'"),
        ("i8", "not of the form"),
        (np.dtype("i8"), "no named fields"),
        (np.dtype([("a", "i8", 3)]), "field 'a'"),
        ({"a b": "i8"}, "'a b'"),
        ({"class": "i8"}, "'class'"),
        ("from: i8", "'from'"),
    ],
)
def test_a_schema_that_cannot_be(schema, message):
    with pytest.raises(en.SchemaError, match=message):
        en.Schema(schema)


def test_event_time_stays_an_integer():
    """A map that makes event time a float is refused, or the steps behind it work."""
    try:
        moved = stream().map(lambda e: (e.key, e.time * 0.5), schema="key: i8, time: f8")
        moved.filter(lambda e: e.time > 0.5)
    except en.SchemaError as error:
        assert "time" in str(error)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"block_events": 0}, "block_events=0"),
        ({"block_events": -1}, "block_events=-1"),
        ({"block_events": 1 << 21}, "block_events=2097152"),
        ({"block_events": 1.5}, "block_events=1.5"),
        ({"blocks_per_chunk": 0}, "blocks_per_chunk=0"),
        ({"max_chunks": 0}, "max_chunks=0"),
        ({"max_chunks": 1}, "max_chunks=1 is too small"),
        ({"max_chunks": "many"}, "max_chunks='many'"),
    ],
)
def test_memory_limits_out_of_range(options, culprit):
    with pytest.raises(en.MemoryLimitError, match=re.escape(culprit)):
        en.Environment(**options)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"threads": 0}, "threads=0"),
        ({"threads": -2}, "threads=-2"),
        ({"threads": 1.5}, "threads=1.5"),
        ({"threads": 5000}, "threads=5000"),
        ({"marker_interval": -1}, "marker_interval=-1"),
        ({"granularity": -1}, "granularity=-1"),
        ({"granularity": 2}, "granularity=2"),
    ],
)
def test_other_options_out_of_range(options, culprit):
    with pytest.raises(ValueError, match=re.escape(culprit)):
        en.Environment(**options)


def test_chunks_larger_than_memory_are_refused_by_name():
    env = en.Environment(block_events=1 << 20, blocks_per_chunk=1 << 16)
    env.source(EVENTS).null()
    with pytest.raises(en.MemoryLimitError, match="no memory for a chunk"):
        env.run()
    assert not env.running


def test_an_environment_without_a_query():
    with pytest.raises(en.GraphError, match="has no query"):
        en.Environment().run()


def test_a_stream_without_a_sink():
    env = en.Environment()
    env.source(EVENTS, query="fine").null()
    env.source(EVENTS, query="loose").filter(lambda e: True, name="the end")
    with pytest.raises(en.GraphError, match="'loose': nothing consumes 'the end'"):
        env.run()


def test_two_queries_of_one_name():
    env = en.Environment()
    env.source(EVENTS, query="mine").null()
    with pytest.raises(en.GraphError, match="there is a query 'mine' already"):
        env.source(EVENTS, query="mine")


def test_operators_of_one_name_are_numbered():
    env = en.Environment()
    for _ in range(2):
        env.source(EVENTS, name="a").filter(lambda e: True).null()
    env.source(EVENTS, name="a-2").null()
    names = [operator.name for operator in env.plan.operators]
    assert names[:4] == ["a", "filter", "null", "a-2"]
    assert len(set(names)) == len(names)


def test_a_step_that_was_refused_leaves_the_environment_as_it_was():
    env = en.Environment(**SMALL)
    source = env.source(EVENTS)
    with pytest.raises(en.SchemaError):
        source.filter(lambda e: e.nope)
    sink = source.collect()
    env.run()
    assert np.array_equal(sink.array(), EVENTS)


def test_running_while_running():
    env = en.Environment()
    env.source(EVENTS, loop=True).null()
    with env:
        with pytest.raises(en.GraphError, match="running already"):
            env.start()
        with pytest.raises(en.GraphError, match="running already"):
            env.run()
        assert env.running
    with pytest.raises(en.GraphError, match="not running"):
        env.stop()


@pytest.mark.parametrize(
    "times",
    [
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": 1, "warmup": -1},
        {"seconds": 1, "warmup": 0.5, "cooldown": 0.5},
        {"cooldown": 1},
        {"sample_every": 0},
        {"on_error": "ignore"},
    ],
)
def test_times_of_a_run_that_cannot_be(times):
    env = en.Environment()
    env.source(EVENTS).null()
    with pytest.raises(ValueError):
        env.run(**times)
    assert not env.running


# -- when it runs -----------------------------------------------------------------------------------


def look_up(e):
    return LENGTHS[e.key], e.time


def look_up_in_python(e):
    return LENGTHS[int(format(e.key, "d"))], e.time


def look_up_all(e):
    for i in range(e.key + 1):
        yield LENGTHS[i], e.time


def is_long(e):
    return LENGTHS[e.key] > 5


def failing_window(add):
    return lambda s: s.window(TEN).aggregate(
        x=en.Aggregate(lambda: 0, add, lambda a, b: a, lambda state: state, "i8"), name="step"
    )


NUMBERS = table(key=np.r_[np.arange(100) % 10, 10, np.arange(50) % 10], time=np.arange(151))
SCHEMA = "x: i8, time: i8"
STEPS = {
    "filter": lambda s: s.filter(is_long, name="step"),
    "map": lambda s: s.map(look_up, schema=SCHEMA, name="step"),
    "flat_map": lambda s: s.flat_map(look_up_all, schema=SCHEMA, name="step"),
    "window": failing_window(lambda state, e: state + LENGTHS[e.key]),
    "python map": lambda s: s.map(look_up_in_python, schema=SCHEMA, name="step"),
    "python filter": lambda s: s.filter(lambda e: look_up_in_python(e)[0] > 5, name="step"),
    "python flat_map": lambda s: s.flat_map(lambda e: [look_up_in_python(e)], schema=SCHEMA, name="step"),
    "python window": failing_window(lambda state, e: state + look_up_in_python(e)[0]),
}


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.filterwarnings("ignore::enjima.PythonFallbackWarning")
@pytest.mark.parametrize("options", [SMALL, {"threads": 4}], ids=["small blocks", "large blocks"])
def test_a_function_that_raises_at_an_event(kind, options):
    """Event 100 is out of the table's range: the query stops there, the others end as they should."""
    env = en.Environment(**options)
    before = env.source(EVENTS, query="before").collect()
    failed = STEPS[kind](env.source(NUMBERS, time="time", query="failing")).collect()
    after = env.source(EVENTS, query="after", loop=3).filter(lambda e: e.value > 0).collect()
    with pytest.raises(en.QueryError) as caught:
        env.run()
    error = caught.value
    assert (error.query, error.operator, error.number) == ("failing", "step", 100)
    assert error.event == {"key": 10, "time": 100}
    assert isinstance(error.__cause__, IndexError)
    assert error.__cause__.__traceback__ is not None
    assert "'failing'" in str(error) and "'step'" in str(error) and "event 100" in str(error)
    assert "IndexError" in str(error)
    assert np.array_equal(before.array(), EVENTS)
    assert np.array_equal(after.array(), np.tile(EVENTS[EVENTS["value"] > 0], 3))
    expected = outcome(NUMBERS[:100], STEPS[kind], time="time")
    assert rows(failed.array()) == expected[: len(failed.array())]  # what it had emitted, and no more
    assert error.result is env.result and env.result.errors == [error]


def test_an_environment_runs_again_after_an_error():
    fail = [True]

    def callback(e):
        if fail[0] and e.key == 5:
            raise LookupError("five")

    env = en.Environment(**SMALL)
    source = env.source(NUMBERS, time="time")
    source.for_each(callback, name="end")
    kept = source.collect()
    with pytest.raises(en.QueryError, match=r"'end', event 5.*LookupError: five"):
        env.run()
    fail[0] = False
    assert env.run().errors == []
    assert np.array_equal(kept.array(), NUMBERS)


@pytest.mark.parametrize("batches", [False, True])
def test_a_callback_that_raises(batches):
    def callback(events):
        if (events["key"].max() if batches else events.key) == 10:
            raise KeyError("ten")

    env = en.Environment(**SMALL)
    source = env.source(NUMBERS, time="time")
    if batches:
        source.for_each_batch(callback, name="end")
    else:
        source.for_each(callback, name="end")
    with pytest.raises(en.QueryError) as caught:
        env.run()
    assert caught.value.operator == "end"
    assert isinstance(caught.value.__cause__, KeyError)
    assert 98 < caught.value.number <= 100 if batches else caught.value.number == 100


def test_an_event_that_fails_in_a_later_pass_is_shown_with_its_own_time():
    env = en.Environment(**SMALL)
    env.source(table(key=[1, 2], time=[0, 1]), time="time", loop=5).map(
        lambda e: (LENGTHS[e.time + 3], e.time)
    ).null()
    with pytest.raises(en.QueryError) as caught:
        env.run()
    assert (caught.value.number, caught.value.event) == (7, {"key": 2, "time": 7})


@pytest.mark.parametrize("compiled", [True, False])
def test_a_source_function_that_raises(compiled):
    env = en.Environment(**SMALL)
    if compiled:
        source = env.source(lambda i: (LENGTHS[i], i), schema=SCHEMA, time="time", name="numbers")
    else:
        with pytest.warns(en.PythonFallbackWarning):
            source = env.source(
                lambda i: (LENGTHS[int(format(i, "d"))], i), schema=SCHEMA, time="time", name="numbers"
            )
    sink = source.collect()
    with pytest.raises(en.QueryError) as caught:
        env.run()
    assert (caught.value.operator, caught.value.number) == ("numbers", 10)
    assert isinstance(caught.value.__cause__, IndexError)
    assert rows(sink.array()) == [(i, i) for i in range(len(sink.array()))]


def test_the_result_of_an_aggregate_that_raises():
    """The window is over, so it is not one event that is to blame, but the cause is the user's own."""
    failing = en.Aggregate(lambda: 0, lambda s, e: s + 1, lambda a, b: a + b, lambda s: LENGTHS[s * 5], "i8")
    env = en.Environment(**SMALL)
    window = env.source(table(key=[1, 2, 3], time=[0, 10, 11]), time="time").window(TEN)
    sink = window.aggregate(x=failing, name="step").collect()
    with pytest.raises(en.QueryError) as caught:
        env.run()
    assert caught.value.operator == "step"
    assert isinstance(caught.value.__cause__, IndexError)
    assert rows(sink.array()) in ([(0, 5)], [])


def test_errors_can_be_recorded_instead():
    env = en.Environment(**SMALL)
    for name in ("one", "two"):
        STEPS["map"](env.source(NUMBERS, time="time", query=name)).null()
    kept = env.source(EVENTS, query="three").collect()
    result = env.run(on_error="record")
    assert sorted((error.query, error.number) for error in result.errors) == [("one", 100), ("two", 100)]
    assert "2 failed" in repr(result)
    assert np.array_equal(kept.array(), EVENTS)


def test_stop_raises_what_happened():
    import threading

    failed = threading.Event()

    def callback(e):
        failed.set()
        raise LookupError("first")

    env = en.Environment()
    env.source(NUMBERS).for_each(callback)
    env.start()
    assert failed.wait(20)
    with pytest.raises(en.QueryError, match="LookupError: first"):
        env.stop()
    assert not env.running


def test_an_error_inside_with_is_not_hidden_by_the_stop():
    env = en.Environment()
    env.source(EVENTS, loop=True).null()
    with pytest.raises(LookupError, match="mine"), env:
        raise LookupError("mine")
    assert not env.running


def test_python_functions_of_the_wrong_arity_stop_their_query():
    with pytest.warns(en.PythonFallbackWarning), pytest.raises(en.QueryError) as caught:
        outcome(NUMBERS, lambda s: s.map(lambda e: (int(format(e.key, "d")),)))
    assert isinstance(caught.value.__cause__, en.SchemaError)
    assert "1 values for the 2 fields" in str(caught.value)
