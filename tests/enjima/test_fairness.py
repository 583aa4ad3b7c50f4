"""Queries that share threads: each gets its turns, whatever the others do."""

import threading

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import make_events

EVENTS = make_events(1000)


@pytest.mark.parametrize("threads", [1, 2])
def test_eight_endless_queries_all_go_on(threads):
    env = en.Environment(threads=threads)
    for _ in range(8):
        env.source(EVENTS, time="time", loop=True).filter(lambda e: e.value % 2 == 1).null()
    result = env.run(seconds=0.6)
    events = result.throughput["events"]
    assert len(events) == 8
    assert events.min() > 0.1 * events.mean()


def test_a_slow_query_does_not_keep_others_from_ending():
    """One query sits in a callback until the others are done."""
    env = en.Environment(threads=2)
    begun, others_done = threading.Event(), threading.Event()

    def wait(events):
        begun.set()
        assert others_done.wait(30)

    env.source(EVENTS, query="slow").for_each_batch(wait)
    ends = [threading.Event() for _ in range(3)]
    for number, end in enumerate(ends):
        stream = env.source(EVENTS, loop=50, query=f"fast {number}")
        count = np.zeros(1, int)

        def tally(events, count=count, end=end):
            count[0] += len(events)
            if count[0] == 50_000:
                end.set()

        stream.for_each_batch(tally)
    env.start()
    assert begun.wait(30)
    assert all(end.wait(30) for end in ends)
    others_done.set()
    assert env.stop().errors == []


def test_paced_queries_keep_their_rates_beside_a_greedy_one():
    env = en.Environment(threads=2)
    env.source(EVENTS, loop=True, query="greedy").filter(lambda e: e.value % 2 == 1).null()
    for number in range(4):
        env.source(EVENTS, rate=10_000, loop=True, query=f"paced {number}").null()
    throughput = env.run(seconds=0.5).throughput.set_index("query")
    expected = 10_000 * throughput["seconds"].iloc[0]
    assert (throughput["events"].iloc[1:] > 0.3 * expected).all()
    assert (throughput["events"].iloc[1:] <= expected + 2000).all()
