"""The operators, one file per kind."""

from enjima.operators.co_group import CoGroup
from enjima.operators.filter import Filter
from enjima.operators.join import Join
from enjima.operators.join_static import JoinStatic
from enjima.operators.map import FlatMap, Map
from enjima.operators.operator import Operator
from enjima.operators.parquet import ParquetSink
from enjima.operators.sink import CallbackSink, CollectSink, NullSink, Sink
from enjima.operators.sliding import SlidingAggregate
from enjima.operators.source import ArraySource, FunctionSource, IteratorSource, Source
from enjima.operators.tumbling import TumblingAggregate
from enjima.operators.union import Union
from enjima.operators.window import Sliding, Tumbling, Window, WindowAggregate

__all__ = [
    "ArraySource",
    "CallbackSink",
    "CoGroup",
    "CollectSink",
    "Filter",
    "FlatMap",
    "FunctionSource",
    "IteratorSource",
    "Join",
    "JoinStatic",
    "Map",
    "NullSink",
    "Operator",
    "ParquetSink",
    "Sink",
    "Sliding",
    "SlidingAggregate",
    "Source",
    "Tumbling",
    "TumblingAggregate",
    "Union",
    "Window",
    "WindowAggregate",
]
