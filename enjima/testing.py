"""For tests of queries: what a query must produce, computed plainly, one event after another.

`expected` interprets the query behind a sink with Python loops and pandas, sharing nothing with the engine
but the user's functions, so that equality proves something.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from enjima.aggregates import Aggregate
from enjima.operators import (
    ArraySource,
    Filter,
    FlatMap,
    FunctionSource,
    IteratorSource,
    JoinStatic,
    Map,
    Operator,
    Sink,
    TumblingAggregate,
)
from enjima.schema import Schema
from enjima.stream import Environment

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["assert_exact", "expected"]


def expected(env: Environment, sink: Sink) -> "pd.DataFrame":
    """The rows ``sink`` must receive when its query runs to the end, in order (per window: any order)."""
    import pandas as pd

    plan = env.plan
    chain: list[Operator] = []
    index: int | None = plan.upstream[plan.operators.index(sink)]
    while index is not None:
        chain.insert(0, plan.operators[index])
        index = plan.upstream[index]
    rows = _source(chain[0])
    for operator in chain[1:]:
        rows = _apply(operator, rows)
    return pd.DataFrame(rows)


def assert_exact(env: Environment, sink: Any) -> None:
    """Assert that a collecting sink holds exactly what its query must produce."""
    import pandas as pd

    want, got = expected(env, sink), sink.frame()
    if "window_start" in want.columns:
        keys = [name for name in want.columns if want[name].dtype.kind in "iub"]
        want, got = (frame.sort_values(keys, kind="stable").reset_index(drop=True) for frame in (want, got))
    pd.testing.assert_frame_equal(got, want)


def _source(operator: Operator) -> np.ndarray:
    schema = operator.output
    assert schema is not None
    if isinstance(operator, ArraySource):
        times = 1 if operator.loop in (None, False) else int(operator.loop)
        parts = [operator.array.copy() for _ in range(times)]
        if operator.time is not None:
            span = int(operator.array[operator.time][-1]) - int(operator.array[operator.time][0])
            step = span + max(1, span // max(1, len(operator.array) - 1))
            for number, part in enumerate(parts):
                part[operator.time] += number * step
        return np.concatenate(parts)
    if isinstance(operator, FunctionSource):
        assert operator.count is not None
        return _rows([operator.function.python(number) for number in range(operator.count)], schema)
    assert isinstance(operator, IteratorSource)
    return _rows(list(operator.items), schema)


def _rows(results: list, schema: Schema) -> np.ndarray:
    rows = np.zeros(len(results), schema.dtype)
    for number, result in enumerate(results):
        rows[number] = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return rows


def _apply(operator: Operator, rows: np.ndarray) -> np.ndarray:
    assert operator.inputs is not None
    events = list(operator.inputs.events(rows))
    if isinstance(operator, Filter):
        return rows[[bool(operator.predicate.python(event)) for event in events]] if len(rows) else rows
    assert operator.output is not None
    if isinstance(operator, FlatMap):
        return _rows([out for event in events for out in operator.function.python(event)], operator.output)
    if isinstance(operator, Map):
        return _rows([operator.function.python(event) for event in events], operator.output)
    if isinstance(operator, JoinStatic):
        return _join(operator, rows)
    assert isinstance(operator, TumblingAggregate)
    return _window(operator, rows)


def _join(operator: JoinStatic, rows: np.ndarray) -> np.ndarray:
    import pandas as pd

    assert operator.output is not None
    table = pd.DataFrame(operator.table)
    joined = pd.DataFrame(rows).merge(table, on=operator.on, how="left", indicator=True)
    joined = joined[joined["_merge"] == "both"]
    result = np.zeros(len(joined), operator.output.dtype)
    for name in operator.output.names:
        result[name] = joined[name]
    return result


def _window(operator: TumblingAggregate, rows: np.ndarray) -> np.ndarray:
    import pandas as pd

    assert operator.output is not None
    frame = pd.DataFrame(rows)
    frame["window_start"] = frame[operator.input_time] // operator.length * operator.length
    results = []
    groups = ["window_start", *operator.keys]
    for key, members in frame.groupby(groups, sort=False):
        values = [_aggregate(aggregate, rows[members.index]) for aggregate in operator.aggregates.values()]
        results.append((*key, *values))
    return _rows(results, operator.output)


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
    for event in Schema(rows.dtype).events(rows):
        state = aggregate.add(state, event)
    return aggregate.result(state)
