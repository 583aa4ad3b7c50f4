"""One case by hand for every policy and every f that come with haren."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from haren import Feature, Graph, Policy, PolicyError, assign, draw, make
from haren.assign import by_query, load_balanced, pinned, round_robin
from haren.matrix import ROUND_END, SEED, Matrix
from haren.memory import address
from haren.native.functions import CALLBACK, NO_SUCH_THREAD, Functions, evaluate_all, mistake
from haren.numbers import next_seed

pytestmark = pytest.mark.filterwarnings("error::haren.PythonFallbackWarning")


def chain_of(operators: int) -> Graph:
    edges = [(op, op + 1) for op in range(operators - 1)]
    return Graph([f"op{op}" for op in range(operators)], [0] * operators, edges)


# two queries, each a source, an operator and a sink; the second is of a higher class
TWO = Graph(
    ["s1", "a", "k1", "s2", "b", "k2"], [0] * 3 + [1] * 3, [(0, 1), (1, 2), (3, 4), (4, 5)],
    ["first", "second"], [0, 1],
)  # fmt: skip


def built(policy: Policy, graph: Graph, threads: int = 2, seed: int = 0, **columns) -> Functions:
    """The policy's functions over these values, with the derived features computed from them."""
    matrix = Matrix(policy, graph, threads, seed)
    for name, values in columns.items():
        matrix.column(name)[:] = values
    functions = Functions(matrix)
    compute(functions, matrix)
    return functions


def compute(functions: Functions, matrix: Matrix) -> None:
    for feature in matrix.derived:
        call = CALLBACK(functions.addresses[feature.name])
        assert call(address(matrix.words), 0, 0, 0, 0) == 0


def priorities(policy: Policy, graph: Graph, **columns) -> list:
    """What g says of each operator, compiled; the same as in Python."""
    functions = built(policy, graph, **columns)
    code, values = evaluate_all(functions, "g")
    assert code == 0
    python = [functions.call("g", op, 0) for op in range(len(graph))]
    rows = [list(map(float, value if isinstance(value, tuple) else (value,))) for value in python]
    assert values.tolist() == rows
    return values[:, 0].tolist() if functions.dims == 1 else values.tolist()


def ranking(values: list) -> list[int]:
    """Operators, the best first; equal ones in topological order."""
    return sorted(range(len(values)), key=lambda op: values[op], reverse=True)


# -- policies -------------------------------------------------------------------------------------


def test_fcfs_takes_the_oldest_event_first():
    values = priorities(make("fcfs"), TWO, head_time=[30, 10, math.inf, 20, math.inf, 40])
    assert values == [-30, -10, -math.inf, -20, -math.inf, -40]
    assert ranking(values) == [1, 3, 0, 5, 2, 4]


def test_hr_takes_what_leads_to_most_results_per_time_first():
    """Query 1: sink 1/50, a 0.1/(100 + 5) = 1/1050, source 0.1/(20 + 105) = 1/1250.

    Query 2: sink 1/100, b 1/(100 + 100) = 1/200, source 1/(50 + 200) = 1/250; all times 1e9.
    """
    columns = {"cost": [20, 100, 50, 50, 100, 100], "selectivity": [1, 0.1, 1, 1, 1, 1]}
    values = priorities(make("hr"), TWO, **columns)
    assert values == pytest.approx([1e9 / time for time in (1250, 1050, 50, 250, 200, 100)])
    assert ranking(values) == [2, 5, 4, 3, 1, 0]


def test_hr_adds_up_branches_by_its_rule():
    """A source and two sinks: 2, 1 or 1 results in 10 + 20 + 70 ns."""
    fork = Graph(["s", "k1", "k2"], [0] * 3, [(0, 1), (0, 2)])
    for fanout, results in {"sum": 2, "max": 1, "product": 1}.items():
        values = priorities(make("hr", fanout=fanout), fork, cost=[10, 20, 70])
        assert values == pytest.approx([results * 1e7, 5e7, 1e9 / 70])


def test_longest_queue_takes_the_longest_queue_first():
    values = priorities(make("longest-queue"), TWO, pending=[5, 0, 7, 10**12, 7, 1])
    assert values == [5, 0, 7, 10**12, 7, 1]
    assert ranking(values) == [3, 2, 4, 0, 5, 1]


def test_rr_has_no_preference_and_deals_operators_out():
    assert priorities(make("rr"), TWO) == [0] * 6
    assert make("rr").f is round_robin
    assert make("rr").features == ()


def test_random_draws_other_priorities_every_round():
    functions = built(make("random"), TWO)
    words = functions.matrix.words
    rounds = []
    for _ in range(4):
        code, values = evaluate_all(functions, "g")
        assert code == 0
        assert values[:, 0].tolist() == [draw(int(words[SEED // 8]), op) for op in range(6)]
        rounds.append(tuple(ranking(values[:, 0].tolist())))
        words[SEED // 8] = next_seed(int(words[SEED // 8]))
    assert len(set(rounds)) == 4


@settings(derandomize=True)
@given(st.integers(1, 2**31 - 2), st.integers(0, 10**6))
def test_random_numbers_are_in_their_range(seed, op):
    assert 0 <= draw(seed, op) < 2**23
    assert 1 <= next_seed(seed) <= 2**31 - 2


def test_os_has_a_thread_for_each_operator_and_ranks_nothing():
    policy = make("os")
    assert (policy.name, policy.dispatch, policy.features) == ("os", "dedicated", ())
    assert policy.g is Policy.g


def test_os_ranks_nice_values_by_another_policy():
    policy = make("os", nice="fcfs")
    assert (policy.name, policy.dispatch) == ("os-fcfs", "dedicated")
    assert priorities(policy, TWO, head_time=range(6)) == [0, -1, -2, -3, -4, -5]
    mine = Policy("mine", g=lambda op, F: op)
    assert make("os", nice=mine).g is mine.g


@pytest.mark.parametrize(
    "nice",
    [
        "os",
        Policy("picky", eligible=lambda op, F, now: True),
        Policy("turns", quantum=lambda op, F, now: 1),
    ],
)
def test_os_refuses_policies_that_do_more_than_rank(nice):
    with pytest.raises(PolicyError, match=r"os: nice='\w+' must be a policy that only ranks operators"):
        make("os", nice=nice)


# -- those of the Enjima paper --------------------------------------------------------------------

# A -> B -> (C, D) -> E, as in its worked example
EXAMPLE = Graph(["A", "B", "C", "D", "E"], [0] * 5, [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)])
COSTS = {"cost": [0.5e6] * 5, "selectivity": [1, 1, 0.25, 0.3, 1]}


def test_costs_per_result_add_up_through_the_best_branch():
    """In ms: E 0.5; D 0.5/0.3 + 0.5; C 0.5/0.25 + 0.5; B 0.5/0.3 + C + D; A the same + B."""
    functions = built(make("latency-optimized"), EXAMPLE, **COSTS)
    assert functions.matrix.column("output_selectivity").tolist() == [0.3, 0.3, 0.25, 0.3, 1]
    expected = [8.0, 19 / 3, 2.5, 13 / 6, 0.5]
    assert (functions.matrix.column("cost_per_result") / 1e6).tolist() == pytest.approx(expected)
    values = priorities(make("min-latency"), EXAMPLE, **COSTS)
    assert values == pytest.approx([1e-6 / ms for ms in expected])
    assert ranking(values) == [4, 3, 2, 1, 0]


def test_costs_per_result_to_the_letter_add_up_the_next_operators_only():
    functions = built(make("latency-optimized", literal=True), EXAMPLE, **COSTS)
    expected = [0.5 / 0.3 * 2, 0.5 / 0.3 + 0.5 / 0.25 + 0.5 / 0.3, 2.5, 13 / 6, 0.5]
    assert (functions.matrix.column("cost_per_result") / 1e6).tolist() == pytest.approx(expected)


def test_queries_that_slow_down_weigh_up_to_a_tenth_more():
    gradients = {-3e9: 0.9, -1e9: 0.9, -5e8: 0.95, 0.0: 1.0, 2e8: 1.02, 1e9: 1.1, 7e9: 1.1}
    for gradient, weight in gradients.items():
        (value, *_) = priorities(make("latency-optimized"), EXAMPLE, **COSTS, latency_gradient=gradient)
        assert value == pytest.approx(weight / 8e6)


def test_an_operator_is_eligible_with_enough_to_do_or_after_a_while():
    functions = built(make("latency-optimized"), EXAMPLE, pending=[999, 1000, 1, 0, 5000], last_scheduled=1e9)
    at = [functions.answer("eligible", op, 10**9 + 1_000_000) for op in range(5)]
    assert at == [0, 1, 0, 0, 1]
    behind = [functions.answer("eligible", op, 10**9 + 1_000_001) for op in range(5)]
    assert behind == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("name", ["latency-optimized", "min-latency", "min-cost"])
def test_a_turn_is_what_fits_into_the_epoch_and_at_least_a_thousand(name):
    functions = built(make(name), EXAMPLE, cost=[1, 100, 1000, 1e9, 0])
    functions.matrix.words[ROUND_END // 8] = 5_000_000
    assert [functions.answer("quantum", op, 4_000_000) for op in range(4)] == [10**6, 10_000, 1000, 1000]
    assert functions.answer("quantum", 1, 6_000_000) == 1000  # the epoch is over


def adapted(policy: Policy, gradients: list[float]) -> np.ndarray:
    """The first operator's thresholds after each of these gradients (s/s), compiled; as Python the same."""
    functions = built(policy, EXAMPLE)
    thresholds = []
    for gradient in gradients:
        functions.matrix.column("latency_gradient")[:] = gradient * 1e9
        before = functions.matrix.state.copy()
        assert evaluate_all(functions, "adapt")[0] == 0
        compiled = functions.matrix.state.copy()
        functions.matrix.state[:] = before
        for op in range(len(EXAMPLE)):
            functions.call("adapt", op, 0)
        assert (functions.matrix.state == compiled).all() and (compiled == compiled[0]).all()
        thresholds.append(compiled[0, :2].copy())
    return np.array(thresholds)


def test_thresholds_follow_the_latency_and_a_step_that_made_it_worse_is_taken_back():
    thresholds = adapted(make("latency-optimized"), [0.5, 0.25, 0.3, 0.2, -0.5, -0.6])
    assert thresholds[:, 0].tolist() == pytest.approx([1500, 1875, 1500, 1800, 900, 360])
    assert thresholds[:, 1].tolist() == pytest.approx([1.5e6, 1.875e6, 1.5e6, 1.8e6, 0.9e6, 0.36e6])


def test_steps_and_thresholds_are_bounded():
    grown = adapted(make("latency-optimized", event_threshold=9000, idle_threshold=0.09), [1.0, 1.0])
    assert grown.tolist() == [[9000, 90e6], [9000, 90e6]]  # a step to the maximum is one too far
    small = adapted(make("latency-optimized", event_threshold=2, event_step=1), [-0.5, -0.5])
    assert small[:, 0].tolist() == [1, 1]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.sampled_from([1, 50, 1000, 10_000]))
def test_thresholds_stay_within_their_bounds(gradients, event_threshold):
    thresholds = adapted(make("latency-optimized", event_threshold=event_threshold), gradients)
    assert (thresholds[:, 0] >= 1).all() and (thresholds[:, 0] <= 10_000).all()
    assert (thresholds[:, 1] >= 1000).all() and (thresholds[:, 1] <= 100e6).all()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    st.lists(st.floats(1, 1e6), min_size=5, max_size=5),
    st.lists(st.floats(0, 4), min_size=5, max_size=5),
    st.integers(-10, 20),
)
def test_the_ranking_does_not_depend_on_the_unit_of_cost(costs, selectivities, power):
    for name in ("latency-optimized", "min-latency"):
        scaled = [cost * 2.0**power for cost in costs]
        one = priorities(make(name), EXAMPLE, cost=costs, selectivity=selectivities)
        other = priorities(make(name), EXAMPLE, cost=scaled, selectivity=selectivities)
        assert [value / 2.0**power for value in one] == other and ranking(one) == ranking(other)


def test_operators_that_produce_nothing_or_cost_nothing_can_still_be_ranked():
    values = priorities(make("latency-optimized"), EXAMPLE, cost=[10, 10, 10, 10, 0], selectivity=0)
    assert all(0 < value < math.inf for value in values)
    assert ranking(values)[0] == 4 and ranking(values)[3:] == [1, 0]  # who is behind goes first, still
    assert all(math.isfinite(value) for value in priorities(make("min-latency"), EXAMPLE, cost=0))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"event_threshold": 0}, "event_threshold=0 is out of range, from 1 to 10000"),
        ({"event_threshold": 20_000}, "event_threshold=20000 is out of range, from 1 to 10000"),
        ({"idle_threshold": 0}, r"idle_threshold=0 is out of range, from 1e-06 to 0\.1"),
        ({"idle_threshold": 1}, r"idle_threshold=1 is out of range, from 1e-06 to 0\.1"),
        ({"event_step": -1}, "event_step=-1 is out of range"),
        ({"idle_step": float("nan")}, "idle_step=nan is out of range"),
    ],
)
def test_thresholds_out_of_range_are_refused(wrong, message):
    with pytest.raises(PolicyError, match=message):
        make("latency-optimized", **wrong)


def test_a_turn_of_no_event_is_refused():
    with pytest.raises(ValueError, match="minimum=0; a turn is at least one event"):
        make("min-latency", least_turn=0)


def test_min_cost_goes_through_a_query_in_post_order():
    """Branches are walked one after the other, whatever their operators' numbers are."""
    braided = Graph(
        ["s", "left-1", "right-1", "left-2", "right-2", "join", "sink", "other", "other-sink"],
        [0] * 7 + [1] * 2,
        [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5), (5, 6), (7, 8)],
    )  # fmt: skip
    functions = built(make("min-cost"), braided)
    assert functions.matrix.column("post_order").tolist() == [0, 1, 3, 2, 4, 5, 6, 0, 1]
    values = priorities(make("min-cost"), braided, last_scheduled=[9, 8, 7, 7, 7, 0, 0, 0, 3])
    assert ranking(values)[:4] == [7, 5, 6, 8]  # who ran longest ago is next
    values = priorities(make("min-cost", strict=True), braided)
    assert ranking(values) == [0, 7, 1, 8, 3, 2, 4, 5, 6]


def test_min_cost_knows_all_sinks_of_a_query():
    fork = Graph(["s", "k1", "k2"], [0] * 3, [(0, 1), (0, 2)])
    assert built(make("min-cost"), fork).matrix.column("post_order").tolist() == [0, 1, 2]


# -- multi-class ----------------------------------------------------------------------------------


def test_multi_class_takes_the_higher_class_first_and_ranks_each_by_its_policy():
    """The first query, of class 0, goes by HR: 1/30, 1/20, 1/10; the second, of class 1, by FCFS."""
    values = priorities(
        make("multi-class", high="fcfs", low="hr"), TWO, cost=10, head_time=[1, 2, 3, 60, 50, math.inf]
    )
    low = [[0, 1e9 / 30], [0, 1e9 / 20], [0, 1e9 / 10]]
    assert values == [*low, [1, -60], [1, -50], [1, -math.inf]]
    assert ranking(values) == [4, 3, 5, 2, 1, 0]


def test_multi_class_fills_narrow_priorities_up():
    values = priorities(
        make("multi-class", high="chain", low="fcfs"), TWO, cost=100, selectivity=1, head_time=range(6)
    )
    assert values[:3] == [[0, 0, 0], [0, -1, 0], [0, -2, 0]]
    assert values[3:] == [[1, 0, -3], [1, 0.005, -4], [1, 0.005, -5]]


def test_multi_class_treats_classes_above_the_highest_as_the_highest():
    graph = Graph(["w", "x", "y", "z"], range(4), classes=[0, 1, 2, 7])
    policy = make("multi-class", high="longest-queue", middle="fcfs", low="rr")
    values = priorities(policy, graph, pending=[1, 2, 3, 4], head_time=[10, 20, 30, 40])
    assert values == [[0, 0], [1, -20], [2, 3], [2, 4]]


def test_multi_class_of_one_class_ranks_as_its_policy():
    values = priorities(make("multi-class", all="fcfs"), TWO, head_time=range(6))
    assert values == [[0, 0], [0, -1], [0, -2], [0, -3], [0, -4], [0, -5]]


def g_seed_graph(op, F, seed, graph):
    return seed + graph.query[op]


def g_graph_seed(op, F, graph, seed):
    return graph.query[op] - seed


def g_graph(op, F, graph):
    return graph.query[op]


def g_seed(op, F, seed):
    return seed


def test_multi_class_gives_its_policies_the_graph_and_the_seed():
    classes = {g.__name__: Policy(g.__name__, g=g) for g in (g_seed_graph, g_graph_seed, g_graph, g_seed)}
    graph = Graph(["w", "x", "y", "z"], range(4), classes=[0, 1, 2, 3])
    policy = make("multi-class", **classes)
    seed = int(Matrix(policy, graph, 2, 0).words[SEED // 8])
    assert priorities(policy, graph) == [[0, seed], [1, 1], [2, 2 - seed], [3, seed + 3]]


def test_multi_class_knows_the_features_that_an_f_of_its_policies_brings_along():
    policy = Policy("mine", f=load_balanced, g=lambda op, F: F.cost[op])
    values = priorities(make("multi-class", high=policy, low="fcfs"), TWO, cost=range(6), head_time=range(6))
    assert values == [[0, 0], [0, -1], [0, -2], [1, 3], [1, 4], [1, 5]]


def test_multi_class_accepts_priorities_that_are_tuples_of_one():
    policy = Policy("mine", g=lambda op, F: (float(op),))
    values = priorities(make("multi-class", high=policy, low="fcfs"), TWO, head_time=range(6))
    assert values == [[0, 0], [0, -1], [0, -2], [1, 3], [1, 4], [1, 5]]


def test_multi_class_does_not_mix_up_features_of_the_same_name():
    one = Policy("one", g=lambda op, F: F.mine[op], features=[Feature("mine", lambda op, F: 1.0)])
    two = Policy("two", g=lambda op, F: F.mine[op], features=[Feature("mine", lambda op, F: 2.0)])
    try:
        policy = make("multi-class", high=one, low=two)
    except PolicyError as error:
        assert "'mine'" in str(error)
    else:
        assert priorities(policy, TWO) == [[0, 2]] * 3 + [[1, 1]] * 3


# -- chain ----------------------------------------------------------------------------------------

CHAIN = make("chain")


@pytest.fixture(scope="module")
def chain_functions() -> Functions:
    """Compiled once; the addresses work for every matrix of the policy."""
    return Functions(Matrix(CHAIN, chain_of(2), 1, 0))


def slopes(functions: Functions, graph: Graph, cost, selectivity) -> list[float]:
    matrix = Matrix(CHAIN, graph, 1, 0)
    matrix.column("cost")[:], matrix.column("selectivity")[:] = cost, selectivity
    compute(functions, matrix)
    return matrix.column("chain_slope").tolist()


def test_chain_a_segment_is_as_steep_as_its_operators_together(chain_functions):
    """A source, a (100 ns, 0.9), b (100 ns, 0.1) and a sink (1000 ns).

    The chart, from (0, 1): a takes 100 and leaves 0.9: (100, 0.9); b takes 100 for each of those 0.9 and
    leaves a tenth of them: (190, 0.09); the sink takes 1000 for each of 0.09 and leaves nothing: (280, 0).
    From (0, 1) the descent to these is 0.1/100 = 0.001, 0.91/190 = 0.00479, 1/280 = 0.00357: the steepest
    ends at b, so a, flat by itself, has b's slope. From (190, 0.09) it is 0.09/90 = 0.001 to the end.
    """
    values = slopes(chain_functions, chain_of(4), [70, 100, 100, 1000], [1, 0.9, 0.1, 1])
    assert values == pytest.approx([0, 0.91 / 190, 0.91 / 190, 0.001])


def test_chain_a_flat_operator_behind_a_steep_one_begins_a_segment(chain_functions):
    """A source, a (100 ns, 0.1), b (1000 ns, 0.9), a sink (1000 ns).

    Points (0, 1), (100, 0.1), (200, 0.09), (290, 0). From (0, 1): 0.009, 0.91/200 = 0.00455, 1/290 = 0.00345:
    a is alone. From (100, 0.1): b 0.01/100 = 0.0001, to the end 0.1/190 = 0.000526: b and the sink.
    """
    values = slopes(chain_functions, chain_of(4), [1, 100, 1000, 1000], [1, 0.1, 0.9, 1])
    assert values == pytest.approx([0, 0.009, 0.1 / 190, 0.1 / 190])


def test_chain_two_descents_that_are_equally_steep_are_one_segment(chain_functions):
    """(0, 1), (100, 0.5), (200, 0): both parts and the whole fall by 0.005."""
    assert slopes(chain_functions, chain_of(3), [1, 100, 200], [1, 0.5, 1]) == [0, 0.005, 0.005]


def test_chain_a_sink_takes_out_all_and_a_source_nothing(chain_functions):
    """The sink's own selectivity does not count, nor does what the source costs."""
    assert slopes(chain_functions, chain_of(2), [1, 250], [0.1, 5]) == [0, 0.004]
    assert slopes(chain_functions, chain_of(1), [1], [1]) == [0]


def test_chain_an_operator_that_lets_nothing_through_is_the_end_of_the_chart(chain_functions):
    values = slopes(chain_functions, chain_of(4), [1, 100, 100, 100], [1, 0, 1, 1])
    assert values[:2] == [0, 0.01]
    assert values[2] == values[3]
    assert np.isfinite(values).all()


def test_chain_ends_where_streams_fork_or_join(chain_functions):
    """0 is the source; 1 forks to 2 and 3, which join in 4; 5 is the sink.

    1 to 3 are chains of one operator: 0.5/100, 0.2/100, 0.4/200. 4 (100 ns, 0.5) and the sink (100 ns) are
    a chain: points (100, 0.5), (150, 0); 1/150 is steeper than 0.5/100, so they are one segment.
    """
    graph = Graph(list("abcdef"), [0] * 6, [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)])
    values = slopes(chain_functions, graph, [1, 100, 100, 200, 100, 100], [1, 0.5, 0.8, 0.6, 0.5, 1])
    assert values == pytest.approx([0, 0.005, 0.002, 0.002, 1 / 150, 1 / 150])


def test_chain_operators_that_multiply_events_have_a_negative_slope(chain_functions):
    """An operator before a fork that makes three events of one in a nanosecond, and one that does so in 4."""
    graph = Graph(list("abcd"), [0] * 4, [(0, 1), (1, 2), (1, 3)])
    assert slopes(chain_functions, graph, [1, 4, 1, 1], [1, 3, 1, 1])[1] == -0.5
    assert slopes(chain_functions, graph, [1, 1, 1, 1], [1, 3, 1, 1])[1] == -2


def test_chain_what_gets_rid_of_a_waiting_event_sooner_goes_first():
    """The first query's sink takes 1000 ns to get rid of an event, the second's 1500: 0.001 and 0.00067.

    That only half of the first query's events come so far (a: 100 ns, 0.5, slope 0.005) makes no difference.
    """
    graph = Graph(["s1", "a", "k1", "s2", "k2"], [0, 0, 0, 1, 1], [(0, 1), (1, 2), (3, 4)])
    values = priorities(
        CHAIN, graph, cost=[1, 100, 1000, 1, 1500], selectivity=[1, 0.5, 1, 1, 1], head_time=0
    )
    assert ranking(values)[:3] == [1, 2, 4]


def test_chain_equal_slopes_go_by_the_oldest_event():
    values = priorities(CHAIN, chain_of(3), cost=[1, 100, 200], selectivity=[1, 0.5, 1], head_time=[3, 9, 5])
    assert values == [[0, -3], [0.005, -9], [0.005, -5]]
    assert ranking(values) == [2, 1, 0]


def lower_envelope(cost: list[float], selectivity: list[float]) -> list[float]:
    """The descent of the chart's lower convex hull at each operator, by the min-max formula for it.

    Over the part of operator i the hull falls by min over points j before it of max over points k behind it
    of the descent from j to k.
    """
    points = [(0.0, 1.0)]
    for op, (one, share) in enumerate(zip(cost, selectivity, strict=True)):
        time, left = points[-1]
        points.append((time + left * one, 0.0 if op == len(cost) - 1 else left * share))

    def descent(j, k):
        return (points[j][1] - points[k][1]) / (points[k][0] - points[j][0])

    count = len(points)
    return [min(max(descent(j, k) for k in range(i, count)) for j in range(i)) for i in range(1, count)]


operators = st.lists(st.tuples(st.floats(10, 1000), st.floats(0.3, 1.5)), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None, derandomize=True)
@example([(100, 0.9), (100, 0.1), (1000, 1)])
@given(operators)
def test_chain_slopes_are_those_of_the_lower_convex_hull(chain_functions, given_operators):
    cost, selectivity = zip(*given_operators, strict=True)
    values = slopes(chain_functions, chain_of(len(cost) + 1), [1, *cost], [1, *selectivity])
    assert values == pytest.approx([0, *lower_envelope(cost, selectivity)])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(operators)
def test_chain_slopes_never_increase_along_a_chain(chain_functions, given_operators):
    cost, selectivity = zip(*given_operators, strict=True)
    values = slopes(chain_functions, chain_of(len(cost) + 1), [1, *cost], [1, *selectivity])[1:]
    assert all(former >= later * (1 - 1e-12) for former, later in pairwise(values))


# -- f --------------------------------------------------------------------------------------------


def threads_of(f, graph: Graph, threads: int, seed: int = 0, **columns) -> list[int]:
    functions = built(Policy("mine", f=f), graph, threads, seed, **columns)
    code, chosen = evaluate_all(functions, "f")
    assert code == 0
    assert chosen.tolist() == [int(thread) for thread in functions.call("f", 0, 0)]
    return chosen.tolist()


def test_random_uses_all_threads_alike_and_depends_on_the_seed():
    graph = chain_of(1000)
    chosen = threads_of(assign.random, graph, 4)
    assert all(200 < chosen.count(thread) < 300 for thread in range(4))
    assert sum(map(chosen.count, range(4))) == 1000
    assert threads_of(assign.random, graph, 4) == chosen
    assert threads_of(assign.random, graph, 4, seed=1) != chosen
    assert threads_of(assign.random, graph, 1) == [0] * 1000


def test_random_assigns_anew_every_round():
    functions = built(Policy("mine"), chain_of(100))
    before = evaluate_all(functions, "f")[1].tolist()
    functions.matrix.words[SEED // 8] = next_seed(int(functions.matrix.words[SEED // 8]))
    after = evaluate_all(functions, "f")[1].tolist()
    assert 30 < sum(one == other for one, other in zip(before, after, strict=True)) < 70


def test_round_robin_deals_operators_out():
    assert threads_of(round_robin, TWO, 4) == [0, 1, 2, 3, 0, 1]
    assert threads_of(round_robin, TWO, 1) == [0] * 6


def test_by_query_keeps_a_query_together():
    assert threads_of(by_query, TWO, 2) == [0, 0, 0, 1, 1, 1]
    graph = Graph(["u", "v", "w", "x", "y"], [0, 1, 2, 3, 3])
    assert threads_of(by_query, graph, 3) == [0, 1, 2, 0, 0]


def test_load_balanced_gives_the_most_work_to_the_thread_with_the_least():
    """Work 3, 8, 4, 7, 6, 5; the largest first.

    8 to thread 0, 7 to 1, 6 to 1 (13), 5 to 0 (13), 4 to 0, since both have 13 in two operators, 3 to 1.
    """
    values = {"cost": [3, 4, 2, 7, 12, 0.5], "rate": [1, 2, 2, 1, 0.5, 10]}
    assert threads_of(load_balanced, TWO, 2, **values) == [1, 0, 0, 1, 1, 0]


def test_load_balanced_gives_equal_work_to_the_thread_with_fewer_operators():
    """Nothing is measured yet, so operators are dealt out. Then one works, and is left alone."""
    assert threads_of(load_balanced, TWO, 3, rate=0) == [0, 1, 2, 0, 1, 2]
    assert threads_of(load_balanced, TWO, 2, rate=[0, 0, 0, 0, 9, 0]) == [1, 1, 1, 1, 0, 1]


def test_load_balanced_keeps_equal_operators_in_topological_order():
    assert threads_of(load_balanced, chain_of(40), 4, cost=7, rate=3) == [op % 4 for op in range(40)]


def test_load_balanced_brings_its_features_along():
    policy = Policy("mine", f=load_balanced)
    assert policy.declared == ("cost", "rate")


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        ({"a": 2, "k2": 0}, [0, 2, 0, 1, 1, 0]),
        ({"second": 2}, [0, 0, 0, 2, 2, 2]),
        ({"second": 2, "b": 0, "first": 1}, [1, 1, 1, 2, 0, 2]),
        ([2, 1, 0, 0, 1, 2], [2, 1, 0, 0, 1, 2]),
        ({}, [0, 0, 0, 1, 1, 1]),
    ],
    ids=["operators", "query", "operators before queries", "list", "nothing"],
)
def test_pinned_puts_operators_where_the_user_wants_them(pins, expected):
    assert threads_of(pinned(pins), TWO, 3) == expected


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        (
            {"c": 1},
            "there is no operator or query 'c'; .* are: s1, a, k1, .*queries: first, second",
        ),
        ([0, 1], "pinned: 2 threads for 6 operators"),
    ],
)
def test_pinned_refuses_what_is_not_there(pins, message):
    with pytest.raises(PolicyError, match=message):
        built(Policy("mine", f=pinned(pins)), TWO)


def test_pinned_to_a_thread_that_does_not_exist_is_a_mistake():
    functions = built(Policy("mine", f=pinned({"a": 2})), TWO, threads=2)
    code, _ = evaluate_all(functions, "f")
    assert code == NO_SUCH_THREAD | 1 << 8
    assert "operator 1 ('a'): thread 2 does not exist; there are 2" in str(mistake(functions, "f", code, 0))


@pytest.mark.parametrize("pins", [{"a": -1}, [0, -1, 0, 0, 0, 0]], ids=["by name", "list"])
def test_pinned_does_not_take_a_negative_thread_for_no_wish(pins):
    with pytest.raises(PolicyError, match="-1"):
        functions = built(Policy("mine", f=pinned(pins)), TWO)
        code, _ = evaluate_all(functions, "f")
        if code:
            raise mistake(functions, "f", code, 0)


def test_pinned_finds_the_names_of_queries_without_names():
    graph = Graph(["u", "v"], [0, 1])
    assert threads_of(pinned({"query-0": 1, "v": 0}), graph, 2) == [1, 0]
