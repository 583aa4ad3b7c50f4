"""What a stream processing engine must offer to be scheduled: the whole contract.

An engine is a graph of operators that can be asked three things. They are native functions over words
(int64), given by address, so that one worker loop without the GIL serves every engine; or methods in Python
of the same names, which `NativeEngine` puts behind addresses (`haren.teaching` is such an engine).
"""

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from haren.graph import Graph

__all__ = ["NEVER", "Engine", "NativeEngine"]

NEVER = 2**63 - 1

# what `measure` is asked for
EVENTS_OUT = 0  # events it has produced so far
HEAD_TIME = 1  # clock time of the oldest event that waits, over all inputs; NEVER if none does
TAIL_TIME = 2  # clock time of the newest one; asked only if there is one
PENDING = 3  # events that wait; of a source, those that are due
ROOM = 4  # events that fit into its fullest output; NEVER if that is not bounded
LATENCY_COUNT = 5  # of a sink: latencies recorded so far
LATENCY_TOTAL = 6  # of a sink: their sum in nanoseconds


class Engine(Protocol):
    """The contract between deciding (haren) and executing (an engine).

    ``ready_at(handle, operator, now) -> time``
        From which clock time (monotonic ns) the operator can run: a time not after ``now`` if it can run
        at once, a later one for a paced source, `NEVER` while it has no input or no room for output.
        Any thread may ask at any time; the answer is advice, ``run`` decides. Only a run of the operator
        itself or of a neighbour in the graph may make the answer an earlier one; whatever else does
        calls `Execution.wake` afterwards.
    ``run(handle, operator, quota) -> consumed``
        Run the operator for up to ``quota`` events. A negative number is an error code; the engine has
        then stopped the operator; 0 is a run that only let time pass, or sent what had been kept. An
        operator that can do neither is not ready: threads do not sleep while one is. The scheduler never
        runs an operator on two threads at once.
    ``measure(handle, operator, which, now) -> value``
        One of the numbers above, for features; 0 instead of an address if it has none, and then policies
        that need more than cost cannot be used. Any thread may ask at any time; while operators run, a
        value that is a moment old will do.

    Methods in Python have no ``handle``. What they raise stops the execution and is raised by its `stop`.
    When the graph changes, the engine calls `Execution.update`.
    """

    graph: Graph
    handle: int
    ready_at: int
    run: int
    measure: int


class NativeEngine:
    """An engine's functions as addresses, also where they are Python; ``failed`` is told what those raise."""

    def __init__(self, engine: Any, failed: Callable[[BaseException], None] = lambda error: None) -> None:
        self.engine = engine
        self._failed = failed
        self._callbacks: list[Any] = []
        self.handle = getattr(engine, "handle", 0)
        self.ready_at = self._address("ready_at", 3, NEVER)
        self.run = self._address("run", 3, 0)
        self.measure = self._address("measure", 4, 0)

    def _address(self, name: str, arguments: int, otherwise: int) -> int:
        function = getattr(self.engine, name, 0)
        if not callable(function):
            return function

        def guarded(handle: int, *given: int) -> int:
            try:
                return int(function(*given))
            except BaseException as error:
                self._failed(error)
                return otherwise

        callback = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)(guarded)
        self._callbacks.append(callback)
        return ctypes.cast(callback, ctypes.c_void_p).value or 0
