"""Sources: an array replayed, a function that generates, or a Python iterator.

A source is an operator like any other: it is scheduled, emits what is due, and obeys back-pressure. With
a rate, event i is due at i/rate after the start, and a source that was held up catches up; without one
it emits as fast as its output has room.
"""

import threading
import time as clock
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from enjima.errors import SchemaError
from enjima.native import words as w
from enjima.operators.map import assignments, check_fields
from enjima.operators.operator import Compiled, Instance, UserFunction, field_values, records
from enjima.schema import Schema
from haren.memory import address

__all__ = ["ArraySource", "FunctionSource", "IteratorSource", "Source", "SourceInstance"]

UNBOUNDED = 1 << 62

BEGINNING = -(2**63)

REPLAY = """
def batch(op, position, unused, count, out, out_origins, room):
    source = load(op + STATE)
    length = load(source + LENGTH)
    index = position % length
    count = min(count, length - index)
    place = load(source + RECORDS) + index * SIZE
    {copy}
    store(op + PRODUCED, count)
    return count
"""
COPY = "copy(out, place, count * SIZE)"
COPY_TIMED = """shift = position // length * load(source + TIME_SHIFT)
    for i in range(count):
        copy(out + i * SIZE, place + i * SIZE, SIZE)
        carray(pointer(out + i * SIZE), (1,), OUTPUT_DTYPE)[0].{time} += shift
    store(op + TIME, int(carray(pointer(out + (count - 1) * SIZE), (1,), OUTPUT_DTYPE)[0].{time}))"""

GENERATE = """
def batch(op, position, unused, count, out, out_origins, room):
    outputs = carray(pointer(out), (room,), OUTPUT_DTYPE)
    made = 0
    {former}
    try:
        while made < count:
            result = function(position + made)
            target = outputs[made]
            {assign}
            {check}
            made += 1
    except Exception:
        store(op + ERROR, USER_ERROR)
    {remember}
    store(op + PRODUCED, made)
    return made
"""
CHECK_TIME = """if int(target.{time}) < latest:
                store(op + ERROR, TIME_BACKWARDS)
                store(op + ERROR_VALUE, latest)
                break
            latest = int(target.{time})"""


class Source(Compiled):
    """What all sources share: schema, event time, rate."""

    kind = w.SOURCE

    def __init__(self, name: str, output: Schema, time: str | None, rate: float | None) -> None:
        if time is not None:
            output.integer(time, f"source {name!r}, time")
        if rate is not None and not (isinstance(rate, (int, float, np.number)) and 0 < rate <= 1e12):
            raise SchemaError(
                f"source {name!r}: rate={rate!r} is out of range; give events per second, at most 1e12, "
                "or None for as fast as possible"
            )
        super().__init__(name, None, output, time)
        self.rate = rate

    def start_words(self, length: int, limit: int, final: bool, shift: int = 0) -> dict[int, int]:
        ns_per_event = np.array([0.0 if self.rate is None else 1e9 / self.rate], np.float64)
        return {
            w.LENGTH: length,
            w.LIMIT: limit,
            w.FINAL: int(final),
            w.NS_PER_EVENT: int(ns_per_event.view(np.int64)[0]),
            w.TIME_SHIFT: shift,
        }

    def instance(self, words: dict[int, int]) -> "SourceInstance":
        made = SourceInstance(self, w.SOURCE_BYTES // 8)
        for offset, value in words.items():
            made.state[offset // 8] = value
        self.install(made)
        return made

    def describe(self) -> str:
        pace = "as fast as possible" if self.rate is None else f"{self.rate:,.0f} events/s"
        return f"{self.label}, {pace}"

    def replay_template(self) -> tuple[str, dict[str, Any]]:
        assert self.output is not None
        copy = COPY if self.time is None else COPY_TIMED.format(time=self.time)
        names = {"SIZE": self.output.size, "OUTPUT_DTYPE": self.output.dtype}
        return REPLAY.format(copy=copy), names


class SourceInstance(Instance):
    """A source in a run: how far it is, and how to end it."""

    @property
    def position(self) -> int:
        return int(self.state[w.POSITION // 8])

    def bell_ready(self, ring: Callable[[], None]) -> None:
        """Told how to wake the workers, before the run starts."""

    def end(self) -> None:
        """Emit nothing more: the stream ends here."""
        self.state[w.STOPPED // 8] = 1

    def failure(self) -> BaseException | None:
        """What went wrong outside the workers, if anything."""
        return None


class ArraySource(Source):
    """An array of records replayed, once or in a loop with event times shifted on."""

    label = "array"

    def __init__(self, name: str, array: np.ndarray, time: str | None, rate: float | None, loop: Any) -> None:
        output = Schema(array.dtype)
        super().__init__(name, output, time, rate)
        if len(array) == 0:
            raise SchemaError(f"source {name!r}: the array is empty")
        if (
            loop is not None
            and loop is not True
            and loop is not False
            and not (isinstance(loop, int) and loop > 0)
        ):
            raise SchemaError(
                f"source {name!r}: loop={loop!r}; give True for ever, a number of times, or None for once"
            )
        self.loop = loop
        self.lend = time is None or output.dtype[time].itemsize == 8
        self.array = np.ascontiguousarray(
            array if array.dtype == output.dtype else array.astype(output.dtype)
        )
        if time is not None:
            self._check_order(name, time)
            self._check_range(name, time)

    def _check_order(self, name: str, time: str) -> None:
        times = self.array[time]
        backwards = np.flatnonzero(times[1:] < times[:-1])
        if len(backwards):
            at = int(backwards[0])
            raise SchemaError(
                f"source {name!r}: event time runs backwards at row {at + 1}: {time}={times[at + 1]} after "
                f"{times[at]}; sort the array by {time!r}"
            )

    def template(self) -> tuple[str, dict[str, Any]]:
        return self.replay_template()

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        raise AssertionError("replay has no user function")

    def _check_range(self, name: str, time: str) -> None:
        """Event times that are shifted on by every pass must still fit their field."""
        dtype = self.array.dtype[time]
        passes = 1 << 20 if self.loop is True else int(self.loop or 1)
        last = int(self.array[time][-1]) + (passes - 1) * self.shift(time)
        if last > np.iinfo(dtype).max:
            raise SchemaError(
                f"source {name!r}: event time {time!r} is {dtype} and overflows when the array is replayed "
                "so often; use a wider field"
            )

    def shift(self, time: str) -> int:
        """What a pass over the array adds to event times: their span and an average gap."""
        times = self.array[time]
        span = int(times[-1]) - int(times[0])
        return span + max(1, span // max(1, len(times) - 1))

    def deploy(self) -> SourceInstance:
        length = len(self.array)
        limit = UNBOUNDED if self.loop is True else length * int(self.loop or 1)
        shift = self.shift(self.time) if self.time and self.loop else 0
        made = self.instance(self.start_words(length, limit, self.loop is not True, shift))
        made.state[w.RECORDS // 8] = address(self.array)
        made.state[w.LENDS // 8] = int(self.lend)
        return made

    def describe(self) -> str:
        loop = "once" if not self.loop else "in a loop" if self.loop is True else f"{self.loop} times"
        return f"{super().describe()}, {len(self.array):,} events {loop}"


class FunctionSource(Source):
    """Events made by ``function(i)`` for i = 0, 1, ...; ``count`` of them or without end."""

    label = "function"
    swappable = "function"

    def __init__(
        self,
        name: str,
        function: Callable,
        output: Schema,
        time: str | None,
        rate: float | None,
        count: int | None,
    ) -> None:
        super().__init__(name, output, time, rate)
        self.function = UserFunction(function, name)
        self.functions = [self.function]
        self.count = count

    def template(self) -> tuple[str, dict[str, Any]]:
        assert self.output is not None
        self._jitted = self.function.compiled()
        timed = self.time is not None
        text = GENERATE.format(
            assign=assignments(self.output, 12),
            former=f"latest = load(op + TIME) if position > 0 else {BEGINNING}" if timed else "pass",
            check=CHECK_TIME.format(time=self.time) if timed else "pass",
            remember="store(op + TIME, latest)" if timed else "pass",
        )
        return text, {"function": self._jitted, "OUTPUT_DTYPE": self.output.dtype}

    def check(self) -> None:
        from numba import int64

        from enjima.native.kernels import result_type

        assert self.output is not None
        check_fields(result_type(self._jitted, int64), self.output, self.name, self.function.name)

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        target = self.output
        assert target is not None

        def batch(
            op: int, position: int, unused: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            outputs = records(out, room, target)
            instance.progress = 0
            latest = int(instance.words[w.TIME // 8]) if position > 0 else BEGINNING
            for made in range(count):
                if instance.stop_flag():
                    break
                outputs[made] = field_values(self.function.python(position + made), target, self.name)
                if self.time is not None:
                    if int(outputs[made][self.time]) < latest:
                        instance.words[w.ERROR // 8] = w.TIME_BACKWARDS
                        instance.words[w.ERROR_VALUE // 8] = latest
                        break
                    latest = int(outputs[made][self.time])
                    instance.words[w.TIME // 8] = latest
                instance.progress = made + 1
                instance.words[w.PRODUCED // 8] = made + 1
            return instance.progress

        return batch

    def deploy(self) -> SourceInstance:
        limit = UNBOUNDED if self.count is None else self.count
        return self.instance(self.start_words(1, limit, self.count is not None))

    def replay(self, event: Any) -> None:
        self.function.python(event)


class IteratorSource(Source):
    """Events from a Python iterable, taken by a thread of its own into a ring the native source replays.

    Items are tuples in the schema's order, dicts, single values for a one-field schema, or structured
    arrays (many events at once).
    """

    label = "iterator"
    ring_events = 1 << 14

    def __init__(
        self, name: str, items: Iterable, output: Schema, time: str | None, rate: float | None
    ) -> None:
        super().__init__(name, output, time, rate)
        self.items = items
        self._consumed = False

    def template(self) -> tuple[str, dict[str, Any]]:
        return self.replay_template()

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        raise AssertionError("replay has no user function")

    def deploy(self) -> SourceInstance:
        if isinstance(self.items, Iterator) and self._consumed:
            raise SchemaError(
                f"source {self.name!r}: its iterator was used by an earlier run; give a list or an object "
                "whose iter() starts anew"
            )
        self._consumed = True
        assert self.output is not None
        made = _Feeder(self, w.SOURCE_BYTES // 8)
        ring = np.empty(self.ring_events, self.output.dtype)
        for offset, value in self.start_words(len(ring), 0, False).items():
            made.state[offset // 8] = value
        made.state[w.RECORDS // 8] = address(ring)
        made.batch = self.native.address
        made.feed(ring, iter(self.items))
        return made


class _Feeder(SourceInstance):
    """The thread that takes items from the iterator; it waits while the ring is full."""

    def feed(self, ring: np.ndarray, items: Iterator) -> None:
        self._ring = ring
        self._items = items
        self._failure: BaseException | None = None
        self._latest = BEGINNING
        self._thread = threading.Thread(
            target=self._serve, name=f"enjima-feeder-{self.operator.name}", daemon=True
        )

    def bell_ready(self, ring: Callable[[], None]) -> None:
        self._wake = ring
        self._thread.start()

    def failure(self) -> BaseException | None:
        return self._failure

    def _ended(self) -> bool:
        return bool(self.state[w.STOPPED // 8]) or self.stop_flag()

    def _serve(self) -> None:
        try:
            while not self._ended():
                batch = self._take()
                if batch is None:
                    break
                self._append(batch)
        except BaseException as error:
            self._failure = error
        self.state[w.FINAL // 8] = 1
        self._wake()

    def _take(self) -> np.ndarray | None:
        """The next item, or a few that are there; arrays come as they are."""
        schema = self.operator.output
        assert schema is not None
        for item in islice(self._items, 1):
            if isinstance(item, np.ndarray) and item.dtype.names is not None:
                if item.dtype.names != schema.names:
                    raise SchemaError(
                        f"source {self.operator.name!r}: an array with fields {item.dtype.names} "
                        f"for schema {schema}"
                    )
                return item.astype(schema.dtype).reshape(-1)
            if isinstance(item, dict):
                missing = [name for name in schema.names if name not in item]
                if missing:
                    raise SchemaError(
                        f"source {self.operator.name!r}: item {item!r} lacks field {missing[0]!r}"
                    )
                item = tuple(item[name] for name in schema.names)
            return np.array([field_values(item, schema, self.operator.name)], schema.dtype)
        return None

    def _append(self, batch: np.ndarray) -> None:
        self._check_time(batch)
        done = 0
        while done < len(batch) and not self._ended():
            limit = int(self.state[w.LIMIT // 8])
            free = len(self._ring) - (limit - self.position)
            if free == 0:
                clock.sleep(0.0005)
                continue
            start = limit % len(self._ring)
            count = min(free, len(batch) - done, len(self._ring) - start)
            self._ring[start : start + count] = batch[done : done + count]
            self.state[w.LIMIT // 8] = limit + count
            done += count
            self._wake()

    def _check_time(self, batch: np.ndarray) -> None:
        time = self.operator.time
        if time is None or len(batch) == 0:
            return
        times = np.concatenate([[self._latest], batch[time].astype(np.int64)])
        if (times[1:] < times[:-1]).any():
            at = int(np.flatnonzero(times[1:] < times[:-1])[0])
            raise SchemaError(
                f"source {self.operator.name!r}: event time runs backwards: {time}={times[at + 1]} "
                f"after {times[at]}"
            )
        self._latest = int(times[-1])

    def close(self) -> None:
        if self._thread.ident is None:
            return
        self._thread.join(1.0)
        if self._thread.is_alive():
            warnings.warn(
                f"source {self.operator.name!r}: its iterator is still waiting for an item; its thread ends "
                "when the item comes",
                stacklevel=2,
            )
