"""Chains of operators of known cost and selectivity: the synthetic queries of the Haren paper, 7.1.

A query has a source, operators in a line and a sink, ``length`` in all. Its selectivity is drawn evenly from
0.01 to 1 and divided among its operators; its cost class z (0 to 4) makes it ``base_cost`` * 2**z. Each
operator then deviates by up to 10 % from its query's values. Cost is repeated floating-point work.

The same chains run on the engine (`queries`) and on the virtual clock (`simulation`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import enjima as en
    import haren

LENGTH = 12
COST_CLASSES = 5
LEAST_SELECTIVITY = 0.01
DEVIATION = 0.1
SCALE = 1 << 20  # selectivities are compared with hashes in this many steps
EVENT = np.dtype([("id", "i8"), ("query", "i8"), ("stage", "i8"), ("value", "f8")])
END_NS = 100.0  # what an event costs at a source or a sink, about
EVENTS = 4096
"""Events of a source's array, which it repeats."""


@dataclass(frozen=True)
class Chain:
    """A query: its rate in events/s (None: as fast as it can), and per operator between its ends the
    repetitions of work for an event, and the share of events it keeps."""

    name: str
    rate: float | None
    repetitions: tuple[int, ...]
    selectivities: tuple[float, ...]
    query_class: int = 0


def chains(
    queries: int,
    *,
    rate: float | None = None,
    base_cost: int = 100,
    length: int = LENGTH,
    query_class: int = 0,
    seed: int = 1,
    prefix: str = "chain",
) -> list[Chain]:
    """So many chains; the same for the same parameters."""
    if queries < 1 or length < 3 or base_cost < 1:
        raise ValueError(
            f"queries={queries}, length={length}, base_cost={base_cost}: at least one query of three "
            "operators that cost something"
        )
    random = np.random.default_rng(seed)
    made, inner = [], length - 2
    for number in range(queries):
        selectivity = random.uniform(LEAST_SELECTIVITY, 1)
        cost = base_cost * 2 ** random.integers(0, COST_CLASSES)
        off = random.uniform(1 - DEVIATION, 1 + DEVIATION, (2, inner))
        shares = np.minimum(1.0, selectivity ** (1 / inner) * off[1])
        repetitions = np.maximum(1, np.round(cost * off[0])).astype(int)
        made.append(
            Chain(
                f"{prefix}-{number}", rate, tuple(repetitions.tolist()), tuple(shares.tolist()), query_class
            )
        )
    return made


def queries(env: en.Environment, made: Sequence[Chain]) -> None:
    """Deploy chains on an engine. One function serves all operators, so it is compiled once."""
    depth = max(len(chain.repetitions) for chain in made)
    repetitions, keep = np.zeros((len(made), depth), np.int64), np.zeros((len(made), depth), np.int64)
    for number, chain in enumerate(made):
        repetitions[number, : len(chain.repetitions)] = chain.repetitions
        keep[number, : len(chain.selectivities)] = np.round(np.array(chain.selectivities) * SCALE)

    def step(e):
        value = e.value
        for _ in range(repetitions[e.query, e.stage]):
            value = value * 0.999999 + 0.000001
        drawn = (e.id * 2654435761 + e.stage * 40503 + 12345) % 2147483647
        drawn = (drawn ^ (drawn >> 13)) * 48271 % 2147483647
        if (drawn >> 9) % SCALE < keep[e.query, e.stage]:
            yield (e.id, e.query, e.stage + 1, value)

    for number, chain in enumerate(made):
        events = np.zeros(EVENTS, EVENT)
        events["id"], events["query"], events["value"] = np.arange(EVENTS), number, 0.5
        first, *inner, last = names(chain)
        stream: Any = env.source(
            events, rate=chain.rate, loop=True, name=first, query=chain.name, query_class=chain.query_class
        )
        for name in inner:
            stream = stream.flat_map(step, name=name)
        stream.null(name=last)


def names(chain: Chain) -> list[str]:
    """The names of a chain's operators, on both clocks."""
    inner = [str(stage + 1) for stage in range(len(chain.repetitions))]
    return [f"{chain.name}/{part}" for part in ("source", *inner, "sink")]


def simulation(made: Sequence[Chain], *, ns_per_repetition: float | None = None) -> haren.Simulation:
    """The chains on the virtual clock; the default cost of a repetition is measured on this machine."""
    import haren

    cost = repetition_ns() if ns_per_repetition is None else ns_per_repetition
    net = haren.Simulation()
    for chain in made:
        costs = [END_NS, *(cost * count for count in chain.repetitions), END_NS]
        net.chain(
            chain.rate, costs, chain.selectivities, query=chain.name, query_class=chain.query_class,
            names=names(chain),
        )  # fmt: skip
    return net


def load(made: Sequence[Chain], ns_per_repetition: float) -> float:
    """How many threads' time the operators between the ends need: 1.0 keeps one thread busy."""
    total = 0.0
    for chain in made:
        share = 1.0
        for count, selectivity in zip(chain.repetitions, chain.selectivities, strict=True):
            total += (chain.rate or 0.0) * share * count * ns_per_repetition / 1e9
            share *= selectivity
    return total


@cache
def repetition_ns() -> float:
    """What a repetition of the work takes on this machine, in ns: the best of some measurements."""
    from numba import njit

    @njit
    def work(count):
        value = 0.5
        for _ in range(count):
            value = value * 0.999999 + 0.000001
        return value

    work(1)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter_ns()
        work(1_000_000)
        best = min(best, (time.perf_counter_ns() - start) / 1e6)
    return best
