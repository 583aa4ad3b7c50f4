"""The shared dispatch on real threads: never twice at once, nothing lost, epochs kept, ended well."""

import threading
import time
import warnings
from dataclasses import replace

import pytest

import haren
from tests.haren.counting import Chains, finish_disturbed

POLICIES = ["latency-optimized", "min-latency", "min-cost", "fcfs", "hr", "rr", "random"]
WAKE = ["eager", "epoch"]


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "haren-epochs"]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("wake", WAKE)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_operator_runs_twice_at_once_and_nothing_is_lost(policy, wake, threads):
    """Epochs ten times as often as they should be, more threads than cores, rung at all the time."""
    engine = Chains(chains=4, length=4, total=30_000)
    shared = haren.Shared(policy, epoch=0.0001, batch=7, wake=wake, check=True, strict=True)
    with haren.Execution(engine, threads, shared) as execution:
        finish_disturbed(execution, engine)
    assert engine.overlaps == 0
    assert engine.counts == [30_000] * 16
    assert execution.operator_statistics()[:, 2].tolist() == [30_000] * 16
    assert keepers() == []


@pytest.mark.long
@pytest.mark.parametrize("wake", WAKE)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_for_longer(policy, wake):
    engine = Chains(chains=6, length=4, total=2_000_000)
    with haren.Execution(engine, 8, haren.Shared(policy, epoch=0.0001, batch=11, wake=wake, check=True)):
        assert engine.wait()
    assert engine.overlaps == 0 and engine.counts == [2_000_000] * 24


@pytest.mark.parametrize("seconds", [3600, 0.001])
def test_threads_that_sleep_are_woken_without_epochs(seconds):
    """Eager: who makes an operator ready wakes a sleeper; one epoch an hour is enough."""
    engine = Chains(chains=3, length=5, total=200_000)
    shared = haren.Shared("latency-optimized", epoch=seconds, batch=3, check=True)
    with haren.Execution(engine, 3, shared):
        assert engine.wait()
    assert engine.counts == [200_000] * 15


def test_an_epoch_of_an_hour_ends_when_the_run_does():
    engine = Chains(chains=1, length=2, total=10)
    began = time.monotonic()
    with haren.Execution(engine, 2, haren.Shared("fcfs", epoch=3600.0)):
        assert engine.wait()
    assert time.monotonic() - began < 60
    assert keepers() == []


def test_policy_dispatch_and_threads_change_while_running_and_nothing_is_lost():
    engine = Chains(chains=4, length=3, total=150_000)
    with haren.Execution(engine, 2, haren.Shared("latency-optimized", epoch=0.0005, check=True)) as execution:
        ways = [
            haren.Shared("min-latency", epoch=0.0005, wake="epoch", check=True),
            haren.Bound("hr", period=0.001, check=True),
            "latency-optimized",
            haren.Pool(),
            haren.Shared("rr", batch=5, check=True),
            haren.Dedicated(),
        ]
        for turn, dispatch in enumerate(ways * 2):
            execution.update(threads=1 + turn % 3, dispatch=dispatch)
            time.sleep(0.005)
        execution.update(dispatch="latency-optimized")
        assert engine.wait()
    assert engine.overlaps == 0
    assert engine.counts == [150_000] * 12
    assert keepers() == []


def test_operators_that_come_while_running_are_run_and_known_ones_keep_what_is_known():
    engine = Chains(chains=2, length=3, total=50_000)
    dispatch = haren.Shared("latency-optimized", epoch=0.0005, check=True)
    with haren.Execution(engine, 2, dispatch) as execution:
        assert engine.wait()
        cost = execution.installed.matrix.column("cost")[:6].copy()
        assert (cost != 1.0).all()
        execution.pause()
        engine.arrange(4)
        execution.resume(kept=[*range(6), *[-1] * 6])
        assert execution.installed.matrix.column("cost")[:6].tolist() == cost.tolist()
        assert engine.wait()
    assert engine.counts == [50_000] * 12


def test_epochs_are_counted_with_what_they_took():
    engine = Chains(chains=4, length=4, total=100_000)
    with haren.Execution(engine, 2, haren.Shared("latency-optimized", epoch=0.001)) as execution:
        assert engine.wait()
        time.sleep(0.02)
    rounds = execution.rounds
    assert len(rounds) > 10 and rounds["round"].tolist() == sorted(rounds["round"])
    assert (rounds["total_ns"] >= rounds["update_ns"] + rounds["priority_ns"]).all()
    assert (rounds["cpu_ns"] > 0).all() and (rounds["flagged"] <= 16).all()
    assert rounds["updated"].max() > 0 and rounds["updated"].min() == 0  # metrics are not due every epoch


class Reader:
    """Something numba does not know, so that a function that uses it stays Python."""

    def __call__(self, value):
        return value


def test_a_policy_in_python_gives_the_same_results():
    plain = Reader()
    base = haren.make("latency-optimized")
    slow = replace(
        base,
        g=lambda op, F: plain(F.pending[op]),
        eligible=lambda op, F, now: plain(F.pending[op]) > 3,
        quantum=lambda op, F, now: plain(5),
        adapt=lambda op, F, state: state.__setitem__((op, 0), plain(1.0)),
    )
    engine = Chains(chains=2, length=3, total=3_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", haren.PythonFallbackWarning)
        with haren.Execution(engine, 2, haren.Shared(slow, epoch=1.0, check=True, strict=True)):
            assert engine.wait()
    assert engine.counts == [3_000] * 6


@pytest.mark.parametrize("role", ["g", "eligible", "quantum", "adapt"])
def test_a_function_that_fails_is_shown_once_and_nothing_is_lost(role):
    def broken(op, F, *rest):
        if F.pending[op] >= 0:
            raise ZeroDivisionError
        return 1

    shapes = {
        "g": lambda op, F: broken(op, F),
        "eligible": lambda op, F, now: broken(op, F),
        "quantum": lambda op, F, now: broken(op, F),
        "adapt": lambda op, F, state: broken(op, F),
    }
    policy = haren.Policy(
        "broken", features=["pending"], dispatch="shared", state=(0.0,), **{role: shapes[role]}
    )
    engine = Chains(chains=2, length=3, total=5_000)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with haren.Execution(engine, 2, haren.Shared(policy, metrics=0.001)) as execution:
            assert engine.wait()
            while not execution.policy_errors:
                time.sleep(0.001)
    assert engine.counts == [5_000] * 6
    told = [one for one in shown if issubclass(one.category, haren.PolicyWarning)]
    assert len(told) == 1 and f"{role}, operator" in str(told[0].message)
    assert isinstance(execution.policy_errors[0].__cause__, ZeroDivisionError)


def test_a_strict_policy_that_fails_stops_the_run():
    policy = haren.Policy(
        "broken", g=lambda op, F: 1 // F.pending[op], features=["pending"], dispatch="shared"
    )
    engine = Chains(chains=2, length=3, total=5_000)
    execution = haren.Execution(engine, 2, haren.Shared(policy, strict=True))
    execution.start()
    deadline = time.monotonic() + 60
    while execution.error is None and time.monotonic() < deadline:
        time.sleep(0.001)
    with pytest.raises(haren.PolicyError, match="policy 'broken': g"):
        execution.stop()
    assert keepers() == []


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"epoch": 0}, "epoch=0 is out of range"),
        ({"metrics": 0}, "metrics=0 is out of range"),
        ({"wake": "never"}, "wake='never'; 'eager' or 'epoch'"),
        ({"batch": 0}, "batch=0"),
    ],
)
def test_parameters_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        haren.Shared("fcfs", **wrong)


def test_a_policy_for_the_operating_system_is_refused():
    with pytest.raises(haren.PolicyError, match="run it without Shared"):
        haren.Shared("os")
