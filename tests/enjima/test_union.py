"""union: every event once, by (event time, input), whatever the threads do."""

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL, rows, table
from tests.enjima.streams import MODES, TEN, TINY, combined, mode, none

LEFT = table(id=[1, 2, 3, 4], time=[0, 2, 2, 5])
RIGHT = table(id=[11, 12, 13, 14], time=[0, 1, 2, 9])
MERGED = [(1, 0), (11, 0), (12, 1), (2, 2), (3, 2), (13, 2), (4, 5), (14, 9)]


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("sizes", [SMALL, TINY, {}])
def test_events_come_in_the_order_of_time_then_input(name, sizes):
    assert combined(lambda a, b: a.union(b), LEFT, RIGHT, options=sizes | mode(name)) == MERGED


def test_the_order_of_inputs_decides_ties():
    got = combined(lambda a, b: b.union(a), LEFT, RIGHT)
    assert got == [(11, 0), (1, 0), (12, 1), (13, 2), (2, 2), (3, 2), (4, 5), (14, 9)]


def test_union_with_itself():
    got = combined(lambda a: a.union(a, a), table(id=[1, 2, 3], time=[1, 1, 2]))
    assert got == [(1, 1), (2, 1)] * 3 + [(3, 2)] * 3


def test_many_inputs():
    tables = [make_events(200 + 30 * seed, seed) for seed in range(9)]
    got = combined(lambda first, *others: first.union(*others), *tables)
    assert len(got) == sum(map(len, tables))


@pytest.mark.parametrize("kind", ["i2", "i4", "u4", "u8"])
def test_event_times_of_every_width(kind):
    left, right = (table(id=part["id"], time=part["time"].astype(kind)) for part in (LEFT, RIGHT))
    assert combined(lambda a, b: a.union(b), left, right) == MERGED


def test_negative_times_and_loops():
    left, right = table(id=[1, 2], time=[-5, -1]), table(id=[3, 4], time=[-7, -1])
    assert combined(lambda a, b: a.union(b), left, right) == [(3, -7), (1, -5), (2, -1), (4, -1)]
    got = combined(lambda a, b: a.union(b), left, right, loop=50)
    assert [time for _, time in got] == sorted(time for _, time in got) and len(got) == 200


def back(e):
    return e.id, 4 if e.id == 3 else e.time


def test_an_event_older_than_its_predecessor_counts_as_that_one():
    left = table(id=[1, 2, 3, 4], time=[0, 10, 10, 11])
    right = table(id=[11, 12], time=[5, 10])
    got = combined(lambda a, b: a.map(back).union(b), left, right)
    assert got == [(1, 0), (11, 5), (2, 10), (3, 4), (12, 10), (4, 11)]


@pytest.mark.parametrize("name", MODES)
def test_an_input_without_events_ends_without_harm(name):
    options = TINY | mode(name)
    assert combined(lambda a, b: none(a).union(b), LEFT, RIGHT, options=options) == rows(RIGHT)
    assert combined(lambda a, b: a.union(none(b)), LEFT, RIGHT, options=options) == rows(LEFT)
    assert combined(lambda a, b: none(a).union(none(b)), LEFT, RIGHT, options=options) == []


def test_an_input_that_ends_early():
    long = table(id=np.arange(5000), time=np.arange(5000))
    got = combined(lambda a, b: a.union(b), LEFT, long)
    assert len(got) == 5004 and got[-1] == (4999, 4999)


def test_a_window_over_a_union_sees_time_pass():
    got = combined(lambda a, b: a.union(b).window(TEN).aggregate(n=en.count()), LEFT, RIGHT)
    assert got == [(0, 8)]


def test_streams_united_are_one_query():
    env = en.Environment(**SMALL)
    first = env.source(LEFT, time="time")
    first.union(env.source(RIGHT, time="time", query="given"), env.source(RIGHT, time="time")).null()
    result = env.run()
    assert set(result.operators["query"]) == {"given"}


def stream(env=None, **options):
    return (env or en.Environment()).source(LEFT, **{"time": "time"} | options)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, env: s.union(s.map(lambda e: (e.time,), schema="time: i8")), "same"),
        (lambda s, env: s.union(stream(env, time=None)), "no event time"),
        (lambda s, env: stream(env, time=None).union(s), "no event time"),
        (lambda s, env: s.union(stream(env, time_unit="ms")), "unit"),
        (lambda s, env: s.union(stream()), "environment"),
        (lambda s, env: s.union(), "at least one"),
        (lambda s, env: s.union(LEFT), "not a stream"),
    ],
)
def test_a_union_that_cannot_be_is_refused(build, message):
    env = en.Environment()
    with pytest.raises((en.SchemaError, en.GraphError), match=message):
        build(stream(env), env)
