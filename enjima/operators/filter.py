"""filter: keep the events for which a function is true."""

from collections.abc import Callable
from typing import Any

from enjima.errors import SchemaError
from enjima.native import words as w
from enjima.operators.operator import Compiled, Instance, UserFunction, records, words_at
from enjima.schema import Schema

__all__ = ["Filter"]

# First notes which events pass (in the place of their origins), then copies those: a branch on data would
# be mispredicted too often, and copying all of them costs too much.
TEMPLATE = """
def batch(op, events, origins, count, out, out_origins, room):
    shift = load(op + SHIFT)
    read = 0
    wrote = 0
    try:
        while read < count:
            store(out_origins + 8 * wrote, read)
            if function(event(events + read * SIZE, shift)):
                wrote += 1
            read += 1
    except Exception:
        store(op + ERROR, USER_ERROR)
    for index in range(wrote):
        chosen = load(out_origins + 8 * index)
        copy_event(out + index * SIZE, events + chosen * SIZE, shift)
        store(out_origins + 8 * index, load(origins + 8 * chosen))
    store(op + PRODUCED, wrote)
    return read
"""


class Filter(Compiled):
    """Keeps order; produces at most one event per event."""

    kind = w.TRANSFORM
    label = "filter"
    swappable = "predicate"

    def __init__(self, name: str, inputs: Schema, time: str | None, predicate: Callable) -> None:
        super().__init__(name, inputs, inputs, time)
        self.predicate = UserFunction(predicate, name)
        self.functions = [self.predicate]

    def template(self) -> tuple[str, dict[str, Any]]:
        assert self.inputs is not None
        self._jitted = self.predicate.compiled()
        return TEMPLATE, {"function": self._jitted, "SIZE": self.inputs.size}

    def check(self) -> None:
        from numba import types

        from enjima.native.kernels import result_type

        result = result_type(self._jitted, self.event_type())
        if not isinstance(result, (types.Boolean, types.Integer, types.Float)):
            raise SchemaError(
                f"operator {self.name!r}: {self.predicate.name} returns {result}; a filter returns a boolean"
            )

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        schema = self.inputs
        assert schema is not None

        def batch(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            inputs, outputs = instance.inputs(events, count), records(out, room, schema)
            from_origins, to_origins = words_at(origins, count), words_at(out_origins, room)
            instance.words[w.PRODUCED // 8] = 0
            for index, event in instance.iterate(inputs):
                if self.predicate.python(event):
                    wrote = int(instance.words[w.PRODUCED // 8])
                    outputs[wrote] = inputs[index]
                    to_origins[wrote] = from_origins[index]
                    instance.words[w.PRODUCED // 8] = wrote + 1
            return instance.progress

        return batch

    def replay(self, event: Any) -> None:
        self.predicate.python(event)

    def describe(self) -> str:
        return f"filter {self.predicate.name}"
