"""What a function reads of one of its arguments, as far as its code shows: to name mistakes early."""

import dis
from itertools import pairwise
from typing import Any

__all__ = ["attributes_read"]


def attributes_read(function: Any, name: str) -> list[str]:
    """The attributes of the argument ``name`` that the function's code loads."""
    code = getattr(getattr(function, "py_func", function), "__code__", None)
    if code is None:
        return []
    steps = list(dis.get_instructions(code))
    return [
        str(step.argval)
        for former, step in pairwise(steps)
        if former.opname.startswith("LOAD_FAST")
        and (former.argval == name or (isinstance(former.argval, tuple) and former.argval[-1] == name))
        and step.opname == "LOAD_ATTR"
    ]
