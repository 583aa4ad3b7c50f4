"""The query on the engine gives the answer that was computed in another way, to the last count."""

import pandas as pd
import pytest

import enjima as en
from workloads import ysb


@pytest.fixture(scope="module")
def data() -> ysb.YsbData:
    return ysb.synthetic(events=50_000, events_per_second=1000)


@pytest.mark.parametrize("window_seconds", [10, 3])
def test_answer(data: ysb.YsbData, window_seconds: int) -> None:
    env = en.Environment(threads=2)
    counts = ysb.query(env, data, window_seconds=window_seconds)
    env.run()
    answer = counts.frame().sort_values(["window_start", "campaign_id"], ignore_index=True)
    pd.testing.assert_frame_equal(answer, ysb.expected(data, window_seconds))


def test_several_queries_in_one_environment(data: ysb.YsbData) -> None:
    env = en.Environment(threads=2)
    sinks = [ysb.query(env, data, name=f"ysb-{number}") for number in range(3)]
    result = env.run()
    assert list(result.operators["query"].unique()) == ["ysb-0", "ysb-1", "ysb-2"]
    for sink in sinks:
        assert sink.frame()["views"].sum() == ysb.expected(data)["views"].sum()


def test_an_unknown_sink_is_named(data: ysb.YsbData) -> None:
    with pytest.raises(ValueError, match="'sponge'"):
        ysb.query(en.Environment(threads=1), data, sink="sponge")  # type: ignore[arg-type]
