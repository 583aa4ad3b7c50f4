"""An event as compiled user functions see it: a record at an address, its event time shifted on access.

An array that is replayed in a loop is lent to its readers instead of copied, so the event time of a later
pass is not what lies in memory but that plus the pass's shift. Reading ``e.event_time`` adds it.
"""

import hashlib
from functools import cache
from typing import Any

import numpy as np
from numba import from_dtype, types
from numba.core import cgutils
from numba.core.errors import NumbaTypeError
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, lower_getattr_generic, models, register_model

from haren.native.atomics import WORD

__all__ = ["EventType", "event_reader"]


class EventType(types.Type):
    """The numba type of an event: a record type, and which of its fields is (64-bit) event time."""

    def __init__(self, dtype: np.dtype, time: str | None) -> None:
        self.record = from_dtype(dtype)
        self.time = time
        super().__init__(name=f"Event({self.record}, {time})")


@register_model(EventType)
class _EventModel(models.StructModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, [("data", types.voidptr), ("shift", types.int64)])


@infer_getattr
class _EventAttributes(AttributeTemplate):
    key = EventType

    def generic_resolve(self, event, name):
        if name not in event.record.fields:
            raise NumbaTypeError(f"Field {name!r} was not found in record")
        return event.record.typeof(name)


@lower_getattr_generic(EventType)
def _read_field(context, builder, kind, value, name):
    event = cgutils.create_struct_proxy(kind)(context, builder, value=value)
    field = kind.record.typeof(name)
    place = builder.gep(event.data, [WORD(kind.record.offset(name))])
    place = builder.bitcast(place, context.get_data_type(field).as_pointer())
    result = context.unpack_value(builder, field, place, 1)
    return builder.add(result, event.shift) if name == kind.time else result


@cache
def event_reader(dtype: np.dtype, time: str | None) -> Any:
    """The intrinsic ``(address, shift) -> event`` for events of this type; its name says its content."""
    kind = EventType(dtype, time)

    def read(typingctx, address, shift):
        def codegen(context, builder, signature, args):
            event = cgutils.create_struct_proxy(kind)(context, builder)
            event.data = builder.inttoptr(args[0], cgutils.voidptr_t)
            event.shift = args[1]
            return event._getvalue()

        return kind(types.int64, types.int64), codegen

    read.__name__ = f"event_{hashlib.sha256(f'{dtype.descr}{time}'.encode()).hexdigest()[:16]}"
    return intrinsic(read)
