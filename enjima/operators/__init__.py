"""The operators, one file per kind."""

from enjima.operators.filter import Filter
from enjima.operators.join_static import JoinStatic
from enjima.operators.map import FlatMap, Map
from enjima.operators.operator import Operator
from enjima.operators.sink import CallbackSink, CollectSink, NullSink, Sink
from enjima.operators.source import ArraySource, FunctionSource, IteratorSource, Source
from enjima.operators.window import Tumbling, TumblingAggregate

__all__ = [
    "ArraySource",
    "CallbackSink",
    "CollectSink",
    "Filter",
    "FlatMap",
    "FunctionSource",
    "IteratorSource",
    "JoinStatic",
    "Map",
    "NullSink",
    "Operator",
    "Sink",
    "Source",
    "Tumbling",
    "TumblingAggregate",
]
