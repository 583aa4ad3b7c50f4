"""START HERE to connect an engine: a whole stream engine in plain Python, made to be read.

    engine = haren.teaching.Teaching(capacity=1000)
    numbers = engine.source(range(1000), rate=None)
    evens = engine.operator(lambda x: [x] if x % 2 == 0 else [], numbers)
    out = engine.sink(evens)
    with haren.Execution(engine, 2, "fcfs"):
        engine.wait(timeout=30)
    engine.results(out)

All that the scheduler asks of an engine (`haren.spe`) is at the top of `Teaching`: ``graph``, ``ready_at``,
``run`` and ``measure``. Nodes that are connected are a query; what a node puts out goes to all that read it.

There are no locks. The scheduler runs a node on one thread at a time, so a node's fields have one writer, and
a queue has one that appends and one that takes away, which deques allow. An event leaves its queue only when
what becomes of it is in the next ones: at every moment it can be found somewhere, and a function that raises
loses none.

Queries may grow while they run, and nothing of them moves or gets lost:

    execution.pause()
    former = engine.graph
    engine.sink(engine.operator(str, numbers))
    execution.resume(engine.kept(former))
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil
from operator import length_hint
from threading import Event
from typing import Any

from haren import spe
from haren.graph import Graph
from haren.spe import NEVER

__all__ = ["Teaching"]


class Queue(deque[tuple[int, Any]]):
    """The events between two nodes, a clock time and a value each. An event too many is no error."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def room(self) -> int:
        return max(0, self.capacity - len(self))

    def time_at(self, place: int, otherwise: int) -> int:
        """The time of the event at a place; another thread may be taking it away at this moment."""
        try:
            return self[place][0]
        except IndexError:
            return otherwise


class Node:
    """An operator of the graph; this one applies a function to every event of its inputs."""

    def __init__(self, name: str, function: Callable[[Any], Iterable[Any]], upstream: "tuple[Node, ...]") -> None:
        self.name, self.function, self.upstream = name, function, upstream
        self.inputs: list[Queue] = []
        self.outputs: list[Queue] = []
        self.turn = 0
        self.events_out = 0
        self.results: list[Any] = []
        self.latency_count, self.latency_total = 0, 0

    def over(self) -> bool:
        """Whether nothing is left to do, if those upstream are over, too."""
        return not any(self.inputs)

    def room(self) -> int:
        return min((queue.room() for queue in self.outputs), default=NEVER)

    def ready_at(self, now: int) -> int:
        return now if any(self.inputs) and self.room() else NEVER

    def run(self, quota: int) -> int:
        """Take up to ``quota`` events from the inputs in turn, as long as every output has room."""
        for consumed in range(quota):
            queue = self._next_input()
            if queue is None or not self.room():
                return consumed
            when, value = queue[0]
            self._process(when, value)
            queue.popleft()
        return quota

    def _next_input(self) -> Queue | None:
        for _ in self.inputs:
            queue = self.inputs[self.turn % len(self.inputs)]
            self.turn += 1
            if queue:
                return queue
        return None

    def _process(self, when: int, value: Any) -> None:
        for result in list(self.function(value)):  # all of them, or none if the function raises
            self._emit(when, result)

    def _emit(self, when: int, value: Any) -> None:
        self.events_out += 1
        for queue in self.outputs:
            queue.append((when, value))

    def head_time(self, now: int) -> int:
        return min(queue.time_at(0, NEVER) for queue in self.inputs)

    def tail_time(self, now: int) -> int:
        return max(queue.time_at(-1, 0) for queue in self.inputs)

    def pending(self, now: int) -> int:
        return sum(map(len, self.inputs))
