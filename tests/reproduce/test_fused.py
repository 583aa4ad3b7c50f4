"""The limit is worth comparing with only if it does the same work."""

from __future__ import annotations

import pytest

from reproduce.bench import fused
from workloads import ysb


@pytest.mark.parametrize("window_seconds", [0.001, 0.0007, 10])
def test_the_fused_loop_counts_what_the_query_counts(window_seconds: float) -> None:
    data = ysb.synthetic(50_000)
    expected = ysb.expected(data, window_seconds)
    query = fused.Query(data.ads, data.campaigns, window_seconds)
    assert query.again() == 50_000
    assert query.finish() == (len(expected), expected["views"].sum())


def test_passes_go_on_in_event_time() -> None:
    data = ysb.synthetic(10_000)  # 1 ms of event time
    query = fused.Query(data.ads, data.campaigns, window_seconds=0.001)
    for _ in range(5):
        query.again()
    results, views = query.finish()
    assert views == 5 * ysb.expected(data)["views"].sum()
    assert results >= 5 * 90


def test_rate_adds_up_the_threads() -> None:
    data = ysb.synthetic(10_000)
    queries = [fused.Query(data.ads, data.campaigns) for _ in range(2)]
    assert fused.rate(queries, seconds=0.01, warmup=0) > 0
