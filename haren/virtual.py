"""A virtual clock: any number of simulated threads, operators of known cost, the same scheduler.

    net = haren.Simulation()
    ads = net.source(rate=500, cost=1_000, query="ads")                # events/s, ns per event
    views = net.operator(ads, cost=20_000, selectivity=0.3)
    net.sink(views, cost=500)
    result = net.run(seconds=10, policy="fcfs", threads=4)
    result.latency; result.operators; result.trace.frame

Deciding is the very code that real threads run (`haren.native`); only time is simulated. The same network,
policy and seed give the same result, to the byte. A run takes its input when it begins and shows its output
when it ends. The policy "os" is a model of fair time slices here (`haren.dispatch.fair`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from haren.dispatch import Dedicated, Dispatch, dispatch_for
from haren.dispatch.fair import Fair
from haren.dispatch.schedule import Schedule
from haren.dispatch.shared import SharedSchedule
from haren.errors import PolicyError
from haren.execution import TRACE_ROWS, Execution
from haren.graph import Graph
from haren.latency import Histogram
from haren.matrix import SEEN_MEASURED
from haren.memory import address, lines
from haren.policy import Policy

if TYPE_CHECKING:
    import pandas as pd

    from haren.trace import Trace

__all__ = ["Simulation", "SimulationResult"]

STEPS = 100_000  # between two looks for an interrupt
UNLIMITED = 2**62


@dataclass(frozen=True)
class Costs:
    """What scheduling itself takes, in virtual ns."""

    decision_ns: int
    switch_ns: int
    refill_ns: int
    round_ns: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"{name}={value!r}; whole nanoseconds, not negative")


@dataclass
class _Operator:
    name: str
    query: int
    kind: int
    cost: float
    selectivity: float = 1.0
    inputs: tuple[int, ...] = ()
    capacity: int = 1000
    rate: float | None = None
    count: int = UNLIMITED
    waiting: tuple[int, ...] = ()


@dataclass
class Simulation:
    """Queries of simulated operators; `run` runs them. Costs are ns per event, rates events per second.

    ``capacity`` is how many events wait between two operators, if an operator does not say otherwise.
    """

    capacity: int = 1000
    operators: list[_Operator] = field(default_factory=list)
    _queries: list[tuple[str, int]] = field(default_factory=list)

    def source(
        self,
        rate: float | None,
        *,
        cost: float = 0,
        count: int | None = None,
        name: str | None = None,
        query: str | None = None,
        query_class: int = 0,
    ) -> int:
        """A source, which begins a query: ``count`` events (None: no end); rate None: as fast as it can."""
        if rate is not None and not 0 < rate < 1e12:
            raise ValueError(f"rate={rate!r} events/s is out of range; None is as fast as possible")
        if count is not None and count < 0:
            raise ValueError(f"count={count!r} must not be negative")
        self._queries.append((query or f"query-{len(self._queries)}", query_class))
        limit = UNLIMITED if count is None else count
        return self._add(name, _Operator("source", len(self._queries) - 1, 0, cost, rate=rate, count=limit))

    def operator(
        self,
        *inputs: int,
        cost: float,
        selectivity: float = 1.0,
        capacity: int | None = None,
        waiting: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> int:
        """An operator behind others; ``capacity`` is that of each of its inputs, in which ``waiting`` events
        wait at the beginning."""
        if not 0 <= selectivity < 1e6:
            raise ValueError(f"selectivity={selectivity!r} is out of range: events out per event in")
        one = _Operator("operator", self._query(inputs), 1, cost, selectivity, tuple(inputs))
        return self._add(name, self._with_inputs(one, capacity, waiting))

    def sink(
        self,
        *inputs: int,
        cost: float = 0,
        capacity: int | None = None,
        waiting: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> int:
        """The end of a query, where latency is measured; see `operator`."""
        one = _Operator("sink", self._query(inputs), 2, cost, 0.0, tuple(inputs))
        return self._add(name, self._with_inputs(one, capacity, waiting))

    def _with_inputs(self, one: _Operator, capacity: int | None, waiting: int | Sequence[int]) -> _Operator:
        one.capacity = self.capacity if capacity is None else capacity
        count = len(one.inputs)
        one.waiting = (waiting,) * count if isinstance(waiting, int) else tuple(waiting)
        fits = all(0 <= number <= max(one.capacity, 0) for number in one.waiting)
        if len(one.waiting) != count or not fits:
            raise ValueError(
                f"waiting={waiting!r}: for each of {count} inputs 0 to {one.capacity} (capacity) events"
            )
        return one

    def chain(
        self,
        rate: float | None,
        costs: Sequence[float],
        selectivities: Sequence[float] | None = None,
        *,
        query: str | None = None,
        query_class: int = 0,
        count: int | None = None,
        names: Sequence[str] | None = None,
    ) -> list[int]:
        """A query in a line: the first cost is the source's, the last the sink's, as are ``names``."""
        if len(costs) < 2:
            raise ValueError("a chain has at least a source and a sink")
        inner = [1.0] * (len(costs) - 2) if selectivities is None else list(selectivities)
        if len(inner) != len(costs) - 2:
            raise ValueError(f"{len(inner)} selectivities for {len(costs) - 2} operators between the ends")
        called = [None] * len(costs) if names is None else list(names)
        if len(called) != len(costs):
            raise ValueError(f"{len(called)} names for {len(costs)} operators")
        source = self.source(
            rate, cost=costs[0], name=called[0], query=query, query_class=query_class, count=count
        )
        made = [source]
        for cost, selectivity, name in zip(costs[1:-1], inner, called[1:-1], strict=True):
            made.append(self.operator(made[-1], cost=cost, selectivity=selectivity, name=name))
        return [*made, self.sink(made[-1], cost=costs[-1], name=called[-1])]

    def _query(self, inputs: Sequence[int]) -> int:
        if not inputs:
            raise ValueError("an operator needs at least one input")
        for number in inputs:
            if not 0 <= number < len(self.operators):
                raise ValueError(f"there is no operator number {number!r}")
            if self.operators[number].kind == 2:
                raise ValueError(f"{self.operators[number].name!r} is a sink and has no output")
        first, *others = sorted({self.operators[number].query for number in inputs})
        for one in self.operators:
            if one.query in others:
                one.query = first
        return first

    def _add(self, name: str | None, one: _Operator) -> int:
        if not 0 <= one.cost < 1e15:
            raise ValueError(f"cost={one.cost!r} is out of range: ns per event")
        most = max([1, *(math.ceil(self.operators[number].selectivity) for number in one.inputs)])
        if one.capacity < most:
            raise ValueError(f"capacity={one.capacity!r} is too small: an event before it may become {most}")
        one.name = name or f"{one.name}-{len(self.operators)}"
        if one.name in [other.name for other in self.operators]:
            raise ValueError(f"there is an operator {one.name!r} already")
        self.operators.append(one)
        return len(self.operators) - 1

    def run(
        self,
        seconds: float,
        policy: Dispatch | Policy | str | None = None,
        *,
        threads: int = 1,
        decision_ns: int = 0,
        switch_ns: int = 0,
        refill_ns: int = 0,
        round_ns: int = 0,
        known: bool = False,
        trace: int = TRACE_ROWS,
    ) -> SimulationResult:
        """Run for so many virtual seconds; ``threads`` are the simulated threads (of "os": the cores).

        Scheduling costs ``decision_ns`` for each turn, ``switch_ns`` where a thread goes over to another
        operator, ``refill_ns`` where it fetches what another thread has left in its cache, and ``round_ns``
        for each T_S.
        ``known``: the policy knows costs and selectivities from the beginning, before they are measured.
        """
        if not 0 < seconds < 1e6:
            raise ValueError(f"seconds={seconds!r} must be positive")
        if not self.operators:
            raise ValueError("there is nothing to simulate: add source(...), operator(...), sink(...)")
        costs = Costs(decision_ns, switch_ns, refill_ns, round_ns)
        engine = _Engine(self)
        run = _Run(engine, threads, _virtual(dispatch_for(policy)), trace=trace)
        if known:
            run.tell()
        run.drive(int(seconds * 1e9), costs)
        return SimulationResult(engine, run, seconds)


def _virtual(dispatch: Dispatch) -> Dispatch:
    if not isinstance(dispatch, Dedicated):
        return dispatch
    if dispatch.ranks:
        raise PolicyError(
            "nice values are not modelled on the virtual clock; run this policy on real threads"
        )
    return Fair()


class _Engine:
    """The simulated operators in native memory, on the contract of `haren.spe`."""

    def __init__(self, net: Simulation) -> None:
        from haren.native import simulated as s
        from haren.native.compiler import compile_native

        order = sorted(range(len(net.operators)), key=lambda i: (net.operators[i].query, i))
        place = {old: new for new, old in enumerate(order)}
        self.operators = [net.operators[i] for i in order]
        inputs = [[place[i] for i in one.inputs] for one in self.operators]
        numbers = sorted({one.query for one in self.operators})
        self.graph = Graph(
            [one.name for one in self.operators],
            [numbers.index(one.query) for one in self.operators],
            sorted({(up, down) for down, ups in enumerate(inputs) for up in ups}),
            [net._queries[number][0] for number in numbers],
            [net._queries[number][1] for number in numbers],
        )
        self.histograms = {op: Histogram() for op, one in enumerate(self.operators) if one.kind == 2}
        self._keep: list[Any] = []
        self.words = lines(1)
        self.table = lines(len(order) * s.SIM_OPERATOR_BYTES // 64).reshape(len(order), -1)
        self.words[s.TABLE // 8] = address(self.table)
        outputs: list[list[int]] = [[] for _ in order]
        reads: list[list[int]] = [[] for _ in order]
        for down, ups in enumerate(inputs):
            for number, up in enumerate(ups):
                queue = self._queue(self.operators[down].capacity, self.operators[down].waiting[number])
                outputs[up].append(queue)
                reads[down].append(queue)
        for op, (one, record) in enumerate(zip(self.operators, self.table, strict=True)):
            capacity = max(
                [one.capacity, *(self.operators[d].capacity for u, d in self.graph.edges if u == op)]
            )
            aside = np.zeros(capacity, np.int64)
            read, written = np.array(reads[op] or [0]), np.array(outputs[op] or [0])
            self._keep += [aside, read, written]
            pace = np.array([0.0 if one.rate is None else 1e9 / one.rate]).view(np.int64)[0]
            for offset, value in {
                s.KIND: one.kind,
                s.COST: round(one.cost * 1024),
                s.SELECTIVITY: round(one.selectivity * s.ONE),
                s.INPUT_COUNT: len(reads[op]),
                s.INPUTS: address(read),
                s.OUTPUT_COUNT: len(outputs[op]),
                s.OUTPUTS: address(written),
                s.ASIDE: address(aside),
                s.ASIDE_SIZE: capacity,
                s.LATENCY: self.histograms[op].address if one.kind == 2 else 0,
                s.NS_PER_EVENT: pace,
                s.LIMIT: one.count,
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
            )
        }
        self.handle = address(self.words)
        self.ready_at, self.run, self.measure = (self.code[n].address for n in ("ready_at", "run", "measure"))

    def _queue(self, capacity: int, waiting: int) -> int:
        from haren.native import simulated as s

        ring, words = np.zeros(1 << (capacity - 1).bit_length(), np.int64), lines(s.QUEUE_BYTES // 64)
        words[s.MASK // 8], words[s.CAPACITY // 8], words[s.RING // 8] = (
            len(ring) - 1,
            capacity,
            address(ring),
        )
        words[s.TAIL // 8] = waiting
        self._keep += [ring, words]
        return address(words)


class _Run(Execution):
    """An execution whose threads are simulated."""

    virtual = True
    _time = 0

    def now(self) -> int:
        return self._time

    def tell(self) -> None:
        """Let the features begin with the costs and selectivities that the operators have."""
        if not isinstance(self.installed, Schedule):
            return
        matrix = self.installed.matrix
        for name in {"cost", "selectivity"} & set(matrix.row):
            matrix.column(name)[:] = [getattr(one, name) for one in self.engine.operators]
        matrix.seen[:, SEEN_MEASURED // 8] = 1

    def drive(self, end: int, costs: Costs) -> None:
        """Simulate until ``end``, an interrupt, or a mistake that must stop the run."""
        import ctypes

        from haren.native import simulated as s
        from haren.native import virtual as v
        from haren.native.compiler import compile_native

        assert self.installed is not None
        engine: _Engine = self.engine
        seats = lines(len(self._workers) * v.SEAT_BYTES // 64).reshape(-1, v.SEAT_BYTES // 8)
        seats[:, [v.UNIT // 8, v.LAST // 8, v.PLACE // 8]] = -1
        seats[:, v.PLACE // 8] = self._heap = np.arange(len(seats))  # all begin at time 0
        self._ran_by = np.full(len(self.graph), -1)
        self.driver, self.seats = lines(v.DRIVER_BYTES // 64), seats
        for offset, value in {
            v.THREADS: len(self._workers),
            v.WORKERS: address(self._workers),
            v.SEATS: address(seats),
            v.END: end,
            v.FINISH: engine.code["finish"].address,
            v.DURATION: engine.code["duration"].address,
            v.SWITCH_NS: costs.switch_ns,
            v.ROUND_NS: costs.round_ns,
            v.WAKES: {"spare": v.SPARE, "neighbours": v.NEIGHBOURS, "epoch": v.EPOCH}[self.dispatch.wakes],
            v.HEAP: address(self._heap),
            v.HEAP_SIZE: len(seats),
            v.WATCHER: -1,
            v.RAN_BY: address(self._ran_by),
            v.DECISION_NS: costs.decision_ns,
            v.REFILL_NS: costs.refill_ns,
            v.NOW_AT: address(engine.words) + s.NOW,
        }.items():
            self.driver[offset // 8] = value
        self.installed.started(self)
        if isinstance(self.installed, SharedSchedule):
            self._keeper = self.installed.epoch_worker(self)
            self.driver[v.EPOCH_NS // 8] = self.installed.epoch_ns
            self.driver[v.KEEPER // 8] = address(self._keeper)
        native = compile_native(v.simulate, "int64(int64, int64)")
        simulate = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(native.address)
        while simulate(address(self.driver), STEPS) and self.error is None:
            self._time = int(self.driver[v.TIME // 8])
        for seat, record in zip(seats, self._workers, strict=True):
            self._close(seat, record, end)
        self.installed.check()
        if self.error is not None:
            raise self.error

    def _close(self, seat: np.ndarray, record: np.ndarray, end: int) -> None:
        """Count what is under way at the end for the time it has had, and no more."""
        from haren.native import virtual as v
        from haren.native import words as w

        overhead = v.OVERHEAD // 8
        if seat[v.STATE // 8] == v.IDLE:
            seat[v.IDLE_NS // 8] += end - seat[v.IDLE_SINCE // 8]
        elif seat[v.STATE // 8] == v.WAITING:
            self.driver[overhead] += end - seat[v.IDLE_SINCE // 8]
        elif seat[v.UNIT // 8] >= 0:
            record[w.BUSY_NS // 8] += max(0, end - seat[v.BEGAN // 8])
            self.driver[overhead] -= max(0, seat[v.BEGAN // 8] - end)
        else:
            self.driver[overhead] -= seat[v.AT // 8] - end  # of a round that has not ended


class SimulationResult:
    """What a simulation did, in the tables of a real run; busy + idle + overhead is all threads' time."""

    def __init__(self, engine: _Engine, run: _Run, seconds: float) -> None:
        self._engine, self._run, self.seconds = engine, run, seconds

    @cached_property
    def latency(self) -> pd.DataFrame:
        """Per sink: count, mean, p50, p95, p99, max in ms, of results (from the origin of each event)."""
        import pandas as pd

        rows = [
            self._place(op, "sink") | {"kind": "result"} | histogram.snapshot().summary()
            for op, histogram in self._engine.histograms.items()
        ]
        return pd.DataFrame(rows)

    @cached_property
    def throughput(self) -> pd.DataFrame:
        """Per source: events/s offered (NaN: as fast as possible) and delivered, events, seconds."""
        import pandas as pd

        rows = []
        for op, one in enumerate(self._engine.operators):
            if one.kind == 0:
                events = self._word(op, "EVENTS_OUT")
                offered = float("nan") if one.rate is None else float(one.rate)
                rates = {"offered_rate": offered, "delivered_rate": events / self.seconds}
                rows.append(self._place(op, "source") | rates | {"events": events, "seconds": self.seconds})
        return pd.DataFrame(rows)

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Per operator: events in and out, cost per event, selectivity, pending, runs, busy time."""
        import pandas as pd

        rows = []
        counted = self._run.operator_statistics()
        for op, one in enumerate(self._engine.operators):
            runs, busy, events, _ = counted[op].tolist()
            out = self._word(op, "EVENTS_OUT")
            rows.append(
                self._place(op, "operator")
                | {
                    "kind": ("source", "operator", "sink")[one.kind],
                    "events_in": events if one.kind else 0,
                    "events_out": out,
                    "cost_ns": busy / events if events else float("nan"),
                    "selectivity": out / events if events else float("nan"),
                    "pending": self._pending(op),
                    "runs": runs,
                    "busy_s": busy / 1e9,
                }
            )
        return pd.DataFrame(rows)

    @cached_property
    def workers(self) -> pd.DataFrame:
        """Per simulated thread: busy and idle seconds, sleeps, decisions."""
        import pandas as pd

        from haren.native import virtual as v

        frame = pd.DataFrame(self._run.worker_statistics(), columns=["busy_s", "sleeps", "decisions"])
        frame = frame.assign(busy_s=frame["busy_s"] / 1e9, idle_s=self._run.seats[:, v.IDLE_NS // 8] / 1e9)
        return frame.rename_axis("worker").reset_index()

    @property
    def rounds(self) -> pd.DataFrame:
        """Per scheduling task T_S and thread: what was refreshed, and how long threads waited."""
        return self._run.rounds

    @cached_property
    def trace(self) -> Trace:
        """The runs that threads remember."""
        return self._run.trace

    @property
    def policy_errors(self) -> list[PolicyError]:
        """What went wrong in the policy, the first thousand."""
        return self._run.policy_errors

    def _place(self, op: int, role: str) -> dict[str, str]:
        return {"query": self._engine.graph.query_name(op), role: self._engine.graph.names[op]}

    def _word(self, op: int, name: str) -> int:
        from haren.native import simulated as s

        return int(self._engine.table[op, getattr(s, name) // 8])

    def _pending(self, op: int) -> int:
        import ctypes

        from haren.spe import PENDING

        measure = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(self._engine.measure)
        return measure(self._engine.handle, op, PENDING, int(self.seconds * 1e9))

    def __repr__(self) -> str:
        return f"<SimulationResult: {self.seconds:g} s, {len(self._engine.operators)} operators>"
