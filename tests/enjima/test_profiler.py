"""What a run reports: tables and their columns, exact counts, samples while it runs, latency at each sink."""

import threading

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL, table

EVENTS = make_events(1000)
ODD = int((EVENTS["value"] % 2 == 1).sum())


def finished(**options):
    """Two queries, one with two sinks, run to the end."""
    env = en.Environment(**{**SMALL, "marker_interval": 0.001, **options})
    stream = env.source(EVENTS, time="time", loop=3, name="in", query="first")
    odd = stream.filter(lambda e: e.value % 2 == 1, name="odd")
    odd.null(name="one")
    odd.collect(name="two")
    env.source(EVENTS, rate=1e6, name="paced", query="second").null(name="three")
    return env.run()


def test_columns():
    result = finished()
    assert list(result.latency) == [
        "query", "sink", "kind", "count", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms",
    ]  # fmt: skip
    assert list(result.throughput) == [
        "query", "source", "offered_rate", "delivered_rate", "events", "seconds",
    ]  # fmt: skip
    assert list(result.operators) == [
        "query", "operator", "kind", "events_in", "events_out", "cost_ns", "selectivity", "pending", "runs",
        "busy_s", "late", "state_growths",
    ]  # fmt: skip
    assert list(result.memory) == [
        "query", "channel", "chunk_bytes", "chunks_allocated", "chunks_in_use", "chunks_recycled",
        "chunk_requests", "stalls", "max_chunks", "pending",
    ]  # fmt: skip
    assert list(result.workers) == ["worker", "busy_s", "sleeps", "decisions"]
    assert set(result.process) == {"cpu_s", "minor_faults", "major_faults", "rss_bytes"}


def test_every_event_is_counted_once():
    operators = finished().operators.set_index("operator")
    assert operators["query"].tolist() == ["first"] * 4 + ["second"] * 2
    assert operators["events_out"].to_dict() == {
        "in": 3000, "odd": 3 * ODD, "one": 0, "two": 0, "paced": 1000, "three": 0,
    }  # fmt: skip
    assert operators["events_in"].to_dict() == {
        "in": 0, "odd": 3000, "one": 3 * ODD, "two": 3 * ODD, "paced": 0, "three": 1000,
    }  # fmt: skip
    assert operators["selectivity"]["odd"] == pytest.approx(ODD / 1000)
    assert (operators["pending"] == 0).all()
    assert (operators["runs"] > 0).all()
    assert (operators["cost_ns"] > 0).all() and (operators["busy_s"] > 0).all()


def test_throughput_offered_and_delivered():
    throughput = finished().throughput.set_index("source")
    assert np.isnan(throughput["offered_rate"]["in"]) and throughput["offered_rate"]["paced"] == 1e6
    assert throughput["events"].to_dict() == {"in": 3000, "paced": 1000}
    assert (throughput["delivered_rate"] == throughput["events"] / throughput["seconds"]).all()


def test_latency_at_every_sink():
    """Every result event counts; each marker reaches every sink behind its source."""
    latency = finished().latency.set_index(["sink", "kind"])
    assert latency["count"][:, "result"].to_dict() == {"one": 3 * ODD, "two": 3 * ODD, "three": 1000}
    markers = latency["count"][:, "marker"]
    assert markers["one"] == markers["two"] > 0 and markers["three"] > 0
    assert (latency["mean_ms"] <= latency["max_ms"]).all()
    assert (latency["p50_ms"] <= latency["p95_ms"]).all() and (latency["p95_ms"] <= latency["p99_ms"]).all()
    assert (latency["p99_ms"] <= latency["max_ms"]).all() and (latency["mean_ms"] > 0).all()


def test_counts_of_a_failed_run_include_the_last_batch():
    """What the failing operator consumed before it failed is part of the table."""
    lengths = np.arange(10)
    env = en.Environment()
    stream = env.source(table(key=np.r_[np.zeros(100, "i8"), 10]))
    stream.map(lambda e: lengths[e.key], name="look up").null()
    result = env.run(on_error="record")
    assert result.errors[0].number == 100
    assert result.operators.set_index("operator")["events_in"]["look up"] == 100


def test_samples_while_running_and_after():
    env = en.Environment(threads=2, marker_interval=0.001)
    env.source(EVENTS, rate=50_000, loop=True, query="q").null()
    assert env.sample().empty
    env.start(sample_every=0.01)
    deadline = threading.Event()
    for _ in range(1000):
        samples = env.sample()
        if len(samples) >= 3:
            break
        deadline.wait(0.02)
    result = env.stop()
    assert len(samples) >= 3
    assert list(samples) == list(result.samples) == [
        "time_s", "query", "delivered_rate", "pending", "busy_share", "rss_bytes", "marker_latency_ms",
        "result_latency_ms",
    ]  # fmt: skip
    assert result.samples["time_s"].is_monotonic_increasing
    assert (result.samples["query"] == "q").all()
    assert result.samples["delivered_rate"].max() > 0
    assert len(result.samples) >= len(samples)


def test_warm_up_and_cool_down_are_cut_from_every_table_but_samples():
    env = en.Environment(threads=2, marker_interval=0.001)
    sink = env.source(EVENTS, rate=20_000, loop=True).collect()
    result = env.run(seconds=0.45, warmup=0.15, cooldown=0.15, sample_every=0.02)
    total = len(sink.array())
    assert 0 < result.throughput["events"][0] < total
    assert 0 < result.operators["events_in"][1] < total
    counts = result.latency.set_index("kind")["count"]
    assert 0 < counts["result"] < total
    times = result.samples["time_s"]
    assert times.iloc[-1] - times.iloc[0] > result.seconds


def test_a_run_shorter_than_its_warm_up_is_reported_whole():
    env = en.Environment()
    env.source(EVENTS).null()
    result = env.run(seconds=1000, warmup=100)
    assert result.throughput["events"][0] == 1000


def test_results_stay_after_the_next_run():
    env = en.Environment(**SMALL)
    env.source(EVENTS).null()
    first = env.run()
    second = env.run()
    assert env.result is second and first is not second
    assert first.throughput["events"][0] == second.throughput["events"][0] == 1000


def test_results_show_themselves():
    result = finished()
    assert "queries: 2" in repr(result)
    html = result._repr_html_()
    assert all(word in html for word in ("throughput", "latency", "operators", "paced", "odd"))
