"""Every event exactly once and in order, whatever the threads, blocks, chunks, quanta and steps."""

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import enjima as en
import haren
from enjima.testing import assert_exact
from tests.enjima.conftest import EVENT, make_events

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a run costs too much to shrink by the hundred
SCHEMA = en.Schema(EVENT)
TABLE = {"key": np.arange(-3, 5), "label": np.arange(8) * 10}


def repeat(e):
    for i in range(e.key % 4):
        yield e.key + i, e.value, e.weight, e.time


STEPS = {
    "odd": lambda s: s.filter(lambda e: e.value % 2 == 1),
    "none": lambda s: s.filter(lambda e: e.value > 5000),
    "all": lambda s: s.filter(lambda e: True),
    "double": lambda s: s.map(lambda e: (e.key, e.value * 2, e.weight, e.time)),
    "shift": lambda s: s.map(lambda e: (e.key + 1, e.value, e.weight * 0.5, e.time), schema=SCHEMA),
    "repeat": lambda s: s.flat_map(repeat),
    "join": lambda s: s.join_static(TABLE, on="key").map(
        lambda e: (e.label, e.value, e.weight, e.time), schema=SCHEMA
    ),
}
AGGREGATES = {
    "n": en.count(),
    "total": en.sum("value"),
    "low": en.min("value"),
    "high": en.max("weight"),
    "middle": en.mean("weight"),
}
WINDOWS = {
    "no window": lambda s: s,
    "keyed": lambda s: s.key_by("key").window(en.Tumbling(seconds=1e-7)).aggregate(**AGGREGATES),
    "two keys": lambda s: s.key_by("key", "value").window(en.Tumbling(seconds=1e-6)).aggregate(n=en.count()),
    "global": lambda s: s.window(en.Tumbling(seconds=3e-9)).aggregate(**AGGREGATES),
}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=5),
    window=st.sampled_from(sorted(WINDOWS)),
    count=st.sampled_from([1, 2, 383, 384, 385, 3000]),
    loops=st.sampled_from([None, 2, 3]),
    threads=st.sampled_from([1, 2, 3, 4, 8, 16]),
    block_events=st.sampled_from([1, 2, 7, 384]),
    blocks=st.integers(1, 4),
    chunks=st.sampled_from([2, 3, 64]),
    quantum=st.sampled_from([1, 10, 1000, 100000]),
    branches=st.integers(1, 3),
    seed=st.integers(0, 5),
)
def test_results_equal_plain_interpretation(
    steps, window, count, loops, threads, block_events, blocks, chunks, quantum, branches, seed
):
    env = en.Environment(
        threads=threads,
        block_events=block_events,
        blocks_per_chunk=blocks,
        max_chunks=chunks,
        dispatch=haren.Pool(quantum=quantum, shared_quantum=quantum),
    )
    stream = env.source(make_events(count, seed), time="time", loop=loops)
    for step in steps:
        stream = STEPS[step](stream)
    sinks = [WINDOWS[window](stream).collect() for _ in range(branches)]
    env.run()
    for sink in sinks:
        assert_exact(env, sink)
    assert (env.result.memory["pending"] == 0).all()


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(threads=st.sampled_from([1, 2, 16]), seconds=st.floats(0.005, 0.08), rate=st.sampled_from([None, 2e5]))
def test_a_drained_stop_loses_nothing(threads, seconds, rate):
    env = en.Environment(threads=threads, block_events=7, max_chunks=3)
    source = make_events(1000)
    sink = STEPS["odd"](env.source(source, rate=rate, loop=True, time="time")).collect()
    result = env.run(seconds=seconds)
    emitted = int(result.throughput["events"].iloc[0])
    final = int(env.result.operators["events_in"].iloc[1])
    whole = np.resize(source["value"], max(emitted, final) + 2_000_000)
    got = sink.array()["value"]
    want = whole[whole % 2 == 1][: len(got)]
    assert np.array_equal(got, want)


def test_stress_on_more_threads_than_cores():
    env = en.Environment(threads=16, block_events=16, blocks_per_chunk=2, max_chunks=4)
    sinks = []
    for number in range(6):
        stream = env.source(make_events(20000, seed=number), time="time", loop=5, query=f"q{number}")
        sinks.append(WINDOWS["keyed"](STEPS["odd"](stream)).collect())
        sinks.append(STEPS["repeat"](stream).collect())
    env.run()
    for sink in sinks:
        assert_exact(env, sink)
