"""The virtual clock: how many decisions a second one process simulates, and how that grows.

Chains of a source, four operators and a sink. A decision is a turn of an operator, with all that belongs to
it: choosing, running, ending, waking. The load that the rebinding paper gives to static assignment (figure 3:
220,000 agents of 25 tuples a second, each delivered to 150 queries) has a cost per tuple that keeps 24
threads 80 % busy, since the paper does not give one; sources emit once a millisecond.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np

import haren
from reproduce.bench import Effort, Row, interleave, middle

RATE = 20_000.0
THREADS = 24
QUERIES = 50
AGENTS, TUPLES = 220_000, 25
ROUNDS: dict[Effort, int] = {"quick": 3, "default": 7, "long": 30}
WAYS: dict[str, Callable[[], haren.Dispatch | str]] = {
    "bound, FCFS": lambda: haren.Bound("fcfs", batch=10),
    "shared, FCFS": lambda: haren.Shared("fcfs", batch=10),
    "shared, latency-optimized": lambda: haren.Shared("latency-optimized"),
    "a thread per operator": lambda: "os",
}


def rows(effort: Effort) -> Iterator[Row]:
    seconds = 0.05 if effort == "quick" else 0.2
    for name, how in WAYS.items():
        yield decisions(ROUNDS[effort], name, how, seconds)
    yield rebinding(60.0 if effort != "quick" else 5.0)
    yield many(0.02)
    yield growth("events", [0.05, 0.1, 0.2, 0.4], lambda size: (chains(QUERIES), size))
    yield growth("operators", [10, 30, 100, 300], lambda size: (chains(int(size)), 6.0 / size))


def chains(queries: int, rate: float = RATE) -> haren.Simulation:
    net = haren.Simulation()
    for _ in range(queries):
        net.chain(rate, [500, 2_000, 2_000, 2_000, 2_000, 500])
    return net


def timed(
    net: haren.Simulation, how: haren.Dispatch | str, threads: int, seconds: float
) -> tuple[int, float]:
    """Decisions, and the seconds they took; what is set up before the first one is not counted."""
    net.run(1e-6, how, threads=threads, trace=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", haren.OverloadWarning)
        empty = -time.perf_counter()
        net.run(1e-6, how, threads=threads, trace=0)
        empty += time.perf_counter()
        began = time.perf_counter()
        result = net.run(seconds, how, threads=threads, trace=0)
        took = time.perf_counter() - began - empty
    return int(result.workers["decisions"].sum()), max(took, 1e-6)


def decisions(rounds: int, name: str, how: Callable[[], haren.Dispatch | str], seconds: float) -> Row:
    what = f"simulated decisions per second, {6 * QUERIES} operators, {THREADS} threads: {name}"

    def measure() -> float:
        count, took = timed(chains(QUERIES), how(), THREADS, seconds)
        return count / took / 1e6

    (values,) = interleave(measure, rounds=rounds, what=what)
    value, spread = middle(values)
    return Row(what, value, "M/s", "higher", 2, 10, spread)


def rebinding(seconds: float) -> Row:
    rate, queries = float(AGENTS * TUPLES), 150
    cost = 0.8 * THREADS * 1e9 / (rate * queries)
    net = haren.Simulation(capacity=1 << 20)
    for _ in range(queries):
        net.sink(net.source(rate, granularity=0.001), cost=cost)
    how = haren.Bound(haren.make("fcfs", f=haren.assign.round_robin), period=2.0, batch=16_384)
    count, took = timed(net, how, THREADS, seconds)
    what = "300 operators, 24 threads, the rates of rebinding-fig3: seconds for 60 simulated ones"
    note = f"{count / 1e6:.1f} M decisions, {rate * queries * seconds / 1e9:.0f} G events in {seconds:g} s"
    return Row(what, took * 60 / seconds, "s", "lower", 60, 10, None, note)


def many(seconds: float) -> Row:
    count, took = timed(chains(500, rate=2_000.0), haren.Shared("fcfs", batch=10), 1000, seconds)
    what = "1,000 threads and 3,000 operators: simulated decisions per second"
    return Row(
        what, count / took / 1e6, "M/s", "higher", None, None, None, f"{count} decisions in {took:.2f} s"
    )


def growth(what: str, sizes: list[float], made: Callable[[float], tuple[haren.Simulation, float]]) -> Row:
    """The power of the size by which the time per decision grows: 0 is linear in events."""
    times = []
    for size in sizes:
        net, seconds = made(size)
        count, took = timed(net, haren.Shared("fcfs", batch=10), THREADS, seconds)
        times.append(took / count)
    slope = float(np.polyfit([math.log(size) for size in sizes], [math.log(one) for one in times], 1)[0])
    note = "time per decision: " + ", ".join(
        f"{size:g}: {1e9 * one:.0f} ns" for size, one in zip(sizes, times, strict=True)
    )
    return Row(
        f"growth of the time per decision with {what}, as a power", slope, "", "lower", None, 0, None, note
    )
