"""Each operator alone against a hand-fused loop, and four ways to run a query against each other.

An operator *alone* is a source, the operator and a null sink on one thread; the loops of
`reproduce.bench.loops` have neither source nor sink, so what those cost counts against the operator.

The four ways are two memories (queues, blocks) times two dispatches (a thread per operator, a pool):
TQ, SQ, TM and Enjima. None of them lends the source's array, because queues cannot. The queue is this
engine's own: the channels of the blocks, but one event per call of an operator. Ratios to TQ are about that
model; the paper's TQ may differ, so agreement with the paper's number is weaker evidence than it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

import enjima as en
import haren
from reproduce.bench import Effort, Row, fused, interleave, loops, middle, ratio
from reproduce.bench.loops import Loop
from reproduce.bench.ysb import delivered, parts, rate
from reproduce.fingerprint import Disturbance
from reproduce.stats import short
from workloads import ysb

EVENTS = 1_000_000
"""Of 64 bytes, or twice as many of 32: more than the last-level cache of most machines."""

SPACING = 1_000
"""Nanoseconds of event time from one event to the next, on average."""

KEYS, JOIN_KEYS, GROUPS, VALUES = 1_000, 10_000, 100, 300
LOW, HIGH = 100, 200
"""A third of the values is below LOW, and a third from HIGH on."""

WINDOW, PANES = 0.1, 4
"""Seconds of a tumbling window: 100,000 events. A sliding one is so many times longer and starts as often."""

JOIN_WINDOW = 0.01
"""Seconds: 10,000 events of each side, as many as keys, so two events make one pair."""

DIAMOND_WINDOW = 0.03
"""The same for sides of which each is a third of one stream."""

CLAIM = 6.3
"""How much faster than TQ the paper says Enjima is on YSB."""


@dataclass(frozen=True)
class Plan:
    """Rounds of interleaved measurements, and the seconds of each."""

    rounds: int
    seconds: float
    warmup: float


PLANS: dict[Effort, Plan] = {
    "quick": Plan(3, 0.3, 0.1),
    "default": Plan(5, 0.8, 0.2),
    "long": Plan(40, 4.0, 1.0),
}


class Data:
    """Events in order of time: one stream, two to be brought together, and one to be split."""

    def __init__(self, events: int, *, spacing: int = SPACING, join_keys: int = JOIN_KEYS) -> None:
        self.count = 2 * events
        self.spacing, self.join_keys = spacing, join_keys

    @cached_property
    def events(self) -> np.ndarray:
        return stream(self.count, KEYS, self.spacing, seed=1)

    @cached_property
    def lefts(self) -> np.ndarray:
        return stream(self.count // 2, self.join_keys, self.spacing, seed=2)

    @cached_property
    def rights(self) -> np.ndarray:
        return stream(self.count // 2, self.join_keys, self.spacing, seed=3)

    @cached_property
    def split(self) -> np.ndarray:
        return stream(self.count, self.join_keys, self.spacing, seed=4)

    @cached_property
    def groups(self) -> np.ndarray:
        """Which group a key is in."""
        return np.random.default_rng(5).integers(0, GROUPS, KEYS)


def stream(count: int, keys: int, spacing: int, seed: int) -> np.ndarray:
    """Random events at random times; first and last are `count` spacings apart, so that streams keep step."""
    random = np.random.default_rng(seed)
    events = np.empty(count, loops.EVENT)
    events["time"] = np.sort(random.integers(0, count * spacing, count))
    events["time"][[0, -1]] = 0, count * spacing - 1
    events["key"] = random.integers(0, keys, count)
    events["value"] = random.integers(0, VALUES, count)
    events["sequence"] = np.arange(count)
    return events


@dataclass(frozen=True)
class Case:
    """An operator as a query and as a loop.

    `query(env, data, again)` leads to the operator's results, with sources that go on if `again`;
    `loop(data, room)` is the loop with a buffer for `room` results.
    """

    name: str
    against: str
    bar: float | None
    query: Callable[[en.Environment, Data, bool], en.Stream]
    loop: Callable[[Data, int], Loop]


def one(env: en.Environment, data: Data, again: bool) -> en.Stream:
    return env.source(data.events, time="time", loop=again)


def two(env: en.Environment, data: Data, again: bool) -> tuple[en.Stream, en.Stream]:
    return (
        env.source(data.lefts, time="time", loop=again, name="lefts"),
        env.source(data.rights, time="time", loop=again, name="rights"),
    )


def filtered(env: en.Environment, data: Data, again: bool) -> en.Stream:
    return one(env, data, again).filter(lambda e: e.value < LOW)


def mapped(env: en.Environment, data: Data, again: bool) -> en.Stream:
    return one(env, data, again).map(
        lambda e: (e.time, e.key, 2 * e.value + e.sequence), schema=loops.PROJECTED
    )


def several(event: Any) -> Iterator[tuple[int, int, int]]:
    for copy in range(event.value % 3):
        yield event.time, event.key, event.value + copy


def flat_mapped(env: en.Environment, data: Data, again: bool) -> en.Stream:
    return one(env, data, again).flat_map(several, schema=loops.PROJECTED)


def looked_up(env: en.Environment, data: Data, again: bool) -> en.Stream:
    table = {"key": np.arange(KEYS), "group": data.groups}
    return one(env, data, again).join_static(table, on="key")


def windowed(window: en.Tumbling | en.Sliding, env: en.Environment, data: Data, again: bool) -> en.Stream:
    keyed = one(env, data, again).key_by("key")
    return keyed.window(window).aggregate(events=en.count(), total=en.sum("value"))


def united(env: en.Environment, data: Data, again: bool) -> en.Stream:
    left, right = two(env, data, again)
    return left.union(right)


def joined(env: en.Environment, data: Data, again: bool) -> en.Stream:
    left, right = two(env, data, again)
    return left.join(right, on="key", window=en.Tumbling(seconds=JOIN_WINDOW), suffixes=("_l", "_r"))


def difference(lefts: Any, rights: Any) -> Iterator[tuple[int, int]]:
    total = 0
    for event in lefts:
        total += event.value
    for event in rights:
        total -= event.value
    yield len(lefts) + len(rights), total


def co_grouped(env: en.Environment, data: Data, again: bool) -> en.Stream:
    left, right = two(env, data, again)
    window = en.Tumbling(seconds=JOIN_WINDOW)
    schema = "events: i8, difference: i8"
    return left.co_group(right, on="key", window=window, apply=difference, schema=schema)


def diamond(env: en.Environment, data: Data, again: bool) -> en.Stream:
    """One stream, its low and its high values, and the pairs of both."""
    split = env.source(data.split, time="time", loop=again, name="split")
    low = split.filter(lambda e: e.value < LOW, name="low")
    high = split.filter(lambda e: e.value >= HIGH, name="high")
    window = en.Tumbling(seconds=DIAMOND_WINDOW)
    return low.join(high, on="key", window=window, suffixes=("_l", "_r"), name="pairs")


def nanoseconds(seconds: float) -> int:
    return round(seconds * ysb.SECOND)


def two_sides(kernel: Callable[..., None], close: Callable[..., None] | None, result: np.dtype) -> Any:
    def make(data: Data, room: int) -> Loop:
        state = (nanoseconds(JOIN_WINDOW), *loops.tables(JOIN_KEYS, data.count))
        return Loop(kernel, [data.lefts, data.rights], result, state, close, room)

    return make


def diamond_loop(events: np.ndarray, room: int = loops.ROOM) -> Loop:
    state = (nanoseconds(DIAMOND_WINDOW), LOW, HIGH, *loops.tables(JOIN_KEYS, 2 * len(events)))
    return Loop(loops.diamond, [events], loops.PAIR, state, room=room)


def simple(kernel: Callable[..., None], result: np.dtype, *state: Any) -> Callable[[Data, int], Loop]:
    return lambda data, room: Loop(kernel, [data.events], result, state, room=room)


def tumbling_loop(data: Data, room: int) -> Loop:
    state = (nanoseconds(WINDOW), np.zeros((KEYS, 2), np.int64))
    return Loop(loops.tumble, [data.events], loops.COUNTED, state, loops.close_tumbling, room)


def sliding_loop(data: Data, room: int) -> Loop:
    state = (nanoseconds(WINDOW), np.zeros((PANES, KEYS, 2), np.int64))
    return Loop(loops.slide, [data.events], loops.COUNTED, state, loops.close_sliding, room)


TUMBLING, SLIDING = en.Tumbling(seconds=WINDOW), en.Sliding(seconds=PANES * WINDOW, every=WINDOW)

CASES = [
    Case("source", "reading the times", None, one, simple(loops.scan, loops.EVENT)),
    Case("filter", "copying a third", 0.5, filtered, simple(loops.keep, loops.EVENT, LOW)),
    Case("map", "writing three fields", 0.5, mapped, simple(loops.project, loops.PROJECTED)),
    Case("flat_map", "0 to 2 results each", 0.5, flat_mapped, simple(loops.expand, loops.PROJECTED)),
    Case(
        "join_static",
        "direct-address table",
        0.5,
        looked_up,
        lambda data, room: Loop(loops.look_up, [data.events], loops.LOOKED_UP, (data.groups,), room=room),
    ),
    Case("tumbling window", "direct-address table", 0.4, partial(windowed, TUMBLING), tumbling_loop),
    Case("sliding window", "direct-address panes", 0.4, partial(windowed, SLIDING), sliding_loop),
    Case(
        "union",
        "merging two arrays",
        None,
        united,
        lambda data, room: Loop(loops.merge, [data.lefts, data.rights], loops.EVENT, room=room),
    ),
    Case(
        "join", "symmetric, direct-address tables", 0.3, joined, two_sides(loops.pair, None, loops.PAIR)
    ),
    Case(
        "co_group",
        "direct-address tables of events",
        None,
        co_grouped,
        two_sides(loops.gather, loops.close_groups, loops.GROUP),
    ),
]  # fmt: skip

WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "TQ": lambda: {"memory": "queue", "dispatch": haren.Dedicated(), "lend": False},
    "SQ": lambda: {"memory": "queue", "dispatch": haren.Pool(), "lend": False},
    "TM": lambda: {"memory": "blocks", "dispatch": haren.Dedicated(), "lend": False},
    "Enjima": lambda: {"memory": "blocks", "dispatch": haren.Pool(), "lend": False},
    "Enjima, lending": lambda: {"memory": "blocks", "dispatch": haren.Pool(), "lend": True},
}
"""Settings of an environment: memory times dispatch; the last one only for reference."""


def rows(effort: Effort) -> Iterator[Row]:
    plan, data = PLANS[effort], Data(EVENTS)
    for case in CASES:
        yield alone(case, data, plan)
    yield from ways_on_ysb(plan)
    yield from ways_on_diamond(data, plan)


def alone(case: Case, data: Data, plan: Plan) -> Row:
    """The operator's share of its loop: the median over interleaved pairs."""

    def engine() -> float:
        env = en.Environment(threads=1)
        case.query(env, data, True).null()
        return rate(env, plan.seconds, plan.warmup)

    loop = case.loop(data, loops.ROOM)
    limit = partial(fused.rate, [loop], plan.seconds, plan.warmup)
    operator = "source and null sink" if case.name == "source" else f"{case.name} with source and null sink"
    what = f"{operator}, 1 thread: share of a loop ({case.against})"
    ours, theirs = interleave(engine, limit, rounds=plan.rounds, what=case.name)
    value, spread = ratio(ours, theirs)
    return Row(what, value, "x", "higher", case.bar, None, spread, millions(ours, theirs))


def ways_on_ysb(plan: Plan) -> Iterator[Row]:
    data = ysb.synthetic(EVENTS)
    queries = [fused.Query(half, data.campaigns) for half in parts(data.ads, 2)]

    def engine(way: str) -> float:
        return delivered([data], 2, plan.seconds, plan.warmup, **WAYS[way]())

    yield from ways("YSB", engine, queries, plan, claims={"Enjima": CLAIM})


def ways_on_diamond(data: Data, plan: Plan) -> Iterator[Row]:
    def engine(way: str) -> float:
        env = en.Environment(threads=2, **WAYS[way]())
        diamond(env, data, True).null()
        return rate(env, plan.seconds, plan.warmup)

    queries = [diamond_loop(half) for half in parts(data.split, 2)]
    yield from ways("a diamond with a join", engine, queries, plan, claims={})


def ways(
    query: str,
    engine: Callable[[str], float],
    limit: Sequence[fused.Passes],
    plan: Plan,
    claims: dict[str, float],
) -> Iterator[Row]:
    """All ways in each round, after the loop: their shares of it, and their ratios to TQ."""
    loop = partial(fused.rate, limit, plan.seconds, plan.warmup)
    measures = [loop, *(partial(engine, way) for way in WAYS)]
    with Disturbance() as disturbance:
        theirs, *ours = interleave(*measures, rounds=plan.rounds, what=query)
    rates = dict(zip(WAYS, ours, strict=True))
    for way, reached in rates.items():
        value, spread = ratio(reached, theirs)
        what = f"{way} on {query}: share of the fused loop on 2 threads"
        yield Row(what, value, "x", "higher", None, None, spread, millions(reached, theirs))
    for way in ("Enjima", "TM", "SQ"):
        value, spread = ratio(rates[way], rates["TQ"])
        note = str(disturbance)
        if way in claims:
            note = f"{verdict(value, spread or 0, claims[way], bool(disturbance.disturbed))}; {note}"
        yield Row(f"{way} / TQ on {query}", value, "x", "higher", None, None, spread, note)


def verdict(value: float, spread: float, claim: float, disturbed: bool) -> str:
    """What becomes of a claim "so many times faster": 9/10 of it, only the direction, or nothing.

    Neighbours in time help little where each way needs both cores and others take one now and then: single
    rounds of one disturbed process had ratios from 0.9 to 8.9. So a disturbed measurement decides nothing.
    """
    if disturbed:
        found = "undecided"
    elif value >= 0.9 * claim:
        found = "reproduced"
    elif value - spread > 1:
        found = "partly reproduced"
    else:
        found = "not reproduced"
    return f"the paper says {claim}x: {found}, against our own model of queues"


def millions(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return f"{short(middle(ours)[0] / 1e6)} of {short(middle(theirs)[0] / 1e6)} M events/s"
