"""START HERE: queries as chains of steps, and the environment that runs them.

    env = Environment(threads=2)
    counts = (env.source(ads, time="event_time")
                 .filter(lambda e: e.event_type == VIEW)
                 .key_by("campaign_id").window(Tumbling(seconds=10)).aggregate(views=count())
                 .collect())
    result = env.run()
    counts.frame()

Steps follow Flink's DataStream conventions. Events are records with named fields; functions are plain
Python and see one event with attribute access. They are compiled when they can be.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from enjima.aggregates import Aggregate
from enjima.errors import GraphError, SchemaError
from enjima.operators import (
    ArraySource,
    CallbackSink,
    CoGroup,
    CollectSink,
    Filter,
    FlatMap,
    FunctionSource,
    IteratorSource,
    Join,
    JoinStatic,
    Map,
    NullSink,
    Operator,
    ParquetSink,
    Sink,
    Sliding,
    SlidingAggregate,
    Tumbling,
    TumblingAggregate,
    Union,
    Window,
)
from enjima.operators.merge import require_time
from enjima.plan import Plan
from enjima.runtime import Runtime
from enjima.schema import Schema

__all__ = ["Environment", "KeyedStream", "Stream", "WindowedStream"]

TIME_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class Environment(Runtime):
    """Queries and the engine that runs them.

    ``threads`` worker threads; ``block_events`` per block, ``blocks_per_chunk``, ``max_chunks`` per channel
    (when they are full the writer waits: back-pressure); ``marker_interval`` seconds between latency
    markers (0: one per source batch, None: none); ``granularity`` the shortest time in seconds between two
    turns of a paced source; ``dispatch`` how threads get work (default: `haren.Pool`; `haren.Dedicated`: a
    thread for each operator, whatever ``threads`` says; or a policy, see `run`); ``trace`` how many turns
    each thread remembers for ``result.trace`` (0: none).

    ``memory`` is "blocks", or "queue" to pass events on one at a time; ``lend=False`` lets array sources copy
    their events as they must into queues. An operator with several inputs whose events wait ``stall_timeout``
    seconds (None: for ever) for another input ends its query with an error that says so.
    """

    def source(
        self,
        data: Any,
        *,
        schema: Any = None,
        rate: float | None = None,
        time: str | None = None,
        time_unit: str = "ns",
        loop: bool | int | None = None,
        count: int | None = None,
        name: str | None = None,
        query: str | None = None,
        query_class: int = 0,
    ) -> "Stream":
        """A stream from a structured array, a DataFrame, a function of the event's number, or an iterable.

        ``rate`` is in events/s (None: as fast as possible). ``time`` names the field of event time, an
        integer in ``time_unit`` that never decreases. ``loop`` replays an array for ever (True) or so many
        times, event times shifted on. ``count`` ends a function's stream. ``query`` names the query;
        ``query_class`` is a whole number, higher for a more urgent one, that policies may use. An array is
        not copied: leave it unchanged while the query runs.
        """
        if time_unit not in TIME_UNITS:
            raise SchemaError(f"time_unit={time_unit!r}; one of {', '.join(TIME_UNITS)}")
        if hasattr(data, "to_records"):
            data = data.to_records(index=False)
        is_array = isinstance(data, np.ndarray)
        label = self.plan.name_for(name, "source")
        if count is not None and (not isinstance(count, int) or count < 0):
            raise SchemaError(
                f"source {label!r}: count={count!r}; give a number of events, or None for no end"
            )
        if count is not None and not is_array and not callable(data):
            raise SchemaError(f"source {label!r}: count is for functions and arrays; cut the iterable itself")
        if loop is not None and not is_array:
            raise SchemaError(f"source {label!r}: only an array can be replayed in a loop")
        if is_array:
            if data.dtype.names is None:
                raise SchemaError(
                    f"source {label!r}: the array has type {data.dtype}; give a structured array"
                )
            if count is not None:
                data = data[:count]
            operator: Operator = ArraySource(label, data, time, rate, loop)
        elif schema is None:
            raise SchemaError(
                f"source {label!r}: say what its events look like, such as schema='id: i8, x: f8'"
            )
        elif callable(data):
            operator = FunctionSource(label, data, Schema(schema), time, rate, count)
        elif isinstance(data, (Iterable, Iterator)):
            operator = IteratorSource(label, data, Schema(schema), time, rate)
        else:
            raise SchemaError(
                f"source {label!r}: a {type(data).__name__} is not a source; give a structured array, "
                "a DataFrame, a function or an iterable"
            )
        if not isinstance(query_class, int):
            raise GraphError(f"source {label!r}: query_class={query_class!r}; a whole number")
        operator.prepare()
        self.plan.add(operator, query=query, query_class=query_class)
        return Stream(self.plan, operator, TIME_UNITS[time_unit])


class Stream:
    """A stream of events; every step returns a new one. A stream used twice is copied to both (fan-out)."""

    def __init__(self, plan: Plan, operator: Operator, unit_ns: int) -> None:
        self._plan = plan
        self._operator = operator
        self._unit_ns = unit_ns

    @property
    def _index(self) -> int:
        return self._plan.index(self._operator)

    @property
    def schema(self) -> Schema:
        """The fields of this stream's events."""
        assert self._operator.output is not None
        return self._operator.output

    @property
    def time(self) -> str | None:
        """The field of event time; None where a step dropped it."""
        return self._operator.time

    def _then(self, operator: Operator, unit_ns: int | None = None) -> "Stream":
        operator.prepare()
        self._plan.add(operator, [self._index])
        return Stream(self._plan, operator, unit_ns or self._unit_ns)

    def _then_with(self, others: Sequence["Stream"], operator: Operator) -> "Stream":
        operator.prepare()
        self._plan.add(operator, [stream._index for stream in (self, *others)])
        return Stream(self._plan, operator, self._unit_ns)

    def _check_others(self, where: str, others: Sequence[Any]) -> None:
        for other in others:
            if not isinstance(other, Stream):
                hint = (
                    "; key_by is not needed, name the key with on=" if isinstance(other, KeyedStream) else ""
                )
                raise SchemaError(f"{where}: {other!r} is not a stream{hint}")
            if other._plan is not self._plan:
                raise GraphError(f"{where}: the streams belong to different environments")
            if other._unit_ns != self._unit_ns:
                raise SchemaError(
                    f"{where}: event time is in units of {self._unit_ns} ns in one stream and of "
                    f"{other._unit_ns} ns in another; give the sources the same time_unit"
                )

    def _end(self, sink: Sink) -> Any:
        sink.prepare()
        self._plan.add(sink, [self._index])
        return sink

    def filter(self, predicate: Callable[[Any], Any], *, name: str | None = None) -> "Stream":
        """Keep the events for which ``predicate(event)`` is true."""
        return self._then(Filter(self._plan.name_for(name, "filter"), self.schema, self.time, predicate))

    def map(self, function: Callable[[Any], Any], *, schema: Any = None, name: str | None = None) -> "Stream":
        """One event per event: ``function`` returns the fields of ``schema`` (default: the same)."""
        output = self.schema if schema is None else Schema(schema)
        return self._then(Map(self._plan.name_for(name, "map"), self.schema, output, self.time, function))

    def flat_map(
        self, function: Callable[[Any], Any], *, schema: Any = None, name: str | None = None
    ) -> "Stream":
        """Any number of events per event: ``function`` yields them, or returns a list of them."""
        output = self.schema if schema is None else Schema(schema)
        return self._then(
            FlatMap(self._plan.name_for(name, "flat_map"), self.schema, output, self.time, function)
        )

    def join_static(self, table: Any, *, on: str, name: str | None = None) -> "Stream":
        """Add the fields of the table's row with the same ``on``; events without one are dropped."""
        return self._then(
            JoinStatic(self._plan.name_for(name, "join_static"), self.schema, self.time, table, on)
        )

    def union(self, *others: "Stream", name: str | None = None) -> "Stream":
        """All events of these streams of one schema, in the order of event time; ties: in the order given."""
        label = self._plan.name_for(name, "union")
        if not others:
            raise SchemaError(f"union {label!r}: name at least one other stream")
        self._check_others(f"union {label!r}", others)
        streams = (self, *others)
        times = [require_time(f"union {label!r}", stream.schema, stream.time) for stream in streams]
        return self._then_with(others, Union(label, [stream.schema for stream in streams], times))

    def join(
        self,
        other: "Stream",
        *,
        on: str | Sequence[str],
        window: Window | None = None,
        suffixes: tuple[str, str] | None = None,
        late: str = "error",
        name: str | None = None,
    ) -> "Stream":
        """Pairs of events of the two streams with equal ``on`` in a common window.

        A result has the event time of the later of the two (in the field of the left's), with sliding windows
        ``window_start``, the keys, and the other fields of both; ``suffixes`` tell equal names apart.
        """
        label = self._plan.name_for(name, "join")
        self._check_others(f"join {label!r}", [other])
        schemas, times = (self.schema, other.schema), (self.time, other.time)
        return self._then_with(
            [other], Join(label, schemas, times, on, window, self._unit_ns, suffixes, late)
        )

    def co_group(
        self,
        other: "Stream",
        *,
        on: str | Sequence[str],
        window: Window | None = None,
        apply: Callable[[Any, Any], Any],
        schema: Any,
        late: str = "error",
        name: str | None = None,
    ) -> "Stream":
        """For each window and key of either stream: what ``apply(lefts, rights)`` yields of its events.

        Results are ``window_start``, the keys, and the fields of ``schema``.
        """
        label = self._plan.name_for(name, "co_group")
        self._check_others(f"co_group {label!r}", [other])
        schemas, times = (self.schema, other.schema), (self.time, other.time)
        return self._then_with(
            [other], CoGroup(label, schemas, times, on, window, self._unit_ns, apply, schema, late)
        )

    def key_by(self, *fields: str) -> "KeyedStream":
        """Group what follows by these fields (integers); any number of keys."""
        if not fields:
            raise SchemaError("key_by needs at least one field; for one window over all events leave it out")
        for field in fields:
            self.schema.integer(field, "key_by")
        return KeyedStream(self, fields)

    def window(self, window: Window, *, late: str = "error") -> "WindowedStream":
        """Windows over all events; ``late`` ones (their window is closed) are an 'error' or 'drop'ped."""
        return WindowedStream(self, (), window, late)

    def collect(self, *, limit: int | None = None, name: str | None = None) -> CollectSink:
        """Keep the events (the first ``limit``): ``.frame()`` or ``.array()`` of what this returns."""
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise SchemaError(f"collect: limit={limit!r}; give a number of events, or None for all")
        return self._end(CollectSink(self._plan.name_for(name, "collect"), self.schema, self.time, limit))

    def for_each(self, function: Callable[[Any], Any], *, name: str | None = None) -> CallbackSink:
        """Call a Python function with every event, in order."""
        label = self._plan.name_for(name, "for_each")
        return self._end(CallbackSink(label, self.schema, self.time, function, batches=False))

    def for_each_batch(
        self, function: Callable[[np.ndarray], Any], *, name: str | None = None
    ) -> CallbackSink:
        """Call a Python function with structured arrays of events, in order."""
        label = self._plan.name_for(name, "for_each_batch")
        return self._end(CallbackSink(label, self.schema, self.time, function, batches=True))

    def to_parquet(
        self, path: Any, *, rows_per_file: int | None = None, overwrite: bool = False, name: str | None = None
    ) -> ParquetSink:
        """Write the events to a Parquet file, which is there when the stream has ended, or not at all.

        With ``rows_per_file``, ``path`` is a directory that gets a file whenever so many rows are there.
        """
        label = self._plan.name_for(name, "to_parquet")
        return self._end(ParquetSink(label, self.schema, self.time, path, rows_per_file, overwrite))

    def null(self, *, name: str | None = None) -> NullSink:
        """Measure the events and drop them."""
        return self._end(NullSink(self._plan.name_for(name, "null"), self.schema, self.time))

    def __repr__(self) -> str:
        return f"<Stream {self._operator.name}: {self.schema}>"

    def _repr_html_(self) -> str:
        return self._plan.drawing(self._plan.query_of(self._index))


class KeyedStream:
    """A stream grouped by key; a window comes next."""

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        self._stream = stream
        self._keys = keys

    def window(self, window: Window, *, late: str = "error") -> "WindowedStream":
        """Windows per key; ``late`` events (their window is closed) are an 'error' or 'drop'ped."""
        return WindowedStream(self._stream, self._keys, window, late)


class WindowedStream:
    """A stream cut into windows; an aggregate comes next."""

    def __init__(self, stream: Stream, keys: tuple[str, ...], window: Window, late: str) -> None:
        if not isinstance(window, (Tumbling, Sliding)):
            raise SchemaError(f"window({window!r}): give a window such as Tumbling(seconds=10)")
        require_time(f"window after {stream._operator.name!r}", stream.schema, stream.time)
        self._stream, self._keys, self._window, self._late = stream, keys, window, late

    def aggregate(self, *, name: str | None = None, **aggregates: Aggregate) -> Stream:
        """One result per key and window: ``aggregate(views=count(), spent=sum("price"))``.

        Its fields are ``window_start`` (in the source's unit of time), the keys, and the aggregates.
        """
        stream = self._stream
        assert stream.time is not None
        label = stream._plan.name_for(name, "window")
        kind = SlidingAggregate if isinstance(self._window, Sliding) else TumblingAggregate
        operator = kind(
            label,
            stream.schema,
            stream.time,
            self._keys,
            self._window,
            stream._unit_ns,
            aggregates,
            self._late,
        )
        return stream._then(operator)
