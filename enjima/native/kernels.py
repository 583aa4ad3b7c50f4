"""Batch kernels from a template and a user's function, compiled into one piece of native code.

A template is the source of ``batch`` (see `enjima.native.transfer`); the user's function is a name in it,
so LLVM inlines it into the loop. User functions are compiled with bounds checks; whatever they raise ends
the batch before the event it happened on.
"""

import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import carray, int64, njit, types
from numba.core.errors import NumbaError, NumbaTypeError
from numba.extending import overload

from enjima.memory import layout
from enjima.native import hashing
from enjima.native import words as w
from enjima.native.raw import copy, reallocate
from haren.native.atomics import add_to, load, pointer, store
from haren.native.compiler import Native, compile_native

__all__ = ["NumbaError", "compile_kernel", "jit_user_function", "result_type"]

_SIGNATURE = f"int64({', '.join(['int64'] * 7)})"


@njit
def spill(op, origin):
    """Room for one more event of overflow, kept by the operator until its output has room."""
    count = load(op + w.SPILL_COUNT)
    size = load(op + w.EVENT_OUT_BYTES)
    if count == load(op + w.SPILL_CAPACITY):
        capacity = max(64, 2 * count)
        store(op + w.SPILL, reallocate(load(op + w.SPILL), capacity * size))
        store(op + w.SPILL_ORIGINS, reallocate(load(op + w.SPILL_ORIGINS), 8 * capacity))
        store(op + w.SPILL_CAPACITY, capacity)
        add_to(op + w.GROWTHS, 1)
    store(load(op + w.SPILL_ORIGINS) + 8 * count, origin)
    store(op + w.SPILL_COUNT, count + 1)
    return load(op + w.SPILL) + count * size


def single(value):
    """The one field of a one-field schema: users return it bare or as a tuple of one."""
    return value[0] if isinstance(value, tuple) else value


@overload(single, inline="always")
def _single(value):
    if isinstance(value, types.BaseTuple):
        return lambda value: value[0]
    return lambda value: value


_NAMES: dict[str, Any] = {
    "njit": njit,
    "int64": int64,
    "carray": carray,
    "pointer": pointer,
    "copy": copy,
    "load": load,
    "store": store,
    "add_to": add_to,
    "reallocate": reallocate,
    "spill": spill,
    "single": single,
    "grow": hashing.grow,
    "rehash": hashing.rehash,
    "clear": hashing.clear,
    "home": hashing.home,
    "GOLDEN": hashing.GOLDEN,
    "NEVER": layout.NEVER,
    "BEGINNING": layout.BEGINNING,
    **{name: value for name, value in vars(w).items() if name.isupper()},
    **{
        f"TABLE_{name}": getattr(hashing, name)
        for name in ("SLOTS", "CAPACITY", "TAKEN", "ORDER", "GENERATION", "SHIFT")
    },
}


COPY_EVENT = """
@njit
def copy_event(target, place, shift):
    copy(target, place, COPY_SIZE)
    if COPY_TIME >= 0:
        store(target + COPY_TIME, load(place + COPY_TIME) + shift)

"""


def jit_user_function(function: Callable) -> Callable:
    """A user's function, ready to be inlined into a kernel; one that is compiled already stays as it is."""
    if hasattr(function, "py_func"):
        return function
    if not isinstance(function, FunctionType):
        raise NumbaTypeError(f"{function!r} is not a function written in Python")
    return njit(boundscheck=True)(function)


def result_type(function: Any, *kinds: Any) -> Any:
    """The numba type a compiled user function returns for arguments of these types."""
    function.compile(kinds)
    return function.overloads[kinds].signature.return_type


def compile_kernel(template: str, names: dict[str, Any], check: Callable[[], None] | None = None) -> Native:
    """Compile the ``batch`` of a template, in which ``names`` are known besides the raw-memory helpers."""
    scope = {**_NAMES, **names}
    exec(compile(COPY_EVENT + textwrap.dedent(template), "<enjima kernel>", "exec"), scope)
    return compile_native(scope["batch"], _SIGNATURE, check)
