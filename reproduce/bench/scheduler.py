"""The Haren middleware: what scheduling costs, what it refreshes, and what is left of the throughput.

Chains are those of the Haren paper: 20 queries of 12 operators. Shares of CPU time are those of T_S in the
CPU time of the whole process; shares of wall time are those of T_S in the time of all worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import enjima as en
import haren
from reproduce.bench import Effort, Row, interleave, middle, ratio, say
from reproduce.bench.operators import Plan
from reproduce.bench.ysb import rate
from workloads import chains, ysb
from workloads.ysb import YsbData

QUERIES = 20
POLICIES = ("fcfs", "hr", "chain")
EVENTS = 1_000_000
BUSY = 0.8  # of the two cores, so that there is work and no overload
CORES = 2


PLANS: dict[Effort, Plan] = {
    "quick": Plan(3, 0.6, 0.2),
    "default": Plan(7, 1.2, 0.3),
    "long": Plan(40, 4.0, 1.0),
}


def rows(effort: Effort) -> Iterator[Row]:
    plan = PLANS[effort]
    for policy in POLICIES:
        yield cpu_share(plan, policy)
    yield wall_share(plan)
    yield coordinate_share(plan)
    yield from updated_shares()
    data = ysb.synthetic(EVENTS)
    yield throughput(plan, data)
    yield tracing(plan, data)
    yield from in_python(plan, data)


# -- what T_S takes -------------------------------------------------------------------------------


def scheduled(plan: Plan, policy: str, threads: int, period: float) -> en.RunResult:
    """Chains under a policy, at a load the machine can carry."""
    made = chains.chains(QUERIES, rate=1000.0)
    whole = chains.load(made, chains.repetition_ns())
    made = chains.chains(QUERIES, rate=1000.0 * BUSY * CORES / whole)
    env = en.Environment(threads=threads)
    chains.queries(env, made)
    return env.run(seconds=2 * plan.seconds, policy=haren.Bound(policy, period=period, batch=10))


def of_cpu(result: en.RunResult, column: str) -> float:
    return float(result.rounds[column].sum()) / (1e9 * result.process["cpu_s"])


def share_row(
    plan: Plan, what: str, measure: Callable[[], float], bar: float, aim: float, note: str = ""
) -> Row:
    (values,) = interleave(measure, rounds=plan.rounds, what=what)
    value, spread = middle([100 * value for value in values])
    return Row(what, value, "%", "lower", bar, aim, spread, note)


def cpu_share(plan: Plan, policy: str) -> Row:
    what = f"T_S share of CPU time, 240 operators, 4 threads, P = 100 ms, {policy}"
    return share_row(plan, what, lambda: of_cpu(scheduled(plan, policy, 4, 0.1), "cpu_ns"), 1, 0.1)


def wall_share(plan: Plan) -> Row:
    def measure() -> float:
        result = scheduled(plan, "fcfs", CORES, 0.1)
        return float(result.rounds["total_ns"].sum()) / (1e9 * result.seconds * CORES)

    what = "T_S share of wall time, 240 operators, 2 threads on 2 cores, P = 100 ms, fcfs"
    return share_row(plan, what, measure, 2, 1)


def coordinate_share(plan: Plan) -> Row:
    what = "coordinate share of CPU time, 240 operators, 4 threads, P = 10 ms, fcfs"
    return share_row(plan, what, lambda: of_cpu(scheduled(plan, "fcfs", 4, 0.01), "coordinate_cpu_ns"), 5, 1)


# -- what is refreshed ----------------------------------------------------------------------------


def updated_shares() -> Iterator[Row]:
    """On the virtual clock, since who runs is then exact: an event a period, 20 operators that run."""
    layouts = {"10 operators of 2 chains": (2, 9), "the source of each chain": (QUERIES, 0)}
    for layout, (active, stages) in layouts.items():
        for policy in POLICIES:
            yield updated_share(policy, layout, active, stages)


def updated_share(name: str, layout: str, active: int, stages: int) -> Row:
    say(f"values updated: {name}, {layout}")
    net = haren.Simulation()
    for number in range(QUERIES):
        kept = [1.0] * 10
        kept[stages - 1] = 0.0
        count = None if number < active else 0
        net.chain(10.0, [1000.0] * 12, kept, count=count)
    policy = haren.make(name)
    if not stages:
        features = [*policy.features, "operator_type"]
        policy = replace(policy, features=features, eligible=lambda op, F, now: F.operator_type[op] == 0)
    result = net.run(3.05, haren.Bound(policy, period=0.1, delay=1e3))
    rounds = result.rounds.groupby("round")[["executed", "updated", "full"]].sum().iloc[5:-1]
    ran = rounds["executed"].median()
    value, spread = middle((rounds["updated"] / rounds["full"]).tolist())
    what = f"share of feature values updated per round, {name}: {layout} ran"
    return Row(what, value, "x", "lower", 0.3, 0.15, spread, f"{ran:.0f} of 240 operators ran")


# -- what is left of the throughput ---------------------------------------------------------------


def on_ysb(plan: Plan, data: YsbData, dispatch: Callable[[], haren.Dispatch], **settings: Any) -> float:
    env = en.Environment(threads=CORES, dispatch=dispatch(), **settings)
    for number in range(4):
        ysb.query(env, data, loop=True, name=f"q{number}", sink="null")
    return rate(env, plan.seconds, plan.warmup)


def bound(policy: haren.Policy | None = None) -> haren.Dispatch:
    return haren.Bound(policy or haren.make("fcfs", f=haren.assign.by_query), batch=384)


def throughput(plan: Plan, data: YsbData) -> Row:
    what = "YSB, 4 queries, 2 threads, f by query, FCFS, b = 384, against the plain pool"
    ours, pool = interleave(
        partial(on_ysb, plan, data, bound),
        partial(on_ysb, plan, data, haren.Pool),
        rounds=plan.rounds,
        what=what,
    )
    value, spread = ratio(ours, pool)
    say("and a pool that decides as often")
    small = partial(haren.Pool, quantum=384, shared_quantum=384)
    (often,) = interleave(partial(on_ysb, plan, data, small), rounds=plan.rounds, what="a pool with b = 384")
    note = f"a pool with turns of 384 events: {ratio(often, pool)[0]:.2f}"
    return Row(what, value, "x", "higher", 0.85, 1, spread, note)


def tracing(plan: Plan, data: YsbData) -> Row:
    what = "the same, trace on against off"
    on, off = interleave(
        partial(on_ysb, plan, data, bound),
        partial(on_ysb, plan, data, bound, trace=0),
        rounds=plan.rounds,
        what=what,
    )
    value, spread = ratio(on, off)
    return Row(what, value, "x", "higher", 0.97, 1, spread)


class Reader:
    """Something numba does not know, so that a function that uses it stays Python."""

    def __call__(self, value: float) -> float:
        return -value


def in_python(plan: Plan, data: YsbData) -> Iterator[Row]:
    import warnings

    negative = Reader()
    slow = haren.Policy(
        "fcfs-python",
        f=haren.assign.by_query,
        g=lambda op, F: negative(F.head_time[op]),
        features=["head_time"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", haren.PythonFallbackWarning)
        what = "the same, a g in Python against the compiled one"
        python, native = interleave(
            partial(on_ysb, plan, data, partial(bound, slow)), partial(on_ysb, plan, data, bound),
            rounds=plan.rounds, what=what,
        )  # fmt: skip
    value, spread = ratio(python, native)
    yield Row(what, value, "x", "higher", None, None, spread)
