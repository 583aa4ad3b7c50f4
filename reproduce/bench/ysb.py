"""YSB with 64-byte events: throughput against the hand-fused loop, latency, start-up, memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import enjima as en
from reproduce.bench import Effort, Row, fused, interleave, middle, ratio, say
from reproduce.settings import ROOT
from workloads import ysb
from workloads.ysb import YsbData

EVENTS = 1_000_000
"""Of one array: 64 MB, more than the last-level cache of most machines, so that all read from memory."""

OVERLOAD = 1_000_000_000
"""Events per second that no machine takes."""


@dataclass(frozen=True)
class Plan:
    """How much of everything: rounds of interleaved pairs, seconds of a measurement, processes started."""

    rounds: int
    seconds: float
    warmup: float
    latency_rounds: int
    latency_seconds: float
    processes: int
    overload_seconds: float


PLANS: dict[Effort, Plan] = {
    "quick": Plan(3, 0.6, 0.2, 1, 2.0, 3, 10),
    "default": Plan(5, 1.2, 0.3, 3, 3.0, 5, 60),
    "long": Plan(60, 4.0, 1.0, 20, 30.0, 20, 600),
}


@dataclass
class Bench:
    """The data of one run of the benchmark and, for the rows that build on others, the rates seen so far.

    Two arrays of `EVENTS`; eight queries share the same two in quarters, so that 2 and 8 queries go over
    the same memory.
    """

    plan: Plan
    first: YsbData = field(default_factory=lambda: ysb.synthetic(EVENTS, seed=1))
    second: YsbData = field(default_factory=lambda: ysb.synthetic(EVENTS, seed=2))
    rates: dict[str, list[float]] = field(default_factory=dict)

    def engine(self, name: str, data: list[YsbData], threads: int) -> Callable[[], float]:
        """A measurement of the engine with one query for each data set, kept under `name`."""
        return lambda: self._keep(name, delivered(data, threads, self.plan.seconds, self.plan.warmup))

    def fused(self, arrays: list[np.ndarray]) -> Callable[[], float]:
        """A measurement of the hand-fused loop with one thread for each array."""
        queries = [fused.Query(array, self.first.campaigns) for array in arrays]
        return partial(fused.rate, queries, self.plan.seconds, self.plan.warmup)

    def _keep(self, name: str, rate: float) -> float:
        self.rates.setdefault(name, []).append(rate)
        return rate


def rows(effort: Effort) -> Iterator[Row]:
    bench = Bench(PLANS[effort])
    yield one_query_two_threads(bench)
    yield one_thread(bench)
    yield two_queries(bench)
    yield eight_queries(bench)
    yield best(bench)
    yield from latency(bench)
    yield import_time(bench)
    yield first_result(bench)
    yield memory(bench)


def one_query_two_threads(bench: Bench) -> Row:
    halves = parts(bench.first.ads, 2)
    what = "YSB, 64-byte events, 1 query, 2 threads: share of the fused loop on 2 threads"
    return share(
        bench, what, bench.engine("1 query, 2 threads", [bench.first], 2), bench.fused(halves), 0.4, 0.8
    )


def one_thread(bench: Bench) -> Row:
    what = "1 thread: share of the fused loop on 1 thread"
    ours = bench.engine("1 query, 1 thread", [bench.first], 1)
    return share(bench, what, ours, bench.fused([bench.first.ads]), 0.5, 0.9)


def two_queries(bench: Bench) -> Row:
    what = "2 queries on 2 threads: share of the fused loop on 2 threads"
    ours = bench.engine("2 queries, 2 threads", [bench.first, bench.second], 2)
    return share(bench, what, ours, bench.fused([bench.first.ads, bench.second.ads]), 0.5, 0.9)


def eight_queries(bench: Bench) -> Row:
    two = [bench.first, bench.second]
    eight = [replace(data, ads=part) for data in two for part in parts(data.ads, 4)]
    what = "8 queries against 2 queries on 2 threads (own source arrays)"
    ours, limit = bench.engine("8 queries, 2 threads", eight, 2), bench.engine("2 queries, 2 threads", two, 2)
    return share(bench, what, ours, limit, 0.85, 1)


def best(bench: Bench) -> Row:
    name, rates = max(bench.rates.items(), key=lambda item: median(item[1]))
    say(f"best: {name}")
    rate, spread = middle([rate / 1e6 for rate in rates])
    return Row("events/s of the best of these", rate, "M events/s", "higher", None, 140, spread)


def latency(bench: Bench) -> Iterator[Row]:
    half = median(bench.rates["1 query, 2 threads"]) / 2
    means, tails = [], []
    for turn in range(bench.plan.latency_rounds):
        say(f"latency at {half / 1e6:.1f} M events/s: round {turn + 1} of {bench.plan.latency_rounds}")
        env = en.Environment(threads=2, marker_interval=0.001)
        ysb.query(env, bench.first, rate=half, loop=True, sink="null")
        seen = env.run(seconds=bench.plan.latency_seconds, warmup=0.5, cooldown=0.2).latency
        (marker,) = seen[seen["kind"] == "marker"].to_dict("records")
        means.append(float(marker["mean_ms"]))
        tails.append(float(marker["p99_ms"]))
    mean, spread = middle(means)
    yield Row(
        "mean marker latency at half of the maximum rate, 2 threads", mean, "ms", "lower", 2, 0.3, spread
    )
    tail, spread = middle(tails)
    yield Row("p99 of the same", tail, "ms", "lower", 10, 1, spread)


def import_time(bench: Bench) -> Row:
    say("import in a new process")
    time, spread = middle([float(first_line(IMPORT)[0]) for _ in range(bench.plan.processes)])
    return Row("`import enjima`, Spark not loaded", time, "s", "lower", 1, 0.4, spread)


def first_result(bench: Bench) -> Row:
    say("first result in a new process")
    first_line(FIRST_RESULT)  # fills the kernel cache
    time, spread = middle([first_line(FIRST_RESULT)[1] for _ in range(bench.plan.processes)])
    what = "first YSB result in a new process, kernels cached on disk"
    return Row(what, time, "s", "lower", 2.5, 1, spread)


def memory(bench: Bench) -> Row:
    seconds = bench.plan.overload_seconds
    say(f"memory during {seconds:g} s of overload")
    start, highest = json.loads(first_line(OVERLOADED.format(rate=OVERLOAD, seconds=seconds))[0])
    what = f"memory during {seconds:g} s of overload against its start"
    return Row(what, highest / start, "x", "lower", 1.02, 1, None)


IMPORT = """
import sys, time
start = time.perf_counter()
import enjima
print(time.perf_counter() - start)
assert "pyspark" not in sys.modules, "import enjima loads Spark"
"""

FIRST_RESULT = """
import enjima as en
from workloads import ysb
env = en.Environment(threads=2)
counts = ysb.query(env, ysb.synthetic(10_000), sink="collect")
env.run()
print(counts.frame().iloc[0].to_dict(), flush=True)
"""

OVERLOADED = """
import json, os, threading, time
import enjima as en
from workloads import ysb

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

env = en.Environment(threads=2)
ysb.query(env, ysb.synthetic(1_000_000), rate={rate}, loop=True, sink="null")
seen, over = [], threading.Event()

def watch():
    over.wait(1)
    while not over.is_set():
        seen.append(resident())
        over.wait(0.1)

watcher = threading.Thread(target=watch)
watcher.start()
env.run(seconds={seconds})
over.set()
watcher.join()
print(json.dumps([seen[0], max(seen[1:])]))
"""


def share(
    bench: Bench, what: str, ours: Callable[[], float], limit: Callable[[], float], bar: float, aim: float
) -> Row:
    """How much of the limit we reach: the median over interleaved pairs."""
    value, spread = ratio(*interleave(ours, limit, rounds=bench.plan.rounds, what=what))
    return Row(what, value, "x", "higher", bar, aim, spread)


def delivered(data: list[YsbData], threads: int, seconds: float, warmup: float, **settings: Any) -> float:
    """Events per second of the engine when its sources never wait, one query for each data set."""
    env = en.Environment(threads=threads, **settings)
    for index, each in enumerate(data):
        ysb.query(env, each, loop=True, name=f"q{index}", sink="null")
    return rate(env, seconds, warmup)


def rate(env: en.Environment, seconds: float, warmup: float) -> float:
    """Events per second that the sources of an environment deliver, all together."""
    result = env.run(seconds=warmup + seconds, warmup=warmup, cooldown=0)
    return float(result.throughput["delivered_rate"].sum())


def parts(array: np.ndarray, count: int) -> list[np.ndarray]:
    return np.array_split(array, count)


def first_line(script: str) -> tuple[str, float]:
    """The first line a new process prints, and the seconds from its start until it did."""
    start = perf_counter()
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    line, elapsed = process.stdout.readline(), perf_counter() - start
    process.stdout.close()
    if process.wait() != 0:
        raise RuntimeError(f"the process ended with code {process.returncode}:\n{script}")
    return line.strip(), elapsed
