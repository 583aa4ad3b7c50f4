"""What features there are, whose runs change them (D), and what the derived ones are worth."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haren import FEATURES, Feature, Graph, Policy, PolicyError, downstream, make, upstream
from haren.assign import round_robin
from haren.features import FANOUTS, dependents, resolve
from haren.matrix import Matrix
from haren.memory import address
from haren.native.functions import CALLBACK, Functions

pytestmark = pytest.mark.filterwarnings("error::haren.PythonFallbackWarning")


def graph_of(count: int, edges, queries=None, **more) -> Graph:
    return Graph([f"op{op}" for op in range(count)], queries or [0] * count, edges, **more)


CHAIN = graph_of(4, [(0, 1), (1, 2), (2, 3)])
DIAMOND = graph_of(5, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)])
FAN_OUT = graph_of(4, [(0, 1), (1, 2), (1, 3)])  # a source, a map and two sinks
TWO = graph_of(5, [(0, 1), (1, 2), (3, 4)], [0, 0, 0, 1, 1])


@st.composite
def graphs(draw) -> Graph:
    """Any acyclic graph of up to seven operators in up to three queries; edges stay within a query."""
    edges, queries = [], []
    for query in range(draw(st.integers(1, 3))):
        begin = len(queries)
        queries += [query] * draw(st.integers(1, 5 if query == 0 else 3))
        pairs = [(up, down) for down in range(begin, len(queries)) for up in range(begin, down)]
        edges += [pair for pair in pairs if draw(st.booleans())]
    return graph_of(len(queries), edges, queries)


# -- the table ------------------------------------------------------------------------------------


def test_the_table_has_the_features_of_the_papers():
    assert set(FEATURES) >= {
        "cost", "selectivity", "head_time", "average_arrival", "pending", "output_room", "rate",
        "topological_order", "operator_type", "query_class", "latency_gradient", "last_scheduled",
    }  # fmt: skip
    assert all(name == feature.name and feature.what for name, feature in FEATURES.items())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cost", "dynamic independent, execution-intrinsic"),
        ("selectivity", "dynamic independent, execution-intrinsic"),
        ("rate", "dynamic independent, execution-intrinsic"),
        ("last_scheduled", "dynamic independent"),
        ("head_time", "dynamic dependent on upstream"),
        ("average_arrival", "dynamic dependent on upstream"),
        ("pending", "dynamic dependent on upstream"),
        ("output_room", "dynamic dependent on downstream"),
        ("latency_gradient", "dynamic dependent on query"),
        ("topological_order", "static"),
        ("operator_type", "static"),
        ("query_class", "static"),
        ("global_rate", "dynamic derived"),
    ],
)
def test_the_kinds_of_features(name, kind):
    assert FEATURES[name].kind == kind


def test_only_what_the_operators_own_runs_change_is_independent():
    independent = {name for name, feature in FEATURES.items() if feature.independent}
    assert independent - {"thread"} == {"cost", "selectivity", "rate", "last_scheduled"}


def test_before_anything_is_measured_nothing_waits_and_costs_are_equal():
    names = ["cost", "selectivity", "rate", "head_time", "average_arrival", "pending", "output_room"]
    matrix = Matrix(Policy("mine", features=names), CHAIN, 1, 0)
    starts = [matrix.column(name).tolist() for name in names]
    assert starts == [[value] * 4 for value in (1, 1, 0, math.inf, math.inf, 0, math.inf)]


# -- resolve --------------------------------------------------------------------------------------


def nothing(op, F):
    return 0.0


def test_what_is_needed_comes_first_and_once():
    order = list(resolve(["global_rate", "cost", "head_time"]))
    assert sorted(order) == sorted({*order})
    assert set(order) == {
        "global_rate", "global_selectivity", "output_cost", "cost", "selectivity", "head_time",
    }  # fmt: skip
    for feature in resolve(["global_rate", "cost", "head_time"]).values():
        assert all(order.index(need) < order.index(feature.name) for need in feature.needs)


def test_a_feature_of_ones_own_may_need_another_one_of_ones_own():
    first = Feature("first", nothing, needs=["second", "cost"])
    second = Feature("second", nothing, needs=["rate"])
    assert list(resolve([first, second])) == ["rate", "second", "cost", "first"]


def test_a_derived_feature_of_the_table_may_be_replaced():
    mine = Feature("output_cost", nothing, needs=["cost"])
    assert resolve(["global_rate", mine])["output_cost"] is mine


@pytest.mark.parametrize(
    ("features", "circle"),
    [
        ([Feature("a", nothing, needs=["a"])], "a -> a"),
        ([Feature("a", nothing, needs=["b"]), Feature("b", nothing, needs=["a"])], "a -> b -> a"),
        ([Feature("cost2", nothing, needs=["global_selectivity"]),
          Feature("global_selectivity", nothing, needs=["cost2"])],
         "cost2 -> global_selectivity -> cost2"),
    ],
)  # fmt: skip
def test_features_that_need_each_other_are_refused(features, circle):
    with pytest.raises(PolicyError, match=f"in a circle: {circle}"):
        resolve(features)


def test_unknown_features_are_refused_with_who_needs_them():
    with pytest.raises(PolicyError, match="there is no feature 'speed'; there are: cost, selectivity"):
        resolve(["speed"])
    with pytest.raises(PolicyError, match=r"there is no feature 'speed' \(needed by 'mine'\)"):
        resolve([Feature("mine", nothing, needs=["speed"])])


def test_an_unknown_fanout_rule_is_refused():
    with pytest.raises(PolicyError, match="fanout='min'; one of max, product, sum"):
        resolve(["global_rate"], "min")


@pytest.mark.parametrize("mine", [Feature("cost"), Feature("cost", nothing)], ids=["bare", "computed"])
def test_a_measured_feature_cannot_be_replaced(mine):
    with pytest.raises(PolicyError, match="feature 'cost' is measured; give your own another name"):
        resolve([mine])


def test_a_feature_of_ones_own_needs_a_function():
    with pytest.raises(PolicyError, match="'mine'"):
        resolve([Feature("mine")])


def test_two_features_of_one_name_are_refused():
    with pytest.raises(PolicyError, match="'mine'"):
        resolve([Feature("mine", lambda op, F: 1.0), Feature("mine", lambda op, F: 2.0)])
    mine = Feature("mine", nothing)
    assert list(resolve([mine, mine])) == ["mine"]


@pytest.mark.parametrize("name", ["two words", "1st", "", "class", "_hidden"])
def test_a_name_that_F_cannot_have_is_refused(name):
    with pytest.raises(PolicyError, match=f"feature '{name}'"):
        Feature(name, nothing)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"function": 3}, "3 is not a function"),
        ({"reads": "sideways"}, "reads='sideways'; 'upstream', 'downstream', or a function"),
        ({"dtype": "f4"}, "dtype='f4'; 'f8' or 'i8'"),
    ],
)
def test_features_made_wrongly_are_refused(more, message):
    with pytest.raises(PolicyError, match=f"feature 'mine': {message}"):
        Feature("mine", **{"function": nothing, **more})


def test_a_function_with_other_arguments_is_refused_by_name():
    policy = Policy("p", features=[Feature("mine", lambda op, F, state: 0.0)], f=round_robin)
    with pytest.raises(PolicyError, match=r"'p': feature 'mine' is computed by .*takes \(op, F, state\)"):
        Functions(Matrix(policy, CHAIN, 1, 0))


# -- static values --------------------------------------------------------------------------------


def static(graph: Graph) -> dict:
    names = ["topological_order", "operator_type", "query_class"]
    matrix = Matrix(Policy("mine", features=names), graph, 1, 0)
    return {name: matrix.column(name).tolist() for name in names}


def test_static_features_of_a_diamond_with_a_shortcut():
    graph = graph_of(6, [(0, 1), (0, 2), (1, 2), (2, 3), (0, 3)], [0, 0, 0, 0, 1, 1], classes=[3, 1])
    assert static(graph) == {
        "topological_order": [0, 1, 2, 3, 0, 0],
        "operator_type": [0, 1, 1, 2, 0, 0],  # what has neither inputs nor outputs is a source
        "query_class": [3, 3, 3, 3, 1, 1],
    }


def test_queries_without_a_class_have_class_0():
    assert static(TWO)["query_class"] == [0] * 5


@settings(deadline=None, derandomize=True)
@given(graphs())
def test_the_topological_order_is_the_longest_way_from_a_source(graph):
    def longest(op):
        return max((1 + longest(up) for up, down in graph.edges if down == op), default=0)

    assert static(graph)["topological_order"] == [longest(op) for op in range(len(graph))]


# -- D: whose features a run can change -----------------------------------------------------------


def changed(names, graph: Graph) -> list[set[int]]:
    """For each operator, those whose dependent features its runs can change."""
    bitmap = dependents(list(resolve(names).values()), graph)
    return [set(np.flatnonzero(row).tolist()) for row in bitmap]


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (CHAIN, [{0, 1}, {1, 2}, {2, 3}, {3}]),
        (DIAMOND, [{0, 1, 2}, {1, 3}, {2, 3}, {3, 4}, {4}]),
        (FAN_OUT, [{0, 1}, {1, 2, 3}, {2}, {3}]),
        (TWO, [{0, 1}, {1, 2}, {2}, {3, 4}, {4}]),
    ],
)
@pytest.mark.parametrize("name", ["head_time", "average_arrival", "pending"])
def test_a_run_changes_what_waits_at_the_next_operators(name, graph, expected):
    assert changed([name], graph) == expected


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (CHAIN, [{0}, {0, 1}, {1, 2}, {2, 3}]),
        (DIAMOND, [{0}, {0, 1}, {0, 2}, {1, 2, 3}, {3, 4}]),
        (FAN_OUT, [{0}, {0, 1}, {1, 2}, {1, 3}]),
        (TWO, [{0}, {0, 1}, {1, 2}, {3}, {3, 4}]),
    ],
)
def test_a_run_makes_room_for_the_operators_before(graph, expected):
    assert changed(["output_room"], graph) == expected


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (CHAIN, [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}]),
        (DIAMOND, [{0}, {0, 1}, {0, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}]),
        (FAN_OUT, [{0}, {0, 1}, {0, 1, 2}, {0, 1, 3}]),
        (TWO, [{0}, {0, 1}, {0, 1, 2}, {3}, {3, 4}]),
    ],
)
def test_a_run_changes_the_global_rate_of_all_ancestors(graph, expected):
    assert changed(["global_rate"], graph) == expected


def test_a_run_changes_the_latency_gradient_of_its_query():
    assert changed(["latency_gradient"], TWO) == [{0, 1, 2}] * 3 + [{3, 4}] * 2


def test_a_run_changes_no_independent_or_static_features_of_others():
    names = ["cost", "selectivity", "rate", "last_scheduled", "query_class", "topological_order"]
    assert changed(names, DIAMOND) == [{0}, {1}, {2}, {3}, {4}]


def test_several_features_add_up():
    assert changed(["head_time", "output_room"], CHAIN) == [{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3}]


def test_what_is_derived_of_a_dependent_feature_depends_on_the_same_runs():
    waiting = Feature("waiting", nothing, needs=["pending"])
    assert changed([waiting], CHAIN) == changed(["pending"], CHAIN)
    everything_before = Feature("everything_before", nothing, needs=["pending"], reads="upstream")
    assert changed([everything_before], CHAIN) == [{0, 1, 2, 3}, {1, 2, 3}, {2, 3}, {3}]
    everything_behind = Feature("everything_behind", nothing, needs=["pending"], reads="downstream")
    assert changed([everything_behind], CHAIN) == [{0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3}]
    of_the_first = Feature("of_the_first", nothing, needs=["cost"], reads=lambda op, graph: [0])
    assert changed([of_the_first], CHAIN) == [{0, 1, 2, 3}, {1}, {2}, {3}]


def neighbours(op, graph):
    return [*upstream(graph, op), *downstream(graph, op)]


OWN = [
    Feature("local", nothing, needs=["cost", "output_room"]),
    Feature("behind", nothing, needs=["pending"], reads="downstream"),
    Feature("before", nothing, needs=["global_rate", "latency_gradient"], reads="upstream"),
    Feature("around", nothing, needs=["selectivity"], reads=neighbours),
    Feature("fixed", nothing, needs=["query_class"], reads="downstream"),
]
ALL = [*FEATURES, *OWN]


def behind(graph: Graph, op: int) -> set[int]:
    return {op}.union(*(behind(graph, down) for up, down in graph.edges if up == op))


def before(graph: Graph, op: int) -> set[int]:
    return {op}.union(*(before(graph, up) for up, down in graph.edges if down == op))


def runs_that_change(feature: Feature, known, graph: Graph, op: int) -> set[int]:
    """The definition: the runs that can change a feature of one operator, by where its value comes from."""
    if feature.static:
        return set()
    if feature.derived:
        sources = {op}
        if feature.reads == "downstream":
            sources |= behind(graph, op)
        elif feature.reads == "upstream":
            sources |= before(graph, op)
        elif feature.reads is not None:
            sources |= set(feature.reads(op, graph.arrays))
        needs = [known[need] for need in feature.needs]
        return {run for need in needs for j in sources for run in runs_that_change(need, known, graph, j)}
    runs = {op}
    if "upstream" in feature.depends:
        runs |= {up for up, down in graph.edges if down == op}
    if "downstream" in feature.depends:
        runs |= {down for up, down in graph.edges if up == op}
    if "query" in feature.depends:
        runs |= {other for other in range(len(graph)) if graph.queries[other] == graph.queries[op]}
    return runs


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs(), st.lists(st.sampled_from(ALL), min_size=1, max_size=4, unique_by=str))
def test_D_is_what_its_definition_says(graph, wanted):
    known = resolve(wanted)
    expected = [{op} for op in range(len(graph))]
    for feature in known.values():
        if not feature.independent:
            for op in range(len(graph)):
                for run in runs_that_change(feature, known, graph, op):
                    expected[run].add(op)
    assert changed(wanted, graph) == expected


# -- derived features -----------------------------------------------------------------------------


@cache
def functions_of(policy: Policy) -> Functions:
    """A policy's functions; their addresses work for every matrix of the policy."""
    return Functions(Matrix(policy, CHAIN, 1, 0))


def update(matrix: Matrix, flags=1, now: int = 0) -> None:
    """As a round does it: each derived feature in turn, for the flagged operators."""
    matrix.flags[:] = flags
    for feature in matrix.derived:
        function = CALLBACK(functions_of(matrix.policy).addresses[feature.name])
        assert function(address(matrix.words), 0, 0, 0, now) == 0


def derived(policy: Policy, graph: Graph, **columns) -> Matrix:
    matrix = Matrix(policy, graph, 2, 0)
    for name, values in columns.items():
        matrix.column(name)[:] = values
    update(matrix)
    return matrix


HR = {fanout: make("hr", fanout=fanout) for fanout in FANOUTS}


def test_derived_features_of_a_chain():
    """Selectivities 1, 1/2, 1/4 and a sink; costs 10, 20, 40, 80.

    Results per event: sink 1, then 1/4, 1/2 * 1/4 = 1/8, 1/8. Time per event: sink 80, 40 + 80/4 = 60,
    20 + 60/2 = 50, 10 + 50 = 60. Rates in results per second: 1e9 times the one over the other.
    """
    matrix = derived(HR["sum"], CHAIN, selectivity=[1, 0.5, 0.25, 7], cost=[10, 20, 40, 80])
    assert matrix.column("global_selectivity").tolist() == [0.125, 0.125, 0.25, 1]
    assert matrix.column("output_cost").tolist() == [60, 50, 60, 80]
    assert matrix.column("global_rate").tolist() == [0.125e9 / 60, 0.125e9 / 50, 0.25e9 / 60, 1e9 / 80]


@pytest.mark.parametrize(
    ("fanout", "results"),
    [("sum", [2 * 0.5 * 1.5, 0.5 * 1.5]), ("max", [2 * 0.5, 0.5]), ("product", [2 * 0.5 * 0.5, 0.5 * 0.5])],
)
def test_the_rules_of_fan_out(fanout, results):
    """A source (2), a fork (1/2), on one side a sink, on the other a filter (1/2) with a sink behind it.

    What the fork's branches lead to is 1 and 1/2: together 1.5, at most 1, multiplied 1/2. Time goes into all
    branches whatever the rule: filter 30 + 40/2 = 50, fork 20 + (50 + 10)/2 = 50, source 4 + 2 * 50 = 104.
    """
    graph = graph_of(5, [(0, 1), (1, 2), (1, 3), (3, 4)])
    matrix = derived(HR[fanout], graph, selectivity=[2, 0.5, 1, 0.5, 1], cost=[4, 20, 10, 30, 40])
    assert matrix.column("global_selectivity").tolist() == [*results, 1, 0.5, 1]
    assert matrix.column("output_cost").tolist() == [104, 50, 10, 50, 40]
    assert matrix.column("global_rate")[0] == pytest.approx(1e9 * results[0] / 104)


def test_work_that_costs_nothing_has_a_finite_rate():
    matrix = derived(HR["sum"], CHAIN, cost=0, selectivity=1)
    assert np.isfinite(matrix.column("global_rate")).all()


COMBINED = {"sum": sum, "max": max, "product": math.prod}


def recursive(graph: Graph, cost, selectivity, fanout: str, op: int) -> tuple[float, float]:
    """Results and time per event, by the definition."""
    children = [
        recursive(graph, cost, selectivity, fanout, down) for up, down in sorted(graph.edges) if up == op
    ]
    if not children:
        return 1.0, cost[op]
    results = COMBINED[fanout](results for results, _ in children)
    return selectivity[op] * results, cost[op] + selectivity[op] * sum(time for _, time in children)


@pytest.mark.parametrize("fanout", FANOUTS)
@settings(max_examples=50, deadline=None, derandomize=True)
@given(graph=graphs(), data=st.data())
def test_derived_features_equal_their_recursive_definition(fanout, graph, data):
    size = {"min_size": len(graph), "max_size": len(graph)}
    cost = data.draw(st.lists(st.floats(1, 1e6), **size))
    selectivity = data.draw(st.lists(st.floats(0, 10), **size))
    matrix = derived(HR[fanout], graph, cost=cost, selectivity=selectivity)
    expected = [recursive(graph, cost, selectivity, fanout, op) for op in range(len(graph))]
    assert matrix.column("global_selectivity") == pytest.approx([results for results, _ in expected])
    assert matrix.column("output_cost") == pytest.approx([time for _, time in expected])
    assert matrix.column("global_rate") == pytest.approx([1e9 * results / time for results, time in expected])


@pytest.mark.parametrize("name", ["hr", "chain"])
@settings(max_examples=50, deadline=None, derandomize=True)
@given(graph=graphs(), data=st.data())
def test_an_update_of_what_D_flags_is_as_good_as_one_of_everything(name, graph, data):
    policy = POLICIES[name]
    size = {"min_size": len(graph), "max_size": len(graph)}
    values = st.lists(st.floats(1, 100), **size)
    cost, selectivity = (np.array(data.draw(values)) for _ in range(2))
    matrix = derived(policy, graph, cost=cost, selectivity=selectivity)
    ran = data.draw(st.integers(0, len(graph) - 1))
    cost[ran] *= 3
    selectivity[ran] *= 0.5
    matrix.column("cost")[:], matrix.column("selectivity")[:] = cost, selectivity
    update(matrix, flags=dependents(matrix.features, graph)[ran])
    full = derived(policy, graph, cost=cost, selectivity=selectivity)
    for feature in matrix.derived:
        assert matrix.column(feature.name).tolist() == full.column(feature.name).tolist()


POLICIES = {"hr": HR["sum"], "chain": make("chain")}


def test_operators_that_are_not_flagged_keep_their_values():
    matrix = derived(HR["sum"], CHAIN, cost=[10, 20, 40, 80])
    former = matrix.column("output_cost").tolist()
    matrix.column("cost")[:] = 1000
    update(matrix, flags=[0, 0, 1, 0])
    assert matrix.column("output_cost").tolist() == [*former[:2], 1000 + former[3], former[3]]


# -- features of one's own ------------------------------------------------------------------------


def own(feature: Feature, graph: Graph = DIAMOND, **columns) -> list:
    policy = Policy("mine", features=[feature], f=round_robin)
    return derived(policy, graph, **columns).column(feature.name).tolist()


def heaviest_behind(op, F, graph):
    most = 0.0
    for other in downstream(graph, op):
        most = max(most, F.heaviest[other])
    return F.cost[op] + most


def heaviest_before(op, F, graph):
    most = 0.0
    for other in upstream(graph, op):
        most = max(most, F.heaviest[other])
    return F.cost[op] + most


def around(op, F, graph):
    total = 0.0
    for other in upstream(graph, op):
        total += F.cost[other]
    for other in downstream(graph, op):
        total += F.cost[other]
    return total


def test_a_feature_computed_from_others():
    work = Feature("work", lambda op, F: F.pending[op] * F.cost[op], needs=["pending", "cost"], unit="ns")
    assert own(work, pending=range(5), cost=[5, 4, 3, 2, 1]) == [0, 4, 6, 6, 4]
    assert work.kind == "dynamic derived"


def test_a_feature_may_read_itself_downstream():
    feature = Feature("heaviest", heaviest_behind, needs=["cost"], reads="downstream")
    assert own(feature, cost=[1, 10, 100, 1000, 10000]) == [11101, 11010, 11100, 11000, 10000]


def test_a_feature_may_read_itself_upstream():
    feature = Feature("heaviest", heaviest_before, needs=["cost"], reads="upstream")
    assert own(feature, cost=[1, 10, 100, 1000, 10000]) == [1, 11, 101, 1101, 11101]


def test_a_feature_may_read_operators_of_its_choice():
    feature = Feature("around", around, needs=["cost"], reads=neighbours)
    assert own(feature, cost=[1, 10, 100, 1000, 10000]) == [110, 1001, 1001, 10110, 1000]


def test_a_feature_may_be_an_integer():
    feature = Feature("tens", lambda op, F: F.pending[op] // 10, needs=["pending"], dtype="i8")
    values = own(feature, pending=[9, 10, 25, 99, 100])
    assert values == [0, 1, 2, 9, 10]
    assert all(type(value) is int for value in values)


def test_an_integer_feature_that_is_infinite_is_a_mistake():
    feature = Feature("head", lambda op, F: F.head_time[op], needs=["head_time"], dtype="i8")
    matrix = Matrix(Policy("mine", features=[feature], f=round_robin), CHAIN, 1, 0)
    function = CALLBACK(Functions(matrix).addresses["head"])
    assert function(address(matrix.words), 0, 0, 0, 0) != 0


def test_a_feature_may_ask_for_graph_threads_and_now():
    feature = Feature("asked", lambda op, F, now, threads, graph: now + 10 * threads + graph.queries)
    matrix = derived(Policy("mine", features=[feature], f=round_robin), TWO)
    update(matrix, now=1000)
    assert matrix.column("asked").tolist() == [1022] * 5


def test_a_feature_may_need_a_derived_one_of_ones_own():
    double = Feature("double", lambda op, F: 2 * F.cost[op], needs=["cost"])
    more = Feature("more", lambda op, F: F.double[op] + 1, needs=["double"])
    matrix = derived(Policy("mine", features=[more, double], f=round_robin), CHAIN, cost=[1, 2, 3, 4])
    assert matrix.column("more").tolist() == [3, 5, 7, 9]


def test_a_static_feature_is_computed_from_the_graph():
    feature = Feature("depth", lambda op, F: 10 * F.topological_order[op], ["topological_order"], static=True)
    assert own(feature) == [0, 10, 10, 20, 30]
    assert feature.kind == "static"
