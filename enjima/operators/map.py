"""map and flat_map: one event in; one event, or any number, out."""

from collections.abc import Callable
from typing import Any

from enjima.errors import SchemaError
from enjima.native import words as w
from enjima.operators.operator import Compiled, Instance, UserFunction, field_values, records, words_at
from enjima.schema import Schema

__all__ = ["FlatMap", "Map", "assignments", "check_fields", "check_yields"]

MAP = """
def batch(op, events, origins, count, out, out_origins, room):
    shift = load(op + SHIFT)
    read = 0
    try:
        while read < count:
            result = function(event(events + read * INPUT_SIZE, shift))
            target = carray(pointer(out + read * SIZE), (1,), OUTPUT_DTYPE)[0]
            {assign}
            {moved}
            store(out_origins + 8 * read, load(origins + 8 * read))
            read += 1
    except Exception:
        store(op + ERROR, USER_ERROR)
    store(op + PRODUCED, read)
    return read
"""

# What does not fit is spilled; an event's outputs are published with the event, so a failure inside a
# generator takes back what the failing event had produced.
FLAT_MAP = """
def batch(op, events, origins, count, out, out_origins, room):
    shift = load(op + SHIFT)
    read = 0
    wrote = 0
    begun = 0
    try:
        while read < count and wrote < room:
            begun = wrote
            for result in function(event(events + read * INPUT_SIZE, shift)):
                if wrote < room:
                    place = out + wrote * SIZE
                    store(out_origins + 8 * wrote, load(origins + 8 * read))
                    wrote += 1
                else:
                    place = spill(op, load(origins + 8 * read))
                target = carray(pointer(place), (1,), OUTPUT_DTYPE)[0]
                {assign}
                {moved}
            read += 1
    except Exception:
        store(op + ERROR, USER_ERROR)
        store(op + SPILL_COUNT, 0)
        wrote = begun
    store(op + PRODUCED, wrote)
    return read
"""


# A function that changes event times also changes what may be promised of them.
MOVED = """if int64(target.{time}) != int64(event(events + read * INPUT_SIZE, shift).{time}):
    store(op + MOVED, 1)
store(op + LATEST, int64(target.{time}))"""


def assignments(schema: Schema, indent: int) -> str:
    """Source that assigns ``result`` to the fields of ``target``."""
    if len(schema.names) == 1:
        return f"target.{schema.names[0]} = single(result)"
    return ("\n" + " " * indent).join(f"target.{name} = result[{i}]" for i, name in enumerate(schema.names))


def check_fields(result: Any, schema: Schema, operator: str, function: str) -> None:
    """Raise `SchemaError` unless a result of this numba type fills the schema's fields."""
    from numba import types

    values = list(result.types) if isinstance(result, types.BaseTuple) else [result]
    if len(values) != len(schema.names):
        raise SchemaError(
            f"operator {operator!r}: {function} returns {len(values)} values for the "
            f"{len(schema.names)} fields of schema {schema}"
        )
    for name, value in zip(schema.names, values, strict=True):
        if not isinstance(
            value, (types.Number, types.Boolean, types.NPDatetime, types.NPTimedelta, types.CharSeq)
        ):
            raise SchemaError(f"operator {operator!r}: {function} returns {value} for field {name!r}")


def check_yields(result: Any, schema: Schema, label: str, operator: str, function: str) -> None:
    """The same for a function that yields results, or returns a list of them."""
    from numba import types

    if isinstance(result, types.Generator):
        element = result.yield_type
    elif isinstance(result, types.IterableType):
        element = result.iterator_type.yield_type
    else:
        raise SchemaError(
            f"operator {operator!r}: {function} returns {result}; {label} needs a generator or a list"
        )
    check_fields(element, schema, operator, function)


class Map(Compiled):
    """Exactly one event out for each event in."""

    kind = w.TRANSFORM
    label = "map"
    swappable = "function"
    source = MAP
    indent = 12

    def __init__(
        self, name: str, inputs: Schema, output: Schema, time: str | None, function: Callable
    ) -> None:
        super().__init__(name, inputs, output, time)
        self.function = UserFunction(function, name)
        self.functions = [self.function]

    def template(self) -> tuple[str, dict[str, Any]]:
        assert self.inputs is not None and self.output is not None
        self._jitted = self.function.compiled()
        names = {
            "function": self._jitted,
            "INPUT_SIZE": self.inputs.size,
            "OUTPUT_DTYPE": self.output.dtype,
            "SIZE": self.output.size,
        }
        moved = MOVED.format(time=self.time) if self.time and self.input_time else "pass"
        assign = assignments(self.output, self.indent)
        return self.source.format(assign=assign, moved=moved.replace("\n", "\n" + " " * self.indent)), names

    def note_time(self, instance: Instance, before: Any, after: tuple) -> None:
        """The Python twin of `MOVED`."""
        if self.time and self.input_time and self.output is not None:
            time = int(after[self.output.names.index(self.time)])
            if time != getattr(before, self.time):
                instance.words[w.MOVED // 8] = 1
            instance.words[w.LATEST // 8] = time

    def check(self) -> None:
        from enjima.native.kernels import result_type

        assert self.output is not None
        self.check_result(result_type(self._jitted, self.event_type()), self.output)

    def check_result(self, result: Any, output: Schema) -> None:
        check_fields(result, output, self.name, self.function.name)

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        target = self.output
        assert target is not None

        def batch(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            outputs = records(out, room, target)
            from_origins, to_origins = words_at(origins, count), words_at(out_origins, room)
            for index, event in instance.iterate(instance.inputs(events, count)):
                values = field_values(self.function.python(event), target, self.name)
                outputs[index] = values
                self.note_time(instance, event, values)
                to_origins[index] = from_origins[index]
                instance.words[w.PRODUCED // 8] = index + 1
            return instance.progress

        return batch

    def replay(self, event: Any) -> None:
        self.function.python(event)

    def describe(self) -> str:
        return f"{self.label} {self.function.name}"


class FlatMap(Map):
    """Any number of events out for each event in: the function yields them or returns a list."""

    kind = w.EXPANDER
    label = "flat_map"
    source = FLAT_MAP
    indent = 16

    def check_result(self, result: Any, output: Schema) -> None:
        check_yields(result, output, self.label, self.name, self.function.name)

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        target = self.output
        assert target is not None
        waiting: list[tuple[tuple, int]] = []

        def batch(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            from_origins = words_at(origins, count)
            instance.progress = 0
            try:
                if len(waiting) < room:
                    for index, event in instance.iterate(instance.inputs(events, count)):
                        produced = [field_values(r, target, self.name) for r in self.function.python(event)]
                        for values in produced:
                            waiting.append((values, int(from_origins[index])))
                            self.note_time(instance, event, values)
                        if len(waiting) >= room:
                            instance.progress = index + 1
                            break
            finally:
                instance.flush(waiting, out, out_origins, room)
            return instance.progress

        return batch

    def replay(self, event: Any) -> None:
        list(self.function.python(event))
