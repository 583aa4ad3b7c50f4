"""Running an environment's queries: to the end, for a time, or until stopped."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from enjima.engine import Engine
from enjima.errors import GraphError
from enjima.memory import ChannelLimits
from enjima.plan import Plan
from enjima.profiler import Measurement, Profiler, RunResult
from haren import Dispatch, Policy
from haren.dispatch import dispatch_for
from haren.execution import TRACE_ROWS

__all__ = ["Runtime"]


class Runtime:
    """The running half of `enjima.Environment`; see there for the parameters."""

    def __init__(
        self,
        *,
        threads: int = 2,
        block_events: int = 384,
        blocks_per_chunk: int = 4,
        max_chunks: int = 32,
        marker_interval: float | None = 0.05,
        granularity: float = 0.0001,
        dispatch: Dispatch | Policy | str | None = None,
        trace: int = TRACE_ROWS,
        memory: str = "blocks",
        lend: bool = True,
        stall_timeout: float | None = 10.0,
    ) -> None:
        _check_threads(threads)
        if marker_interval is not None and not 0 <= marker_interval <= 3600:
            raise ValueError(
                f"marker_interval={marker_interval!r} is out of range: seconds, or None for no markers"
            )
        if not 0 <= granularity <= 1:
            raise ValueError(f"granularity={granularity!r} is out of range: seconds from 0 to 1")
        if memory not in ("blocks", "queue"):
            raise ValueError(f"memory={memory!r}; 'blocks' or 'queue'")
        if not isinstance(trace, int) or not 0 <= trace <= 1 << 26:
            raise ValueError(f"trace={trace!r} is out of range: turns that each thread remembers, 0 for none")
        if not isinstance(lend, bool):
            raise ValueError(f"lend={lend!r}; True or False")
        seconds = isinstance(stall_timeout, (int, float)) and 0 < stall_timeout < 1e9
        if stall_timeout is not None and not seconds:
            raise ValueError(f"stall_timeout={stall_timeout!r}; seconds, or None to wait for ever")
        self.threads = threads
        self.limits = ChannelLimits(block_events, blocks_per_chunk, max_chunks)
        self.memory = memory
        self.lend = lend
        self.stall_timeout = stall_timeout
        self.marker_interval = marker_interval
        self.granularity = granularity
        self.dispatch = dispatch_for(dispatch)
        self.trace = trace
        self.plan = Plan()
        self.result: RunResult | None = None
        self._engine: Engine | None = None
        self._profiler: Profiler | None = None
        self._changing = threading.RLock()  # held by who deploys or swaps: one at a time

    # -- changes while queries run ----------------------------------------------------------------

    def update(self, *, threads: int | None = None, policy: Dispatch | Policy | str | None = None) -> None:
        """Let the queries that were built since the environment was started join those that run.

        ``threads`` and ``policy`` change, for this run, how many threads there are and how they get work.
        """
        engine = self._running_engine()
        if threads is not None:
            _check_threads(threads)
        dispatch = engine.dispatch if policy is None else dispatch_for(policy)
        with self._changing:
            if threads is not None or policy is not None:
                engine.reschedule(threads or engine.threads, dispatch)
            new = [query for query in self.plan.queries() if query.name not in self.plan.running]
            for query in new:
                query.validate()
            if not new:
                return
            names = {query.name for query in new}
            engine.add(new, done=lambda: self.plan.running.update(names))

    def remove(self, name: str, *, drain: bool = True) -> RunResult | None:
        """Take a query out; the others go on. Its streams end, and what is in flight is processed first.

        Returns what was measured of it, None if it did not run. ``drain=False`` drops what is in flight.
        """
        if self._engine is not None:
            self._engine.refuse_workers()
        with self._changing:
            self.plan.query(name)
            engine, profiler = self._engine, self._profiler
            running = [query for query in engine.queries if query.name == name] if engine is not None else []
            if engine is None or profiler is None or not running:
                self.plan.remove(name)
                return None
        (query,) = running

        def forget() -> None:
            profiler.forget(query)
            self.plan.remove(name)

        return engine.remove(query, drain, lambda: profiler.last_of(query), forget)

    def swap(self, operator: str, function: Callable[..., Any]) -> None:
        """Replace the function of an operator, also while it runs: state and events in flight stay."""
        if self._engine is not None:
            self._engine.refuse_workers()
        with self._changing:
            old = self.plan.operators[self.plan.find(operator)]
            new = old.swapped(function)
            engine = self._engine
            for query in engine.queries if engine is not None else []:
                for deployed in query.deployed:
                    if deployed.operator is old:
                        assert engine is not None
                        engine.swap(query, deployed, new)
                        return
            vars(old).update(vars(new))

    def _running_engine(self) -> Engine:
        if self._engine is None:
            raise GraphError("this environment is not running; start() it first")
        self._engine.refuse_workers()
        return self._engine

    # -- running ----------------------------------------------------------------------------------

    def run(
        self,
        seconds: float | None = None,
        *,
        warmup: float = 0.0,
        cooldown: float = 0.0,
        sample_every: float = 0.1,
        on_error: str = "raise",
        policy: Dispatch | Policy | str | None = None,
    ) -> RunResult:
        """Run all queries to the end of their streams, or end the streams after ``seconds`` and drain.

        ``policy`` is how threads get work in this run: a `haren.Policy` or its name (`haren.policies`), or
        `haren.Bound` around one for its parameters; default: the environment's dispatch.
        ``warmup`` and ``cooldown`` seconds are cut from what the result reports. A query that fails stops
        alone; when the others are done its `QueryError` is raised (``on_error="record"``: kept in
        ``result.errors``). An interrupt stops everything at once.
        """
        if on_error not in ("raise", "record"):
            raise ValueError(f"on_error={on_error!r}; 'raise' or 'record'")
        _check_times(seconds, warmup, cooldown)
        if self._engine is not None:
            raise GraphError("this environment is running already; stop() it first")
        try:
            self.start(sample_every=sample_every, policy=policy)
            first, last = self._wait(seconds, warmup, cooldown)
            result = self._finish(drain=True, first=first, last=last)
        except BaseException:
            if self._engine is not None:
                self._finish(drain=False)
            raise
        if result.errors and on_error == "raise":
            raise result.errors[0]
        return result

    def _wait(
        self, seconds: float | None, warmup: float, cooldown: float
    ) -> tuple[Measurement | None, Measurement | None]:
        assert self._engine is not None and self._profiler is not None
        finished, started = self._engine.finished, time.monotonic()
        first = last = None
        if warmup and not _sleep(finished, started + warmup):
            first = self._profiler.measure()
        if seconds is None:
            while not self._engine.end_if_finished():
                finished.wait(0.2)
        elif not _sleep(finished, started + seconds - cooldown):
            last = self._profiler.measure()
            _sleep(finished, started + seconds)
        return first, last

    def start(self, *, sample_every: float = 0.1, policy: Dispatch | Policy | str | None = None) -> None:
        """Start all queries and return; `stop` ends them."""
        if self._engine is not None:
            raise GraphError("this environment is running already; stop() it first")
        if sample_every <= 0:
            raise ValueError(f"sample_every={sample_every!r} must be positive")
        self.plan.validate()
        interval = -1 if self.marker_interval is None else int(self.marker_interval * 1e9)
        queue = self.memory == "queue"
        engine = Engine(
            self.plan.queries(),
            threads=self.threads,
            limits=self.limits.as_queue() if queue else self.limits,
            queue=queue,
            lend=self.lend,
            marker_interval_ns=interval,
            granularity_ns=int(self.granularity * 1e9),
            stall_timeout=self.stall_timeout,
            dispatch=self.dispatch if policy is None else dispatch_for(policy),
            trace=self.trace,
        )
        self._engine, self._profiler = engine, Profiler(engine, sample_every)
        self.plan.running = set(self.plan.query_names)
        engine.start()
        self._profiler.start()

    def stop(self, drain: bool = True) -> RunResult:
        """End the streams and process what is in flight (``drain``), or stop at once and drop it."""
        self._running_engine()
        try:
            result = self._finish(drain=drain)
        except BaseException:
            if self._engine is not None:
                self._finish(drain=False)
            raise
        if result.errors:
            raise result.errors[0]
        return result

    def _finish(
        self, *, drain: bool, first: Measurement | None = None, last: Measurement | None = None
    ) -> RunResult:
        engine, profiler = self._engine, self._profiler
        assert engine is not None and profiler is not None
        if drain:
            engine.end_sources()
            while not engine.finished.wait(0.2):
                pass
        profiler.stop()
        last = last or profiler.measure()
        engine.close()
        self._engine = self._profiler = None
        self.plan.running = set()
        if engine.supervisor_error is not None:
            raise engine.supervisor_error
        self.result = RunResult(engine, engine.queries, first or profiler.begin, last, profiler.samples)
        return self.result

    @property
    def running(self) -> bool:
        """Whether queries are running."""
        return self._engine is not None

    def sample(self) -> Any:
        """What has been measured so far, while running: a DataFrame of samples."""
        import pandas as pd

        return pd.DataFrame(self._profiler.samples if self._profiler else [])

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._engine is not None:
            self.stop(drain=error is None)

    def __repr__(self) -> str:
        names = ", ".join(self.plan.query_names) or "none"
        return f"<{type(self).__name__}: threads: {self.threads}, queries: {names}>"

    def _repr_html_(self) -> str:
        return self.plan.drawing()


def _check_threads(threads: int) -> None:
    if not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise ValueError(f"threads={threads!r} is out of range: an integer from 1 to 1024")


def _sleep(finished: Any, until: float) -> bool:
    """Wait until a time of the monotonic clock; True if everything finished before."""
    while (left := until - time.monotonic()) > 0:
        if finished.wait(min(left, 0.2)):
            return True
    return finished.is_set()


def _check_times(seconds: float | None, warmup: float, cooldown: float) -> None:
    if seconds is not None and not 0 < seconds < 1e9:
        raise ValueError(f"seconds={seconds!r} must be positive")
    if warmup < 0 or cooldown < 0:
        raise ValueError(f"warmup={warmup!r} and cooldown={cooldown!r} must not be negative")
    if seconds is not None and warmup + cooldown >= seconds:
        raise ValueError(f"warmup + cooldown = {warmup + cooldown} s leave nothing of {seconds} s to measure")
    if seconds is None and cooldown:
        raise ValueError("cooldown needs seconds: the end of a stream is not known before")
