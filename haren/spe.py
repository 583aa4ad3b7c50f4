"""What a stream processing engine must offer to be scheduled: the whole contract.

An engine is a graph of operators that can be asked two things. Both are native functions over words
(int64), given by address, so that one worker loop without the GIL serves every engine; an address may
equally be that of a ``ctypes.CFUNCTYPE`` around a Python method.
"""

from typing import Protocol

from haren.graph import Graph

__all__ = ["NEVER", "Engine"]

NEVER = 2**63 - 1


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
    """

    graph: Graph
    handle: int
    ready_at: int
    run: int
