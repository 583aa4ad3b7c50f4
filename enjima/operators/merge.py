"""What operators with several inputs share: they use events in the order of time over all inputs.

An event is used when no input can still bring an earlier one: the order is by (event time, number of the
input), whatever the threads do. Within an input the order of arrival stays; an event older than one before
it counts with the time of that one.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from enjima.errors import SchemaError
from enjima.native import words as w
from enjima.operators.operator import Compiled, Instance
from enjima.schema import Schema

__all__ = ["Merger", "indented"]

HEAD = """
@njit
def head_{i}(port):
    latest = load(port + PORT_LATEST)
    taken = load(port + PORT_TAKEN)
    if taken < load(port + PORT_COUNT):
        place = load(port + PORT_EVENTS) + taken * SIZE_{i}
        return max(latest, int64(read_{i}(place, load(port + PORT_SHIFT)).{time}))
    return max(latest, load(port + PORT_FRONTIER))


@njit
def copy_{i}(target, place, shift):
    copy(target, place, SIZE_{i})
    if TIME_AT_{i} >= 0:
        store(target + TIME_AT_{i}, load(place + TIME_AT_{i}) + shift)

"""


class Merger(Compiled):
    """An operator over several streams; ``times`` are the fields of their event times."""

    kind = w.MERGER

    def __init__(
        self, name: str, inputs: Sequence[Schema], times: Sequence[str], output: Schema, time: str
    ) -> None:
        super().__init__(name, None, output, time)
        self.input_schemas = tuple(inputs)
        self.times = tuple(times)

    def times_at(self) -> tuple[int, ...]:
        """Where 64-bit event time lies in what each input brings; -1 if it has fewer bits."""
        return tuple(
            schema.offset(time) if schema.dtype[time].itemsize == 8 else -1
            for schema, time in zip(self.input_schemas, self.times, strict=True)
        )

    def heads(self, count: int) -> tuple[str, dict[str, Any]]:
        """Source and names of ``head_i`` and ``copy_i`` for the first ``count`` inputs."""
        from enjima.native.event import event_reader

        source = ""
        names: dict[str, Any] = {}
        for i, (schema, time, at) in enumerate(
            zip(self.input_schemas[:count], self.times[:count], self.times_at()[:count], strict=True)
        ):
            source += HEAD.format(i=i, time=time)
            names |= {
                f"SIZE_{i}": schema.size,
                f"TIME_AT_{i}": at,
                f"read_{i}": event_reader(schema.dtype, time if at >= 0 else None),
            }
        return source, names

    def python_batch(self, instance: Instance) -> Callable[..., int]:
        raise AssertionError(f"{self.label} has no user function")

    @abstractmethod
    def template(self) -> tuple[str, dict[str, Any]]: ...


def indented(lines: Sequence[str], indent: int) -> str:
    """Statements for a place in a template that is indented so far."""
    return ("\n" + " " * indent).join(lines) if lines else "pass"


def require_time(where: str, schema: Schema, time: str | None) -> str:
    """The field of event time, which operators with several inputs and windows cannot do without."""
    if time is None:
        raise SchemaError(
            f"{where}: the stream has no event time. Name its field with source(..., time=...) and keep that "
            f"field in every schema on the way; here: {schema}"
        )
    return time
