"""join: pairs of events with equal keys in a common window, by a symmetric hash join.

Each event looks for partners among those of the other side that came before it, and is then kept for those
to come; so a pair is found when the later of the two arrives, not when the window ends.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from enjima.errors import SchemaError
from enjima.operators.merge import indented
from enjima.operators.pairs import LATE, SIDES, Pairs
from enjima.schema import Schema

__all__ = ["Join"]

# START is where the open window begins; with sliding windows, the time of the last sweep.
SIDE = """
@njit
def emit_{i}(op, state, out, out_origins, room, wrote):
    mine = load(state + ENTRIES_{i}) + (load(state + COUNT_{i}) - 1) * ENTRY_{i}
    others = load(state + ENTRIES_{o})
    cursor = load(state + CURSOR)
    own_{i} = time_{i}(mine)
    {side_i} = carray(pointer(mine + 16), (1,), DTYPE_{i})[0]
    while cursor != 0 and wrote < room:
        partner = others + (cursor - 1) * ENTRY_{o}
        own_{o} = time_{o}(partner)
        {side_o} = carray(pointer(partner + 16), (1,), DTYPE_{o})[0]
        later = max(own_0, own_1)
        origin = max(load(mine + 8), load(partner + 8))
        {pair}
        cursor = load(partner)
    store(state + CURSOR, cursor)
    return wrote


@njit
def take_{i}(op, state, port, limit, bound, out, out_origins, room, wrote):
    events = load(port + PORT_EVENTS)
    origins = load(port + PORT_ORIGINS)
    shift = load(port + PORT_SHIFT)
    latest = load(port + PORT_LATEST)
    taken = load(port + PORT_TAKEN)
    count = min(load(port + PORT_COUNT), taken + limit)
    while taken < count and wrote < room:
        place = events + taken * SIZE_{i}
        event = read_{i}(place, shift)
        own = int64(event.{time})
        time = max(latest, own)
        if time {beyond} bound:
            break
        if time - load(state + START) >= LENGTH or load(state + OPEN) == 0:
            {advance}
            store(state + OPEN, 1)
        closed = {closed}
        if own < closed:
            {late}
        slot = find(op, state, {keys})
        keep_{i}(op, state, slot, place, shift, load(origins + 8 * taken))
        latest = time
        taken += 1
        cursor = load(slot + CHAINS + {chain})
        if cursor != 0:
            store(state + CURSOR, cursor)
            store(state + SIDE, {i})
            wrote = emit_{i}(op, state, out, out_origins, room, wrote)
            if load(state + CURSOR) != 0:
                break
    store(port + PORT_LATEST, latest)
    store(port + PORT_TAKEN, taken)
    return wrote

"""
TUMBLING = {
    "advance": ["forget(state)", "store(state + START, time - time % LENGTH)"],
    "closed": "load(state + START)",
}
# Sliding: swept once a length. An event is late if the last window it belongs to is over.
SLIDING = {
    "advance": ["sweep(op, state, time - LENGTH)", "store(state + START, time)"],
    "closed": "(time - LENGTH) // SLIDE * SLIDE + SLIDE",
}
ONE_WINDOW = """target = carray(pointer(out + wrote * OUTPUT_SIZE), (1,), OUTPUT_DTYPE)[0]
{assign}
store(out_origins + 8 * wrote, origin)
wrote += 1"""
EACH_WINDOW = """start = load(state + WINDOW)
if start == BEGINNING:
    start = (later - LENGTH) // SLIDE * SLIDE + SLIDE
last = min(own_0, own_1)
while start <= last and wrote < room:
    target = carray(pointer(out + wrote * OUTPUT_SIZE), (1,), OUTPUT_DTYPE)[0]
    target.window_start = start
    {assign}
    store(out_origins + 8 * wrote, origin)
    wrote += 1
    start += SLIDE
if start <= last:
    store(state + WINDOW, start)
    break
store(state + WINDOW, BEGINNING)"""

BATCH = """
def batch(op, ports, inputs, limit, out, out_origins, room):
    state = load(op + STATE)
    right = ports + PORT_BYTES
    wrote = 0
    while True:
        if load(state + CURSOR) != 0:
            if load(state + SIDE) == 0:
                wrote = emit_0(op, state, out, out_origins, room, wrote)
            else:
                wrote = emit_1(op, state, out, out_origins, room, wrote)
        used = load(ports + PORT_TAKEN) + load(right + PORT_TAKEN)
        side, now, bound = choose(ports)
        store(op + TIME, now)
        port = ports + side * PORT_BYTES
        if load(state + CURSOR) != 0 or wrote == room or used >= limit or load(op + ERROR) != 0:
            break
        if load(port + PORT_TAKEN) == load(port + PORT_COUNT):
            store(op + BLOCKED_ON, side + 1 if now != NEVER else 0)
            break
        if side == 0:
            wrote = take_0(op, state, port, limit - used, bound, out, out_origins, room, wrote)
        else:
            wrote = take_1(op, state, port, limit - used, bound, out, out_origins, room, wrote)
    store(op + MORE, 1 if load(state + CURSOR) != 0 else 0)
    store(op + PRODUCED, wrote)
    return load(ports + PORT_TAKEN) + load(right + PORT_TAKEN)
"""


class Join(Pairs):
    """An inner join of two streams; results carry the later of the two event times."""

    label = "join"

    def __init__(
        self,
        name: str,
        inputs: tuple[Schema, Schema],
        times: tuple[str | None, str | None],
        on: str | Sequence[str],
        window: Any,
        unit_ns: int,
        suffixes: tuple[str, str] | None,
        late: str,
    ) -> None:
        self.suffixes = suffixes
        super().__init__(name, inputs, times, on, window, unit_ns, late)

    def outcome(self, inputs: Sequence[Schema], times: Sequence[str]) -> tuple[Schema, str]:
        rests = [
            [field for field in schema.names if field not in self.keys and field != time]
            for schema, time in zip(inputs, times, strict=True)
        ]
        self.left_fields, self.right_fields = _renamed(self.where, rests[0], rests[1], self.suffixes)
        fields: list[tuple[str, Any]] = [] if times[0] in self.keys else [(times[0], np.dtype("i8"))]
        if self.sliding:
            fields.append(("window_start", np.dtype("i8")))
        fields += [(key, inputs[0].dtype[key]) for key in self.keys]
        for schema, pairs in zip(inputs, (self.left_fields, self.right_fields), strict=True):
            fields += [(target, schema.dtype[field]) for field, target in pairs]
        return self.unique(fields), times[0]

    def template(self) -> tuple[str, dict[str, Any]]:
        assert self.output is not None
        source, names = self.pieces()
        assign = [f"target.{key} = left.{key}" for key in self.keys]
        if self.times[0] not in self.keys:
            assign.append(f"target.{self.times[0]} = later")
        assign += [f"target.{target} = left.{field}" for field, target in self.left_fields]
        assign += [f"target.{target} = right.{field}" for field, target in self.right_fields]
        windows = SLIDING if self.sliding else TUMBLING
        pair = (EACH_WINDOW if self.sliding else ONE_WINDOW).format(
            assign=indented(assign, 4 if self.sliding else 0)
        )
        for i in (0, 1):
            source += SIDE.format(
                i=i,
                o=1 - i,
                side_i=("left", "right")[i],
                side_o=("right", "left")[i],
                time=self.times[i],
                beyond=(">", ">=")[i],
                chain=(16, 0)[i],
                keys=", ".join(f"int64(event.{key})" for key in self.keys),
                advance=indented(list(windows["advance"]), 12),
                closed=windows["closed"],
                late=LATE[self.late].format(i=i),
                pair=indented(pair.split("\n"), 8),
            )
            names[f"DTYPE_{i}"] = self.input_schemas[i].dtype
        names |= {"OUTPUT_DTYPE": self.output.dtype, "OUTPUT_SIZE": self.output.size}
        return source + BATCH, names


def _renamed(
    where: str, left: list[str], right: list[str], suffixes: tuple[str, str] | None
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs (field, field of the result); fields of both sides need suffixes."""
    both = [field for field in left if field in right]
    if both and suffixes is None:
        raise SchemaError(
            f"{where}: {' and '.join(SIDES)} both have a field {both[0]!r}; rename one, "
            "or give suffixes=('_left', '_right')"
        )
    if suffixes is not None and (len(suffixes) != 2 or suffixes[0] == suffixes[1]):
        raise SchemaError(f"{where}: suffixes={suffixes!r}; give two different ones")
    first, second = suffixes or ("", "")
    return (
        [(field, field + first if field in both else field) for field in left],
        [(field, field + second if field in both else field) for field in right],
    )
