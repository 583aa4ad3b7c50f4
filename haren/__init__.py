"""haren decides: which operator of a stream query runs next, and on which thread.

It knows operators, streams, threads and time, and nothing of events; any engine that offers the contract
of `haren.spe` can be scheduled. START HERE: ``haren/spe.py``, then ``haren/dispatch/``.
"""

from haren.dispatch import Dedicated, Dispatch, Pool
from haren.execution import Execution
from haren.graph import Graph
from haren.spe import Engine

__all__ = ["Dedicated", "Dispatch", "Engine", "Execution", "Graph", "Pool"]
