"""The shared dispatch decision by decision on the virtual clock; the worked example of the Enjima paper."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import haren
from tests.haren.replay import Replay

POLICIES = ["latency-optimized", "min-latency", "min-cost", "fcfs", "hr", "rr", "chain", "longest-queue"]
HALF_MS = 500_000


# -- table 1 of the Enjima paper ------------------------------------------------------------------


def example() -> haren.Simulation:
    """A -> B -> (C, D) -> E, with what waits at the beginning; a block is four events."""
    net = haren.Simulation(capacity=4)
    source = net.source(1, count=0, name="source")
    a = net.operator(source, cost=HALF_MS, waiting=4, name="A")
    b = net.operator(a, cost=HALF_MS, waiting=2, name="B")
    c = net.operator(b, cost=HALF_MS, selectivity=0.25, waiting=4, name="C")
    d = net.operator(b, cost=HALF_MS, selectivity=0.3, waiting=4, name="D")
    net.sink(c, d, cost=HALF_MS, waiting=(1, 1), name="E")
    return net


def enjima(**parameters) -> haren.Policy:
    given = {"event_threshold": 4, "idle_threshold": 0.005, "least_turn": 4}
    return haren.make("latency-optimized", **{**given, **parameters})


def order(policy: haren.Policy, wake: str) -> tuple[list[str], list[int]]:
    """The operators that run, and how many events each time, until what waited at first is processed."""
    result = example().run(0.02, haren.Shared(policy, wake=wake, check=True, strict=True), known=True)
    frame = result.trace.frame
    return frame["operator"].tolist(), frame["events_in"].tolist()


@pytest.mark.parametrize("wake", ["eager", "epoch"])
def test_enjima_needs_five_decisions_for_eighteen_events(wake):
    operators, events = order(enjima(), wake)
    assert operators[:5] == ["D", "C", "E", "B", "A"]
    assert events[:5] == [4, 4, 4, 2, 4] and sum(events[:5]) == 18


@pytest.mark.parametrize("wake", ["eager", "epoch"])
def test_min_latency_needs_eight(wake):
    """It processes other eighteen events: those of A wait, those that B made are taken."""
    operators, events = order(haren.make("min-latency", least_turn=4), wake)
    assert operators[:8] == ["E", "D", "E", "C", "E", "B", "D", "C"]
    assert events[:8] == [2, 4, 1, 4, 1, 2, 2, 2] and sum(events[:8]) == 18


def test_without_an_event_threshold_the_sink_goes_first_and_there_are_more_switches():
    operators, _ = order(enjima(event_threshold=1), "eager")
    assert operators[:5] == ["E", "D", "E", "C", "E"]


def test_without_an_idle_threshold_an_operator_starves_until_there_is_more_to_do():
    operators, events = order(enjima(idle_threshold=math.inf, adaptive=False), "eager")
    assert operators[:5] == ["D", "C", "E", "A", "B"]
    assert events[:5] == [4, 4, 4, 2, 4]  # A had room for two: B's input held two of four


# -- any queries ----------------------------------------------------------------------------------


@st.composite
def queries(draw, capacity=100_000):
    net = haren.Simulation(capacity=capacity)
    for _ in range(draw(st.integers(1, 3))):
        inner = draw(st.integers(1, 3))
        costs = [draw(st.sampled_from([500, 3_000, 20_000, 90_000])) for _ in range(inner + 2)]
        kept = [draw(st.sampled_from([0.0, 0.3, 1.0, 1.5])) for _ in range(inner)]
        count = draw(st.integers(1, 80))  # so that all is over at the end, and the trace has every run
        net.chain(draw(st.sampled_from([300.0, 3_000.0, 9_000.0])), costs, kept, count=count)
    return net


@settings(max_examples=60, deadline=None, derandomize=True)
@given(queries(), st.sampled_from(POLICIES), st.integers(1, 4), st.sampled_from([1, 7, 384]))
def test_eager_threads_never_idle_while_an_operator_can_run(net, policy, threads, batch):
    """And so never while one is eligible: at each end of a run, and whenever a source is due."""
    shared = haren.Shared(policy, batch=batch, check=True, strict=True)
    result = net.run(1, shared, threads=threads)
    assert (result.operators["pending"] == 0).all()
    replay, running = Replay(net, result), {}
    rows = list(result.trace.frame.itertuples())
    moments = sorted({row.start_ns for row in rows} | {row.end_ns for row in rows})
    ends = sorted(rows, key=lambda row: row.end_ns)
    starts, ended, begun = rows, 0, 0
    for moment in moments:
        while ended < len(ends) and ends[ended].end_ns <= moment:
            replay.ended(ends[ended])
            running.pop(ends[ended].operator, None)
            ended += 1
        while begun < len(starts) and starts[begun].start_ns <= moment:
            row = starts[begun]
            assert row.operator not in running and row.events_in > 0
            replay.began(row)
            if row.end_ns > moment:
                running[row.operator] = row
            begun += 1
        if len(running) < threads:
            left = [
                name
                for name, op in replay.number.items()
                if name not in running and replay.could_run(op, moment)
            ]
            assert left == []


@settings(max_examples=40, deadline=None, derandomize=True)
@given(queries(capacity=8), st.sampled_from(POLICIES), st.sampled_from(["eager", "epoch"]), st.integers(1, 3))
def test_an_operator_without_room_is_never_picked(net, policy, wake, threads):
    result = net.run(1, haren.Shared(policy, wake=wake, check=True, strict=True), threads=threads)
    replay = Replay(net, result)
    changes = [(row.start_ns, 1, row) for row in result.trace.frame.itertuples()]
    changes += [(row.end_ns, 0, row) for _, _, row in changes]
    for _, starts, row in sorted(changes, key=lambda change: change[:2]):
        if starts:
            assert row.events_in > 0, "a turn that could do nothing"
            replay.began(row)
        else:
            replay.ended(row)
            assert all(waits <= 8 for op, waits in replay.waiting.items() if replay.engine.operators[op].kind)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(queries(), st.sampled_from(POLICIES), st.sampled_from(["eager", "epoch"]), st.integers(1, 3))
def test_the_same_again_to_the_byte(net, policy, wake, threads):
    shared = haren.Shared(policy, wake=wake)
    first, second = (net.run(0.01, shared, threads=threads).trace.frame for _ in range(2))
    assert first.equals(second)


@pytest.mark.parametrize("wake", ["eager", "epoch"])
def test_time_adds_up(wake):
    net = haren.Simulation()
    for _ in range(3):
        net.chain(4_000.0, [1_000, 40_000, 90_000, 5_000], [0.5, 1.0])
    result = net.run(0.5, haren.Shared("latency-optimized", wake=wake), threads=2, switch_ns=700)
    from haren.native import virtual as v

    overhead = int(result._run.driver[v.OVERHEAD // 8])
    spent = round(1e9 * result.workers[["busy_s", "idle_s"]].sum().sum()) + overhead
    assert spent == 2 * 500_000_000


# -- waking ---------------------------------------------------------------------------------------


def test_with_epochs_idle_threads_wait_for_the_next_one():
    net = haren.Simulation()
    net.chain(300.0, [1_000, 1_000, 1_000], [1.0])  # every 3.3 ms an event that needs 3 us
    began = net.run(0.1, haren.Shared("fcfs", epoch=0.002, wake="epoch")).trace.frame
    sources = began[began["operator"] == "source-0"]["start_ns"]
    assert len(sources) == 30 and (sources % 2_000_000 == 0).all()
    eager = net.run(0.1, haren.Shared("fcfs", epoch=0.002)).trace.frame
    due = eager[eager["operator"] == "source-0"]["start_ns"].to_numpy()
    assert due.tolist() == [int(i * 1e9 / 300) for i in range(30)]


def test_below_the_threshold_only_eager_threads_run_an_operator():
    net = haren.Simulation()
    net.chain(10_000.0, [1_000, 1_000, 1_000], [1.0])
    policy = haren.make("latency-optimized", event_threshold=50, idle_threshold=0.5, idle_threshold_max=1)
    lazy = net.run(0.2, haren.Shared(policy, wake="epoch")).trace.frame
    assert (lazy["events_in"] >= 50).all() and set(lazy["reason"]) == {"best that was eligible"}
    eager = net.run(0.2, haren.Shared(policy)).trace.frame
    assert (eager["events_in"] == 1).all()
    assert set(eager["reason"]) == {"nothing was eligible, best that could run"}


def test_a_turn_lasts_to_the_end_of_the_epoch_or_the_least_number_of_events():
    net = haren.Simulation(capacity=10**6)
    net.chain(None, [10_000, 10_000], [])
    frame = net.run(0.05, haren.Shared(haren.make("min-latency", least_turn=20)), known=True).trace.frame
    first, second = frame.iloc[0], frame.iloc[1]
    assert first["events_in"] == 100  # 1 ms at 10 us
    assert second["events_in"] == 100 and frame["events_in"].min() >= 20


# -- explanations ---------------------------------------------------------------------------------


def test_explain_says_how_all_stood_at_the_last_epoch():
    result = example().run(0.0065, haren.Shared(enjima(), wake="epoch"), known=True)
    why = result.trace.explain("E").set_index("operator")
    assert why.attrs["at_ns"] == 4_000_000 and why["verdict"]["E"] == "chosen: best that was eligible"
    assert why["verdict"]["A"] == "at the last epoch: eligible"
    assert why["verdict"]["B"] == "at the last epoch: could run, was not eligible"
    assert why["rank"].tolist() == [0, 1, 2, 3, 4, 5]
    assert why["priority"].tolist() == sorted(why["priority"], reverse=True)
    assert why["pending"]["A"] == 4 and why["cost_per_result"]["E"] == HALF_MS


# -- the order of keys ----------------------------------------------------------------------------


@settings(derandomize=True)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=2), st.booleans(), st.booleans())
def test_keys_are_in_the_order_of_priorities_behind_eligibility(values, first_is, second_is):
    from haren.native.shared import NOT, key_of

    first, second = key_of(values[0], first_is), key_of(values[1], second_is)
    assert min(first, second) > NOT
    if first_is != second_is:
        assert (first > second) == first_is and (first >= 0) == first_is
    elif values[0] != values[1]:
        bits = [int(np.float64(value).view(np.int64)) for value in values]  # the last one is not kept
        assert abs(bits[0] - bits[1]) <= 1 or (first > second) == (values[0] > values[1])
    else:
        assert first == second
