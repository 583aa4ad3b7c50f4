"""co_group: a function over the events of both streams, for each key and window."""

import time as clock

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL, table
from tests.enjima.streams import MODES, TEN, TEN_BY_FIVE, TINY, combined, late_events, mode, none, ran

LEFT = table(key=[1, 2, 1, 1], a=[10, 20, 30, 40], time=[0, 3, 9, 10])
RIGHT = table(b=[0.5, 1.5, 2.5, 3.5], key=[1, 1, 3, 1], time=[5, 10, 11, 12])
SIZES = "lefts: i8, rights: i8"


def sizes(lefts, rights):
    yield len(lefts), len(rights)


def sums(lefts, rights):
    total = 0.0
    for left in lefts:
        total += left.a
    for i in range(len(rights)):
        total += rights[i].b
    return [(total, len(lefts))]


def products(lefts, rights):
    for left in lefts:
        for right in rights:
            yield left.a * right.b


def in_python(lefts, rights):
    return [(int(f"{len(lefts)}"), sum(1 for _ in rights))]


def group(apply=sizes, schema=SIZES, window=TEN, **options):
    return lambda s, t: s.co_group(t, on="key", window=window, apply=apply, schema=schema, **options)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("limits", [SMALL, TINY, {}])
def test_groups_of_a_tumbling_window(name, limits):
    got = combined(group(), LEFT, RIGHT, options=limits | mode(name))
    assert got == [(0, 1, 2, 1), (0, 2, 1, 0), (10, 1, 1, 2), (10, 3, 0, 1)]


def test_groups_of_sliding_windows():
    got = combined(group(window=TEN_BY_FIVE), LEFT, RIGHT)
    assert sorted(got) == [
        (-5, 1, 1, 0),
        (-5, 2, 1, 0),
        (0, 1, 2, 1),
        (0, 2, 1, 0),
        (5, 1, 2, 3),
        (5, 3, 0, 1),
        (10, 1, 1, 2),
        (10, 3, 0, 1),
    ]


def test_fields_events_and_any_number_of_results():
    assert combined(group(sums, "total: f8, n: i4"), LEFT, RIGHT) == [
        (0, 1, 40.5, 2),
        (0, 2, 20.0, 1),
        (10, 1, 45.0, 1),
        (10, 3, 2.5, 0),
    ]
    got = combined(group(products, "product: f8"), LEFT, RIGHT)
    assert got == [(0, 1, 5.0), (0, 1, 15.0), (10, 1, 60.0), (10, 1, 140.0)]


def test_the_fields_of_a_result():
    env = en.Environment()
    stream = group()(env.source(LEFT, time="time"), env.source(RIGHT, time="time"))
    assert str(stream.schema) == "window_start: i8, key: i8, lefts: i8, rights: i8"
    assert stream.time == "window_start"


@pytest.mark.parametrize("window", [TEN, TEN_BY_FIVE])
@pytest.mark.parametrize("name", MODES)
def test_a_function_that_does_not_compile(window, name):
    left, right = make_events(200, 1, gap=5), make_events(100, 2, gap=9)
    limits = TINY | mode(name)
    with pytest.warns(en.PythonFallbackWarning, match="in_python"):
        got = combined(group(in_python, window=window), left, right, options=limits)
    assert sorted(got) == sorted(combined(group(window=window), left, right, options=limits))


def test_negative_times_and_ends_of_windows():
    left, right = table(key=[1] * 4, a=range(4), time=[-20, -11, -10, 0]), table(key=[1], b=[1.0], time=[-1])
    assert combined(group(), left, right) == [(-20, 1, 2, 0), (-10, 1, 1, 1), (0, 1, 1, 0)]


@pytest.mark.parametrize(
    "window",
    [TEN_BY_FIVE, en.Sliding(seconds=10e-9, every=3e-9), en.Sliding(seconds=7e-9, every=7e-9)],
)
def test_random_streams(window):
    combined(group(window=window), make_events(800, 1), make_events(500, 2, gap=5))
    combined(group(window=TEN), make_events(800, 1), make_events(500, 2, gap=5))


@pytest.mark.parametrize("window", [TEN, TEN_BY_FIVE])
def test_long_gaps_cost_nothing(window):
    times = [0, 1, 10**15, 10**15 + 1, 4 * 10**18]
    began = clock.perf_counter()
    combined(group(window=window), table(key=[1] * 5, time=times), table(key=[1] * 5, b=range(5), time=times))
    assert clock.perf_counter() - began < 20


@pytest.mark.parametrize("kind", ["?", "i1", "i4", "i8", "u1", "u2", "u8"])
def test_keys_of_all_kinds(kind):
    limits = (0, 1) if kind == "?" else (np.iinfo(kind).min, np.iinfo(kind).max)
    left = table(key=np.array(limits, kind), time=[0, 1])
    right = table(key=np.array(limits[::-1], kind), b=[5, 6], time=[3, 4])
    assert combined(group(), left, right) == [(0, limits[0], 1, 1), (0, limits[1], 1, 1)]


def test_several_keys_and_many_of_them():
    numbers = np.arange(20_000)
    left = table(a=(numbers % 100).astype("u1"), b=numbers // 100, time=numbers // 1000)
    right = table(b=numbers // 200, a=(numbers % 100).astype("u1"), time=numbers // 1000)
    window = en.Tumbling(seconds=1)
    got = combined(
        lambda s, t: s.co_group(t, on=["a", "b"], window=window, apply=sizes, schema=SIZES), left, right
    )
    assert len(got) == 20_000 and sum(row[-1] for row in got) == 20_000


@pytest.mark.parametrize("name", MODES)
def test_thousands_of_results_through_blocks_of_one_event(name):
    many = table(key=[1] * 3000, a=np.arange(3000), time=np.full(3000, 7))
    one = table(key=[1], b=[2.0], time=[8])
    got = combined(group(products, "product: f8"), many, one, options=TINY | mode(name))
    assert [row[-1] for row in got] == [2.0 * i for i in range(3000)]


def test_a_stream_with_itself():
    got = combined(lambda s: group()(s, s), LEFT)
    assert got == [(0, 1, 2, 2), (0, 2, 1, 1), (10, 1, 1, 1)]


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("window", [TEN, TEN_BY_FIVE])
def test_a_side_without_events(name, window):
    options = TINY | mode(name)
    build = group(window=window)
    windows = 1 if window is TEN else 2
    left = combined(lambda s, t: build(s, none(t)), LEFT, RIGHT, options=options)
    assert sum(row[-2] for row in left) == 4 * windows and not any(row[-1] for row in left)
    right = combined(lambda s, t: build(none(s), t), LEFT, RIGHT, options=options)
    assert sum(row[-1] for row in right) == 4 * windows and not any(row[-2] for row in right)
    assert combined(lambda s, t: build(none(s), none(t)), LEFT, RIGHT, options=options) == []


def test_a_side_that_ends_early():
    long = table(key=np.arange(5000) % 3, a=np.arange(5000), time=np.arange(5000))
    got = combined(group(), long, table(key=[1], b=[5], time=[0]))
    assert len(got) == 1500 and sum(row[-1] for row in got) == 1


# -- what goes wrong --------------------------------------------------------------------------------


def back(e):
    return e.key, e.a, (4 if e.a == 40 else e.time)


@pytest.mark.parametrize("apply", [sizes, in_python])
@pytest.mark.parametrize("window", [TEN, en.Sliding(seconds=4e-9, every=2e-9)])
@pytest.mark.filterwarnings("ignore::enjima.PythonFallbackWarning")
def test_late_events(window, apply):
    left = table(key=[1, 2, 1, 1], a=[10, 20, 30, 40], time=[0, 3, 30, 31])
    right = table(key=[1, 1, 1], b=[1, 2, 3], time=[4, 31, 33])
    with pytest.raises(en.QueryError, match="late") as caught:
        combined(lambda s, t: group(apply, window=window, name="g")(s.map(back), t), left, right)
    assert (caught.value.operator, caught.value.event) == ("g", {"key": 1, "a": 40, "time": 4})
    build = group(apply, window=window, name="g", late="drop")
    result, got = ran(lambda s, t: build(s.map(back), t), left, right)
    assert late_events(result, "g") == 1
    assert sum(row[-2] for row in got) == 3 * (1 if window is TEN else 2)


def failing(lefts, rights):
    if len(rights) == 2:
        raise ValueError("two of them")
    yield len(lefts), len(rights)


def failing_in_python(lefts, rights):
    if len(rights) == int(format(2, "d")):
        raise ValueError("two of them")
    return [(len(lefts), len(rights))]


@pytest.mark.parametrize("apply", [failing, failing_in_python])
@pytest.mark.parametrize("window", [TEN, TEN_BY_FIVE])
@pytest.mark.filterwarnings("ignore::enjima.PythonFallbackWarning")
def test_a_function_that_raises(window, apply):
    with pytest.raises(en.QueryError, match="two of them") as caught:
        combined(group(apply, window=window, name="g"), LEFT, RIGHT)
    assert caught.value.operator == "g"
    assert isinstance(caught.value.__cause__, ValueError)


def stream(env=None, data=LEFT, **options):
    return (env or en.Environment()).source(data, **{"time": "time"} | options)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, t, env: s.co_group(t, on="key", apply=sizes, schema=SIZES), "window"),
        (lambda s, t, env: group()(s, stream(env, table(key=np.array([1], "u8"), time=[0]))), "u?int64"),
        (lambda s, t, env: group()(s, stream(env, RIGHT, time=None)), "no event time"),
        (lambda s, t, env: group()(s, stream(env, RIGHT, time_unit="ms")), "unit"),
        (lambda s, t, env: group()(s, stream(None, RIGHT)), "environment"),
        (lambda s, t, env: group(schema="a: i8")(s, t), "2 values for the 1 field|2 values.*schema"),
        (lambda s, t, env: group(schema="a: i8, b: i8, c: i8")(s, t), "2 values"),
        (lambda s, t, env: group(schema="key: i8, b: i8")(s, t), "two fields 'key'"),
        (lambda s, t, env: group(schema=None)(s, t), "schema"),
        (lambda s, t, env: group(lambda lefts: [(1, 2)])(s, t), "two arguments"),
        (lambda s, t, env: group(3)(s, t), "needs a function"),
        (lambda s, t, env: group(late="keep")(s, t), "late='keep'"),
        (lambda s, t, env: s.co_group(t, on="a", window=TEN, apply=sizes, schema=SIZES), "no field 'a'"),
    ],
)
def test_a_co_group_that_cannot_be_is_refused(build, message):
    env = en.Environment()
    with pytest.raises((en.SchemaError, en.GraphError), match=message):
        build(stream(env), stream(env, RIGHT), env)


def test_a_field_that_is_not_there():
    def wrong(lefts, rights):
        for left in lefts:
            yield left.price

    env = en.Environment()
    with pytest.raises(en.SchemaError, match="price"):
        group(wrong, "x: i8")(stream(env), stream(env, RIGHT))


def test_python_results_of_the_wrong_size():
    with (
        pytest.warns(en.PythonFallbackWarning),
        pytest.raises((en.QueryError, en.SchemaError), match="2 values"),
    ):
        combined(group(in_python, "a: i8"), LEFT, RIGHT)
