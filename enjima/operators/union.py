"""union: several streams of one schema as one, in the order of event time."""

from collections.abc import Sequence
from typing import Any

from enjima.errors import SchemaError
from enjima.operators.merge import Merger
from enjima.schema import Schema

__all__ = ["Union"]

TEMPLATE = """
@njit
def choose(ports, inputs):
    best = 0
    best_time = head_0(ports)
    bound = inputs
    bound_time = NEVER
    for i in range(1, inputs):
        time = head_0(ports + i * PORT_BYTES)
        if time < best_time:
            bound = best
            bound_time = best_time
            best = i
            best_time = time
        elif time < bound_time:
            bound = i
            bound_time = time
    return best, best_time, bound, bound_time


def batch(op, ports, inputs, limit, out, out_origins, room):
    limit = min(limit, room)
    wrote = 0
    while True:
        best, now, bound, bound_time = choose(ports, inputs)
        store(op + TIME, now)
        port = ports + best * PORT_BYTES
        taken = load(port + PORT_TAKEN)
        count = min(load(port + PORT_COUNT), taken + limit - wrote)
        if taken == load(port + PORT_COUNT):
            store(op + BLOCKED_ON, best + 1 if now != NEVER else 0)
            break
        if taken == count:
            break
        events = load(port + PORT_EVENTS)
        origins = load(port + PORT_ORIGINS)
        shift = load(port + PORT_SHIFT)
        latest = load(port + PORT_LATEST)
        while taken < count:
            place = events + taken * SIZE_0
            time = max(latest, int64(read_0(place, shift).{time}))
            if time > bound_time or (time == bound_time and best > bound):
                break
            copy_0(out + wrote * SIZE_0, place, shift)
            store(out_origins + 8 * wrote, load(origins + 8 * taken))
            latest = time
            wrote += 1
            taken += 1
        store(port + PORT_LATEST, latest)
        store(port + PORT_TAKEN, taken)
    store(op + PRODUCED, wrote)
    return wrote
"""


class Union(Merger):
    """Every event of every input, merged by (event time, input)."""

    label = "union"

    def __init__(self, name: str, inputs: Sequence[Schema], times: Sequence[str]) -> None:
        for number, schema in enumerate(inputs):
            if schema != inputs[0] or times[number] != times[0]:
                raise SchemaError(
                    f"union {name!r}: all streams need the same fields and event time; the first has "
                    f"{inputs[0]} (time {times[0]!r}), stream {number} has {schema} "
                    f"(time {times[number]!r}); use map"
                )
        super().__init__(name, inputs, times, inputs[0], times[0])

    def template(self) -> tuple[str, dict[str, Any]]:
        heads, names = self.heads(1)
        return heads + TEMPLATE.format(time=self.times[0]), names

    def describe(self) -> str:
        return f"union of {len(self.input_schemas)}"
