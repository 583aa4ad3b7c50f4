"""For tests of queries: what a query must produce, computed plainly, one event after another.

`expected` interprets the graph behind a sink with Python loops and pandas, sharing nothing with the engine
but the user's functions, so that equality proves something. A new operator adds one function here.
"""

from collections.abc import Iterator
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from enjima.aggregates import Aggregate
from enjima.operators import (
    ArraySource,
    CoGroup,
    Filter,
    FlatMap,
    FunctionSource,
    IteratorSource,
    Join,
    JoinStatic,
    Map,
    Operator,
    Sink,
    SlidingAggregate,
    TumblingAggregate,
    Union,
)
from enjima.plan import Plan
from enjima.schema import Schema
from enjima.stream import Environment

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Interpretation", "assert_exact", "expected"]


def expected(env: Environment, sink: Sink) -> "pd.DataFrame":
    """The rows ``sink`` must receive when its query runs to the end (see `assert_exact` for their order)."""
    import pandas as pd

    plan = env.plan
    return pd.DataFrame(Interpretation(plan).rows(plan.inputs[plan.operators.index(sink)][0]))


def assert_exact(env: Environment, sink: Any) -> None:
    """Assert that a collecting sink holds exactly what its query must produce, in order.

    Behind sliding aggregates and sliding co_groups the order of keys within a window is free; there, any
    order with event times that do not decrease will do.
    """
    import pandas as pd

    plan = env.plan
    above = plan.inputs[plan.operators.index(sink)][0]
    want, got = expected(env, sink), sink.frame()
    if not Interpretation(plan).in_order(above):
        time = plan.operators[above].time
        if time is not None:
            assert got[time].is_monotonic_increasing, f"event time {time!r} decreases at {sink.name!r}"
        columns = list(want.columns)
        want, got = (frame.sort_values(columns).reset_index(drop=True) for frame in (want, got))
    pd.testing.assert_frame_equal(got, want, check_exact=True)


class Interpretation:
    """What each operator of a plan produces, computed once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[int, np.ndarray] = {}

    def rows(self, index: int) -> np.ndarray:
        """All events that operator ``index`` emits, in order."""
        if index not in self._known:
            inputs = [self.rows(above) for above in self._plan.inputs[index]]
            self._known[index] = _outcome(self._plan.operators[index], *inputs)
        return self._known[index]

    def in_order(self, index: int) -> bool:
        """Whether the order of what ``index`` emits is fixed, not only up to the keys of a window."""
        operator = self._plan.operators[index]
        free = isinstance(operator, SlidingAggregate) or (isinstance(operator, CoGroup) and operator.sliding)
        return not free and all(self.in_order(above) for above in self._plan.inputs[index])


@singledispatch
def _outcome(operator: Operator, *inputs: np.ndarray) -> np.ndarray:
    raise NotImplementedError(f"{operator.label} {operator.name!r} has no plain interpretation")


@_outcome.register
def _(operator: ArraySource) -> np.ndarray:
    parts = [operator.array.copy() for _ in range(int(operator.loop or 1))]
    if operator.time is not None:
        span = int(operator.array[operator.time][-1]) - int(operator.array[operator.time][0])
        step = span + max(1, span // max(1, len(operator.array) - 1))
        for number, part in enumerate(parts):
            part[operator.time] += number * step
    return np.concatenate(parts)


@_outcome.register
def _(operator: FunctionSource) -> np.ndarray:
    assert operator.count is not None
    return _records(map(operator.function.python, range(operator.count)), operator.output)


@_outcome.register
def _(operator: IteratorSource) -> np.ndarray:
    return _records(operator.items, operator.output)


@_outcome.register
def _(operator: Filter, rows: np.ndarray) -> np.ndarray:
    return rows[[bool(operator.predicate.python(event)) for event in _events(rows)]] if len(rows) else rows


@_outcome.register
def _(operator: Map, rows: np.ndarray) -> np.ndarray:
    return _records(map(operator.function.python, _events(rows)), operator.output)


@_outcome.register
def _(operator: FlatMap, rows: np.ndarray) -> np.ndarray:
    return _records(
        (result for event in _events(rows) for result in operator.function.python(event)), operator.output
    )


@_outcome.register
def _(operator: JoinStatic, rows: np.ndarray) -> np.ndarray:
    import pandas as pd

    assert operator.output is not None
    table = pd.DataFrame(operator.table)
    joined = pd.DataFrame(rows).merge(table, on=operator.on, how="left", indicator=True)
    joined = joined[joined["_merge"] == "both"]
    result = np.zeros(len(joined), operator.output.dtype)
    for name in operator.output.names:
        result[name] = joined[name]
    return result


@_outcome.register
def _(operator: Union, *inputs: np.ndarray) -> np.ndarray:
    assert operator.output is not None
    merged = [inputs[side][index] for side, index, _, _ in _merged(inputs, operator.times)]
    return np.array(merged, operator.output.dtype)


@_outcome.register
def _(operator: Join, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    inputs, keys = (left, right), (_keys(left, operator.keys), _keys(right, operator.keys))
    columns = [
        list(zip(*(rows[field].tolist() for field, _ in fields), strict=True)) if fields else [()] * len(rows)
        for rows, fields in ((left, operator.left_fields), (right, operator.right_fields))
    ]
    kept: dict[tuple, tuple[list, list]] = {}
    results = []
    for side, index, own, now in _merged(inputs, operator.times):
        if not _open_windows(operator, own, now):
            continue
        key = keys[side][index]
        sides = kept.setdefault(key, ([], []))
        sides[1 - side][:] = [partner for partner in sides[1 - side] if partner[0] > now - operator.length]
        for time, other in sides[1 - side]:
            rest = columns[0][(index, other)[side]] + columns[1][(other, index)[side]]
            stamp = () if operator.times[0] in operator.keys else (max(own, time),)
            for start in _starts(operator, max(own, time), min(own, time)):
                results.append(stamp + ((start,) if operator.sliding else ()) + key + rest)
        sides[side].append((own, index))
    return _records(results, operator.output)


@_outcome.register
def _(operator: CoGroup, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    inputs, keys = (left, right), (_keys(left, operator.keys), _keys(right, operator.keys))
    events = (list(_events(left)), list(_events(right)))
    groups: dict[tuple, tuple[list, list]] = {}
    for side, index, own, now in _merged(inputs, operator.times):
        for start in _open_windows(operator, own, now):
            groups.setdefault((start, *keys[side][index]), ([], []))[side].append(events[side][index])
    results = [
        group + (tuple(result) if isinstance(result, (tuple, list)) else (result,))
        for group in sorted(groups, key=lambda group: group[0])
        for result in operator.function.python(*groups[group])
    ]
    return _records(results, operator.output)


@_outcome.register(TumblingAggregate)
@_outcome.register(SlidingAggregate)
def _(operator: Any, rows: np.ndarray) -> np.ndarray:
    keys = _keys(rows, operator.keys)
    groups: dict[tuple, list[int]] = {}
    for _, index, own, now in _merged([rows], [operator.input_time]):
        for start in _open_windows(operator, own, now):
            groups.setdefault((start, *keys[index]), []).append(index)
    results = [
        group
        + tuple(_aggregate(aggregate, rows[groups[group]]) for aggregate in operator.aggregates.values())
        for group in sorted(groups, key=lambda group: group[0])
    ]
    return _records(results, operator.output)


def _merged(inputs: Any, times: Any) -> Iterator[tuple[int, int, int, int]]:
    """Input, index, event time, and the time it counts as, in the order operators use events.

    An event counts with the latest time its input has reached; then the input's number decides.
    """
    order = []
    for side, (rows, time) in enumerate(zip(inputs, times, strict=True)):
        reached = np.maximum.accumulate(rows[time]).tolist()
        for index, (now, own) in enumerate(zip(reached, rows[time].tolist(), strict=True)):
            order.append((now, side, index, own))
    for now, side, index, own in sorted(order):
        yield side, index, own, now


def _starts(operator: Any, last: int, first: int) -> range:
    """The windows that contain both these times, of which ``last`` is the later one."""
    return range(
        (last - operator.length) // operator.slide * operator.slide + operator.slide,
        first + 1,
        operator.slide,
    )


def _open_windows(operator: Any, own: int, now: int) -> range:
    """The windows an event of time ``own`` belongs to that are not over by ``now``; none if it is late."""
    starts = _starts(operator, now, own)
    assert len(starts) or operator.late == "drop", (
        f"{operator.name!r}: the event of time {own} is late at {now}"
    )
    return starts


def _events(rows: np.ndarray) -> Iterator[Any]:
    return Schema(rows.dtype).events(rows)


def _keys(rows: np.ndarray, names: tuple[str, ...]) -> list[tuple]:
    columns = [rows[name].tolist() for name in names]
    return list(zip(*columns, strict=True)) if columns else [()] * len(rows)


def _records(results: Any, schema: Schema | None) -> np.ndarray:
    assert schema is not None
    rows = [tuple(row) if isinstance(row, (tuple, list)) else (row,) for row in results]
    return np.array(rows, schema.dtype)


def _aggregate(aggregate: Aggregate, rows: np.ndarray) -> Any:
    column = rows[aggregate.field] if aggregate.field else None
    plain = {
        "count": lambda c: len(rows),
        "sum": lambda c: c.sum(),
        "min": lambda c: c.min(),
        "max": lambda c: c.max(),
    }
    if aggregate.built_in in plain and (column is None or column.dtype.kind != "f"):
        return plain[aggregate.built_in](column)
    state = aggregate.init()
    for event in _events(rows):
        state = aggregate.add(state, event)
    return aggregate.result(state)
