"""Streams that others wait for in vain: said with the operator, what it waits for and what waits."""

import threading
import warnings

import numpy as np
import pytest

import enjima as en
from tests.enjima.queries import table
from tests.enjima.streams import MODES, mode

SCHEMA = "key: i8, time: i8"
EVENTS = table(key=np.arange(1000) % 7, time=np.arange(1000))
TEN = en.Tumbling(seconds=10e-9)

MEETINGS = {
    "union": lambda left, right: left.union(right, name="meet"),
    "join": lambda left, right: left.join(right, on="key", window=TEN, name="meet"),
    "co_group": lambda left, right: left.co_group(
        right, on="key", window=TEN, apply=lambda ls, rs: [len(ls)], schema="n: i8", name="meet"
    ),
}


class Silent:
    """Events, then silence until it is released."""

    def __init__(self, *events):
        self.events, self.released = events, threading.Event()

    def __iter__(self):
        yield from self.events
        assert self.released.wait(60)


@pytest.fixture
def silent():
    source = Silent((1, 5))
    yield source
    source.released.set()


def meet(env, kind, source):
    left = env.source(EVENTS, time="time", name="busy", query="stalls")
    right = env.source(source, schema=SCHEMA, time="time", name="silent")
    return MEETINGS[kind](left, right).collect()


def failed(env):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*its iterator is still waiting")
        (error,) = env.run(on_error="record").errors
    return error


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("kind", MEETINGS)
def test_the_operator_and_what_it_waits_for_are_named(kind, name, silent):
    env = en.Environment(stall_timeout=0.3, **mode(name))
    meet(env, kind, silent)
    others = env.source(EVENTS, query="other").collect()
    error = failed(env)
    assert (error.query, error.operator) == ("stalls", "meet")
    assert "994 events of its input 'busy'" in str(error) or "995 events of its input 'busy'" in str(error)
    assert "its input 'silent', which stands at event time 5" in str(error)
    assert len(others.array()) == len(EVENTS)


def test_an_input_that_never_sent_anything():
    env = en.Environment(stall_timeout=0.3)
    source = Silent()
    meet(env, "union", source)
    error = failed(env)
    source.released.set()
    assert "1000 events of its input 'busy'" in str(error)
    assert "has sent nothing" in str(error)


def test_an_input_that_sends_events_of_one_time_is_no_stall():
    env = en.Environment(stall_timeout=0.3)
    still = env.source(lambda i: (1, 5), schema=SCHEMA, time="time", rate=1000, count=1000, name="still")
    sink = env.source(EVENTS, time="time", name="busy").union(still, name="meet").collect()
    env.run()
    assert len(sink.array()) == 2000


def test_without_a_timeout_what_waits_goes_on_when_the_other_comes(silent):
    env = en.Environment(stall_timeout=None)
    sink = meet(env, "union", silent)
    threading.Timer(0.5, silent.released.set).start()
    env.run()
    assert len(sink.array()) == len(EVENTS) + 1


def test_a_branch_that_drops_everything_is_no_stall():
    env = en.Environment(threads=2, stall_timeout=0.3, block_events=2, max_chunks=2)
    stream = env.source(EVENTS, time="time", rate=1000)
    none = stream.filter(lambda e: e.key > 100)
    sink = stream.union(none).collect()
    env.run()
    assert len(sink.array()) == len(EVENTS)


@pytest.mark.parametrize("timeout", [0, -1, "soon", float("nan")])
def test_timeouts_that_are_none(timeout):
    with pytest.raises(ValueError, match="stall_timeout"):
        en.Environment(stall_timeout=timeout)
