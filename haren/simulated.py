"""Simulated operators: what users say of them, and the engine that they are in native memory.

Compiled, and the authority on what they do: `haren.native.simulated`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from haren.arrivals import Arrivals
from haren.distributions import Distribution
from haren.graph import Graph
from haren.latency import Histogram
from haren.memory import address, lines

__all__ = ["UNLIMITED", "Operator", "SimulatedEngine"]

UNLIMITED = 2**62
SOURCE, BETWEEN, SINK = range(3)


@dataclass
class Operator:
    """One operator of a simulation; costs are ns per event, times ns."""

    name: str
    query: int
    kind: int
    cost: float | Distribution
    selectivity: float | Distribution = 1.0
    inputs: tuple[int, ...] = ()
    capacity: int = 1000
    rate: float | Arrivals | None = None
    count: int = UNLIMITED
    waiting: tuple[int, ...] = ()
    window_ns: int = 0
    results: int = 0
    result_cost: float = 0
    deadline_ns: int = 0
    granularity_ns: int = 0

    @property
    def mean_cost(self) -> float:
        return mean_of(self.cost)

    @property
    def mean_selectivity(self) -> float:
        return mean_of(self.selectivity)

    @property
    def mean_rate(self) -> float | None:
        """Events per second of a source; None: as fast as it can."""
        return self.rate.rate if isinstance(self.rate, Arrivals) else self.rate

    @property
    def most_results(self) -> int:
        """What one event in may become, at the most."""
        if self.kind == SINK or self.window_ns:
            return 0
        if isinstance(self.selectivity, Distribution):
            return -(-int(self.selectivity.table.max()) // 1024) + 1
        return math.ceil(self.selectivity)


def start_of_stream(seed: int, op: int) -> int:
    """A state to begin an operator's generator with: neighbouring seeds must not give similar streams."""
    digest = hashlib.sha256(f"{seed}/{op}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True) or 1


def mean_of(value: float | Distribution) -> float:
    return value.mean if isinstance(value, Distribution) else float(value)


class SimulatedEngine:
    """The simulated operators in native memory, on the contract of `haren.spe`."""

    def __init__(self, operators: Sequence[Operator], queries: Sequence[tuple[str, int]], seed: int) -> None:
        from haren.native import simulated as s
        from haren.native.compiler import compile_native

        order = sorted(range(len(operators)), key=lambda i: (operators[i].query, i))
        place = {old: new for new, old in enumerate(order)}
        self.operators = [operators[i] for i in order]
        inputs = [[place[i] for i in one.inputs] for one in self.operators]
        numbers = sorted({one.query for one in self.operators})
        self.graph = Graph(
            [one.name for one in self.operators],
            [numbers.index(one.query) for one in self.operators],
            sorted({(up, down) for down, ups in enumerate(inputs) for up in ups}),
            [queries[number][0] for number in numbers],
            [queries[number][1] for number in numbers],
        )
        self.histograms = {op: Histogram() for op, one in enumerate(self.operators) if one.kind == 2}
        self._keep: list[Any] = []
        self._tables: dict[tuple[Distribution, bool], int] = {}
        self.inputs: list[list[np.ndarray]] = [[] for _ in order]
        """The words of each operator's queues."""
        self.words = lines(1)
        self.table = lines(len(order) * s.SIM_OPERATOR_BYTES // 64).reshape(len(order), -1)
        self.words[s.TABLE // 8] = address(self.table)
        outputs: list[list[int]] = [[] for _ in order]
        behind: list[list[int]] = [[] for _ in order]
        reads: list[list[int]] = [[] for _ in order]
        for down, ups in enumerate(inputs):
            for number, up in enumerate(ups):
                queue = self._queue(down, self.operators[down].waiting[number])
                outputs[up].append(queue)
                behind[up].append(down)
                reads[down].append(queue)
        for op, (one, record) in enumerate(zip(self.operators, self.table, strict=True)):
            capacity = max([one.capacity, *(self.operators[down].capacity for down in behind[op])])
            stretches = capacity * (max(1, len(reads[op])) if one.kind == SINK else 1) + 1
            aside = np.zeros(3 * stretches, np.int64)
            read, written = np.array(reads[op] or [0]), np.array(outputs[op] or [0])
            self._keep += [aside, read, written]
            rate = one.mean_rate
            spacing = (
                0.0 if rate is None else 1e9 / rate if rate > 0 else 1e9
            )  # one replayed event has no rate
            pace = np.array([spacing]).view(np.int64)[0]
            record[s.SEED // 8] = start_of_stream(seed, op)
            for offset, value in {
                s.KIND: one.kind,
                s.COST: round(one.mean_cost * 1024),
                s.COST_TABLE: self._table(one.cost),
                s.SELECTIVITY: round(one.mean_selectivity * s.ONE),
                s.SELECTIVITY_TABLE: self._table(one.selectivity),
                s.RESULTS: one.results or one.most_results,
                s.RESULT_COST: round(one.result_cost * 1024),
                s.WINDOW_NS: one.window_ns,
                s.WINDOW_END: one.window_ns,
                s.WINDOW_LATEST: -1,
                s.DEADLINE: one.deadline_ns,
                s.GRANULARITY: one.granularity_ns,
                s.INPUT_COUNT: len(reads[op]),
                s.INPUTS: address(read),
                s.OUTPUT_COUNT: len(outputs[op]),
                s.OUTPUTS: address(written),
                s.ASIDE: address(aside),
                s.ASIDE_SIZE: capacity,
                s.LATENCY: self.histograms[op].address if one.kind == 2 else 0,
                s.NS_PER_EVENT: pace,
                s.LIMIT: one.count,
                **self._arrivals(one.rate),
            }.items():
                record[offset // 8] = value
        self.code = {
            name: compile_native(getattr(s, name), f"int64({', '.join(['int64'] * arguments)})")
            for name, arguments in (
                ("ready_at", 3),
                ("run", 3),
                ("measure", 4),
                ("finish", 3),
                ("duration", 2),
                ("begin", 3),
            )
        }
        self.handle = address(self.words)
        self.ready_at, self.run, self.measure = (self.code[n].address for n in ("ready_at", "run", "measure"))

    def _queue(self, down: int, waiting: int) -> int:
        from haren.native import simulated as s

        capacity = self.operators[down].capacity
        size = 1 << capacity.bit_length()  # a stretch for each event, and one more
        ring, words = np.zeros(3 * size, np.int64), lines(s.QUEUE_BYTES // 64)
        words[s.MASK // 8], words[s.CAPACITY // 8], words[s.RING // 8] = size - 1, capacity, address(ring)
        if waiting:  # one stretch, of events that came at time 0
            ring[s.COUNT_OF // 8], words[s.TAIL // 8], words[s.EVENTS // 8] = waiting, 1, waiting
        self._keep += [ring, words]
        self.inputs[down].append(words)
        return address(words)

    def _table(self, value: Any, fine: bool = False) -> int:
        """Where the table of a distribution lies; 0 for a number."""
        if not isinstance(value, Distribution):
            return 0
        if (value, fine) not in self._tables:
            table = value.fine_table if fine else value.table
            head = np.array([address(table), int(value.steps)], np.int64)
            self._keep += [table, head]
            self._tables[value, fine] = address(head)
        return self._tables[value, fine]

    def _arrivals(self, rate: Any) -> dict[int, int]:
        """The words of a source that is not constant."""
        from haren.native import simulated as s

        if not isinstance(rate, Arrivals):
            return {}
        if rate.times is not None:
            self._keep.append(rate.times)
            return {s.TIMES: address(rate.times)}
        gaps = [(at, round(1024e9 / each) if each > 0 else 0) for at, each in rate.steps]
        steps = np.array(gaps, np.int64)
        self._keep.append(steps)
        return {
            s.RATE_STEPS: address(steps),
            s.RATE_COUNT: len(steps),
            s.RATE_PERIOD: rate.period_ns,
            s.GAP_TABLE: self._table(rate.gaps, fine=True),
        }

    def word(self, op: int, name: str) -> int:
        """A counter of an operator, by its name in `haren.native.simulated`."""
        from haren.native import simulated as s

        return int(self.table[op, getattr(s, name) // 8])

    def mean_pending(self, op: int, end: int) -> float:
        """Events that waited before an operator, on average over time."""
        from haren.native import simulated as s

        area = 0
        for words in self.inputs[op]:
            area += int(words[s.AREA // 8] + words[s.EVENTS // 8] * (end - words[s.SINCE // 8]))
        return area / end
