"""Streams that part and meet again, with the least of buffers: nothing waits for itself for ever."""

import numpy as np
import pytest

import enjima as en
from enjima.testing import assert_exact
from tests.enjima.conftest import make_events
from tests.enjima.streams import MODES, TINY, mode

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore::enjima.PythonFallbackWarning")]

WINDOW = en.Tumbling(seconds=20e-9)
EVENTS = make_events(400, keys=30)


def fifty(e):
    for _ in range(50):
        yield e.key, e.value, e.weight, e.time


BRANCHES = {
    "as it is": lambda s: s,
    "slow": lambda s: s.filter(lambda e: len(format(e.value, "d")) != 2),
    "nothing": lambda s: s.filter(lambda e: e.value > 5000),
    "every hundredth": lambda s: s.filter(lambda e: e.value % 100 == 0),
    "fifty": lambda s: s.flat_map(fifty),
    "far behind": lambda s: s.map(lambda e: (e.key, e.value, e.weight, e.time + 300)),
}
PAIRS = [
    ("as it is", "nothing"),
    ("nothing", "as it is"),
    ("as it is", "fifty"),
    ("fifty", "every hundredth"),
    ("slow", "as it is"),
    ("as it is", "slow"),
    ("far behind", "as it is"),
    ("nothing", "nothing"),
]


def counts(lefts, rights):
    yield len(lefts), len(rights)


MEETINGS = {
    "union": lambda a, b: a.union(b),
    "join": lambda a, b: a.join(b, on=["key", "value"], window=WINDOW, suffixes=("_l", "_r")),
    "co_group": lambda a, b: a.co_group(b, on="key", window=WINDOW, apply=counts, schema="l: i8, r: i8"),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("threads", [1, 16])
@pytest.mark.parametrize("meeting", MEETINGS)
def test_skewed_branches_meet(name, threads, meeting):
    for left, right in PAIRS:
        env = en.Environment(**TINY | mode(name) | {"threads": threads})
        stream = env.source(EVENTS, time="time")
        sink = MEETINGS[meeting](BRANCHES[left](stream), BRANCHES[right](stream)).collect()
        env.run()
        assert_exact(env, sink)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("threads", [1, 16])
def test_diamonds_in_diamonds(name, threads):
    """Each meets at another distance from the source; both ends of the last one come from the first."""
    env = en.Environment(**TINY | mode(name) | {"threads": threads})
    stream = env.source(EVENTS, time="time")
    inner = stream.filter(lambda e: e.value % 3 == 0).union(BRANCHES["far behind"](stream))
    windows = inner.key_by("key").window(en.Sliding(seconds=60e-9, every=25e-9)).aggregate(n=en.count())
    joined = stream.join(windows, on="key", window=WINDOW, late="error")
    both = joined.co_group(inner, on="key", window=WINDOW, apply=counts, schema="l: i8, r: i8")
    sinks = [both.collect(), joined.collect(), inner.collect(), stream.union(inner, stream).collect()]
    env.run()
    for sink in sinks:
        assert_exact(env, sink)


@pytest.mark.parametrize("name", MODES)
def test_two_sources_of_very_different_density(name):
    """One brings all its events before the other's second; they wait without holding anything up."""
    dense = make_events(20_000, gap=1)
    sparse = make_events(20, gap=10)
    dense["time"] = np.arange(20_000) // 1000
    env = en.Environment(**TINY | mode(name))
    a, b = env.source(dense, time="time"), env.source(sparse, time="time")
    sinks = [a.union(b).collect(), b.union(a).collect(), a.filter(lambda e: e.value == 7).collect()]
    env.run()
    for sink in sinks:
        assert_exact(env, sink)


@pytest.mark.parametrize("name", MODES)
def test_a_query_that_fails_at_the_meeting_ends(name):
    def failing(lefts, rights):
        if len(lefts) > 2:
            raise ValueError("too many")
        yield len(lefts), len(rights)

    env = en.Environment(**TINY | mode(name))
    stream = env.source(EVENTS, time="time")
    other = BRANCHES["fifty"](stream)
    other.co_group(stream, on="key", window=WINDOW, apply=failing, schema="l: i8, r: i8", name="g").null()
    fine = env.source(EVENTS, time="time", query="fine").collect()
    with pytest.raises(en.QueryError, match="too many") as caught:
        env.run()
    assert caught.value.operator == "g"
    assert_exact(env, fine)
