"""The bound dispatch on real threads: never twice at once, never during T_S, nothing lost."""

import threading
import time
import warnings

import numpy as np
import pytest

import haren
from tests.haren.counting import Chains, finish_disturbed

POLICIES = ["fcfs", "hr", "chain", "rr", "longest-queue", "random"]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_operator_runs_twice_at_once_or_during_a_round(policy, threads):
    """Rounds a hundred times as often as they should be, more threads than cores, rung at all the time."""
    engine = Chains(chains=4, length=4, total=30_000)
    bound = haren.Bound(policy, period=0.0005, batch=7, check=True)
    with haren.Execution(engine, threads, bound) as execution:
        finish_disturbed(execution, engine)
    assert engine.overlaps == 0
    assert engine.counts == [30_000] * 16
    assert execution.operator_statistics()[:, 2].tolist() == [30_000] * 16


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_for_longer(policy):
    engine = Chains(chains=6, length=4, total=2_000_000)
    with haren.Execution(engine, 8, haren.Bound(policy, period=0.0002, batch=11, check=True)):
        assert engine.wait()
    assert engine.overlaps == 0 and engine.counts == [2_000_000] * 24


def test_the_assertion_mode_notices_an_operator_that_is_held():
    engine = Chains(chains=1, length=2, total=10)
    execution = haren.Execution(engine, 1, haren.Bound("rr", check=True))
    execution._operators[0, 0] = 99  # as if another thread ran it
    execution.start()
    assert engine.wait()
    with pytest.raises(AssertionError, match="overlapped"):
        execution.stop()


def test_policies_and_threads_change_while_running_and_nothing_is_lost():
    engine = Chains(chains=5, length=4, total=400_000)
    with haren.Execution(engine, 1, haren.Bound("fcfs", period=0.001, batch=9, check=True)) as execution:
        for turn in range(40):
            how = ["os", haren.Pool(quantum=9, shared_quantum=9)][turn // 2 % 2] if turn % 2 else None
            how = how or haren.Bound(POLICIES[turn % len(POLICIES)], period=0.001, batch=9, check=True)
            execution.update(threads=1 + turn % 4, dispatch=how)
        execution.update(dispatch=haren.Bound("rr", batch=1000))
        assert engine.wait()
    assert engine.overlaps == 0 and engine.counts == [400_000] * 20
    assert execution.operator_statistics()[:, 2].tolist() == [400_000] * 20


def test_operators_that_stay_keep_what_is_known_of_them():
    engine = Chains(chains=2, length=3, total=50_000)
    bound = haren.Bound(haren.make("hr", f=haren.assign.round_robin), period=0.001, batch=50)
    with haren.Execution(engine, 2, bound) as execution:
        assert engine.wait()
        time.sleep(0.01)
        execution.pause()
        before = execution.installed
        costs, threads = before.matrix.column("cost").copy(), before.assignment.copy()
        priorities = before.priorities.copy()
        engine.arrange(3)
        execution.resume([*range(6), -1, -1, -1])
        now = execution.installed
        assert (costs != 1).all()  # the start value
        assert now.matrix.policy is before.matrix.policy and now is not before
        assert len(now.assignment) == 9 and set(now.assignment.tolist()) <= {0, 1}
        assert engine.wait()
    assert threads.tolist() == [0, 1, 0, 1, 0, 1] and priorities.shape == (6, 1)
    assert engine.counts == [50_000] * 9


def test_a_schedule_carries_features_priorities_and_threads():
    graph = haren.Graph(["a", "b"], [0, 0], [(0, 1)])
    grown = haren.Graph(["new", "a", "b"], [0, 1, 1], [(1, 2)])
    bound = haren.Bound(haren.make("hr", f=haren.assign.round_robin))
    before = bound.install(graph, 2)
    before.matrix.column("cost")[:] = [5, 7]
    before.priorities[:], before.assignment[:] = [[3.0], [4.0]], [1, 0]
    after = bound.install(grown, 2, before, [-1, 0, 1])
    assert after.matrix.column("cost").tolist() == [1, 5, 7]
    assert after.priorities.tolist() == [[0.0], [3.0], [4.0]]
    assert after.assignment[1:].tolist() == [1, 0]
    fewer = bound.install(grown, 1, before, [-1, 0, 1])
    assert fewer.assignment.tolist() == [0, 0, 0]


def broken(kind):
    state = {"good": True}

    def g(op, F):
        if not state["good"]:  # a dict: this stays Python
            if kind == "raise":
                raise RuntimeError("no such luck")
            return float("nan")
        return 0.0

    def f(F, graph, threads):
        if not state["good"]:
            return {"thread": [threads] * 3, "shape": [0], "assign-raise": None}[kind]
        return [0, 0, 0]

    roles = {"g": g} if kind in ("raise", "nan") else {"f": f}
    return haren.Policy(f"broken-{kind}", **roles), state


@pytest.mark.parametrize("kind", ["raise", "nan", "thread", "shape", "assign-raise"])
def test_a_policy_that_fails_is_shown_once_and_the_last_good_schedule_stays(kind):
    engine = Chains(chains=1, length=3, total=200_000)
    policy, state = broken(kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with haren.Execution(engine, 2, haren.Bound(policy, period=0.002, batch=3, check=True)) as execution:
            time.sleep(0.02)
            state["good"] = False
            while not execution.installed.mistakes:
                time.sleep(0.001)
            good = execution.installed.assignment.tolist()
            assert engine.wait()
            assert execution.installed.assignment.tolist() == good
    shown = [str(one.message) for one in caught if issubclass(one.category, haren.PolicyWarning)]
    slow = [one for one in shown if "longer than the" in one]
    assert len(shown) - len(slow) == 1 and f"broken-{kind}" in shown[0]
    if kind == "raise":
        assert "no such luck" in shown[0] and "Traceback" in shown[0]
    assert execution.installed.mistake_count >= len(execution.policy_errors) > 0
    assert engine.counts == [200_000] * 3


def test_a_strict_policy_that_fails_stops_the_run_with_its_error():
    engine = Chains(chains=1, length=3, total=10**9)
    policy, state = broken("raise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", haren.PythonFallbackWarning)
        execution = haren.Execution(engine, 2, haren.Bound(policy, period=0.002, strict=True))
    execution.start()
    state["good"] = False
    for thread in execution._threads:
        thread.join(60)
    with pytest.raises(haren.PolicyError, match="no such luck") as raised:
        execution.stop()
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_a_policy_slower_than_its_period_is_told_and_work_goes_on():
    engine = Chains(chains=1, length=3, total=100_000)

    def slow(F, graph, threads):
        time.sleep(0.02)
        return [0, 0, 0]

    with (
        pytest.warns(haren.PolicyWarning, match="longer than the period"),
        pytest.warns(haren.PythonFallbackWarning),
        haren.Execution(engine, 2, haren.Bound(haren.Policy("slow", f=slow), period=0.005)) as execution,
    ):
        assert engine.wait()
        while not execution.policy_errors:
            time.sleep(0.005)
    assert engine.counts == [100_000] * 3


def test_a_warning_that_is_an_error_is_not_lost():
    engine = Chains(chains=1, length=2, total=10**9)
    policy, state = broken("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", haren.PythonFallbackWarning)
        execution = haren.Execution(engine, 1, haren.Bound(policy, period=0.002))
        warnings.simplefilter("error", haren.PolicyWarning)
        execution.start()
        state["good"] = False
        for thread in execution._threads:
            thread.join(60)
        with pytest.raises(haren.PolicyWarning):
            execution.stop()


def test_rounds_count_what_they_take_and_refresh():
    engine = Chains(chains=3, length=4, total=100_000)
    with haren.Execution(engine, 2, haren.Bound("fcfs", period=0.002, batch=20)) as execution:
        assert engine.wait()
    rounds = execution.rounds
    assert set(rounds["thread"]) == {0, 1}
    assert (rounds.groupby("round")["sequential"].sum() == 1).all()
    once = rounds.groupby("round")[["updated", "full", "executed"]].sum()
    assert (once["updated"] <= once["full"]).all() and (once["full"] == 12).all()
    assert (once["executed"] <= 12).all()
    parts = rounds[["refresh_ns", "coordinate_ns", "priority_ns", "sort_ns"]].sum(axis=1)
    assert (parts == rounds["total_ns"]).all()


def test_nice_values_follow_the_ranking():
    from haren.nice import nice_values

    order, levels = np.array([2, 0, 1]), np.array([0, 1, 1])
    assert nice_values(order, levels).tolist() == [19, 19, 0]
    assert nice_values(np.array([0]), np.array([0])).tolist() == [0]


def test_threads_of_operators_get_nice_values_by_a_policy():
    import os

    engine = Chains(chains=1, length=3, total=10**15)  # there is always something to do
    how = haren.Dedicated(haren.make("os", nice="longest-queue"), period=0.01)
    with haren.Execution(engine, 1, how) as execution:
        deadline, seen = time.monotonic() + 30, [0]
        tids = [thread.native_id for thread in execution._threads]
        while max(seen) < 19 and time.monotonic() < deadline:  # all may be equal for a while
            time.sleep(0.005)
            seen = [os.getpriority(os.PRIO_PROCESS, tid) for tid in tids]
    assert max(seen) == 19 and len(seen) == 3
    assert not [thread for thread in threading.enumerate() if thread.name == "haren-nice"]


def test_an_error_of_an_engine_in_python_ends_the_run():
    class Failing:
        graph = haren.Graph(["a"], [0])

        def ready_at(self, operator: int, now: int) -> int:
            return 0

        def run(self, operator: int, quota: int) -> int:
            raise KeyError("lost")

    execution = haren.Execution(Failing(), 2, "rr")
    execution.start()
    for thread in execution._threads:
        thread.join(30)
    with pytest.raises(KeyError, match="lost"):
        execution.stop()


def test_many_schedulers_in_one_process():
    engines = [Chains(chains=2, length=3, total=20_000) for _ in range(6)]
    executions = [haren.Execution(engine, 2, haren.Bound("hr", period=0.001)) for engine in engines]
    for execution in executions:
        execution.start()
    assert all(engine.wait() for engine in engines)
    for execution in executions:
        execution.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("haren-")]
