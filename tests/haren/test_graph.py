"""The scheduler's graph refuses what it could not schedule."""

import pytest

from haren import Graph


def test_bounds_of_a_query():
    graph = Graph(["a", "b", "c"], [0, 0, 1], [(0, 1)])
    assert graph.query_count == 2
    assert [graph.bounds(query) for query in range(2)] == [(0, 2), (2, 3)]


@pytest.mark.parametrize(
    ("names", "queries", "edges", "message"),
    [
        (["a"], [0, 0], [], "1 operator names but 2"),
        (["a", "b", "c"], [0, 1, 0], [], "contiguously"),
        (["a", "b"], [0, 0], [(1, 0)], "topological"),
        (["a", "b"], [0, 0], [(0, 2)], "topological"),
    ],
)
def test_malformed_graphs_are_refused(names, queries, edges, message):
    with pytest.raises(ValueError, match=message):
        Graph(names, queries, edges)
