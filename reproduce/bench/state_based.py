"""Enjima's state-based scheduling: what a decision costs, what it does for latency, and with many queries.

A decision is all that the dispatch does between two runs: claim the best operator, then give it back, measure
it and look at it and its neighbours again. It is timed alone, with operators of which about half are eligible
at any time. The rest is YSB on two threads, markers every 5 ms.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numba import njit

import enjima as en
import haren
from haren.memory import address
from haren.native import words as w
from haren.native.atomics import call, load
from haren.native.clock import monotonic_ns
from haren.native.compiler import compile_native
from haren.spe import HEAD_TIME, PENDING
from reproduce.bench import Effort, Row, interleave, middle, ratio, say
from reproduce.bench.operators import Plan
from reproduce.bench.ysb import delivered, parts
from workloads import ysb
from workloads.ysb import YsbData

EVENTS = 1_000_000
DECISIONS = 100_000
STEP_NS = 1_000  # between two decisions, as the policy sees it
CORES = 2
MARKERS = 0.005
QUERIES = 4  # where policies are compared
LOAD = 0.9

PLANS: dict[Effort, Plan] = {
    "quick": Plan(3, 0.8, 0.3),
    "default": Plan(7, 1.5, 0.5),
    "long": Plan(40, 5.0, 1.0),
}

RIVALS: dict[str, Callable[[], haren.Dispatch]] = {
    "FCFS": lambda: haren.Shared("fcfs", batch=384),
    "ML": lambda: haren.Shared("min-latency"),
    "MC": lambda: haren.Shared("min-cost"),
    "RR": lambda: haren.Shared("rr", batch=384),
    "HR": lambda: haren.Shared(replace(haren.make("hr"), quantum=haren.rest_of_round())),
}


def eager() -> haren.Dispatch:
    return haren.Shared("latency-optimized")


def at_epochs() -> haren.Dispatch:
    return haren.Shared("latency-optimized", wake="epoch")


def rows(effort: Effort) -> Iterator[Row]:
    plan = PLANS[effort]
    yield decision(plan, 60, 2, 0.3)
    yield decision(plan, 600, 10, 1)
    first, second = ysb.synthetic(EVENTS, seed=1), ysb.synthetic(EVENTS, seed=2)
    yield from latency(plan, first)
    yield many_queries(plan, first, second)
    yield from against_rivals(
        plan, [replace(data, ads=part) for data in (first, second) for part in parts(data.ads, 2)]
    )


# -- a decision -----------------------------------------------------------------------------------


def _ready_at(engine, operator, now):
    return 0


def _run(engine, operator, quota):
    return quota


@njit
def _noise(operator, now):
    mixed = (operator * 7919 + now // 1000) * 48271 % 2147483647
    return mixed >> 8


def _measure(engine, operator, which, now):
    """Up to 2,000 events wait before each operator, other ones from one microsecond to the next."""
    if which == PENDING:
        return _noise(operator, now) % 2000
    if which == HEAD_TIME:
        return now
    return now // 100


def _decide(worker, count):
    """So many decisions; the nanoseconds they took, in all."""
    following = load(worker + w.NEXT)
    done = load(worker + w.DONE)
    dispatch = load(worker + w.DISPATCH)
    began = monotonic_ns()
    for i in range(count):
        now = began + STEP_NS * i
        unit = call(following, (dispatch, worker, now))
        call(done, (dispatch, worker, unit, 1, now))
    return monotonic_ns() - began


class Idle:
    """Operators in chains of six that can always run, and take no time."""

    handle = 0

    def __init__(self, operators: int) -> None:
        self._code = [
            compile_native(function, f"int64({', '.join(['int64'] * arguments)})")
            for function, arguments in ((_ready_at, 3), (_run, 3), (_measure, 4))
        ]
        self.ready_at, self.run, self.measure = (code.address for code in self._code)
        edges = [(op, op + 1) for op in range(operators - 1) if (op + 1) % 6]
        self.graph = haren.Graph(
            [f"op{op}" for op in range(operators)], [op // 6 for op in range(operators)], edges
        )


def decision(plan: Plan, operators: int, bar: float, aim: float) -> Row:
    what = f"one scheduling decision at {operators} operators"
    execution = haren.Execution(Idle(operators), 1, eager(), trace=0)
    decide = compile_native(_decide, "int64(int64, int64)")
    timed = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(decide.address)
    worker = address(execution._workers)
    _renew_metrics(execution)
    timed(worker, DECISIONS)
    (values,) = interleave(
        lambda: timed(worker, DECISIONS) / DECISIONS / 1e3, rounds=3 * plan.rounds, what=what
    )
    value, spread = middle(values)
    return Row(what, value, "us", "lower", bar, aim, spread)


def _renew_metrics(execution: haren.Execution) -> None:
    """What an epoch does first, so that operators differ."""
    installed: Any = execution.installed
    rng = np.random.default_rng(1)
    installed.matrix.column("cost")[:] = rng.integers(10, 1000, len(execution.graph))
    installed.matrix.column("selectivity")[:] = rng.uniform(0.1, 1, len(execution.graph))
    for feature in installed.matrix.derived:
        installed.code.compute(feature.name, execution.now())


# -- YSB ------------------------------------------------------------------------------------------


def mean_latency(
    plan: Plan, data: list[YsbData], rate: float, dispatch: Callable[[], haren.Dispatch]
) -> float:
    """The mean of the marker latencies in ms, each query at its share of the rate; inf if none came."""
    env = en.Environment(threads=CORES, dispatch=dispatch(), marker_interval=MARKERS)
    for number, each in enumerate(data):
        ysb.query(env, each, rate=rate / len(data), loop=True, name=f"q{number}", sink="null")
    seen = env.run(seconds=plan.seconds + plan.warmup + 0.1, warmup=plan.warmup, cooldown=0.1).latency
    markers = seen[seen["kind"] == "marker"]
    known = markers[markers["count"] > 0]
    return float(np.average(known["mean_ms"], weights=known["count"])) if len(known) else math.inf


def maximum(plan: Plan, data: list[YsbData]) -> float:
    return delivered(data, CORES, plan.seconds, plan.warmup, dispatch=eager())


def latency(plan: Plan, data: YsbData) -> Iterator[Row]:
    what = "mean marker latency at a tenth of the maximum rate, against a thread per operator (TM)"
    rate = maximum(plan, [data]) / 10
    series = interleave(
        *(
            partial(mean_latency, plan, [data], rate, dispatch)
            for dispatch in (eager, at_epochs, haren.Dedicated)
        ),
        rounds=plan.rounds,
        what=f"{what}, {rate / 1e6:.1f} M events/s",
    )
    ours, epochs, threads = series
    for name, values, bar, aim in (("eager", ours, 1.5, 0.8), ("epoch", epochs, None, None)):
        value, spread = ratio(values, threads)
        note = (
            f"{middle(values)[0]:.3f} ms against {middle(threads)[0]:.3f} ms at {rate / 1e6:.1f} M events/s"
        )
        yield Row(f"{what}: {name}", value, "x", "lower", bar, aim, spread, note)


def many_queries(plan: Plan, first: YsbData, second: YsbData) -> Row:
    two = [first, second]
    eight = [replace(data, ads=part) for data in two for part in parts(data.ads, 4)]
    what = "8 YSB queries saturated against 2"
    many, few = interleave(
        partial(maximum, plan, eight), partial(maximum, plan, two), rounds=plan.rounds, what=what
    )
    value, spread = ratio(many, few)
    note = f"{middle(many)[0] / 1e6:.0f} against {middle(few)[0] / 1e6:.0f} M events/s"
    return Row(what, value, "x", "higher", 0.85, 1, spread, note)


def against_rivals(plan: Plan, data: list[YsbData]) -> Iterator[Row]:
    """Every policy at nine tenths of what the latency-optimized one carried a moment before."""
    what = f"latency-optimized at {LOAD:.0%} load, {QUERIES} queries: mean latency"
    what += " against the best of the others"
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in RIVALS}
    for turn in range(plan.rounds):
        rate = LOAD * maximum(plan, data)
        say(f"{what}: round {turn + 1} of {plan.rounds}, {rate / 1e6:.0f} M events/s")
        ours.append(mean_latency(plan, data, rate, eager))
        for name, dispatch in RIVALS.items():
            theirs[name].append(mean_latency(plan, data, rate, dispatch))
    best = [min(values) for values in zip(*theirs.values(), strict=True)]
    value, spread = ratio(ours, best)
    medians = {"latency-optimized": ours, **theirs}
    note = "ms: " + ", ".join(f"{name} {middle(values)[0]:.2f}" for name, values in medians.items())
    yield Row(what, value, "x", "lower", None, 1, spread, note)
