"""enjima executes: stream queries on block memory, compiled, on native threads.

START HERE: ``enjima/stream.py``. A query is a chain of steps on an `Environment`; functions are plain
Python over records. A new operator is one file in ``enjima/operators/``.
"""

from enjima.aggregates import Aggregate, count, max, mean, min, sum
from enjima.errors import GraphError, MemoryLimitError, PythonFallbackWarning, QueryError, SchemaError
from enjima.operators import Sliding, Tumbling
from enjima.profiler import RunResult
from enjima.schema import Schema
from enjima.stream import Environment, Stream

__all__ = [
    "Aggregate",
    "Environment",
    "GraphError",
    "MemoryLimitError",
    "PythonFallbackWarning",
    "QueryError",
    "RunResult",
    "Schema",
    "SchemaError",
    "Sliding",
    "Stream",
    "Tumbling",
    "count",
    "max",
    "mean",
    "min",
    "sum",
]
