"""Policies on the engine: exact results under each, changes while running, and what the features say."""

import time

import numpy as np
import pytest

import enjima as en
import haren
from enjima.testing import assert_exact
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL

POLICIES = ["chain", "fcfs", "hr", "longest-queue", "os", "random", "rr"]


def query(env, seed=1, events=600, **source):
    """A fork and a window, with functions of the user."""
    stream = env.source(make_events(events, seed=seed), time="time", **source)
    kept = stream.filter(lambda e: e.value > 0)
    counted = kept.key_by("key").window(en.Tumbling(seconds=50e-9)).aggregate(n=en.count())
    mapped = stream.map(lambda e: (e.key, e.time), schema="key: i8, time: i8")
    return mapped.collect(), counted.collect()


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("policy", POLICIES)
def test_results_are_exact_under_every_policy(policy, threads):
    env = en.Environment(**{**SMALL, "threads": threads})
    sinks = [sink for seed in range(3) for sink in query(env, seed, loop=2)]
    how = policy if policy == "os" else haren.Bound(policy, period=0.001, batch=3, check=True)
    result = env.run(policy=how)
    for sink in sinks:
        assert_exact(env, sink)
    assert result.policy_errors == []


SHARED = ["fcfs", "hr", "latency-optimized", "min-cost", "min-latency", "rr"]


@pytest.mark.parametrize("memory", ["blocks", "queue"])
@pytest.mark.parametrize("wake", ["eager", "epoch"])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("policy", SHARED)
def test_results_are_exact_on_shared_dispatch(policy, threads, wake, memory):
    env = en.Environment(**{**SMALL, "threads": threads, "memory": memory})
    sinks = [sink for seed in range(3) for sink in query(env, seed, loop=2)]
    how = haren.Shared(policy, epoch=0.0005, batch=3, wake=wake, check=True, strict=True)
    env.run(policy=how)
    for sink in sinks:
        assert_exact(env, sink)


def test_a_policy_by_name_serves_one_run_and_the_next_is_as_before():
    env = en.Environment(threads=2)
    sink = query(env)[0]
    assert len(env.run(policy="hr").trace) > 0
    assert len(env.run().rounds) == 0
    assert_exact(env, sink)


def test_an_unknown_policy_is_refused_before_anything_runs():
    env = en.Environment()
    query(env)
    with pytest.raises(haren.PolicyError, match="there is no policy 'hrr'"):
        env.run(policy="hrr")
    with pytest.raises(ValueError, match="neither a policy"):
        env.run(policy=3)
    assert not env.running


def test_policy_and_threads_change_while_queries_run():
    env = en.Environment(**SMALL)
    sinks = [sink for seed in range(2) for sink in query(env, seed, loop=100)]
    env.start(policy=haren.Bound("fcfs", period=0.001, batch=7, check=True))
    for turn, policy in enumerate([*POLICIES, "latency-optimized"] * 2):
        how = policy if policy == "os" else haren.Bound(policy, period=0.001, batch=7, check=True)
        if turn % 3 == 0 and policy != "os":
            how = haren.Shared(policy, epoch=0.0005, batch=7, check=True)
        env.update(policy=how, threads=1 + turn % 3)
    assert env._engine.finished.wait(120)
    env.stop()
    for sink in sinks:
        assert_exact(env, sink)


def test_a_policy_that_cannot_be_made_leaves_the_run_as_it_was():
    env = en.Environment(threads=2)
    sink = query(env, events=2000, loop=20)[0]
    env.start(policy="fcfs")
    pins = haren.Policy("pins", f=haren.assign.pinned({"nobody": 0}))
    with pytest.raises(haren.PolicyError, match="no operator or query 'nobody'"):
        env.update(policy=pins)
    with pytest.raises(haren.PolicyError, match="there is no policy"):
        env.update(policy="nonsense")
    with pytest.raises(ValueError, match="threads=0"):
        env.update(threads=0)
    assert env._engine.finished.wait(60)
    env.stop()
    assert_exact(env, sink)


def test_a_strict_policy_that_fails_ends_the_run_with_its_error():
    env = en.Environment(threads=2)
    numbers = env.source(lambda i: (i,), schema="i: i8", rate=10_000)
    numbers.null()
    table = np.ones(1)
    policy = haren.Policy("beyond", g=lambda op, F: table[op + 5])
    with pytest.raises(haren.PolicyError, match=r"beyond.*out of bounds"):
        env.run(seconds=30, policy=haren.Bound(policy, period=0.005, strict=True))
    assert not env.running


def test_a_policy_that_fails_is_recorded_and_the_results_are_whole():
    env = en.Environment(threads=2)
    sink = query(env, events=3000, rate=20_000)[0]
    table = np.ones(1)
    policy = haren.Policy("beyond", g=lambda op, F: table[op + 5])
    with pytest.warns(haren.PolicyWarning, match="IndexError"):
        result = env.run(policy=haren.Bound(policy, period=0.005))
    assert_exact(env, sink)
    assert result.policy_errors and result.policy_errors[0].policy == "beyond"
    assert isinstance(result.policy_errors[0].__cause__, IndexError)


def test_features_are_what_the_engine_does():
    """A third passes; cost, rates and classes are seen by policies as they are."""
    env = en.Environment(threads=1)
    events = np.zeros(300, [("n", "i8")])
    events["n"] = np.arange(300)
    stream = env.source(events, loop=True, rate=50_000, name="source", query="q", query_class=7)
    stream.filter(lambda e: e.n % 3 == 0, name="third").null(name="sink")
    names = ["cost", "selectivity", "rate", "head_time", "average_arrival", "pending", "output_room"]
    names += ["latency_gradient", "topological_order", "operator_type", "query_class", "last_scheduled"]
    policy = haren.Policy("all", g=lambda op, F: -F.head_time[op], features=[*names, "global_rate"])
    before = time.monotonic_ns()
    result = env.run(seconds=0.6, policy=haren.Bound(policy, period=0.02))
    seen = result.trace.explain("third").set_index("operator")
    assert seen.loc["third", "selectivity"] == pytest.approx(1 / 3, rel=0.05)
    assert seen.loc["source", "selectivity"] == 1
    assert (seen["cost"] > 1).all()
    assert seen.loc["source", "rate"] == pytest.approx(50_000, rel=0.3)
    assert seen["topological_order"].to_dict() == {"source": 0, "third": 1, "sink": 2}
    assert seen["operator_type"].to_dict() == {"source": 0, "third": 1, "sink": 2}
    assert set(seen["query_class"]) == {7}
    assert seen.loc["source", "output_room"] > 384 and seen.loc["sink", "output_room"] == np.inf
    assert (seen["last_scheduled"] > before).all()
    assert seen.loc["source", "head_time"] > before
    assert seen.loc["source", "global_rate"] < seen.loc["third", "global_rate"]


def test_waiting_events_are_counted_and_dated():
    """A sink in Python that is slow: what waits before it is old, and much."""
    env = en.Environment(threads=2, max_chunks=4)
    slow = env.source(np.zeros(5000, [("n", "i8")]), loop=True, rate=200_000, name="source")
    slow.for_each(lambda e: time.sleep(0.0005), name="slow")
    policy = haren.Policy("both", features=["head_time", "pending"], f=haren.assign.round_robin)
    env.start(policy=haren.Bound(policy, period=0.02, batch=10))
    time.sleep(0.5)
    result = env.stop(drain=False)
    seen = result.trace.explain("slow").set_index("operator").loc["slow"]
    assert seen["pending"] > 384
    assert seen["head_time"] < time.monotonic_ns() - 10_000_000


def test_classes_of_queries_that_meet():
    env = en.Environment()
    left = env.source(make_events(10), time="time", query="left", query_class=1)
    right = env.source(make_events(10), time="time", query="right", query_class=3)
    left.union(right).collect()
    (plan,) = env.plan.queries()
    assert plan.query_class == 3
    with pytest.raises(en.GraphError, match="query_class='high'"):
        env.source(make_events(10), query_class="high")


def test_urgent_queries_wait_less():
    """Two equal queries, one urgent, on one thread that cannot carry both."""
    env = en.Environment(threads=1, marker_interval=0.001)

    def work(e):
        value = 0.5
        for _ in range(2000):
            value = value * 0.999999 + 0.000001
        return value > 0

    for name, level in (("low", 0), ("high", 1)):
        numbers = env.source(
            np.zeros(100, [("n", "i8")]), loop=True, rate=400_000, query=name, query_class=level
        )
        numbers.filter(work).null()
    policy = haren.make("multi-class", high="fcfs", low="hr")
    result = env.run(seconds=1, warmup=0.3, policy=haren.Bound(policy, period=0.01, batch=10))
    seen = result.latency[result.latency["kind"] == "result"].set_index("query")["mean_ms"]
    assert seen["high"] < seen["low"]
