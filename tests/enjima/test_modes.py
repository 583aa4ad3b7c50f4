"""Every memory with every dispatch: the same results."""

import numpy as np
import pytest

import enjima as en
from enjima.testing import assert_exact
from tests.enjima.queries import SMALL
from tests.enjima.streams import MODES, TINY, mode

ADS = {"ad": np.arange(100), "campaign": np.arange(100) // 10}


def ads(count):
    random = np.random.default_rng(5)
    events = np.zeros(count, [("ad", "i8"), ("kind", "i4"), ("price", "f4"), ("time", "i8")])
    events["ad"] = random.integers(0, 130, count)
    events["kind"] = random.integers(0, 3, count)
    events["price"] = random.integers(0, 100, count) / 4
    events["time"] = np.cumsum(random.integers(0, 20, count))
    return events


def views(env, **source):
    """Like the Yahoo streaming benchmark: views by campaign and window."""
    shown = env.source(ads(4000), time="time", time_unit="ms", **source).filter(lambda e: e.kind == 0)
    by_campaign = shown.join_static(ADS, on="ad").key_by("campaign")
    return by_campaign.window(en.Tumbling(seconds=10)).aggregate(views=en.count(), spent=en.sum("price"))


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("sizes", [SMALL, TINY, {}])
@pytest.mark.parametrize("lend", [True, False])
def test_views_by_campaign(name, threads, sizes, lend):
    env = en.Environment(**{**sizes, "threads": threads}, lend=lend, **mode(name))
    sink = views(env, loop=3).collect()
    result = env.run()
    assert_exact(env, sink)
    assert result.operators.set_index("operator")["events_out"]["source"] == 12_000


@pytest.mark.parametrize("name", MODES)
def test_two_queries_and_a_rate(name):
    env = en.Environment(threads=2, **mode(name))
    sinks = [views(env, query="paced", rate=2e5).collect(), views(env, query="fast", loop=20).collect()]
    env.run()
    for sink in sinks:
        assert_exact(env, sink)


@pytest.mark.parametrize("memory", ["heap", None, 3, ""])
def test_a_memory_there_is_not(memory):
    with pytest.raises(ValueError, match=r"memory=.*blocks.*queue"):
        en.Environment(memory=memory)
