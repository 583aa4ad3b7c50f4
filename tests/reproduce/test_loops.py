"""The limits are worth comparing with only if they do the same work: as pandas does it, and as the engine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import enjima as en
from reproduce.bench import fused, loops, operators
from reproduce.bench.operators import CASES, HIGH, LOW, Data

pytestmark = pytest.mark.filterwarnings("error::enjima.PythonFallbackWarning")

SMALL = Data(4_000, spacing=200_000, join_keys=40)
"""1.6 s of one stream and 0.8 s of two, so that windows are over."""

ROOM = 1 << 18
WINDOW, SLIDE_LENGTH, JOIN, DIAMOND = (
    operators.nanoseconds(s) for s in (0.1, 0.4, operators.JOIN_WINDOW, operators.DIAMOND_WINDOW)
)


def twice(events: np.ndarray) -> pd.DataFrame:
    """Two passes over an array, the second later by its span and an average gap."""
    span = int(events["time"][-1] - events["time"][0])
    first, second = pd.DataFrame(events), pd.DataFrame(events)
    second["time"] += span + span // (len(events) - 1)
    return pd.concat([first, second], ignore_index=True)


def one() -> pd.DataFrame:
    return twice(SMALL.events)


def both() -> pd.DataFrame:
    sides = [twice(SMALL.lefts).assign(side=0), twice(SMALL.rights).assign(side=1)]
    return pd.concat(sides).sort_values(["time", "side"], kind="stable", ignore_index=True)


def expanded() -> pd.DataFrame:
    events = one()
    copies = events.loc[events.index.repeat(events.value % 3)]
    values = copies.value + copies.groupby(level=0).cumcount()
    return copies.assign(value=values)[["time", "key", "value"]]


def windows(length: int, every: int) -> pd.DataFrame:
    events = one()
    starts = [events.time // every * every - back for back in range(0, length, every)]
    members = pd.concat([events.assign(window_start=start) for start in starts])
    assert (members.window_start <= members.time).all() and (
        members.time < members.window_start + length
    ).all()
    groups = members.groupby(["window_start", "key"])
    return groups.agg(events=("value", "size"), total=("value", "sum")).reset_index()


def pairs(left: pd.DataFrame, right: pd.DataFrame, length: int) -> pd.DataFrame:
    sides = [side.assign(window=side.time // length) for side in (left, right)]
    found = sides[0].merge(sides[1], on=["window", "key"], suffixes=("_l", "_r"))
    found["time"] = found[["time_l", "time_r"]].max(axis=1)
    return found[list(loops.PAIR.names or ())]


def joined() -> pd.DataFrame:
    return pairs(twice(SMALL.lefts), twice(SMALL.rights), JOIN)


def split() -> pd.DataFrame:
    events = twice(SMALL.split)
    return pairs(events[events.value < LOW], events[events.value >= HIGH], DIAMOND)


def grouped() -> pd.DataFrame:
    events = both()
    events["window_start"] = events.time // JOIN * JOIN
    events["signed"] = events.value.where(events.side == 0, -events.value)
    groups = events.groupby(["window_start", "key"])
    return groups.agg(events=("value", "size"), difference=("signed", "sum")).reset_index()


PANDAS: dict[str, Callable[[], pd.DataFrame]] = {
    "filter": lambda: one()[lambda e: e.value < LOW],
    "map": lambda: one().assign(value=lambda e: 2 * e.value + e.sequence)[["time", "key", "value"]],
    "flat_map": expanded,
    "join_static": lambda: one().assign(group=lambda e: SMALL.groups[e.key]),
    "tumbling window": lambda: windows(WINDOW, WINDOW),
    "sliding window": lambda: windows(SLIDE_LENGTH, WINDOW),
    "union": lambda: both().drop(columns="side"),
    "join": joined,
    "co_group": grouped,
}
IN_ORDER = ("filter", "map", "flat_map", "join_static", "union")
"""Of the others, keys of a window (and partners of an event, in pandas) come in an order of their own."""


def rows(name: str, frame: pd.DataFrame) -> list[tuple[int, ...]]:
    found = list(frame.itertuples(index=False, name=None))
    return found if name in IN_ORDER else sorted(found)


def loop_rows(case: operators.Case, passes: int) -> pd.DataFrame:
    loop = case.loop(SMALL, ROOM)
    for _ in range(passes):
        assert loop.again() == SMALL.count
    return pd.DataFrame(loop.finish())


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "source"], ids=lambda c: c.name)
def test_loops_agree_with_pandas(case: operators.Case) -> None:
    expected = PANDAS[case.name]()
    found = loop_rows(case, passes=2)
    assert len(found) > 1000 and list(found.columns) == list(expected.columns)
    assert rows(case.name, found) == rows(case.name, expected)


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "source"], ids=lambda c: c.name)
def test_loops_agree_with_the_engine(case: operators.Case) -> None:
    env = en.Environment(threads=1)
    sink = case.query(env, SMALL, False).collect()
    env.run()
    found = loop_rows(case, passes=1)
    assert list(sink.frame().columns) == list(found.columns)
    assert rows(case.name, sink.frame()) == rows(case.name, found)


def test_a_join_meets_partners_in_order_of_arrival() -> None:
    (case,) = (case for case in CASES if case.name == "join")
    env = en.Environment(threads=1)
    sink = case.query(env, SMALL, False).collect()
    env.run()
    assert sink.frame().equals(loop_rows(case, passes=1))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_diamond_is_the_same_for_all(threads: int) -> None:
    loop = operators.diamond_loop(SMALL.split, ROOM)
    loop.again()
    loop.again()
    assert rows("diamond", pd.DataFrame(loop.finish())) == rows("diamond", split())
    env = en.Environment(threads=threads)
    sink = operators.diamond(env, SMALL, False).collect()
    env.run()
    once = operators.diamond_loop(SMALL.split, ROOM)
    once.again()
    assert sink.frame().equals(pd.DataFrame(once.finish()))


def test_the_scan_reads_to_the_end() -> None:
    loop = CASES[0].loop(SMALL, 1)
    loop.again()
    loop.again()
    assert loop.memory[loops.LATEST] == one().time.max()


def test_results_beyond_the_buffer_are_counted_and_not_handed_out() -> None:
    loop = CASES[1].loop(SMALL, 16)
    loop.again()
    assert loop.memory[loops.WROTE] > 1000
    with pytest.raises(AssertionError, match="overwritten"):
        loop.finish()


def test_loops_have_a_rate() -> None:
    assert fused.rate([operators.diamond_loop(SMALL.split) for _ in range(2)], seconds=0.01, warmup=0) > 0
