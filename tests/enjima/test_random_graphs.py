"""Any graph of any operators: exactly what the plain interpretation says, in every mode.

Steps come from fixed menus, so that there are few kernels to compile. Streams are of two types: events, and
windows (what aggregates and co_groups produce).
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import enjima as en
from enjima.testing import Interpretation, assert_exact
from tests.enjima.conftest import EVENT, make_events
from tests.enjima.streams import MODES, mode

pytestmark = pytest.mark.timeout(240)

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a run costs too much to shrink by the hundred
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "phases": PHASES}
SCHEMA = en.Schema(EVENT)
TABLE = {"key": np.arange(-9, 7), "label": np.arange(16) * 3 - 20}
SHORT, LONG = en.Tumbling(seconds=40e-9), en.Tumbling(seconds=200e-9)
OVERLAP = en.Sliding(seconds=60e-9, every=25e-9)
MOST_ROWS, MOST_PAIRS = 3000, 6000


def repeat(e):
    for i in range(e.key % 4):
        yield e.key + i, e.value, e.weight, e.time


def generated(i):
    return i % 23 - 11, i * 7 % 1000, (i % 8) * 0.25, i * 2


def tally(lefts, rights):
    """Of events with a value, in any order of them."""
    total = 0
    for left in lefts:
        total += left.value
    for right in rights:
        total -= right.value
    yield len(lefts) + len(rights), total


def matched(lefts, rights):
    """Any number of results: none without a partner."""
    for right in rights:
        for _ in range(min(2, len(lefts))):
            yield right.n, len(lefts)


def make_others(count, seed):
    events = make_events(count, seed, keys=12)
    other = np.zeros(count, [("time", "i8"), ("amount", "f4"), ("id", "i2")])
    other["time"], other["amount"], other["id"] = events["time"], events["weight"], events["key"]
    return other


SOURCES = {
    "events": lambda env, n, seed: env.source(make_events(n, seed, keys=12), time="time"),
    "replayed": lambda env, n, seed: env.source(make_events(-(-n // 3), seed, keys=12), time="time", loop=3),
    "sparse": lambda env, n, seed: env.source(make_events(-(-n // 9), seed, keys=12, gap=40), time="time"),
    "generated": lambda env, n, seed: env.source(generated, schema=SCHEMA, time="time", count=n),
    "iterated": lambda env, n, seed: env.source(
        make_events(min(n, 300), seed, keys=12).tolist(), schema=SCHEMA, time="time"
    ),
    "others": lambda env, n, seed: env.source(make_others(n, seed), time="time").map(
        lambda e: (e.id, e.id * 3, e.amount, e.time), schema=SCHEMA
    ),
}
# name -> types of the inputs, type of the result, how to build it
EVENT_STEPS = {
    "odd": lambda s: s.filter(lambda e: e.value % 2 == 1),
    "none": lambda s: s.filter(lambda e: e.value > 50_000),
    "all": lambda s: s.filter(lambda e: True),
    "shift": lambda s: s.map(lambda e: (e.key + 1, e.value, e.weight * 0.5, e.time), schema=SCHEMA),
    "delay": lambda s: s.map(lambda e: (e.key, e.value, e.weight, e.time + 130), schema=SCHEMA),
    "earlier": lambda s: s.map(lambda e: (e.key, e.value, e.weight, e.time - 130), schema=SCHEMA),
    "repeat": lambda s: s.flat_map(repeat),
    "join_static": lambda s: s.join_static(TABLE, on="key").map(
        lambda e: (e.label, e.value, e.weight, e.time), schema=SCHEMA
    ),
}
WINDOW_STEPS = {
    "even": lambda s: s.filter(lambda e: e.total % 2 == 0),
    "again": lambda s: s.key_by("key").window(LONG).aggregate(n=en.sum("n"), total=en.max("total")),
    "overlapping again": lambda s: (
        s.key_by("key").window(OVERLAP).aggregate(n=en.sum("n"), total=en.min("total"))
    ),
}
AGGREGATES = {
    "tumbling": lambda s: s.key_by("key").window(SHORT).aggregate(n=en.count(), total=en.sum("value")),
    "sliding": lambda s: s.key_by("key").window(OVERLAP).aggregate(n=en.count(), total=en.sum("value")),
}


def _difference(joined):
    return joined.map(lambda e: (e.key, e.value_l - e.value_r, e.weight_l, e.time), schema=SCHEMA)


def _join(window):
    return lambda s, t: _difference(s.join(t, on="key", window=window, suffixes=("_l", "_r")))


def _grouped(window):
    return lambda s, t: s.co_group(t, on="key", window=window, apply=tally, schema="n: i8, total: i8")


EVENT_PAIRS = {"union": lambda s, t: s.union(t), "join": _join(SHORT), "sliding join": _join(OVERLAP)}
GROUPS = {"co_group": _grouped(SHORT), "sliding co_group": _grouped(OVERLAP)}
WINDOW_PAIRS = {
    "union of windows": lambda s, t: s.union(t),
    "join of windows": lambda s, t: s.join(t, on="key", window=SHORT, suffixes=("_l", "_r")).map(
        lambda e: (e.window_start, e.key, e.n_l, e.total_r), schema=s.schema
    ),
}
MIXED = {
    "enriched": lambda s, t: s.join(t, on="key", window=LONG).map(
        lambda e: (e.key, e.n, e.weight, e.time), schema=SCHEMA
    ),
}
MIXED_GROUPS = {
    "matched": lambda s, t: s.co_group(t, on="key", window=LONG, apply=matched, schema="n: i8, total: i8")
}
STEPS = {
    name: (types, result, build)
    for menu, types, result in (
        (EVENT_STEPS, "e", "e"),
        (AGGREGATES, "e", "w"),
        (WINDOW_STEPS, "w", "w"),
        (EVENT_PAIRS, "ee", "e"),
        (GROUPS, "ee", "w"),
        (WINDOW_PAIRS, "ww", "w"),
        (MIXED, "ew", "e"),
        (MIXED_GROUPS, "ew", "w"),
    )
    for name, build in menu.items()
}


class Graph:
    """Streams by type, grown step by step; steps that would produce too much are left out."""

    def __init__(self, env):
        self.env = env
        self.plain = Interpretation(env.plan)
        self.streams = {"e": [], "w": []}
        self.used = set()

    def size(self, stream):
        return len(self.plain.rows(stream._index))

    def pairs(self, inputs):
        """No fewer results than a join in any window can have."""
        keys = [np.unique(self.plain.rows(s._index)["key"], return_counts=True) for s in inputs]
        _, left, right = np.intersect1d(keys[0][0], keys[1][0], return_indices=True)
        return int((keys[0][1][left] * keys[1][1][right]).sum())

    def grow(self, step, *chosen):
        types, result, build = STEPS[step]
        inputs = []
        for kind, number in zip(types, chosen, strict=False):
            if not self.streams[kind]:
                return
            inputs.append(self.streams[kind][number % len(self.streams[kind])])
        if sum(map(self.size, inputs)) > MOST_ROWS or (
            step in ("join", "sliding join", "join of windows", "enriched")
            and self.pairs(inputs) > MOST_PAIRS
        ):
            return
        self.used.update(map(id, inputs))
        self.streams[result].append(build(*inputs))

    def sinks(self, also):
        everything = self.streams["e"] + self.streams["w"]
        return [s.collect() for i, s in enumerate(everything) if id(s) not in self.used or i in also]


@st.composite
def graphs(draw):
    """Sources, steps with the numbers of the streams they read, and streams with a sink of their own."""
    number = st.integers(0, 20)
    kinds = draw(st.lists(st.sampled_from(sorted(SOURCES)), min_size=1, max_size=3))
    sources = [(kind, draw(st.sampled_from([1, 2, 90, 384, 600])), draw(number)) for kind in kinds]
    steps = draw(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), number, number), min_size=2, max_size=9))
    return sources, steps, draw(st.sets(st.integers(0, 8), max_size=2))


@st.composite
def engines(draw):
    """Options of an environment."""
    return {
        **mode(draw(st.sampled_from(MODES)), draw(st.sampled_from([1, 10, 1000, 100_000]))),
        "threads": draw(st.sampled_from([1, 2, 3, 4, 8, 16])),
        "block_events": draw(st.sampled_from([1, 2, 7, 384])),
        "blocks_per_chunk": draw(st.integers(1, 4)),
        "max_chunks": draw(st.sampled_from([2, 3, 64])),
        "lend": draw(st.booleans()),
    }


def check(graph, engine):
    sources, steps, also = graph
    env = en.Environment(**engine)
    grown = Graph(env)
    grown.streams["e"] += [SOURCES[kind](env, count, seed) for kind, count, seed in sources]
    for step in steps:
        grown.grow(*step)
    sinks = grown.sinks(also)
    env.run()
    for sink in sinks:
        assert_exact(env, sink)
    assert (env.result.memory["pending"] == 0).all()


@settings(max_examples=40, **QUIET)
@given(graph=graphs(), engine=engines())
def test_results_equal_plain_interpretation(graph, engine):
    check(graph, engine)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=1500, **QUIET)
@given(graph=graphs(), engine=engines())
def test_results_equal_plain_interpretation_at_length(graph, engine):
    check(graph, engine)


def complicated(**engine):
    """A diamond whose branches meet in a join, a union, sliding windows and a co_group."""
    env = en.Environment(**engine)
    stream = env.source(make_events(900, 1, keys=12), time="time", loop=2)
    other = SOURCES["others"](env, 700, 2)
    joined = EVENT_PAIRS["join"](EVENT_STEPS["odd"](stream), EVENT_STEPS["shift"](stream))
    united = joined.union(other, EVENT_STEPS["delay"](stream))
    sliding, grouped = AGGREGATES["sliding"](united), GROUPS["sliding co_group"](joined, other)
    last = MIXED_GROUPS["matched"](stream, sliding.union(grouped))
    sinks = [s.collect() for s in (joined, united, sliding, grouped, last)]
    env.run()
    return env, sinks


def test_results_do_not_depend_on_threads_or_modes():
    """Byte for byte, also where the order of keys within a window is not promised."""
    random = np.random.default_rng(11)
    first = None
    for number in range(20):
        engine = mode(MODES[number % 4], int(random.choice([1, 100, 16384])))
        sizes = {"block_events": int(random.choice([1, 5, 384])), "max_chunks": int(random.choice([2, 32]))}
        env, sinks = complicated(**engine, **sizes, threads=int(random.choice([1, 2, 3, 16])))
        got = [sink.array().tobytes() for sink in sinks]
        if first is None:
            first = got
            assert all(map(len, got))
            for sink in sinks:
                assert_exact(env, sink)
        assert [a == b for a, b in zip(got, first, strict=True)] == [True] * len(got), (number, engine, sizes)


# -- a hundred million events -------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["blocks-pool", "blocks-dedicated"])
def test_a_hundred_million_events(name):
    """Views by campaign of 100 passes over a million events, against numpy."""
    count, passes, window = 1_000_000, 100, 10_000_000
    random = np.random.default_rng(1)
    ads = np.zeros(count, [("ad", "i8"), ("kind", "i4"), ("time", "i8")])
    ads["ad"], ads["kind"] = random.integers(0, 1000, count), random.integers(0, 3, count)
    ads["time"] = np.arange(count) * 100
    env = en.Environment(threads=4, **mode(name))
    shown = env.source(ads, time="time", loop=passes).filter(lambda e: e.kind == 0)
    by_campaign = shown.join_static({"ad": np.arange(1000), "campaign": np.arange(1000) // 10}, on="ad")
    sink = by_campaign.key_by("campaign").window(en.Tumbling(seconds=0.01)).aggregate(n=en.count()).collect()
    env.run()
    views = ads[ads["kind"] == 0]
    cells = views["time"] // window * 100 + views["ad"] // 10
    once = np.bincount(cells, minlength=count * 100 // window * 100)
    got = sink.array()
    counted = np.zeros(passes * len(once), np.int64)
    np.add.at(counted, got["window_start"] // window * 100 + got["campaign"], got["n"])
    assert np.array_equal(counted, np.tile(once, passes))
    assert (np.diff(got["window_start"]) >= 0).all()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_million_events_through_a_diamond_with_a_join():
    """Each event meets itself: a third of the events, those in both branches, give one pair each."""
    count, passes = 1_000_000, 100
    events = np.zeros(count, [("id", "i8"), ("value", "i8"), ("time", "i8")])
    events["id"], events["time"] = np.arange(count), np.arange(count)
    events["value"] = np.random.default_rng(2).integers(0, 600, count)
    env = en.Environment(threads=4)
    stream = env.source(events, time="time", loop=passes)
    even, third = stream.filter(lambda e: e.value % 2 == 0), stream.filter(lambda e: e.value % 3 == 0)
    pairs = even.join(third, on="id", window=en.Tumbling(seconds=1e-5), suffixes=("_l", "_r"))
    sink = pairs.window(en.Tumbling(seconds=1e-5)).aggregate(n=en.count(), total=en.sum("value_l")).collect()
    env.run()
    both = events["value"] % 6 == 0
    want = np.tile(np.add.reduceat(both, np.arange(0, count, 10_000), dtype=np.int64), passes)
    values = np.where(both, events["value"], 0)
    got = sink.array()
    assert np.array_equal(got["n"], want)
    assert np.array_equal(got["total"], np.tile(np.add.reduceat(values, np.arange(0, count, 10_000)), passes))
    assert np.array_equal(got["window_start"], np.arange(len(want)) * 10_000)
