"""filter, map, flat_map and their order, on tables small enough to check by hand."""

import numpy as np
import pytest

import enjima as en
from tests.enjima.queries import SMALL, outcome, rows, table

ORDERS = table(item=[1, 2, 3, 4, 5], price=[0.5, 1.0, 1.5, 2.0, 2.5], time=[0, 10, 20, 30, 40])
RATES = np.array([10, 20, 30])


def test_filter_keeps_events_and_their_order():
    assert outcome(ORDERS, lambda s: s.filter(lambda e: e.item % 2 == 1)) == [
        (1, 0.5, 0),
        (3, 1.5, 20),
        (5, 2.5, 40),
    ]


@pytest.mark.parametrize("predicate", [lambda e: e.item - 3, lambda e: e.price * 0 + (e.item != 3)])
def test_filter_takes_numbers_for_truth(predicate):
    assert [row[0] for row in outcome(ORDERS, lambda s: s.filter(predicate))] == [1, 2, 4, 5]


def test_map_keeps_the_schema_or_changes_it():
    assert outcome(ORDERS[:2], lambda s: s.map(lambda e: (e.item * 10, e.price, e.time))) == [
        (10, 0.5, 0),
        (20, 1.0, 10),
    ]
    narrow = outcome(
        ORDERS[:2], lambda s: s.map(lambda e: (e.price * 2, e.item), schema="twice: f4, item: i2")
    )
    assert narrow == [(1.0, 1), (2.0, 2)]


@pytest.mark.parametrize("function", [lambda e: e.item + 1, lambda e: (e.item + 1,)])
def test_one_field_comes_bare_or_in_a_tuple(function):
    assert outcome(ORDERS, lambda s: s.map(function, schema={"next": "i8"})) == [(n,) for n in range(2, 7)]


def test_flat_map_yields_none_one_or_many():
    def copies(e):
        for i in range(e.item - 2):
            yield e.item, i

    got = outcome(ORDERS, lambda s: s.flat_map(copies, schema="item: i8, copy: i8"))
    assert got == [(3, 0), (4, 0), (4, 1), (5, 0), (5, 1), (5, 2)]


def test_flat_map_returns_a_list():
    schema = "item: i8, less: i8"
    got = outcome(ORDERS[:2], lambda s: s.flat_map(lambda e: [(e.item, -e.item)], schema=schema))
    assert got == [(1, -1), (2, -2)]


@pytest.mark.parametrize("block_events", [1, 2, 7, 384])
def test_flat_map_far_larger_than_a_block_overflows_in_order(block_events):
    def many(e):
        for i in range(1000):
            yield e.item, i

    options = {"threads": 2, "block_events": block_events, "blocks_per_chunk": 1, "max_chunks": 2}
    got = outcome(ORDERS, lambda s: s.flat_map(many, schema="item: i8, copy: i8"), options)
    assert got == [(item, i) for item in range(1, 6) for i in range(1000)]


def test_functions_reach_constants_closures_arrays_and_helpers():
    from numba import njit

    @njit
    def with_tax(price):
        return price * 1.5

    factor = 4
    got = outcome(
        ORDERS[:2],
        lambda s: s.map(lambda e: (RATES[e.item] * factor, with_tax(e.price)), schema="rate: i8, price: f8"),
    )
    assert got == [(80, 0.75), (120, 1.5)]


def test_fixed_size_bytes_pass_and_compare():
    words = table(word=np.array([b"view", b"click", b"view"]), time=[1, 2, 3])
    assert outcome(words, lambda s: s.filter(lambda e: e.word == b"view")) == [(b"view", 1), (b"view", 3)]


def test_fan_out_copies_the_stream_to_every_branch():
    env = en.Environment(**SMALL)
    stream = env.source(ORDERS, time="time", loop=50)
    all_of_them = stream.collect()
    odd = stream.filter(lambda e: e.item % 2 == 1)
    branches = [odd.collect(), odd.map(lambda e: (e.item * 10, e.price, e.time)).collect()]
    env.run()
    assert len(all_of_them.array()) == 250
    assert [row[0] for row in rows(branches[0].array())] == [1, 3, 5] * 50
    assert [row[0] for row in rows(branches[1].array())] == [10, 30, 50] * 50


def test_an_event_time_dropped_by_map_is_gone():
    stream = en.Environment().source(ORDERS, time="time")
    assert stream.time == "time"
    assert stream.map(lambda e: (e.item,), schema="item: i8").time is None


@pytest.mark.parametrize("limit", [0, 1, 3, 100])
def test_collect_keeps_the_first_events_up_to_a_limit(limit):
    env = en.Environment(**SMALL)
    sink = env.source(ORDERS).collect(limit=limit)
    env.run()
    assert rows(sink.array()) == rows(ORDERS)[:limit]


def test_collected_events_can_be_read_while_the_query_runs():
    """In a process of its own, because reading memory that has just been moved ends the process."""
    from tests.enjima.queries import python

    script = """
        import numpy as np, time
        import enjima as en
        numbers = np.zeros(100_000, [("n", "i8")])
        numbers["n"] = range(100_000)
        env = en.Environment()
        sink = env.source(numbers, loop=True).collect(limit=30_000_000)
        end = time.monotonic() + 20
        with env:
            size = 0
            while size < 30_000_000 and time.monotonic() < end:
                got = sink.array()["n"]
                assert len(got) >= size
                size = len(got)
                assert np.array_equal(got[-1000:], np.arange(max(size - 1000, 0), size) % 100_000)
        print("fine")
    """
    assert python(script) == "fine\n"
