"""START HERE to connect an engine: a whole stream engine in plain Python, made to be read.

    engine = haren.teaching.Teaching()
    numbers = engine.source(range(1000))
    evens = engine.operator(lambda x: [x] if x % 2 == 0 else [], numbers)
    out = engine.sink(evens)
    with haren.Execution(engine, 2, "fcfs"):
        engine.wait(timeout=30)
    engine.results(out)

`Teaching.graph`, `ready_at`, `run` and `measure` are what a scheduler asks of an engine; see `haren.spe`.
There are no locks: the scheduler runs an operator on one thread at a time, so its fields have one writer, and
a queue has one thread that appends and one that takes away, which a deque allows. An event leaves its queue
when all that comes of it is in the next ones: it is always somewhere, and a function that raises loses none.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import chain
from math import ceil
from operator import length_hint
from threading import Event
from typing import Any

from haren import spe
from haren.graph import Graph

__all__ = ["Operator", "Sink", "Source", "Teaching"]


class Operator:
    """Applies a function to the events of its inputs in turn, while all who read its results have room."""

    query_class = turn = events_out = latency_count = latency_total = 0

    def __init__(self, engine: "Teaching", *upstream: "Operator", function: Callable = lambda x: [x]) -> None:
        self.engine, self.upstream, self.function = engine, upstream, function
        self.name = f"{type(self).__name__.lower()}-{len(engine.operators)}"
        self.inputs: list[deque[tuple[int, Any]]] = [deque() for _ in upstream]  # clock times and values
        self.outputs: list[deque[tuple[int, Any]]] = []
        self.results: list[Any] = []
        for above, queue in zip(upstream, self.inputs, strict=True):
            above.outputs.append(queue)
        engine.operators.append(self)
        engine.ended.clear()

    def over(self) -> bool:
        """Whether nothing is left to do, provided that all upstream are over."""
        return not any(self.inputs)

    def room(self) -> int:
        return min((max(0, self.engine.capacity - len(queue)) for queue in self.outputs), default=spe.NEVER)

    def ready_at(self, now: int) -> int:
        return now if any(self.inputs) and self.room() else spe.NEVER

    def run(self, quota: int) -> int:
        consumed = 0
        while consumed < quota and any(self.inputs) and self.room():
            queue = self.inputs[self.turn % len(self.inputs)]
            self.turn += 1
            if queue:
                when, value = queue[0]
                for result in list(self.function(value)):
                    self.emit(when, result)
                queue.popleft()
                consumed += 1
        return consumed

    def emit(self, when: int, value: Any) -> None:
        self.events_out += 1
        for queue in self.outputs:
            queue.append((when, value))

    def waiting(self, now: int) -> tuple[int, int, int]:
        """Of the events that wait: the earliest time, the latest, and how many they are."""
        times = [when for queue in self.inputs for when, _ in list(queue)]  # a copy: others may be running
        return min(times, default=spe.NEVER), max(times, default=0), len(times)


class Sink(Operator):
    """Keeps values, and counts how long after its time each of them came."""

    def emit(self, when: int, value: Any) -> None:
        self.results.append(value)
        self.latency_total += self.engine.clock() - when
        self.latency_count += 1


class Source(Operator):
    """Emits values: at a rate, each with the time it is due; or as fast as it can, with the time it does."""

    def __init__(self, engine: "Teaching", values: Iterable, rate: float | None, query_class: int) -> None:
        self.values, self.ended, self.query_class = iter(values), False, query_class
        self.interval = None if rate is None else 10**9 / Fraction(rate)
        self.started: int | None = None
        super().__init__(engine)

    def over(self) -> bool:
        return self.ended

    def due(self, number: int, now: int) -> int:
        """The time event ``number`` is meant for; the first one, for when the source first runs."""
        if self.interval is None or self.started is None:
            return now
        return self.started + int(number * self.interval)

    def ready_at(self, now: int) -> int:
        return spe.NEVER if self.ended or not self.room() else self.due(self.events_out, now)

    def run(self, quota: int) -> int:
        first = self.events_out
        while self.events_out < first + quota and self.ready_at(now := self.engine.clock()) <= now:
            self.started = now if self.started is None else self.started
            try:
                self.emit(self.due(self.events_out, now), next(self.values))
            except StopIteration:
                self.ended = True
        return self.events_out - first

    def waiting(self, now: int) -> tuple[int, int, int]:
        """The same of those that are due, or of the next one; without a rate they have no time yet."""
        left = 0 if self.ended else length_hint(self.values, spe.NEVER)
        if left == 0 or self.interval is None:
            return spe.NEVER, 0, left
        ever = ceil((now + 1 - self.due(0, now)) / self.interval)
        count = min(left, max(0, ever - self.events_out))
        return self.due(self.events_out, now), self.due(self.events_out + max(0, count - 1), now), count


class Teaching:
    """The engine. A queue holds ``capacity`` events, and more only where one event becomes several."""

    def __init__(self, capacity: int = 1000, clock: Callable[[], int] = time.monotonic_ns) -> None:
        if capacity < 1:
            raise ValueError(f"capacity={capacity!r}; a queue holds at least one event")
        self.capacity, self.clock = capacity, clock
        self.operators: list[Operator] = []
        self._numbered: list[Operator] = []
        self.ended = Event()

    @property
    def graph(self) -> Graph:
        """Operators that are connected are a query. They get their numbers when the graph is asked for."""
        queries: list[list[Operator]] = []
        for one in self.operators:
            joined = [query for query in queries if not set(query).isdisjoint(one.upstream)]
            queries = [query for query in queries if query not in joined] + [[*chain(*joined), one]]
        self._numbered = order = list(chain(*queries))
        owners = [number for number, query in enumerate(queries) for _ in query]
        edges = [(order.index(above), down) for down, one in enumerate(order) for above in one.upstream]
        classes = [max(one.query_class for one in query) for query in queries]
        return Graph([one.name for one in order], owners, edges, classes=classes)

    def ready_at(self, operator: int, now: int) -> int:
        return self._numbered[operator].ready_at(now)

    def run(self, operator: int, quota: int) -> int:
        try:
            return self._numbered[operator].run(quota)
        finally:
            if sys.exception() or self._over():
                self.ended.set()

    def measure(self, operator: int, which: int, now: int) -> int:
        one = self._numbered[operator]
        if which in (spe.HEAD_TIME, spe.TAIL_TIME, spe.PENDING):
            return one.waiting(now)[which - spe.HEAD_TIME]
        counts = {spe.LATENCY_COUNT: one.latency_count, spe.LATENCY_TOTAL: one.latency_total}
        return (counts | {spe.EVENTS_OUT: one.events_out, spe.ROOM: one.room()})[which]

    def source(self, values: Iterable, rate: float | None = None, query_class: int = 0) -> Source:
        if rate is not None and not rate > 0:
            raise ValueError(f"rate={rate!r}; events per second, or None")
        return Source(self, values, rate, query_class)

    def operator(self, function: Callable[[Any], Iterable], first: Operator, *more: Operator) -> Operator:
        return Operator(self, first, *more, function=function)

    def sink(self, first: Operator, *more: Operator) -> Sink:
        return Sink(self, first, *more)

    def results(self, sink: Sink) -> list[Any]:
        return list(sink.results)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether all is done, within so many seconds; sooner if a function raises."""
        return self._over() or (self.ended.wait(timeout) and self._over())

    def _over(self) -> bool:
        return all(one.over() for one in self.operators)

    def kept(self, former: Graph) -> list[int]:
        """What `Execution.resume` needs if queries grew since its pause, when the graph was ``former``."""
        return [former.names.index(name) if name in former.names else -1 for name in self.graph.names]
