"""Algorithms 1 to 3 of the Haren paper, decision by decision, on the virtual clock."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import haren
from haren.features import dependents
from haren.native import virtual as v
from tests.haren.replay import Replay

MS = 1_000_000
P = 0.005


def queries(rates=(9_000, 6_000, 3_000), count=None) -> haren.Simulation:
    """Queries that would keep more than two threads busy, of different costs and selectivities."""
    net = haren.Simulation(capacity=100_000)
    for number, rate in enumerate(rates):
        costs = [2_000, 50_000 * (number + 1), 90_000, 1_000]
        net.chain(rate, costs, [0.5, 1.5], count=count, query_class=number)
    return net


def decisions(result):
    return result.trace._segments[-1].decisions


@pytest.mark.parametrize("policy", ["fcfs", "hr", "longest-queue", "random", "rr", "chain"])
def test_the_first_that_can_run_in_the_order_of_priorities_is_chosen(policy):
    net = queries()
    result = net.run(0.03, haren.Bound(policy, period=P, batch=5, delay=100.0))
    replay, before, reasons = Replay(net, result), None, set()
    for row in result.trace.frame.itertuples():
        if row.start_ns < P * 1e9:
            replay.ran(row)
            before = row.operator
            continue
        why = result.trace.explain(row.operator, row.start_ns)
        assert why.attrs["at_ns"] == row.start_ns and why.attrs["chosen"] == row.operator
        mine = why.sort_values("rank").set_index("operator")
        assert mine["rank"].tolist() == list(range(len(mine)))
        assert mine["priority"].tolist() == sorted(mine["priority"], reverse=True)
        chosen, runnable = (
            mine.loc[row.operator],
            [name for name in mine.index if replay.could_run(replay.number[name], row.start_ns)],
        )
        reasons.add(row.reason)
        if row.reason == "best that could run":
            assert row.operator == runnable[0]
            assert chosen["verdict"] == "chosen: best that could run"
        else:
            assert row.reason == "equal to the one before"
            assert chosen["priority"] == mine.loc[before]["priority"]
            behind = mine[mine["rank"] > mine.loc[before]["rank"]]
            assert row.operator == next(name for name in behind.index if name in runnable)
        passed = mine[mine["rank"] > chosen["rank"]]
        assert set(passed["verdict"]) <= {"not asked: ranked behind the one chosen"}
        replay.ran(row)
        before = row.operator
    assert "best that could run" in reasons
    if policy == "rr":
        assert "equal to the one before" in reasons


def test_operators_of_equal_priority_take_turns():
    net = haren.Simulation()
    for _ in range(4):
        net.source(None, cost=1_000)
    result = net.run(0.01, haren.Bound("rr", period=0.002, batch=7))
    frame = result.trace.frame
    period = np.searchsorted(result.rounds["start_ns"], frame["start_ns"], side="right")
    for _, names in frame.groupby(period)["operator"]:
        turns = names.tolist()
        assert len(turns) > 8 and len(set(turns[:4])) == 4
        assert turns == [turns[i % 4] for i in range(len(turns))]
    assert result.operators["runs"].max() - result.operators["runs"].min() <= 5


def test_a_higher_priority_goes_first_for_ever():
    net = haren.Simulation()
    for number in range(3):
        net.source(None, cost=1_000, query_class=number)
    policy = haren.Policy("class", g=lambda op, F: F.query_class[op], features=["query_class"], unfair=True)
    result = net.run(0.05, haren.Bound(policy, period=0.01, batch=10))
    after = result.trace.frame[result.trace.frame["start_ns"] >= 10 * MS]
    assert set(after["operator"]) == {"source-2"}
    assert set(after["reason"]) == {"best that could run"}


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_a_turn_takes_no_more_than_a_batch(batch):
    result = queries().run(0.1, haren.Bound("fcfs", period=P, batch=batch), threads=2)
    assert result.trace.frame["events_in"].max() == batch
    assert result.trace.frame["events_in"].min() >= 1


def test_quantum_goes_before_the_batch():
    policy = haren.Policy(
        "turns", quantum=lambda op, F, now: 1 + 2 * F.query_class[op], features=["query_class"]
    )
    result = queries().run(0.3, haren.Bound(policy, period=P, batch=100))
    most = result.trace.frame.groupby("query")["events_in"].max()
    assert most.tolist() == [1, 3, 5]


def test_an_operator_that_is_not_eligible_never_runs():
    policy = haren.Policy("not-1", eligible=lambda op, F, now: op != 1, unfair=True)
    result = queries().run(0.1, haren.Bound(policy, period=P), threads=2)
    runs = result.operators["runs"].tolist()
    assert runs[1] == runs[2] == runs[3] == 0
    assert min(runs[:1] + runs[4:]) > 0
    assert result.operators["pending"][1] == result.operators["events_out"][0] > 0


def test_who_is_eligible_may_change_with_time():
    policy = haren.Policy("late", eligible=lambda op, F, now: now >= 20_000_000)
    result = queries().run(0.05, haren.Bound(policy, period=P))
    assert result.trace.frame["start_ns"].min() == 20 * MS


# -- periods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_rounds_are_a_period_apart_and_wait_for_no_more_than_a_batch(threads):
    result = queries().run(0.2, haren.Bound("fcfs", period=P, batch=2), threads=threads)
    longest = 2 * 150_000
    starts = result.rounds.groupby("round")["start_ns"].agg(["min", "max"])
    assert (starts["max"] - starts["min"]).max() < longest
    gaps = np.diff(starts["max"], prepend=0)
    assert gaps.min() >= P * 1e9
    assert gaps.max() < P * 1e9 + longest
    assert len(starts) == result.rounds["round"].max() >= 0.2 / (P + longest / 1e9)
    assert result.rounds.groupby("round")["sequential"].sum().tolist() == [1] * len(starts)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("eager", [True, False])
def test_rounds_are_at_multiples_of_the_period_if_there_is_little_to_do(threads, eager):
    net = haren.Simulation()
    net.chain(333, [1_000, 20_000, 500])
    result = net.run(0.1004, haren.Bound("hr", period=0.001, eager=eager), threads=threads)
    expected = [k * MS for k in range(1, 101) for _ in range(threads)]
    assert np.abs(result.rounds["start_ns"] - expected).max() == 0


def test_no_operator_runs_while_a_round_is_under_way():
    result = queries().run(
        0.1, haren.Bound("fcfs", period=P, batch=3, check=True), threads=3, round_ns=200_000
    )
    done = result.rounds.groupby("round")["start_ns"].max() + 200_000
    frame = result.trace.frame
    for end in done:
        assert not ((frame["start_ns"] < end) & (frame["end_ns"] > end - 200_000)).any()


def test_before_the_first_round_all_are_equal():
    net = haren.Simulation()
    for number in range(3):
        net.source(None, cost=1_000, query_class=number)
    policy = haren.Policy("class", g=lambda op, F: F.query_class[op], features=["query_class"], unfair=True)
    result = net.run(0.05, haren.Bound(policy, period=0.1, batch=10))
    assert len(result.rounds) == 0
    assert result.operators["runs"].max() - result.operators["runs"].min() <= 1
    why = result.trace.explain()
    assert why.set_index("operator").loc[why.attrs["chosen"], "verdict"] == (
        "chosen: before the first round all are equal"
    )


def starving(policy, **more):
    """A query that always has work goes before another one, which has also."""
    net = haren.Simulation()
    for number, cost in enumerate((20_000, 500_000)):
        net.sink(net.source(None, cost=cost, query_class=number), cost=cost)
    return net.run(1.0, haren.Bound(policy, **{"period": 0.01, "batch": 1, "delay": 0.1} | more))


def test_an_operator_that_has_not_run_for_d_is_run_if_features_are_intrinsic():
    result = starving("hr")
    frame = result.trace.frame
    late = frame[frame["reason"] == "had not run for d"]
    assert set(late["query"]) == {"query-1"}
    assert 6 <= len(late[late["operator"] == "source-2"]) <= 10
    for _, rows in frame.groupby("operator"):
        former = rows["end_ns"].shift(fill_value=0)
        overdue = rows["reason"] == "had not run for d"
        assert ((rows["start_ns"] - former)[overdue] > 100 * MS).all()
        assert (rows["start_ns"] - former).max() <= 100 * MS + 2 * 10 * MS + 2 * MS
    why = result.trace.explain("source-2", int(late["start_ns"].iloc[0]))
    by_name = why.set_index("operator")["verdict"]
    assert by_name["source-2"] == "chosen: had not run for d"
    assert "passed over: an overdue operator goes first" in set(by_name)


def test_the_delay_is_two_periods_if_nothing_else_is_said():
    late = starving("hr", delay=None).trace.frame
    late = late[(late["reason"] == "had not run for d") & (late["operator"] == "source-2")]
    assert np.diff(late["start_ns"]).min() > 20 * MS
    assert np.diff(late["start_ns"]).max() < 35 * MS


@pytest.mark.parametrize("policy", ["fcfs", "longest-queue", "rr", "random"])
def test_without_intrinsic_features_nothing_is_run_for_that_reason(policy):
    assert not (starving(policy).trace.frame["reason"] == "had not run for d").any()


# -- back-off -------------------------------------------------------------------------------------


def test_a_thread_that_finds_nothing_sleeps_twice_as_long_each_time_within_the_period():
    net = haren.Simulation()
    net.source(1000, count=0)
    result = net.run(0.0099, haren.Bound("fcfs", period=0.001, backoff=20e-6, eager=False))
    # from 0, 20, 60, 140, 300 and 620 us on, the last until the period ends at 1000
    assert result.workers["sleeps"].tolist() == [6 * 10]
    assert result.rounds["start_ns"].tolist() == [k * MS for k in range(1, 10)]
    result = net.run(0.0099, haren.Bound("fcfs", period=0.001, backoff=0.5, eager=False))
    assert result.workers["sleeps"].tolist() == [10]
    assert result.rounds["start_ns"].tolist() == [k * MS for k in range(1, 10)]


@pytest.mark.parametrize("eager", [True, False])
def test_a_thread_is_woken_for_its_operator_only_if_eager(eager):
    """The source takes 400 us on one thread; the sink's thread looks 300 and 620 us after a round."""
    net = haren.Simulation()
    source = net.source(1000, cost=400_000, name="source")
    net.sink(source, cost=1_000, name="sink")
    policy = haren.make("fcfs", f=haren.assign.pinned({"source": 0, "sink": 1}))
    result = net.run(0.0099, haren.Bound(policy, period=0.001, backoff=20e-6, eager=eager), threads=2)
    sink = result.trace.frame[(result.trace.frame["operator"] == "sink")]
    sink = sink[sink["start_ns"] > MS]
    assert set(sink["thread"]) == {1}
    assert set(sink["start_ns"] % MS) == {400_000 if eager else 620_000}


# -- selective updates ----------------------------------------------------------------------------


def with_stamp(policy: haren.Policy) -> haren.Policy:
    """The policy with a feature that is the time of its own refresh."""
    measured = [name for name, one in policy.resolved.items() if not one.derived]
    stamp = haren.Feature("stamp", lambda op, F, now: float(now), needs=measured)
    return replace(policy, features=[*policy.features, stamp])


@pytest.mark.parametrize("name", ["fcfs", "hr", "chain", "longest-queue"])
def test_what_is_flagged_is_refreshed_and_nothing_else(name):
    """Of 20 chains of 12 operators two have events, which end behind the tenth operator."""
    net = haren.Simulation()
    for number in range(20):
        kept = [1.0] * 8 + [0.0, 1.0]
        net.chain(10.0, [1_000.0] * 12, kept, count=None if number in (3, 11) else 0)
    policy = with_stamp(haren.make(name))
    result = net.run(1.05, haren.Bound(policy, period=0.1, delay=1e3), threads=2)
    features = list(policy.resolved.values())
    bitmap = dependents(features, result._engine.graph)
    independent = sum(one.independent for one in features)
    dependent = sum(not (one.independent or one.derived or one.static) for one in features)
    derived = sum(one.derived for one in features)
    number = {operator: op for op, operator in enumerate(result._engine.graph.names)}
    frame, rounds = result.trace.frame, result.rounds
    former = 0
    for index, decided in enumerate(decisions(result)):
        mine = rounds[rounds["round"] == index + 1]
        ran = frame[(frame["end_ns"] > former) & (frame["end_ns"] <= decided.time)]["operator"]
        executed = sorted({number[one] for one in ran})
        assert mine["executed"].sum() == len(executed) == 20
        flagged = set(executed) | {int(op) for one in executed for op in np.flatnonzero(bitmap[one])}
        if any(one.arrivals for one in features):
            flagged |= set(result._engine.graph.sources)
        if index == 0:  # of which nothing was known
            flagged = set(range(240))
        else:
            assert 20 <= len(flagged) < 60
        assert mine["flagged"].sum() == len(flagged)
        assert mine["updated"].sum() == 20 * independent + len(flagged) * (dependent + derived)
        assert mine["full"].sum() == 240 * (independent + dependent + derived)
        assert set(np.flatnonzero(decided.features["stamp"] == decided.time)) == flagged
        former = decided.time
    assert index == 9


def test_measured_features_are_the_simulated_ones():
    net = haren.Simulation()
    net.chain(2_000, [1_000, 30_000, 7_000, 500], [0.5, 2.0])
    policy = haren.Policy("known", features=["cost", "selectivity", "rate", "last_scheduled", "pending"])
    result = net.run(0.0999, haren.Bound(policy, period=0.01, batch=2))
    why = result.trace.explain().set_index("operator")
    names = ["source-0", "operator-1", "operator-2", "sink-3"]
    assert why.loc[names, "cost"].tolist() == pytest.approx([1_000, 30_000, 7_000, 500])
    assert why.loc[names, "selectivity"].tolist() == pytest.approx([1, 0.5, 2, 0])
    assert why.loc[names, "rate"].tolist() == pytest.approx([2_000, 2_000, 1_000, 2_000], rel=0.05)
    last = result.trace.frame[result.trace.frame["end_ns"] <= decisions(result)[-1].time]
    ended = last.groupby("operator")["end_ns"].max()
    assert why.loc[names, "last_scheduled"].tolist() == ended[names].tolist()


def test_derived_features_follow_from_them():
    net = haren.Simulation()
    net.chain(2_000, [1_000, 30_000, 7_000, 500], [0.5, 2.0])
    result = net.run(0.1, haren.Bound("hr", period=0.01, batch=2))
    why = result.trace.explain().set_index("operator").loc[["source-0", "operator-1", "operator-2", "sink-3"]]
    costs = [1_000 + 30_000 + 0.5 * 8_000, 30_000 + 0.5 * 8_000, 7_000 + 2 * 500, 500]
    assert why["output_cost"].tolist() == pytest.approx(costs)
    assert why["global_selectivity"].tolist() == pytest.approx([1, 1, 2, 1])
    assert why["global_rate"].tolist() == pytest.approx(
        [1e9 * g / c for g, c in zip([1, 1, 2, 1], costs, strict=True)]
    )
    assert why["priority"].tolist() == [(rate,) for rate in why["global_rate"]]


# -- policies that fail ---------------------------------------------------------------------------

GOOD_UNTIL = 20_000_000


def raises(op, F, now):
    if now > GOOD_UNTIL:
        raise RuntimeError("no such luck")
    return float(op)


def is_nan(op, F, now):
    return float("nan") if now > GOOD_UNTIL and op == 2 else float(op)


def in_python(op, F, now):
    if now > GOOD_UNTIL:
        return {"python": "a word"}["python"]
    return float(op)


def two_widths(op, F, now):
    return (1.0, 2.0) if now > GOOD_UNTIL else float(op)


def no_such_thread(F, graph, threads, now):
    return np.full(len(graph.query), threads if now > GOOD_UNTIL else 0)


def too_short(F, graph, threads, now):
    return np.zeros(1 if now > GOOD_UNTIL else len(graph.query), np.int64)


def f_raises(F, graph, threads, now):
    if now > GOOD_UNTIL:
        raise RuntimeError("no such luck")
    return np.zeros(len(graph.query), np.int64)


BROKEN = {
    "raises": ("g", raises, "RuntimeError: no such luck"),
    "NaN": ("g", is_nan, "nan"),
    "not a number": ("g", in_python, "'a word'"),
    "widths": ("g", two_widths, r"\(1.0, 2.0\)"),
    "thread": ("f", no_such_thread, "thread 2 does not exist"),
    "shape": ("f", too_short, "1 threads for 12 operators"),
    "f raises": ("f", f_raises, "RuntimeError: no such luck"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_policy_that_fails_leaves_the_last_good_schedule_and_is_shown_once(kind):
    role, function, message = BROKEN[kind]
    policy = haren.Policy(f"broken {kind}", **{role: function})
    net = queries(count=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", haren.PythonFallbackWarning)
        with pytest.warns(haren.PolicyWarning, match=message) as shown:
            result = net.run(0.5, haren.Bound(policy, period=P, batch=4), threads=2)
    told = [one for one in shown if issubclass(one.category, haren.PolicyWarning)]
    assert len(told) == 1 and f"broken {kind}" in str(told[0].message)
    assert "last good schedule" in str(told[0].message)
    rounds = result.rounds.groupby("round")["start_ns"].max()
    bad = int((rounds > GOOD_UNTIL).sum())
    found = result.policy_errors
    assert bad > 50 and bad <= len(found) <= 2 * bad
    assert {error.function for error in found} == {role}
    assert all(error.policy == policy.name for error in found)
    if "raises" in kind:
        assert isinstance(found[0].__cause__, RuntimeError)
    good, *_ = [one for one in reversed(decisions(result)) if one.time <= GOOD_UNTIL]
    last = decisions(result)[-1]
    if role == "f":
        assert len(found) == bad == result._run.installed.mistake_count
        assert last.assignment.tolist() == good.assignment.tolist() == [0] * 12
    else:
        assert last.priorities.tolist() == good.priorities.tolist()
        assert last.priorities[:, 0].tolist() == list(range(12))
    assert result.operators["pending"].tolist() == [0] * 12
    assert result.latency["count"].tolist() == [75] * 3


@pytest.mark.parametrize("kind", BROKEN)
def test_a_strict_policy_that_fails_ends_the_run(kind):
    role, function, message = BROKEN[kind]
    policy = haren.Policy(f"broken {kind}", **{role: function})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", haren.PythonFallbackWarning)
        with pytest.raises(haren.PolicyError, match=message) as raised:
            queries().run(0.5, haren.Bound(policy, period=P, strict=True), threads=2)
    assert (raised.value.policy, raised.value.function) == (policy.name, role)


@pytest.mark.parametrize("role", ["eligible", "quantum"])
def test_a_failing_option_leaves_what_holds_without_it(role):
    def wrong(op, F, now):
        if now > GOOD_UNTIL:
            raise RuntimeError("no such luck")
        return 2

    policy = haren.Policy("wrong", **{role: wrong})
    with pytest.warns(haren.PolicyWarning, match="no such luck") as shown:
        result = queries(count=100).run(0.5, haren.Bound(policy, period=P, batch=4), threads=2)
    assert len([one for one in shown if issubclass(one.category, haren.PolicyWarning)]) == 1
    assert result.latency["count"].tolist() == [75] * 3
    frame = result.trace.frame
    if role == "quantum":
        assert frame[frame["start_ns"] <= GOOD_UNTIL]["events_in"].max() == 2
        assert frame[frame["start_ns"] > GOOD_UNTIL]["events_in"].max() == 4
    assert result._run.installed.mistake_count >= len(result.policy_errors) > 100


def test_a_failing_feature_keeps_its_values():
    def work(op, F, now):
        if now > 20_000_000:
            raise RuntimeError("no such luck")
        return float(op)

    feature = haren.Feature("work", work, needs=["head_time"])
    policy = haren.Policy("wrong", g=lambda op, F: F.work[op], features=[feature])
    with pytest.warns(haren.PolicyWarning, match="feature work"):
        result = queries(count=100).run(0.5, haren.Bound(policy, period=P), threads=2)
    assert decisions(result)[-1].features["work"].tolist() == list(range(12))
    assert result.latency["count"].tolist() == [75] * 3
    assert {error.function for error in result.policy_errors} == {"work"}


def test_a_warning_that_is_an_error_ends_the_run():
    policy = haren.Policy("broken", g=raises)
    with warnings.catch_warnings():
        warnings.simplefilter("error", haren.PolicyWarning)
        with pytest.raises(haren.PolicyWarning, match="no such luck"):
            queries().run(0.5, haren.Bound(policy, period=P))


def test_all_threads_meet_in_every_round():
    result = queries().run(0.095, haren.Bound("fcfs", period=P), threads=4)
    assert set(result.rounds.groupby("round")["thread"].agg(list).map(tuple)) == {(0, 1, 2, 3)}
    waited = result.rounds["total_ns"].sum()
    assert result._run.driver[v.OVERHEAD // 8] == waited
