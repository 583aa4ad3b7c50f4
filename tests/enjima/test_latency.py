"""Latency: the histogram against numpy, and what markers and results measure."""

import ctypes
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import enjima as en
from haren.latency import Histogram, upper_bounds
from haren.native.compiler import compile_native
from haren.native.histogram import record
from tests.enjima.conftest import make_events


def _record(histogram, value):
    record(histogram, value, 1)
    return 0


@pytest.fixture(scope="module")
def add():
    native = compile_native(_record, "int64(int64, int64)")
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(native.address)
    function.keep = native
    return function


def filled(add, values) -> Histogram:
    histogram = Histogram()
    for value in values:
        add(histogram.address, value)
    return histogram


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(0, 2**50), min_size=1, max_size=200), share=st.floats(0, 1))
def test_quantiles_are_at_most_a_64th_too_high(add, values, share):
    snapshot = filled(add, values).snapshot()
    exact = float(np.quantile(values, share, method="inverted_cdf"))
    assert exact <= snapshot.quantile(share) <= exact * (1 + 1 / 64) + 1
    assert snapshot.count == len(values)
    assert snapshot.mean == pytest.approx(np.mean(values))
    assert snapshot.maximum == max(values)


def test_every_bucket_holds_what_its_bounds_say(add):
    bounds = upper_bounds()
    for value in [0, 1, 63, 64, 127, 128, 129, 255, 256, 10**6, 10**9, 2**40 + 12345]:
        buckets = filled(add, [value]).snapshot().buckets
        index = int(np.flatnonzero(buckets)[0])
        assert bounds[index] >= value and (index == 0 or bounds[index - 1] < value)


def test_snapshots_subtract(add):
    histogram = filled(add, [5, 10**9])
    before = histogram.snapshot()
    for value in (100, 300):
        add(histogram.address, value)
    since = histogram.snapshot() - before
    assert (since.count, since.total) == (2, 400)
    assert 300 <= since.maximum <= 304


def test_a_negative_latency_counts_as_zero(add):
    assert filled(add, [-5]).snapshot().maximum == 0


def latency_of(env: en.Environment, kind: str):
    frame = env.result.latency
    return frame[frame["kind"] == kind].iloc[0]


def test_markers_pass_windows_at_once_and_results_wait_for_them():
    env = en.Environment(marker_interval=0.001)
    stream = env.source(make_events(1000), time="time", rate=20_000, loop=True)
    stream.window(en.Tumbling(seconds=1000)).aggregate(n=en.count()).null()
    env.run(seconds=0.3)
    assert latency_of(env, "marker")["count"] > 100
    assert latency_of(env, "result")["count"] <= 1


def test_every_result_is_measured():
    env = en.Environment()
    sink = env.source(make_events(5000), time="time").filter(lambda e: e.value > 0).collect()
    env.run()
    assert latency_of(env, "result")["count"] == len(sink.array())


def test_a_marker_for_each_source_batch():
    env = en.Environment(marker_interval=0)
    env.source(make_events(5000)).null()
    env.run()
    assert latency_of(env, "marker")["count"] >= 1


def test_no_markers_when_switched_off():
    env = en.Environment(marker_interval=None)
    env.source(make_events(5000)).null()
    env.run()
    assert latency_of(env, "marker")["count"] == 0


def test_a_stalled_sink_does_not_hide_waiting():
    """Markers carry the time they should have started, so those that waited behind a stall all count."""
    stalled = []

    def stall_once(event):
        if not stalled:
            stalled.append(event.key)
            time.sleep(0.3)

    env = en.Environment(threads=2, marker_interval=0.001, block_events=16, max_chunks=2)
    env.source(make_events(1000), rate=20_000, loop=True).for_each(stall_once)
    env.run(seconds=0.6)
    markers = latency_of(env, "marker")
    assert markers["max_ms"] >= 150
    assert markers["count"] > 400


def test_warmup_and_cooldown_are_cut():
    env = en.Environment(marker_interval=0.001)
    env.source(make_events(1000), rate=10_000, loop=True).null()
    result = env.run(seconds=0.6, warmup=0.2, cooldown=0.2)
    assert 0.1 < result.seconds < 0.4
    assert result.throughput["events"].iloc[0] < 5000
    assert result.throughput["offered_rate"].iloc[0] == 10_000


@pytest.mark.parametrize(
    "times",
    [
        {"seconds": 0},
        {"seconds": 1, "warmup": -1},
        {"seconds": 1, "warmup": 0.6, "cooldown": 0.5},
        {"cooldown": 1},
    ],
)
def test_times_that_make_no_sense_are_refused(times):
    env = en.Environment()
    env.source(make_events(10)).null()
    with pytest.raises(ValueError, match=r"seconds|warmup|cooldown"):
        env.run(**times)
