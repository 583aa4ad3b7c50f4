"""Sinks: keep the results, hand them to a function, or count and forget them."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from enjima.native import words as w
from enjima.operators.operator import Instance, Operator, UserFunction, records
from enjima.schema import Schema

__all__ = ["CallbackSink", "CollectSink", "NullSink", "Sink"]


class Sink(Operator):
    """The end of a stream; latency is measured here."""

    kind = w.SINK

    def __init__(self, name: str, inputs: Schema, time: str | None) -> None:
        super().__init__(name, inputs, None, time)

    def prepare(self) -> None:
        """Sinks have no user code to compile."""


class NullSink(Sink):
    """Counts events and measures latency, keeps nothing."""

    label = "null sink"

    def deploy(self) -> Instance:
        from enjima.native.functions import generic

        instance = Instance(self)
        instance.batch = generic("discard").address
        return instance


class CollectSink(Sink):
    """Keeps every event, up to ``limit``; `array` and `frame` give what the latest run produced."""

    label = "collect"

    def __init__(self, name: str, inputs: Schema, time: str | None, limit: int | None) -> None:
        super().__init__(name, inputs, time)
        self.limit = limit
        self._latest: _Collector | None = None

    def deploy(self) -> Instance:
        from enjima.native import sinks
        from enjima.native.functions import generic

        instance = _Collector(self, sinks.COLLECT_BYTES // 8)
        instance.state[sinks.LIMIT // 8] = 2**62 if self.limit is None else self.limit
        instance.batch = generic("collect").address
        self._latest = instance
        return instance

    def array(self) -> np.ndarray:
        """The events so far, as a structured array; also while the query runs."""
        assert self.inputs is not None
        return self._latest.array() if self._latest else np.empty(0, self.inputs.dtype)

    def frame(self) -> Any:
        """The events so far, as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.array())


class _Collector(Instance):
    """Native buffer of a collecting sink; copied to Python before the memory goes."""

    kept: np.ndarray | None = None

    def array(self) -> np.ndarray:
        from enjima.native import sinks

        if self.kept is not None:
            return self.kept
        schema = self.operator.inputs
        assert schema is not None
        left = int(self.state[sinks.KEPT // 8])
        parts = [np.empty(0, schema.dtype)]
        for segment in range(sinks.SEGMENTS):
            count = min(left, sinks.FIRST_SEGMENT << segment)
            parts.append(records(int(self.state[sinks.ADDRESSES // 8 + segment]), count, schema))
            left -= count
        return np.concatenate(parts)

    def close(self) -> None:
        from enjima.native import sinks
        from enjima.native.functions import free

        if self.kept is None:
            self.kept = self.array()
            for segment in range(sinks.SEGMENTS):
                free(int(self.state[sinks.ADDRESSES // 8 + segment]))


class CallbackSink(Sink):
    """Calls a Python function with each event, or with batches of events as structured arrays."""

    label = "callback"

    def __init__(
        self, name: str, inputs: Schema, time: str | None, function: Callable, batches: bool
    ) -> None:
        super().__init__(name, inputs, time)
        self.function = UserFunction(function, name)
        self.batches = batches

    def deploy(self) -> Instance:
        instance = Instance(self)
        self.install(instance)
        return instance

    def swapped(self, function: Callable) -> Operator:
        return CallbackSink(self.name, cast(Schema, self.inputs), self.input_time, function, self.batches)

    def install(self, instance: Instance) -> None:
        def each(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            for _, event in instance.iterate(instance.inputs(events, count)):
                self.function.python(event)
            return instance.progress

        def whole(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            instance.progress = 0
            if instance.stop_flag():
                return 0
            self.function.python(instance.inputs(events, count).copy())
            return count

        instance.use_python(whole if self.batches else each)

    def describe(self) -> str:
        return f"callback {self.function.name}"
