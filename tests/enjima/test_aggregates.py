"""count, sum, min, max, mean and what users write: values and types."""

import numpy as np
import pytest

import enjima as en
from tests.enjima.queries import SMALL, outcome, rows, table

TEN = en.Tumbling(seconds=10e-9)
TIMES = [0, 3, 9, 10]


def aggregated(values, **aggregates):
    """Aggregates of the field ``x`` over [0, 10) with three events and [10, 20) with one."""
    env = en.Environment(**SMALL)
    stream = env.source(table(x=values, time=TIMES), time="time").window(TEN).aggregate(**aggregates)
    sink = stream.collect()
    env.run()
    return sink.array()


@pytest.mark.parametrize("kind", ["i1", "u4", "f4"])
def test_built_in_aggregates_and_their_types(kind):
    got = aggregated(
        np.array([5, 100, 3, 7], kind),
        n=en.count(),
        total=en.sum("x"),
        low=en.min("x"),
        high=en.max("x"),
        middle=en.mean("x"),
    )
    assert rows(got) == [(0, 3, 108, 3, 100, 36.0), (10, 1, 7, 7, 7, 7.0)]
    assert [got.dtype[name].str[1:] for name in ("n", "low", "high", "middle")] == ["i8", kind, kind, "f8"]
    assert got.dtype["total"].kind == ("f" if kind[0] == "f" else "i")


def test_signs_and_extremes():
    low, high = -(2**63), 2**63 - 1
    got = aggregated([high, low, 0, -5], low=en.min("x"), high=en.max("x"))
    assert rows(got) == [(0, low, high), (10, -5, -5)]
    got = aggregated([-1.5, -0.25, -np.inf, np.inf], low=en.min("x"), high=en.max("x"))
    assert rows(got) == [(0, -np.inf, -0.25), (10, np.inf, np.inf)]


def test_unsigned_extremes_of_64_bits_are_exact():
    values = np.array([2**63 + 5, 2**64 - 1, 2**63 + 6, 3], "u8")
    got = aggregated(values, low=en.min("x"), high=en.max("x"))
    assert rows(got) == [(0, 2**63 + 5, 2**64 - 1), (10, 3, 3)]


def test_booleans_count_as_numbers():
    got = aggregated([True, False, True, False], total=en.sum("x"), share=en.mean("x"), high=en.max("x"))
    assert rows(got) == [(0, 2, 2 / 3, True), (10, 0, 0.0, False)]


def test_a_narrow_field_sums_beyond_its_width():
    got = aggregated(np.array([100, 100, 100, 1], "i1"), total=en.sum("x"))
    assert rows(got) == [(0, 300), (10, 1)]


def test_a_users_aggregate_with_a_tuple_for_state():
    spread = en.Aggregate(
        init=lambda: (10**9, -(10**9)),
        add=lambda state, e: (min(state[0], e.x), max(state[1], e.x)),
        merge=lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
        result=lambda state: state[1] - state[0],
        dtype="i8",
    )
    assert rows(aggregated([5, 11, 3, 7], spread=spread, n=en.count())) == [(0, 8, 3), (10, 0, 1)]


def test_a_users_aggregate_with_one_number_and_another_type_of_result():
    half = en.Aggregate(
        init=lambda: 0,
        add=lambda state, e: state + e.x,
        merge=lambda a, b: a + b,
        result=lambda state: state / 2,
        dtype="f4",
    )
    got = aggregated([5, 11, 3, 7], half=half)
    assert rows(got) == [(0, 9.5), (10, 3.5)]
    assert got.dtype["half"] == np.float32


def test_a_users_aggregate_that_does_not_compile():
    digits = en.Aggregate(
        init=lambda: 0,
        add=lambda state, e: state + len(str(int(e.x)) + format(1, "x")),
        merge=lambda a, b: a + b,
        result=lambda state: state,
        dtype="i8",
    )
    with pytest.warns(en.PythonFallbackWarning, match="operator 'window'"):
        got = aggregated([5, 110, 3, 7], digits=digits, n=en.count(), middle=en.mean("x"))
    assert rows(got) == [(0, 8, 3, 118 / 3), (10, 2, 1, 7.0)]


def test_a_whole_state_that_meets_fractions_is_not_cut_silently():
    """The state's type comes from init(): adding 0.5 to an integer state must be refused or kept."""
    total = en.Aggregate(
        init=lambda: 0,
        add=lambda state, e: state + e.x,
        merge=lambda a, b: a + b,
        result=lambda state: state,
    )
    try:
        got = rows(aggregated([0.5, 0.25, 0.75, 0.5], total=total))
    except en.SchemaError as error:
        assert "init" in str(error)
    else:
        assert got == [(0, 1.5), (10, 0.5)]


@pytest.mark.parametrize("start", ["", None, [], (), (1, "a")])
def test_a_state_is_a_number_or_a_tuple_of_numbers(start):
    wrong = en.Aggregate(lambda: start, lambda s, e: s, lambda a, b: a, lambda s: 0)
    stream = en.Environment().source(table(x=[1], time=[1]), time="time").window(TEN)
    with pytest.raises(en.SchemaError, match="a state is a number or a tuple of numbers"):
        stream.aggregate(x=wrong)


@pytest.mark.parametrize("make", [en.sum, en.min, en.max, en.mean])
def test_a_field_is_named_by_a_name_and_holds_numbers(make):
    with pytest.raises(en.SchemaError, match="name of a field"):
        make(7)
    stream = en.Environment().source(table(x=np.array([b"a"]), time=[1]), time="time").window(TEN)
    with pytest.raises(en.SchemaError, match=r"field 'x' is .*needs a number"):
        stream.aggregate(y=make("x"))


@pytest.mark.parametrize("make", [en.count, lambda: en.sum("x"), lambda: en.min("x"), lambda: en.mean("x")])
def test_partial_states_merge(make):
    """Two halves added apart and merged are the same as all added together."""
    events = table(x=[5.0, 11.0, 3.0, 7.0]).view(np.recarray)
    aggregate = make()

    def state_of(part):
        state = aggregate.init()
        for event in part:
            state = aggregate.add(state, event)
        return state

    merged = aggregate.merge(state_of(events[:1]), state_of(events[1:]))
    assert aggregate.result(merged) == aggregate.result(state_of(events))


def test_an_aggregate_is_used_by_many_windows():
    total = en.sum("x")
    for kind in ("i4", "f8"):
        assert outcome(
            table(x=np.array([1, 2], kind), time=[0, 1]),
            lambda s: s.window(TEN).aggregate(total=total),
            time="time",
        ) == [(0, 3)]
