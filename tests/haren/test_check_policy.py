"""`haren.testing.check_policy`: policies that come along pass, and whoever breaks the contract is told."""

import itertools
import re

import numpy as np
import pytest

import haren
from haren.testing import Report, check_policy

CLASSES = {"multi-class": {"high": "fcfs", "low": "hr"}}
counter = itertools.count()


def fails(policy: haren.Policy) -> haren.PolicyError:
    with pytest.raises(haren.PolicyError) as raised:
        check_policy(policy)
    assert repr(policy.name) in str(raised.value)
    return raised.value


@pytest.mark.parametrize("name", haren.policies())
def test_every_policy_that_comes_along_keeps_the_contract(name):
    policy = haren.make(name, **CLASSES.get(name, {}))
    report = check_policy(policy)
    assert report.policy == policy.name
    assert not any("Python" in note for note in report.notes)
    if policy.dispatch != "dedicated":
        assert "all work of small queries is done in the end" in report.checks
        assert "f: one existing thread for each operator" in report.checks


@pytest.mark.parametrize("f", ["random", "round_robin", "by_query", "load_balanced"])
def test_every_assignment_that_comes_along_keeps_the_contract(f):
    check_policy(haren.make("fcfs", f=getattr(haren.assign, f)))


def test_pins_are_for_a_graph_of_the_users_own():
    check_policy(haren.make("fcfs", f=haren.assign.pinned({"my-operator": 1})))


def test_a_policy_that_only_sets_nice_values_is_checked_too():
    report = check_policy(haren.make("os", nice="hr"))
    assert "g: numbers that can be compared, as many for each operator" in report.checks
    broken = haren.Policy("broken", g=lambda op, F: float("nan"), dispatch="dedicated")
    assert "NaN" in str(fails(broken))


class Python:
    """What numba does not compile."""

    def __call__(self, op, F):
        return float(F.pending[op])


@pytest.mark.filterwarnings("ignore::haren.PythonFallbackWarning")
def test_a_report_says_what_was_checked():
    report = check_policy("fcfs")
    assert isinstance(report, Report)
    assert repr(report).splitlines()[0] == "policy 'fcfs'"
    assert all(line.startswith("ok    ") for line in repr(report).splitlines()[1:])
    report = check_policy(haren.Policy("slow", g=Python(), features=["pending"]))
    assert "note  runs as Python, since it does not compile: g" in repr(report).splitlines()


# -- what is wrong, and where ---------------------------------------------------------------------


def nan_for_the_second(op, F):
    return float("nan") if op == 1 else 1.0


def divides(op, F):
    return 1.0 / F.pending[op]


def raises_for_the_third(op, F):
    if op == 2:
        raise RuntimeError("no such luck")
    return 0.0


def widths(op, F):
    return (1.0, 2.0) if op == 1 else 1.0


def undeclared(op, F):
    return getattr(F, "cost")[op]  # noqa: B009


def writes(op, F):
    F.pending[op] = 3
    return 0.0


def changes_graph(op, F, graph):
    graph.query[0] = 1 - graph.query[0]
    return 0.0


def by_chance(op, F):
    return float(next(counter))


def chance_in_f(F, graph, threads):
    return [(next(counter) + op) % threads for op in range(len(graph.query))]


G = {
    "NaN": (nan_for_the_second, "g, operator 1 ('sink'): it returns nan; NaN cannot be compared", 2),
    "raise": (raises_for_the_third, "g, operator 2 ('map'): it raises RuntimeError: no such luck", 4),
    "widths": (widths, "g: priorities have 1 and 2 numbers", 2),
    "no number": (lambda op, F: "high", "g, operator 0 ('source'): it returns 'high'; a number or", 1),
    "none": (lambda op, F: None, "g, operator 0 ('source'): it returns None; a number or", 1),
    "empty": (lambda op, F: (), "g, operator 0 ('source'): it returns an empty tuple", 1),
    "undeclared": (undeclared, "g, operator 0 ('source'): it raises AttributeError", 1),
    "by chance": (by_chance, "for the same; use seed or state", 1),
}
SIZES = {
    1: "for operators source, 1 thread(s)",
    2: "for operators source, sink with source -> sink, 1 thread(s)",
    4: "for operators source, filter, map, sink with source -> filter, filter -> map, map -> sink, 1 thread",
}


@pytest.mark.parametrize("kind", G)
def test_a_g_that_breaks_the_contract_is_named_with_the_smallest_example(kind):
    g, message, size = G[kind]
    error = fails(haren.Policy(f"bad {kind}", g=g, unfair=True))
    assert message in str(error)
    assert SIZES[size] in str(error)
    assert (error.policy, error.function) == (f"bad {kind}", "g")


def test_an_undeclared_feature_is_said_to_be_undeclared():
    error = fails(haren.Policy("sly", g=undeclared, features=["pending"]))
    assert "it reads a feature that features=[...] does not declare" in str(error)
    assert "cost" in str(error)


def test_what_a_function_raises_is_the_cause():
    error = fails(haren.Policy("bad", g=raises_for_the_third))
    assert isinstance(error.__cause__, RuntimeError)
    assert error.operator == "map"


def test_values_nobody_thought_of_are_tried():
    error = fails(haren.Policy("bad", g=divides, features=["pending"]))
    assert "ZeroDivisionError" in str(error) and "F.pending = [0]" in str(error)
    assert SIZES[1] in str(error)


@pytest.mark.filterwarnings("ignore::haren.PythonFallbackWarning")
def test_writing_to_F_is_noticed():
    error = fails(haren.Policy("writer", g=writes, features=["pending"]))
    assert "g, operator 0 ('source'): it writes to F" in str(error)
    assert SIZES[1] in str(error)


def test_changing_the_graph_is_noticed_and_said():
    error = fails(haren.Policy("changes", g=changes_graph))
    first = str(error).splitlines()[0]
    assert "g, operator 0 ('source'): it" in first and "graph" in first.split(": it")[1]
    assert SIZES[1] in str(error)


F_WRONG = {
    "thread": (lambda F, graph, threads: np.full(len(graph.query), threads), "thread 1 does not exist", 1),
    "negative": (lambda F, graph, threads: [-1] * len(graph.query), "thread -1 does not exist", 1),
    "half": (lambda F, graph, threads: [0.5] * len(graph.query), "it returns 0.5, which is no number", 1),
    "nan": (lambda F, graph, threads: [float("nan")] * len(graph.query), "which is no number of a thread", 1),
    "word": (lambda F, graph, threads: ["a"] * len(graph.query), "it returns 'a', which is no number", 1),
    "length": (lambda F, graph, threads: [0], "it returns 1 threads for 2 operators", 2),
    "nothing": (lambda F, graph, threads: None, "it returns None, not one thread for each operator", 1),
    "by chance": (chance_in_f, "for the same; use seed or state", 1),
}


@pytest.mark.parametrize("kind", F_WRONG)
def test_an_f_that_breaks_the_contract_is_named_with_the_smallest_example(kind):
    f, message, size = F_WRONG[kind]
    error = fails(haren.Policy(f"bad {kind}", f=f))
    assert "f" in re.split("[,:]", str(error).split(f"{error.policy!r}: ")[1])[0]
    assert message in str(error)
    if kind != "by chance":  # which takes two threads to be seen
        assert SIZES[size] in str(error)
    assert (error.policy, error.function) == (f"bad {kind}", "f")


def test_an_f_that_raises_for_several_threads_only():
    def f(F, graph, threads):
        if threads > 1:
            raise RuntimeError("only one")
        return np.zeros(len(graph.query), np.int64)

    error = fails(haren.Policy("bad", f=f))
    assert "f: it raises RuntimeError: only one" in str(error)
    assert "for operators source, 2 thread(s)" in str(error)


def test_infinite_priorities_are_fine():
    check_policy(haren.Policy("fine", g=lambda op, F: -F.head_time[op], features=["head_time"]))
    check_policy(haren.Policy("fine", g=lambda op, F: (float("inf"), -float("inf"))))


# -- eligible, quantum and the rest ----------------------------------------------------------------


def test_a_policy_that_lets_nothing_run_is_not_live():
    def never(op, F, now):
        return False

    error = fails(haren.Policy("never", eligible=never))
    assert "on 1 thread(s), work was left though there was time for all of it" in str(error)
    assert "source-0 (200 events)" in str(error) and "unfair=True" in str(error)
    report = check_policy(haren.Policy("never", eligible=never, unfair=True))
    assert any("declared unfair" in note for note in report.notes)
    assert "all work of small queries is done in the end" not in report.checks


def test_a_policy_that_forgets_one_operator_is_not_live():
    error = fails(haren.Policy("not-3", eligible=lambda op, F, now: op != 3))
    assert "operator-3" in str(error)


@pytest.mark.parametrize("value", [0, -5, 0.5, float("nan")])
def test_a_turn_is_at_least_one_event(value):
    error = fails(haren.Policy("none", quantum=lambda op, F, now: value))
    assert f"quantum, operator 0 ('source'): it returns {value!r}; at least one event is needed" in str(error)
    assert SIZES[1] in str(error)
    assert error.function == "quantum"


def test_a_turn_may_be_unlimited():
    check_policy(haren.Policy("all", quantum=lambda op, F, now: float("inf")))


def test_eligible_is_true_or_false():
    error = fails(haren.Policy("maybe", eligible=lambda op, F, now: "maybe"))
    assert "eligible, operator 0 ('source'): it returns 'maybe'; True or False" in str(error)


def test_state_may_be_changed():
    def g(op, F, state):
        state[op, 0] += 1.0
        return state[op, 0]

    check_policy(haren.Policy("counts", g=g, state=[0.0]))


def test_the_seed_may_be_used():
    check_policy(haren.Policy("drawn", g=lambda op, F, seed: float(haren.draw(seed, op))))


def test_a_feature_that_fails_is_named():
    def work(op, F):
        return 1.0 / F.pending[op]

    feature = haren.Feature("work", work, needs=["pending"])
    error = fails(haren.Policy("bad", g=lambda op, F: F.work[op], features=[feature]))
    assert "feature work" in str(error) and "ZeroDivisionError" in str(error)


def test_an_unknown_policy_is_refused():
    with pytest.raises(haren.PolicyError, match="no policy 'nothing'"):
        check_policy("nothing")


def test_adapt_leaves_numbers_behind():
    def adapt(op, F, state):
        state[op, 0] += F.pending[op] / F.pending[op] if F.pending[op] > 0 else np.nan

    policy = haren.Policy("lost", adapt=adapt, features=["pending"], state=(0.0,))
    assert "adapt" in str(fails(policy)) and "NaN" in str(fails(policy))


def test_adapt_may_change_state_only():
    def adapt(op, F, state):
        state[op, 0] = min(state[op, 0] + F.pending[op], 7.0)

    check_policy(haren.Policy("counts", adapt=adapt, features=["pending"], state=(0.0,)))
    check_policy(haren.Policy("counts", adapt=adapt, features=["pending"], state=(0.0,), dispatch="shared"))

    def writes(op, F, state):
        F.pending[op] = 0

    assert "there to be read" in str(fails(haren.Policy("writes", adapt=writes, features=["pending"])))


def test_a_shared_policy_that_lets_nothing_run_is_live_when_threads_are_eager():
    """Eager threads run what is not eligible when nothing is, so a strict threshold starves nobody."""
    check_policy(haren.Policy("strict", eligible=lambda op, F, now: False, dispatch="shared"))
