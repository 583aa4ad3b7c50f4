"""Queueing theory as an oracle of the virtual clock: what is known exactly must come out."""

import math

import numpy as np
import pytest

import haren
from haren.distributions import constant, exponential

SERVICE = 20_000  # ns


def station(load: float, cost, jobs: int) -> haren.Simulation:
    net = haren.Simulation(capacity=1 << 17)
    source = net.source(haren.arrivals.poisson(load * 1e9 / SERVICE), count=jobs)
    net.sink(net.operator(source, cost=cost), cost=0)
    return net


def waiting(net: haren.Simulation, threads: int, seconds: float, seed: int) -> float:
    """The mean waiting time in ns: latency less service. An event at a time, the oldest first; what is served
    leaves at once."""
    policy = haren.Policy(
        "fifo",
        g=lambda op, F: (F.operator_type[op] == 2, -F.head_time[op]),
        features=["head_time", "operator_type"],
        dispatch="shared",
    )
    result = net.run(seconds, haren.Shared(policy, batch=1, epoch=1.0), threads=threads, seed=seed, trace=0)
    latency = result.latency
    return float((latency["mean_ms"] * latency["count"]).sum() / latency["count"].sum() * 1e6 - SERVICE)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_m_m_1(load):
    """W = rho / (1 - rho) of a service time."""
    jobs = 400_000 if load < 0.7 else 1_500_000
    seconds = 1.2 * jobs * SERVICE / load / 1e9
    seen = waiting(station(load, exponential(SERVICE), jobs), 2, seconds, seed=3)
    assert seen == pytest.approx(load / (1 - load) * SERVICE, rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_m_d_1(load):
    """Half of that: services that do not vary."""
    jobs = 400_000 if load < 0.7 else 1_500_000
    seconds = 1.2 * jobs * SERVICE / load / 1e9
    for cost in (SERVICE, constant(SERVICE)):
        seen = waiting(station(load, cost, jobs), 2, seconds, seed=4)
        assert seen == pytest.approx(load / (1 - load) / 2 * SERVICE, rel=0.02)


def erlang_c(servers: int, load: float) -> float:
    """The chance to wait in M/M/c."""
    offered = servers * load
    last = offered**servers / math.factorial(servers) / (1 - load)
    return last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)


@pytest.mark.parametrize(
    "servers, load, queries",
    [(2, 0.6, 600), pytest.param(4, 0.7, 2000, marks=pytest.mark.long)],
)
def test_m_m_c(servers, load, queries):
    """W = C / (c mu - lambda). Jobs come from many queries, since an operator is served by one thread at
    once; that two of the same one meet adds less than 1 % to it."""
    net = haren.Simulation(capacity=1 << 10)
    rate = servers * load * 1e9 / SERVICE
    for _ in range(queries):
        net.sink(net.source(haren.arrivals.poisson(rate / queries), cost=exponential(SERVICE)))
    seen = waiting(net, servers, 500_000 / rate, seed=5)
    expected = erlang_c(servers, load) * SERVICE / (servers * (1 - load))
    assert seen == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("policy", ["fcfs", "hr", "latency-optimized", "min-cost", "os"])
def test_littles_law(policy):
    """Events in the system = rate times latency; each side is counted on its own."""
    net = haren.Simulation()
    for number in range(3):
        source = net.source(haren.arrivals.pareto(9_000, 2.5), cost=2_000, count=2_000)
        net.sink(net.operator(source, cost=exponential(50_000 * (1 + number))), cost=3_000)
    seconds = 2.0
    result = net.run(seconds, policy, threads=2, seed=7)
    engine, operators = result._engine, result.operators
    assert (operators["pending"] == 0).all()
    waits = operators["mean_pending"].sum() * seconds * 1e9
    emitting = sum(engine.word(op, "WAITED") for op in range(len(operators)))
    served = sum(engine.word(op, "BUSY") for op in range(len(operators)))
    latency = result.latency
    assert waits + emitting + served == pytest.approx(
        (latency["mean_ms"] * latency["count"]).sum() * 1e6, rel=1e-6
    )


def test_jains_index():
    from haren.outcome import jain

    assert jain(np.array([1.0, 1, 1, 1])) == 1
    assert jain(np.array([1.0, 0, 0, 0])) == 0.25
    assert jain(np.array([1.0, 3, np.nan])) == 16 / 20


def test_slowdown_deadlines_and_shares():
    net = haren.Simulation()
    for number, rate in enumerate((1000.0, 100.0)):
        source = net.source(rate, count=int(rate), query=f"q{number}")
        net.sink(net.operator(source, cost=200_000), cost=0, deadline=0.00025)
    fair = net.run(2, haren.Shared("fcfs", batch=1), threads=4).fairness.set_index("query")
    assert fair["slowdown"].tolist() == pytest.approx([1, 1], rel=1e-4)
    assert fair["busy_share"].tolist() == pytest.approx([10 / 11, 1 / 11], rel=1e-3)
    assert fair["missed"].tolist() == [0, 0]
    busy = net.run(2, haren.Shared("fcfs", batch=10_000), threads=1).fairness
    assert busy.attrs["jain_busy"] == pytest.approx(121 / 202, rel=1e-3)
    assert busy["missed"].iloc[1] > 0  # the tenth of events that come together with another one
