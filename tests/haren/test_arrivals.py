"""Distributions and arrivals: what is drawn has the mean and the form asked for, and repeats to the byte."""

import ctypes
import math
import warnings

import numpy as np
import pytest

import haren
from haren import arrivals
from haren import distributions as dist
from haren.memory import address
from haren.native.atomics import store
from haren.native.chance import ENTRIES, PARTS, draw_from
from haren.native.compiler import compile_native

DRAWS = 400_000


def _fill(head, seed, place, count):
    for i in range(count):
        store(place + 8 * i, draw_from(head, seed))
    return 0


def drawn(distribution: dist.Distribution, seed: int = 12345) -> np.ndarray:
    """Many draws, as values."""
    table = distribution.table
    head, state = np.array([address(table), int(distribution.steps)]), np.array([seed], np.int64)
    values = np.zeros(DRAWS, np.int64)
    native = compile_native(_fill, "int64(int64, int64, int64, int64)")
    fill = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(native.address)
    fill(address(head), address(state), address(values), DRAWS)
    return values / 1024


@pytest.mark.parametrize(
    "distribution, deviation",
    [
        (dist.constant(5_000), 0),
        (dist.exponential(20_000), 20_000),
        (dist.uniform(1_000, 9_000), 8_000 / math.sqrt(12)),
        (dist.lognormal(10_000, 0.5), 10_000 * math.sqrt(math.exp(0.25) - 1)),
        (dist.pareto(10_000, 3.5), 10_000 * math.sqrt(1 / (3.5 * 1.5))),
        (dist.empirical([100, 200, 900]), np.std([100, 200, 900])),
        (dist.bernoulli(0.3), math.sqrt(0.21)),
    ],
)
def test_means_and_deviations(distribution, deviation):
    values = drawn(distribution)
    error = 5 * deviation / math.sqrt(DRAWS)
    assert values.mean() == pytest.approx(distribution.mean, abs=max(error, 1e-3 * distribution.mean))
    assert values.std() == pytest.approx(deviation, rel=0.05, abs=0.01)
    assert distribution.table.shape == (PARTS, ENTRIES + 1) == (dist.PARTS, dist.ENTRIES + 1)


def test_quantiles_far_out():
    values = np.sort(drawn(dist.exponential(1_000)))
    for share in (0.01, 0.5, 0.9, 0.99, 0.999, 0.9999):
        assert values[int(share * DRAWS)] == pytest.approx(
            -1_000 * math.log(1 - share), rel=0.1 if share > 0.999 else 0.03
        )


def test_the_same_seed_gives_the_same_draws():
    one, other, third = (
        drawn(dist.exponential(9), 1),
        drawn(dist.exponential(9), 1),
        drawn(dist.exponential(9), 2),
    )
    assert (one == other).all() and not (one == third).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: dist.exponential(0), "mean=0 must be positive"),
        (lambda: dist.constant(-1), "value=-1"),
        (lambda: dist.uniform(5, 5), "low=5, high=5"),
        (lambda: dist.pareto(5, 1), "alpha=1; above 1"),
        (lambda: dist.empirical([]), "values must be given"),
        (lambda: dist.empirical([1, float("nan")]), "finite"),
        (lambda: dist.bernoulli(1.5), "share=1.5"),
        (lambda: arrivals.poisson(0), "rate=0"),
        (lambda: arrivals.stepped((1, 5)), "first step is at 0"),
        (lambda: arrivals.stepped((0, 5), (0, 6)), "times must grow"),
        (lambda: arrivals.stepped((0, 0)), "no step has a rate"),
        (lambda: arrivals.stepped((0, 5), (3, 6), period=2), "period=2"),
        (lambda: arrivals.stepped((0, 5), gaps=dist.exponential(3)), "mean of 3; 1 is needed"),
        (lambda: arrivals.bursty(5, on=0, off=1), "must be positive"),
        (lambda: arrivals.replay([3, 2]), "in order"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "distribution", [dist.bernoulli(0.999), dist.bernoulli(0.7), dist.empirical([0] + [1000] * 2000)]
)
def test_means_of_distributions_that_jump_are_kept(distribution):
    table, weights = distribution.table[:, :-1].mean(axis=1) / 1024, 2.0 ** -np.arange(1, PARTS + 1)
    weights[-1] *= 2
    assert float(weights @ table) == pytest.approx(distribution.mean, rel=2e-5, abs=1e-4)


# -- sources ------------------------------------------------------------------------------------


def times(rate, seconds=1.0, count=None, seed=0) -> np.ndarray:
    """When the events of a source came, as its runs emitted them."""
    net = haren.Simulation(capacity=1 << 16)
    net.sink(net.source(rate, count=count))
    frame = net.run(seconds, haren.Shared("fcfs", batch=1), threads=2, seed=seed).trace.frame
    return frame[frame["operator"] == "source-0"]["start_ns"].to_numpy()


def test_stepped_rates_change_when_they_should():
    seen = times(arrivals.stepped((0, 1_000), (0.5, 4_000)))
    early, late = seen[seen < 500_000_000], seen[seen >= 500_000_000]
    assert len(early) in (499, 500) and len(late) in (1999, 2000)
    assert (np.diff(early) == 1_000_000).all() and (np.diff(late) == 250_000).all()


def test_bursts_come_again():
    seen = times(arrivals.bursty(10_000, on=0.1, off=0.2), seconds=0.9) // 100_000_000
    assert set(seen.tolist()) == {0, 3, 6} and len(seen) in range(2990, 3001)
    assert arrivals.bursty(9_000, on=1, off=2).rate == pytest.approx(3_000)


def test_gaps_longer_than_a_step_go_on_in_the_next_one():
    """A gap that a step cannot hold is not begun anew, which would never end, but gone on with."""
    assert len(times(arrivals.bursty(1, on=0.5, off=0.5), seconds=20.0)) == pytest.approx(10, abs=1)
    same = arrivals.stepped((0, 10), (0.125, 10), period=0.25)
    assert len(times(same, seconds=20.0)) == pytest.approx(200, abs=1) and same.expected(20) == 200
    random = arrivals.stepped((0, 10), (0.1, 10), period=0.2, gaps=dist.exponential(1))
    gaps = np.diff(times(random, seconds=2_000.0))
    assert gaps.mean() == pytest.approx(1e8, rel=0.05) and gaps.std() == pytest.approx(1e8, rel=0.05)


def test_expected_numbers_of_events():
    assert arrivals.stepped((0, 10), (1, 1_000)).expected(3) == 2_010
    assert arrivals.bursty(100, on=1, off=3).expected(9) == 300
    assert arrivals.replay([1, 5, 10**9]).expected(0.5) == 2


def test_poisson_gaps_vary_as_much_as_they_last():
    gaps = np.diff(times(arrivals.poisson(20_000), seconds=2.0))
    assert gaps.mean() == pytest.approx(50_000, rel=0.02) and gaps.std() == pytest.approx(50_000, rel=0.03)
    half = times(arrivals.stepped((0, 10_000), (1, 20_000), gaps=dist.exponential(1)), seconds=2.0)
    assert (half < 1e9).sum() == pytest.approx(10_000, rel=0.05)
    assert (half >= 1e9).sum() == pytest.approx(20_000, rel=0.05)


def test_pareto_gaps_have_a_tail():
    gaps = np.diff(times(arrivals.pareto(20_000, 1.5), seconds=3.0))
    assert np.median(gaps) < 0.7 * 50_000 and gaps.max() > 20 * 50_000


def test_a_replay_comes_as_recorded():
    recorded = np.array([5, 5, 1_000, 70_000, 70_001, 900_000_000])
    seen = times(arrivals.replay(recorded))
    assert len(seen) == 6 and seen[2] == 1_000 and seen[-1] == 900_000_000
    assert len(times(arrivals.replay(recorded), count=2)) == 2
    assert len(times(arrivals.replay([7]))) == 1


def test_a_source_with_a_granularity_rests_after_each_run():
    net = haren.Simulation(capacity=1 << 12)
    net.sink(net.source(100_000.0, granularity=0.001, count=5_000))
    frame = net.run(0.1, haren.Shared("fcfs", batch=1 << 12), threads=2).trace.frame
    runs = frame[frame["operator"] == "source-0"]
    assert runs["events_in"].sum() == 5_000 and (runs["start_ns"].diff().iloc[1:] == 1_000_000).all()
    assert runs["events_in"].iloc[1:-1].tolist() == [100] * (len(runs) - 2)


def test_a_sink_of_many_random_inputs():
    net = haren.Simulation(capacity=50)
    net.sink(*(net.source(haren.arrivals.poisson(5_000), count=200) for _ in range(40)), cost=1_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", haren.OverloadWarning)
        result = net.run(1, haren.Bound("fcfs", batch=1_500), threads=2)
    assert result.operators["events_in"].iloc[-1] == 40 * 200


# -- operators ----------------------------------------------------------------------------------


def test_windows_bring_out_results_when_time_has_passed_their_end():
    net = haren.Simulation()
    source = net.source(1_000.0, count=1_001)  # 0 to 1 s, an event a millisecond
    window = net.window(source, seconds=0.1, cost=1_000, results=7, result_cost=10_000, name="window")
    net.sink(window, name="sink")
    result = net.run(2, haren.Shared("fcfs"), threads=2)
    operators = result.operators.set_index("operator")
    assert operators.loc["window", "events_in"] == 1_001
    assert operators.loc["window", "events_out"] == 70 == operators.loc["sink", "events_in"]
    assert operators.loc["window", "busy_s"] == pytest.approx((1_001 * 1_000 + 70 * 10_000) / 1e9, rel=1e-3)
    latency = result.latency.iloc[0]  # from the latest event, 1 ms before the one that closed the window
    assert latency["p50_ms"] == pytest.approx(1.07, abs=0.05)


def test_a_window_waits_for_room_and_loses_nothing():
    net = haren.Simulation(capacity=3)
    window = net.window(net.source(1_000.0, count=501), seconds=0.1, cost=1_000, results=10, name="window")
    net.sink(window, cost=300_000, name="sink")
    operators = net.run(3, "fcfs", threads=2).operators.set_index("operator")
    assert operators.loc["sink", "events_in"] == 50 and (operators["pending"] == 0).all()


def test_random_selectivity_keeps_its_share():
    net = haren.Simulation(capacity=1 << 14)
    kept = net.operator(
        net.source(50_000.0, count=50_000), cost=100, selectivity=dist.bernoulli(0.3), name="kept"
    )
    net.sink(kept)
    operators = net.run(2, "fcfs", threads=2, seed=9).operators.set_index("operator")
    assert operators.loc["kept", "events_out"] == pytest.approx(15_000, abs=5 * math.sqrt(50_000 * 0.21))


@pytest.mark.parametrize("selectivity", [0.0, 0.1, 0.5, 1.0, 1.7, 4.0])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_selectivities_are_exact_whatever_the_batch(selectivity, batch):
    net = haren.Simulation(capacity=64)
    source = net.source(20_000.0, count=3_000)
    net.sink(net.operator(source, cost=100, selectivity=selectivity, name="it"), name="sink")
    result = net.run(2, haren.Shared("fcfs", batch=batch), threads=1)
    operators = result.operators.set_index("operator")
    exact = (3_000 * round(selectivity * 2**32)) >> 32
    assert operators.loc["it", "events_out"] == exact == operators.loc["sink", "events_in"]


def test_overload_is_said():
    net = haren.Simulation()
    net.chain(10_000.0, [1_000, 200_000, 1_000])
    with pytest.warns(haren.OverloadWarning, match="more comes than 1 thread"):
        result = net.run(1, "fcfs")
    assert result.operators["pending"].iloc[0] == pytest.approx(5_000, rel=0.3)
