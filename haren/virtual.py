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

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from haren.arrivals import Arrivals
from haren.dispatch import Dedicated, Dispatch, dispatch_for
from haren.dispatch.fair import Fair
from haren.dispatch.schedule import Schedule
from haren.dispatch.shared import SharedSchedule
from haren.distributions import Distribution
from haren.errors import PolicyError
from haren.execution import TRACE_ROWS, Execution
from haren.matrix import SEEN_MEASURED
from haren.memory import address, lines
from haren.outcome import SimulationResult
from haren.policy import Policy
from haren.simulated import BETWEEN, SINK, SOURCE, UNLIMITED, Operator, SimulatedEngine, mean_of

__all__ = ["OverloadWarning", "Simulation", "SimulationResult"]

STEPS = 100_000  # between two looks for an interrupt


class OverloadWarning(UserWarning):
    """More work came than threads could do: queues grow for as long as it goes on."""


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
class Simulation:
    """Queries of simulated operators; `run` runs them. Costs are ns per event, rates events per second.

    ``capacity`` is how many events wait between two operators, if an operator does not say otherwise.
    """

    capacity: int = 1000
    operators: list[Operator] = field(default_factory=list)
    _queries: list[tuple[str, int]] = field(default_factory=list)
    _names: set[str] = field(default_factory=set, repr=False)

    def source(
        self,
        rate: float | Arrivals | None,
        *,
        cost: float | Distribution = 0,
        count: int | None = None,
        name: str | None = None,
        granularity: float = 0,
        query: str | None = None,
        query_class: int = 0,
    ) -> int:
        """A source, which begins a query: ``count`` events (None: no end) at a rate in events/s or as of
        `haren.arrivals`; None: as fast as it can. It rests for ``granularity`` seconds after each run."""
        if not 0 <= granularity < 1e6:
            raise ValueError(f"granularity={granularity!r} seconds must not be negative")
        if isinstance(rate, Arrivals):
            if rate.times is not None:
                count = min(len(rate.times), len(rate.times) if count is None else count)
        elif rate is not None and not 0 < rate < 1e12:
            raise ValueError(f"rate={rate!r} events/s is out of range; None is as fast as possible")
        if count is not None and count < 0:
            raise ValueError(f"count={count!r} must not be negative")
        self._queries.append((query or f"query-{len(self._queries)}", query_class))
        limit = UNLIMITED if count is None else count
        one = Operator("source", len(self._queries) - 1, SOURCE, cost, rate=rate, count=limit)
        one.granularity_ns = int(granularity * 1e9)
        return self._add(name, one)

    def operator(
        self,
        *inputs: int,
        cost: float | Distribution,
        selectivity: float | Distribution = 1.0,
        capacity: int | None = None,
        waiting: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> int:
        """An operator behind others, which takes the events of several inputs in the order of their origins.

        ``cost`` and ``selectivity`` are the same for each event, or drawn from `haren.distributions`.
        ``capacity`` is that of each of its inputs, in which ``waiting`` events wait at the beginning."""
        if not 0 <= mean_of(selectivity) < 1e6:
            raise ValueError(f"selectivity={selectivity!r} is out of range: events out per event in")
        one = Operator("operator", self._query(inputs), BETWEEN, cost, selectivity, tuple(inputs))
        return self._add(name, self._with_inputs(one, capacity, waiting))

    def window(
        self,
        *inputs: int,
        seconds: float,
        cost: float | Distribution,
        results: int = 1,
        result_cost: float = 0,
        capacity: int | None = None,
        name: str | None = None,
    ) -> int:
        """An operator that only adds up, ``cost`` ns per event, until an event comes whose origin lies behind
        the end of the window; then it brings out so many results, ``result_cost`` ns each. Windows without an
        event bring out nothing. The origin of results is that of the window's latest event."""
        if not 1e-6 <= seconds < 1e6:
            raise ValueError(f"seconds={seconds!r} of a window are out of range")
        if not isinstance(results, int) or not 0 <= results <= 1_000_000:
            raise ValueError(f"results={results!r} of a window; a whole number, at most a million")
        if not 0 <= result_cost < 1e15:
            raise ValueError(f"result_cost={result_cost!r} is out of range: ns per result")
        one = Operator("window", self._query(inputs), BETWEEN, cost, 0.0, tuple(inputs))
        one.window_ns, one.results, one.result_cost = int(seconds * 1e9), results, result_cost
        return self._add(name, self._with_inputs(one, capacity, 0))

    def sink(
        self,
        *inputs: int,
        cost: float | Distribution = 0,
        capacity: int | None = None,
        waiting: int | Sequence[int] = 0,
        deadline: float | None = None,
        name: str | None = None,
    ) -> int:
        """The end of a query, where latency is measured; see `operator`. Results later than ``deadline``
        seconds are counted (`SimulationResult.fairness`)."""
        if deadline is not None and not 0 < deadline < 1e6:
            raise ValueError(f"deadline={deadline!r} seconds must be positive")
        one = Operator("sink", self._query(inputs), SINK, cost, 0.0, tuple(inputs))
        one.deadline_ns = int((deadline or 0) * 1e9)
        return self._add(name, self._with_inputs(one, capacity, waiting))

    def _with_inputs(self, one: Operator, capacity: int | None, waiting: int | Sequence[int]) -> Operator:
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
        rate: float | Arrivals | None,
        costs: Sequence[float | Distribution],
        selectivities: Sequence[float | Distribution] | None = None,
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
            if self.operators[number].kind == SINK:
                raise ValueError(f"{self.operators[number].name!r} is a sink and has no output")
        first, *others = sorted({self.operators[number].query for number in inputs})
        if others:
            for one in self.operators:
                if one.query in others:
                    one.query = first
        return first

    def _add(self, name: str | None, one: Operator) -> int:
        if not 0 <= mean_of(one.cost) < 1e15:
            raise ValueError(f"cost={one.cost!r} is out of range: ns per event")
        most = max([1, *(self.operators[number].most_results for number in one.inputs)])
        if one.capacity < most:
            raise ValueError(f"capacity={one.capacity!r} is too small: an event before it may become {most}")
        one.name = name or f"{one.name}-{len(self.operators)}"
        if one.name in self._names:
            raise ValueError(f"there is an operator {one.name!r} already")
        self._names.add(one.name)
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
        seed: int = 0,
        trace: int = TRACE_ROWS,
    ) -> SimulationResult:
        """Run for so many virtual seconds; ``threads`` are the simulated threads (of "os": the cores).

        Scheduling costs ``decision_ns`` for each turn, ``switch_ns`` where a thread goes over to another
        operator, ``refill_ns`` where it fetches what another thread has left in its cache, and ``round_ns``
        for each T_S.
        ``known``: the policy knows costs and selectivities from the beginning, before they are measured.
        ``seed`` is for what is drawn from distributions; what a policy draws has its dispatch's.
        """
        if not 0 < seconds < 1e6:
            raise ValueError(f"seconds={seconds!r} must be positive")
        if not self.operators:
            raise ValueError("there is nothing to simulate: add source(...), operator(...), sink(...)")
        costs = Costs(decision_ns, switch_ns, refill_ns, round_ns)
        engine = SimulatedEngine(self.operators, self._queries, seed)
        run = VirtualRun(engine, threads, _virtual(dispatch_for(policy)), trace=trace)
        if known:
            run.tell()
        run.drive(int(seconds * 1e9), costs)
        result = SimulationResult(engine, run, seconds)
        _tell_overload(result)
        return result


def _tell_overload(result: SimulationResult) -> None:
    """Warn if sources with a rate are behind by more than a tenth of what they were to send."""
    behind = [(name, late) for name, late, due in result.backlog() if late > max(100, 0.1 * due)]
    if behind:
        shown = ", ".join(f"{name} by {late} events" for name, late in behind[:3])
        more = f" and {len(behind) - 3} more" if len(behind) > 3 else ""
        warnings.warn(
            f"more comes than {len(result.workers)} thread(s) can do: at the end {shown}{more} behind; "
            "latencies grow with the length of the run",
            OverloadWarning,
            stacklevel=3,
        )


def _virtual(dispatch: Dispatch) -> Dispatch:
    if not isinstance(dispatch, Dedicated):
        return dispatch
    if dispatch.ranks:
        raise PolicyError(
            "nice values are not modelled on the virtual clock; run this policy on real threads"
        )
    return Fair()


class VirtualRun(Execution):
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
            matrix.column(name)[:] = [getattr(one, f"mean_{name}") for one in self.engine.operators]
        matrix.seen[:, SEEN_MEASURED // 8] = 1

    def drive(self, end: int, costs: Costs) -> None:
        """Simulate until ``end``, an interrupt, or a mistake that must stop the run."""
        import ctypes

        from haren.native import simulated as s
        from haren.native import virtual as v
        from haren.native.compiler import compile_native

        assert self.installed is not None
        engine: SimulatedEngine = self.engine
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
        self._begin_sources()
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

    def _begin_sources(self) -> None:
        import ctypes

        begin = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(self.engine.code["begin"].address)
        for op in range(len(self.graph)):
            begin(self.engine.handle, op, 0)

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
