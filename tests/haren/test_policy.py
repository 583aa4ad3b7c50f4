"""A policy is checked when it is made, means the same compiled and in Python, and its mistakes are named."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

import haren
from haren import Feature, Graph, Policy, PolicyError, PythonFallbackWarning, downstream, draw
from haren.assign import round_robin
from haren.matrix import SEED, Matrix
from haren.memory import address
from haren.native.functions import (
    CALLBACK,
    NO_SUCH_THREAD,
    NOT_A_NUMBER,
    NOT_POSITIVE,
    RAISED,
    WRONG_SHAPE,
    Functions,
    evaluate_all,
    mistake,
)

pytestmark = pytest.mark.filterwarnings("error::haren.PythonFallbackWarning")

# source -> map -> sink, and a query of one operator
GRAPH = Graph(["source", "map", "sink", "alone"], [0, 0, 0, 1], [(0, 1), (1, 2)], ["main", "side"], [2, 0])
OPERATORS = range(len(GRAPH))
NOW = 1_000
in_python = partial  # numba compiles functions only, so a partial of one runs as Python


def built(policy: Policy, threads: int = 2, seed: int = 7, graph: Graph = GRAPH, **columns) -> Functions:
    matrix = Matrix(policy, graph, threads, seed)
    for name, values in columns.items():
        matrix.column(name)[:] = values
    return Functions(matrix)


def slow(policy: Policy, **more) -> Functions:
    with pytest.warns(PythonFallbackWarning):
        return built(policy, **more)


def answer(functions: Functions, role: str, op: int) -> tuple[int, int]:
    """What eligible or quantum says of one operator: its code and its value."""
    target = np.full(1, -1)
    words = address(functions.matrix.words)
    return CALLBACK(functions.addresses[role])(words, 0, op, address(target), NOW), int(target[0])


def compute(functions: Functions, feature: str) -> int:
    """The code of a derived feature's function for all flagged operators."""
    return CALLBACK(functions.addresses[feature])(address(functions.matrix.words), 0, 0, 0, NOW)


def priorities(functions: Functions) -> list:
    code, values = evaluate_all(functions, "g", NOW)
    assert code == 0
    return values.tolist()


def in_rows(functions: Functions) -> list:
    """The priorities as Python gives them."""
    values = [functions.call("g", op, NOW) for op in OPERATORS]
    return [list(map(float, value if isinstance(value, tuple) else (value,))) for value in values]


# -- what is refused when a policy is made --------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "function", "takes"),
    [
        ("g", lambda op: 0.0, "op, F"),
        ("g", lambda op, F, weight: 0.0, "op, F"),
        ("g", lambda *everything: 0.0, "op, F"),
        ("f", lambda F, graph: [0], "F, graph, threads"),
        ("f", lambda F, graph, threads, op: [0], "F, graph, threads"),
        ("eligible", lambda op, F: True, "op, F, now"),
        ("quantum", lambda op, F, now, batch: 1, "op, F, now"),
    ],
)
def test_a_function_with_other_arguments_is_refused(role, function, takes):
    with pytest.raises(
        PolicyError, match=rf"'mine': {role}\(.*it takes {takes}, and may ask by name"
    ) as caught:
        Policy("mine", **{role: function})
    assert (caught.value.policy, caught.value.function) == ("mine", role)


def test_the_arguments_one_may_ask_for_are_named():
    with pytest.raises(PolicyError, match=r"by name for graph, now, threads, seed, round_end, state$"):
        Policy("mine", g=lambda op, F, other: 0.0)
    with pytest.raises(PolicyError, match=r"by name for now, seed, round_end, state$"):
        Policy("mine", f=lambda F: [0])


@pytest.mark.parametrize("role", ["f", "g", "eligible", "quantum", "adapt"])
def test_what_is_not_a_function_is_refused(role):
    with pytest.raises(PolicyError, match=f"'mine': {role} is not a function but 3") as caught:
        Policy("mine", **{role: 3})
    assert (caught.value.policy, caught.value.function) == ("mine", role)


def test_a_function_whose_arguments_are_not_known_is_refused_by_name():
    with pytest.raises(PolicyError, match="'mine': g"):
        Policy("mine", g=max)


@pytest.mark.parametrize(
    ("role", "function"),
    [
        ("g", lambda op, F: F.cost[op]),
        ("g", lambda i, X: -1.0 if i else X.cost[i]),
        ("f", lambda F, graph, threads: F.cost.argsort() % threads),
        ("eligible", lambda op, F, now: F.cost[op] > now),
        ("quantum", lambda op, F, now: F.cost[op]),
    ],
)
def test_a_feature_that_is_read_but_not_declared_is_named_with_what_to_do(role, function):
    message = rf"'mine': {role} reads F\.cost, which is not declared: add it to features=\[...\]"
    with pytest.raises(PolicyError, match=message) as caught:
        Policy("mine", features=["head_time"], **{role: function})
    assert (caught.value.policy, caught.value.function) == ("mine", role)


def test_reading_a_feature_that_does_not_exist_is_refused():
    with pytest.raises(
        PolicyError, match=r"g reads F\.costs, which is not declared: there is no such feature"
    ):
        Policy("mine", g=lambda op, F: F.costs[op], features=["cost"])


def test_a_feature_that_is_only_needed_by_another_one_is_not_declared():
    with pytest.raises(PolicyError, match=r"reads F\.cost, which is not declared"):
        Policy("mine", g=lambda op, F: F.cost[op], features=["global_rate"])


def test_an_unknown_feature_is_refused_with_those_there_are():
    with pytest.raises(
        PolicyError, match="'mine': there is no feature 'costs'; there are: cost, sel"
    ) as caught:
        Policy("mine", features=["costs"])
    assert caught.value.policy == "mine"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dispatch": "pool"}, "dispatch='pool'; bound, shared or dedicated"),
        ({"fanout": "min"}, "fanout='min'; one of max, product, sum"),
    ],
)
def test_unknown_choices_are_refused(more, message):
    with pytest.raises(PolicyError, match=f"'mine': {message}"):
        Policy("mine", **more)


def test_a_policy_is_described_in_less_than_150_lines():
    path = Path(haren.__file__).with_name("policy.py")
    assert len(path.read_text().splitlines()) < 150


# -- what a policy declares -----------------------------------------------------------------------


def test_F_has_what_is_declared_and_no_more():
    own = Feature("own", lambda op, F: F.rate[op], needs=["rate"])
    policy = Policy("mine", f=haren.assign.load_balanced, features=["head_time", own, "cost"])
    assert policy.declared == ("head_time", "own", "cost", "rate")
    assert Matrix(policy, GRAPH, 1, 0).values(policy.declared)._fields == policy.declared
    policy = Policy("mine", features=["global_rate"])
    assert policy.declared == ("global_rate",)
    assert list(policy.resolved) == [
        "selectivity",
        "global_selectivity",
        "cost",
        "output_cost",
        "global_rate",
    ]


def test_features_that_f_brings_along_may_be_read_by_g():
    Policy("mine", f=haren.assign.load_balanced, g=lambda op, F: F.cost[op] * F.rate[op])


def test_a_policy_is_intrinsic_if_what_it_needs_is():
    assert Policy("mine", features=["global_rate"]).intrinsic
    assert Policy("mine", f=haren.assign.load_balanced).intrinsic
    assert not Policy("mine", features=["head_time", "query_class"]).intrinsic


def test_features_may_be_any_iterable():
    assert Policy("mine", features=(name for name in ["cost", "rate"])).features == ("cost", "rate")


# -- what functions are called with ---------------------------------------------------------------


@pytest.mark.parametrize("how", [lambda g: g, in_python], ids=["compiled", "python"])
def test_a_function_may_ask_for_more_by_name_in_any_order(how):
    def g(op, F, state, seed, threads, now, graph):
        return op, F.cost[op], state[op, 1], seed, threads, now, graph.queries, graph.query[op]

    policy = Policy("mine", g=how(g), features=["cost"], state=(4, 5))
    assert policy.arguments("g") == ("op", "F", "state", "seed", "threads", "now", "graph")
    make = built if how is not in_python else slow
    functions = make(policy, threads=3, cost=[1.5, 2.5, 3.5, 4.5])
    seed = int(functions.matrix.words[SEED // 8])
    assert priorities(functions) == [
        [op, op + 1.5, 5.0, seed, 3, NOW, 2, GRAPH.queries[op]] for op in OPERATORS
    ]


def test_the_first_arguments_may_have_other_names():
    policy = Policy(
        "mine",
        g=lambda i, x: -x.cost[i],
        f=lambda x, g, n: g.query % n,
        eligible=lambda i, x, t: t > i + 998,
        quantum=lambda i, x, t: t + i,
        features=["cost"],
    )
    functions = built(policy, cost=[1, 2, 3, 4])
    assert priorities(functions) == [[-1], [-2], [-3], [-4]]
    assert evaluate_all(functions, "f")[1].tolist() == [0, 0, 0, 1]
    assert [answer(functions, "eligible", op) for op in OPERATORS] == [(0, 1), (0, 1), (0, 0), (0, 0)]
    assert [answer(functions, "quantum", op) for op in OPERATORS] == [(0, 1000 + op) for op in OPERATORS]


def test_state_begins_with_the_values_given_for_every_operator():
    def g(op, F, state):
        state[op, 0] += 1
        return state[op, 0]

    functions = built(Policy("mine", g=g, f=round_robin, state=(5, 6)))
    assert functions.matrix.state.tolist() == [[5, 6]] * len(GRAPH)


@pytest.mark.parametrize("how", [lambda g: g, in_python], ids=["compiled", "python"])
def test_state_may_be_changed_and_is_kept(how):
    def g(op, F, state):
        state[op, 0] += op + 1
        return state[op, 0]

    make = built if how is not in_python else slow
    functions = make(Policy("mine", g=how(g), f=round_robin, state=(0,)))
    functions.matrix.state[:] = 0
    assert priorities(functions) == [[1], [2], [3], [4]]
    assert priorities(functions) == [[2], [4], [6], [8]]
    assert functions.matrix.state.tolist() == [[2], [4], [6], [8]]


def test_F_cannot_be_written_in_python():
    def g(op, F):
        F.cost[op] = 7.0
        return 1.0

    functions = slow(Policy("mine", g=in_python(g), f=round_robin, features=["cost"]))
    code, _ = evaluate_all(functions, "g")
    assert code == RAISED
    assert isinstance(mistake(functions, "g", code, 0).__cause__, ValueError)
    assert functions.matrix.column("cost").tolist() == [1.0] * len(GRAPH)
    F = functions.matrix.values(["cost"])
    with pytest.raises(ValueError, match="read-only"):
        F.cost[:] = 0.0
    with pytest.raises(AttributeError):
        F.cost = np.zeros(len(GRAPH))


def test_features_are_plain_numbers_in_python_as_they_are_compiled():
    F = Matrix(Policy("mine", features=["cost", "pending"]), GRAPH, 1, 0).values(["cost", "pending"])
    assert type(F.cost[0]) is float
    assert type(F.pending[0]) is int
    with pytest.raises(ZeroDivisionError):
        1.0 / F.pending[0]


# -- the same compiled and in Python --------------------------------------------------------------

WEIGHT = 0.25


def nested_helper(value):
    return value * WEIGHT


def helper(op, F):
    return nested_helper(F.cost[op]) + 1.0


def mixed(op, F):
    if F.pending[op] > 10:
        return 1, F.pending[op], -F.head_time[op]
    return 0, F.pending[op] // 3, F.cost[op] % 7.0


def looping(op, F, graph):
    total = 0.0
    for other in downstream(graph, op):
        total += F.cost[other]
    return total


EQUAL = {
    "number": lambda op, F: F.cost[op],
    "integer": lambda op, F: F.pending[op] - 3,
    "constant": lambda op, F: 1,
    "infinity": lambda op, F: -math.inf if F.pending[op] % 2 else F.head_time[op],
    "mixed tuple": mixed,
    "tuple of one choice": lambda op, F: (F.cost[op], 1) if F.pending[op] > 3 else (-F.cost[op], 0),
    "arithmetic": lambda op, F: abs(F.cost[op] - 50.0) ** 0.5 + math.exp(-F.cost[op]) + max(F.pending[op], 2),
    "helper": helper,
    "whole column": lambda op, F: F.cost[op] - F.cost.max(),
    "graph": looping,
    "draw": lambda op, F, seed: draw(seed, op) / 1000,
    "last": lambda op, F: F.cost[-1 - op],
}


@pytest.fixture(scope="module")
def compiled():
    """Policies are compiled once for all examples."""
    policies = {
        name: Policy(name, g=g, f=round_robin, features=["cost", "pending", "head_time"])
        for name, g in EQUAL.items()
    }
    return {name: built(policy) for name, policy in policies.items()}


@pytest.mark.parametrize("name", EQUAL)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_compiled_g_equals_python(compiled, name, data):
    functions = compiled[name]
    assert not functions.slow
    size = {"min_size": len(GRAPH), "max_size": len(GRAPH)}
    times = st.floats(0, 1e15) | st.just(math.inf)
    functions.matrix.column("cost")[:] = data.draw(st.lists(st.floats(0, 1e6), **size))
    functions.matrix.column("pending")[:] = data.draw(st.lists(st.integers(0, 10**9), **size))
    functions.matrix.column("head_time")[:] = data.draw(st.lists(times, **size))
    assert np.array(priorities(functions)) == pytest.approx(np.array(in_rows(functions)), rel=1e-14)


def an_f(F, graph, threads, now, seed):
    chosen = np.empty(len(F.cost), np.int64)
    for op in range(len(chosen)):
        chosen[op] = (int(F.cost[op]) + now + seed) % threads
    return chosen


@pytest.mark.parametrize(
    "f",
    [
        an_f,
        lambda F, graph, threads: [threads - 1 - op % threads for op in range(len(graph.query))],
        lambda F, graph, threads: np.floor(F.cost) % threads,
    ],
    ids=["array", "list", "whole floats"],
)
def test_compiled_f_equals_python(f):
    functions = built(Policy("mine", f=f, features=["cost"]), threads=3, cost=[2.5, 7.0, 9.9, 100])
    code, chosen = evaluate_all(functions, "f", NOW)
    assert code == 0
    assert chosen.tolist() == [int(thread) for thread in functions.call("f", 0, NOW)]


def test_compiled_eligible_and_quantum_equal_python():
    policy = Policy(
        "mine",
        f=round_robin,
        eligible=lambda op, F, now: F.pending[op] > 3 or F.head_time[op] < now - 10,
        quantum=lambda op, F, now, graph: 1 + F.pending[op] / 2 + len(downstream(graph, op)),
        features=["pending", "head_time"],
    )
    functions = built(policy, pending=[1, 4, 2, 9], head_time=[5.0, math.inf, math.inf, 2000.0])
    eligible = [answer(functions, "eligible", op) for op in OPERATORS]
    assert eligible == [(0, int(functions.call("eligible", op, NOW))) for op in OPERATORS]
    assert eligible == [(0, 1), (0, 1), (0, 0), (0, 1)]
    quantum = [answer(functions, "quantum", op) for op in OPERATORS]
    assert quantum == [(0, int(functions.call("quantum", op, NOW))) for op in OPERATORS]
    assert quantum == [(0, 2), (0, 4), (0, 2), (0, 5)]


@pytest.mark.parametrize("how", [lambda g: g, in_python], ids=["compiled", "python"])
def test_an_unlimited_quantum_is_a_large_one(how):
    make = built if how is not in_python else slow
    policy = Policy("mine", f=round_robin, quantum=how(lambda op, F, now: math.inf))
    assert answer(make(policy), "quantum", 0) == (0, 10**15)


def test_dividing_state_by_zero_is_the_same_mistake_compiled_and_in_python():
    def g(op, F, state):
        return 1.0 / state[op, 0]

    fast = built(Policy("mine", g=g, f=round_robin, state=(0,)))
    other = slow(Policy("mine", g=in_python(g), f=round_robin, state=(0,)))
    assert evaluate_all(fast, "g")[0] == evaluate_all(other, "g")[0] == RAISED


def test_a_priority_of_one_number_may_be_a_tuple():
    functions = built(Policy("mine", g=lambda op, F: (2.0 * op,), f=round_robin))
    assert priorities(functions) == [[0], [2], [4], [6]]


def test_a_priority_may_be_a_truth_value():
    functions = built(
        Policy("mine", g=lambda op, F: F.pending[op] > 1, features=["pending"]), pending=range(4)
    )
    assert priorities(functions) == [[0], [0], [1], [1]]


# -- what cannot be compiled ----------------------------------------------------------------------


class Ranks:
    """An object of no type that numba knows."""

    table = {"source": 3.0, "map": 2.0, "sink": 1.0, "alone": 0.5}  # noqa: RUF012

    def __call__(self, op, F):
        return self.table[GRAPH.names[op]] * F.cost[op]


def with_object(op, F):
    return Ranks.table[GRAPH.names[op]] * F.cost[op] if isinstance(GRAPH, Graph) else 0.0


def with_dict(op, F):
    return {"source": 3.0, "map": 2.0, "sink": 1.0, "alone": 0.5}[GRAPH.names[op]] * F.cost[op]


def with_format(op, F):
    return float(f"{[3.0, 2.0, 1.0, 0.5][op]:.2f}") * F.cost[op]


def with_import(op, F):
    import json

    return json.loads("[3.0, 2.0, 1.0, 0.5]")[op] * F.cost[op]


@pytest.mark.parametrize("g", [Ranks(), with_object, with_dict, with_format, with_import])
def test_a_g_that_does_not_compile_warns_and_gives_the_same_values(g):
    policy = Policy("mine", g=g, f=round_robin, features=["cost"])
    with pytest.warns(PythonFallbackWarning, match="policy 'mine': g does not compile and runs as Python"):
        functions = built(policy, cost=[10, 20, 30, 40])
    assert functions.slow == ["g"]
    assert priorities(functions) == [[30], [40], [30], [20]]


@pytest.mark.parametrize("name", EQUAL)
def test_g_ranks_the_same_as_python_behind_an_address(compiled, name):
    columns = {"cost": [30, 1.5, 77, 1e5], "pending": [0, 11, 4, 3], "head_time": [5, math.inf, 7, 9]}
    for column, values in columns.items():
        compiled[name].matrix.column(column)[:] = values
    policy = compiled[name].policy
    other = slow(Policy(name, g=in_python(policy.g), f=round_robin, features=policy.features), **columns)
    assert np.array(priorities(other)) == pytest.approx(np.array(priorities(compiled[name])), rel=1e-14)


def test_the_other_functions_also_run_as_python():
    policy = Policy(
        "mine",
        f=in_python(lambda F, graph, threads: [1, 0, 1, 0]),
        eligible=in_python(lambda op, F, now: op == 2),
        quantum=in_python(lambda op, F, now: 2.5 * op + 1),
        features=[Feature("own", in_python(lambda op, F: F.cost[op] + 1), needs=["cost"])],
    )
    functions = slow(policy, cost=[1, 2, 3, 4])
    assert set(functions.slow) == {"f", "eligible", "quantum", "own"}
    assert evaluate_all(functions, "f")[1].tolist() == [1, 0, 1, 0]
    assert [answer(functions, "eligible", op) for op in OPERATORS] == [(0, 0), (0, 0), (0, 1), (0, 0)]
    assert [answer(functions, "quantum", op) for op in OPERATORS] == [(0, 1), (0, 3), (0, 6), (0, 8)]
    assert compute(functions, "own") == 0
    assert functions.matrix.column("own").tolist() == [2, 3, 4, 5]


# -- helpers --------------------------------------------------------------------------------------


def factorial(number):
    return 1 if number <= 1 else number * factorial(number - 1)


def test_helpers_and_their_helpers_are_compiled_too():
    def twice(value):
        return 2.0 * nested_helper(value)

    functions = built(
        Policy("mine", g=lambda op, F: helper(op, F) + twice(F.cost[op]), f=round_robin, features=["cost"]),
        cost=[4, 8, 12, 16],
    )
    assert functions.slow == []
    assert priorities(functions) == [[4], [7], [10], [13]]


def test_helpers_compiled_by_the_user_are_called():
    tripled = njit(lambda value: 3.0 * value)
    functions = built(Policy("mine", g=njit(lambda op, F: tripled(op)), f=round_robin))
    assert priorities(functions) == [[0], [3], [6], [9]]


def test_helpers_reached_through_a_module_are_compiled_too():
    def g(op, F, graph, seed):
        return haren.draw(seed, op), len(haren.downstream(graph, op)) - len(haren.upstream(graph, op))

    functions = built(Policy("mine", g=g, f=round_robin))
    assert functions.slow == []
    assert priorities(functions) == in_rows(functions)


def test_a_helper_that_calls_itself_is_compiled_too():
    functions = built(Policy("mine", g=lambda op, F: factorial(op + 1), f=round_robin))
    assert functions.slow == []
    assert priorities(functions) == [[1], [2], [6], [24]]


# -- mistakes -------------------------------------------------------------------------------------


def fails_at_two(op, F):
    if op == 2:
        raise RuntimeError("boom")
    return 1.0


def divides(op, F):
    return 1.0 / F.cost[op]


def beyond(op, F):
    return F.cost[op + 1]


def nan_at_two(op, F):
    return 1.0, math.nan if op == 2 else 2.0


G_MISTAKES = [
    (fails_at_two, RAISED | 2 << 8, RuntimeError, "RuntimeError: boom"),
    (divides, RAISED | 2 << 8, ZeroDivisionError, "ZeroDivisionError: float division by zero"),
    (beyond, RAISED | 3 << 8, IndexError, "IndexError: index 4 is out of bounds"),
    (nan_at_two, NOT_A_NUMBER | 2 << 8, None, r"it returned \(1.0, nan\), which is not a number"),
]


@pytest.mark.parametrize("how", [lambda g: g, in_python], ids=["compiled", "python"])
@pytest.mark.parametrize(("g", "code", "cause", "why"), G_MISTAKES)
def test_a_mistake_of_g_is_a_code_and_an_error_that_names_all(how, g, code, cause, why):
    make = built if how is not in_python else slow
    functions = make(Policy("mine", g=how(g), f=round_robin, features=["cost"]), cost=[1, 2, 0, 4])
    assert evaluate_all(functions, "g", NOW)[0] == code
    error = mistake(functions, "g", code, NOW)
    name = GRAPH.names[code >> 8]
    with pytest.raises(PolicyError, match=f"policy 'mine': g, operator {code >> 8} \\('{name}'\\): {why}"):
        raise error
    assert (error.policy, error.function, error.operator) == ("mine", "g", name)
    assert type(error.__cause__) is (cause or type(None))


@pytest.mark.parametrize(
    ("g", "code", "why"),
    [
        (lambda op, F: (1, 2) if op < 3 else (1, 2, 3), WRONG_SHAPE | 3 << 8, r"\(1, 2, 3\), but 2 number"),
        (lambda op, F: 1 if op < 1 else (1, 2), WRONG_SHAPE | 1 << 8, r"\(1, 2\), but 1 number"),
        (lambda op, F: (), WRONG_SHAPE, r"it returned \(\), but 1 number"),
        (lambda op, F: 1.0 if op < 2 else "high", NOT_A_NUMBER | 2 << 8, "it returned 'high', which is not"),
        (lambda op, F: None, NOT_A_NUMBER, "it returned None, which is not"),
        (lambda op, F: (1.0, [2.0]), NOT_A_NUMBER, r"it returned \(1.0, \[2.0\]\), which is not"),
    ],
)
def test_priorities_of_another_shape_or_kind_are_named(g, code, why):
    functions = slow(Policy("mine", g=g, f=round_robin))
    assert evaluate_all(functions, "g")[0] == code
    error = mistake(functions, "g", code, 0)
    with pytest.raises(PolicyError, match=why):
        raise error
    assert error.operator == GRAPH.names[code >> 8]


def raising_f(F, graph, threads):
    if threads > 1:
        raise RuntimeError("boom")
    return np.zeros(4)


F_MISTAKES = [
    (lambda F, graph, threads: np.zeros(3, np.int64), WRONG_SHAPE, "3 threads for 4 operators"),
    (lambda F, graph, threads: np.zeros(5, np.int64), WRONG_SHAPE, "5 threads for 4 operators"),
    (lambda F, graph, threads: np.arange(4), NO_SUCH_THREAD | 2 << 8, "thread 2 does not exist; there are 2"),
    (lambda F, graph, threads: -np.arange(4), NO_SUCH_THREAD | 1 << 8, "thread -1 does not exist"),
    (lambda F, graph, threads: np.arange(4) / 2, NO_SUCH_THREAD | 1 << 8, "thread 0.5 does not exist"),
    (lambda F, graph, threads: np.full(4, np.nan), NO_SUCH_THREAD, "thread nan does not exist"),
    (raising_f, RAISED, "RuntimeError: boom"),
]


@pytest.mark.parametrize("how", [lambda f: f, in_python], ids=["compiled", "python"])
@pytest.mark.parametrize(("f", "code", "why"), F_MISTAKES)
def test_a_mistake_of_f_is_a_code_and_an_error_that_names_all(how, f, code, why):
    functions = (built if how is not in_python else slow)(Policy("mine", f=how(f)))
    assert evaluate_all(functions, "f")[0] == code
    error = mistake(functions, "f", code, 0)
    operator = GRAPH.names[code >> 8] if code & 255 == NO_SUCH_THREAD else None
    where = f", operator {code >> 8} \\('{operator}'\\)" if operator else ""
    with pytest.raises(PolicyError, match=f"policy 'mine': f{where}: .*{why}"):
        raise error
    assert (error.policy, error.function, error.operator) == ("mine", "f", operator)
    assert type(error.__cause__) is (RuntimeError if code == RAISED else type(None))


def test_an_f_that_returns_no_threads_at_all_is_named():
    functions = slow(Policy("mine", f=lambda F, graph, threads: 5))
    code, _ = evaluate_all(functions, "f")
    assert code == RAISED
    assert isinstance(mistake(functions, "f", code, 0).__cause__, TypeError)


@pytest.mark.parametrize("how", [lambda f: f, in_python], ids=["compiled", "python"])
def test_mistakes_of_eligible_and_quantum_are_codes_and_errors_that_name_all(how):
    def eligible(op, F, now):
        if op == 1:
            raise RuntimeError("boom")
        return True

    def quantum(op, F, now):
        return 100 / (op - 3) if op >= 2 else math.nan if op == 1 else 0.5

    policy = Policy("mine", f=round_robin, eligible=how(eligible), quantum=how(quantum))
    functions = (built if how is not in_python else slow)(policy)
    assert [answer(functions, "eligible", op)[0] for op in (0, 1)] == [0, RAISED | 1 << 8]
    error = mistake(functions, "eligible", RAISED | 1 << 8, NOW)
    assert str(error) == "policy 'mine': eligible, operator 1 ('map'): RuntimeError: boom"
    assert isinstance(error.__cause__, RuntimeError)
    whys = {
        0: (NOT_POSITIVE, "it returned 0.5; a turn is at least one event"),
        1: (NOT_A_NUMBER, "it returned nan, which is not a number"),
        2: (NOT_POSITIVE, "it returned -100.0; a turn is at least one event"),
        3: (RAISED, "ZeroDivisionError: division by zero"),
    }
    for op, (kind, why) in whys.items():
        assert answer(functions, "quantum", op) == (kind | op << 8, -1)
        error = mistake(functions, "quantum", kind | op << 8, NOW)
        assert f"policy 'mine': quantum, operator {op} ('{GRAPH.names[op]}'): {why}" in str(error)
        assert (error.function, error.operator) == ("quantum", GRAPH.names[op])


@pytest.mark.parametrize("how", [lambda f: f, in_python], ids=["compiled", "python"])
def test_a_mistake_of_a_feature_leaves_the_other_operators_their_values(how):
    def own(op, F):
        if F.cost[op] == 3.0:
            raise RuntimeError("boom")
        return math.nan if F.cost[op] == 9.0 else 10 * F.cost[op]

    policy = Policy("mine", features=[Feature("own", how(own), needs=["cost"])], f=round_robin)
    functions = (built if how is not in_python else slow)(policy, cost=[1, 3, 5, 7], own=-1)
    assert compute(functions, "own") == RAISED | 1 << 8
    assert functions.matrix.column("own").tolist() == [10, -1, 50, 70]
    error = mistake(functions, "own", RAISED | 1 << 8, NOW)
    assert str(error) == "policy 'mine': feature own, operator 1 ('map'): RuntimeError: boom"
    assert (error.function, error.operator) == ("own", "map")
    assert isinstance(error.__cause__, RuntimeError)
    functions.matrix.column("cost")[:] = [1, 2, 9, 4]
    assert compute(functions, "own") == NOT_A_NUMBER | 2 << 8
    assert functions.matrix.column("own").tolist() == [10, 20, 50, 40]
    assert "operator 2 ('sink'): it returned nan" in str(mistake(functions, "own", NOT_A_NUMBER | 2 << 8, 0))


def test_priorities_are_given_only_for_the_operators_asked_for():
    functions = built(Policy("mine", g=fails_at_two, f=round_robin))
    operators, target = np.array([3, 1]), np.zeros(4)
    arguments = (address(operators), len(operators), address(target), 0)
    assert CALLBACK(functions.addresses["g"])(address(functions.matrix.words), *arguments) == 0
    assert target.tolist() == [0, 1, 0, 1]


def test_an_empty_graph_has_no_mistakes():
    functions = built(Policy("mine", g=fails_at_two, f=round_robin), graph=Graph([], []))
    assert evaluate_all(functions, "g")[0] == evaluate_all(functions, "f")[0] == 0
