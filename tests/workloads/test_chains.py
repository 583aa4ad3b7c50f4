"""Chains: the same for the same seed, as specified, on the engine and on the virtual clock."""

import numpy as np
import pytest

import enjima as en
from workloads import chains


def test_the_same_seed_gives_the_same_chains():
    assert chains.chains(20, rate=100) == chains.chains(20, rate=100)
    assert chains.chains(20, rate=100, seed=2) != chains.chains(20, rate=100)
    assert chains.chains(5) == chains.chains(20)[:5]  # more queries do not change the first ones


def test_chains_have_names_rates_and_classes():
    made = chains.chains(3, rate=50, query_class=2, prefix="high", length=5)
    assert [one.name for one in made] == ["high-0", "high-1", "high-2"]
    assert {(one.rate, one.query_class) for one in made} == {(50, 2)}
    assert {(len(one.repetitions), len(one.selectivities)) for one in made} == {(3, 3)}
    assert {len(one.repetitions) for one in chains.chains(4)} == {10}


def drawn(queries: int, base_cost: int, seed: int) -> list[tuple[float, int]]:
    """What is drawn for each query: its selectivity and its cost."""
    random, found = np.random.default_rng(seed), []
    for _ in range(queries):
        found.append((random.uniform(0.01, 1), base_cost * 2 ** int(random.integers(0, 5))))
        random.uniform(size=(2, 10))
    return found


@pytest.mark.parametrize("seed", [1, 7])
def test_operators_deviate_from_their_query_by_a_tenth_at_most(seed):
    made = chains.chains(50, seed=seed, base_cost=1000)
    for one, (selectivity, cost) in zip(made, drawn(50, 1000, seed), strict=True):
        share = selectivity**0.1
        each = np.array(one.selectivities)
        assert (each >= 0.9 * share - 1e-12).all() and (each <= min(1.0, 1.1 * share) + 1e-12).all()
        repetitions = np.array(one.repetitions)
        assert (np.abs(repetitions - cost) <= 0.1 * cost + 0.5).all()
        assert 0.9**10 * selectivity <= each.prod() <= min(1.0, 1.1**10 * selectivity)
    queries = zip(made, drawn(50, 1000, seed), strict=True)
    assert np.median(
        [np.prod(one.selectivities) / selectivity for one, (selectivity, _) in queries]
    ) == pytest.approx(1, abs=0.25)


def test_costs_are_of_five_classes():
    made = chains.chains(200, base_cost=1000)
    classes = [round(float(np.log2(np.mean(one.repetitions) / 1000))) for one in made]
    assert set(classes) == {0, 1, 2, 3, 4}
    assert min(np.bincount(classes)) > 20
    every = [count for one in made for count in one.repetitions]
    assert min(every) >= 900 and max(every) <= 17600


def test_selectivities_are_drawn_evenly():
    products = [np.prod(one.selectivities) for one in chains.chains(500)]
    assert min(products) > 0 and max(products) <= 1
    assert np.mean(products) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("name", "value"), [("queries", 0), ("length", 2), ("base_cost", 0)])
def test_what_makes_no_chain_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}={value}"):
        chains.chains(**{"queries": 1, name: value})


def test_the_load_is_that_of_all_operators():
    one = chains.Chain("one", 1000.0, (100, 200), (0.5, 0.1))
    assert chains.load([one], 10.0) == pytest.approx(1000 * (100 * 10 + 0.5 * 200 * 10) / 1e9)
    assert chains.load([one, one], 10.0) == pytest.approx(2 * chains.load([one], 10.0))
    assert chains.load([chains.Chain("free", None, (100,), (1.0,))], 10.0) == 0


def test_on_the_virtual_clock():
    made = chains.chains(3, rate=2_000, query_class=1, base_cost=10)
    result = chains.simulation(made, ns_per_repetition=2.0).run(1.0, "fcfs", threads=8, trace=0)
    operators = result.operators
    assert len(operators) == 36
    for number, one in enumerate(made):
        mine = operators.iloc[12 * number : 12 * (number + 1)]
        assert set(mine["query"]) == {one.name}
        inner = mine.iloc[1:-1]
        assert inner["cost_ns"].tolist() == pytest.approx([2.0 * count for count in one.repetitions], abs=0.5)
        expected = np.array(one.selectivities)
        enough = inner["events_in"].to_numpy() > 100
        assert enough.any()
        assert np.abs(inner["selectivity"].to_numpy() - expected)[enough].max() < 0.02
        assert mine["cost_ns"].iloc[0] == 100
    assert list(result._engine.graph.classes) == [1, 1, 1]


def test_the_load_is_what_threads_are_busy_with():
    made = chains.chains(4, rate=1_000, base_cost=50)
    result = chains.simulation(made, ns_per_repetition=5.0).run(1.0, "rr", threads=4, trace=0)
    ends = 100e-9 * sum(result.operators["events_in"][result.operators["kind"] == "sink"])
    ends += 100e-9 * result.throughput["events"].sum()
    assert result.workers["busy_s"].sum() - ends == pytest.approx(chains.load(made, 5.0), rel=0.01)


def test_on_the_engine():
    """For a moment only, and nothing is said of time: what operators keep is counted."""
    made = chains.chains(2, rate=20_000, base_cost=1, length=6)
    env = en.Environment(threads=2)
    chains.queries(env, made)
    result = env.run(seconds=0.3)
    virtual = chains.simulation(made, ns_per_repetition=1.0).run(0.001, "rr")
    operators = result.operators.set_index("operator")
    for one in made:
        names = [f"{one.name}/{stage}" for stage in range(1, 5)]
        arrived = operators.loc[names, "events_in"].to_numpy()
        assert arrived[0] > 0
        left = [*arrived[1:], operators.loc[f"{one.name}/sink", "events_in"]]
        for stage in range(4):
            if arrived[stage] >= 1000:
                # operators draw with the same hash of an event's number: a tenth, for what that correlates
                kept = left[stage] / arrived[stage]
                assert kept == pytest.approx(one.selectivities[stage], abs=0.1), names[stage]
        assert set(operators.loc[names, "query"]) == {one.name}
    sizes = [one.operators.groupby("query").size().to_dict() for one in (result, virtual)]
    assert sizes[0] == sizes[1]


def test_what_operators_of_the_engine_keep_is_independent():
    """The share an operator keeps does not depend on what the ones before it kept."""
    ids = np.arange(chains.EVENTS)
    for one in chains.chains(20):
        alive = np.ones(len(ids), bool)
        for stage, selectivity in enumerate(one.selectivities):
            drawn = (ids * 2654435761 + stage * 40503 + 12345) % 2147483647
            drawn = (drawn ^ (drawn >> 13)) * 48271 % 2147483647
            keep = (drawn >> 9) % chains.SCALE < round(selectivity * chains.SCALE)
            if alive.sum() >= 500:
                share, noise = keep[alive].mean(), (selectivity * (1 - selectivity) / alive.sum()) ** 0.5
                assert abs(share - selectivity) < 5 * noise + 0.01, (one.name, stage)
            alive &= keep


def test_a_repetition_takes_time():
    assert 0 < chains.repetition_ns() < 1e6
    assert chains.repetition_ns() == chains.repetition_ns()
