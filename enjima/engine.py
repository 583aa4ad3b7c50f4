"""The engine: queries deployed in native memory, run by haren's worker threads, changed while they run."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from enjima.deployed import Deployed, RunningQuery
from enjima.errors import GraphError, QueryError
from enjima.memory import Allocator, ChannelLimits
from enjima.memory import layout as at
from enjima.native import words as w
from enjima.operators.operator import Operator
from enjima.plan import QueryPlan
from enjima.stall import StallWatch
from haren import Dispatch, Execution, Graph, Policy, PolicyError
from haren.dispatch import dispatch_for
from haren.execution import TRACE_ROWS
from haren.memory import address, lines
from haren.trace import Recording

__all__ = ["Engine"]

T = TypeVar("T")


class Engine:
    """Deploys queries and runs them; `close` leaves no thread and no memory behind.

    A change of the graph stops the workers between two batches, and other ones go on with the graph as it is
    then. Operators, their state and what is in flight stay where they are.
    """

    def __init__(
        self,
        plans: Sequence[QueryPlan],
        *,
        threads: int,
        limits: ChannelLimits,
        queue: bool,
        lend: bool,
        marker_interval_ns: int,
        granularity_ns: int,
        stall_timeout: float | None,
        dispatch: Dispatch | Policy | str | None = None,
        trace: int = TRACE_ROWS,
    ) -> None:
        from enjima.native.functions import generic, prepare

        prepare()
        self.threads, self.dispatch, self.trace = threads, dispatch_for(dispatch), trace
        self.limits, self.queue, self.lend = limits, queue, lend and not queue
        self.marker_interval_ns, self.granularity_ns = marker_interval_ns, granularity_ns
        self._words = lines(w.ENGINE_BYTES // 64)
        self._main_bell = lines(1)
        self._main_bell[1] = 1
        self._words[w.MAIN_BELL // 8] = address(self._main_bell)
        self._functions = tuple(generic(name) for name in ("ready_at", "run", "measure"))
        self.ready_at, self.run, self.measure = (function.address for function in self._functions)
        self._ask = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(self.ready_at)
        self.handle = address(self._words)
        self.finished = threading.Event()
        self.supervisor_error: BaseException | None = None
        self.lock = threading.RLock()
        """Held while the graph changes, and while somebody reads all of it."""
        self.queries: list[RunningQuery] = []
        self.graph = Graph([], [], [])
        self.execution: Execution | None = None  # of the graph that runs; paused while it changes
        self._stalls = StallWatch(stall_timeout)
        self._place: dict[Deployed, int] = {}  # in the graph of the execution
        self.ending = False  # all streams have been told to end, and no query may join any more
        self.pausing = False
        self._stopping = False
        self._closed = False
        self.allocator = Allocator(self.wake)
        try:
            _undisturbed(lambda: self.queries.extend(self._deploy(plans)))
        except BaseException:
            self._release()
            raise
        self._supervisor = threading.Thread(target=self._supervise, name="enjima-supervisor", daemon=True)

    # -- deployment -------------------------------------------------------------------------------

    def _deploy(self, plans: Iterable[QueryPlan]) -> list[RunningQuery]:
        """Queries in native memory, not yet running; all of them or, with an error, none."""
        made: list[RunningQuery] = []
        try:
            for plan in plans:
                query = RunningQuery(plan)
                made.append(query)
                query.deploy(self)
        except BaseException:
            for query in made:
                query.release(self.allocator)
            raise
        return made

    @property
    def deployed(self) -> list[Deployed]:
        """All operators that run, in the order of the graph."""
        return [deployed for query in self.queries for deployed in query.deployed]

    @property
    def stopping(self) -> bool:
        return self._stopping

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        self.started_ns = time.monotonic_ns()
        self.allocator.start()
        self._resume(self.queries)
        self._supervisor.start()

    def wake(self) -> None:
        """Let idle workers look for work that came from outside."""
        execution = self.execution
        if execution is not None:
            execution.wake()

    def _pause(self) -> None:
        """End the workers between two batches, keeping what they counted."""
        if self.execution is None:
            return
        self.pausing = True
        self.execution.pause()
        self.pausing = False

    def _resume(self, new: Sequence[RunningQuery]) -> None:
        """Let workers run the graph as it is now; ``new`` queries' sources learn how to wake them."""
        deployed = self.deployed
        place = {one: index for index, one in enumerate(deployed)}
        owners = [number for number, query in enumerate(self.queries) for _ in query.deployed]
        edges = sorted({(place[up], place[one]) for one in deployed for up in one.upstream})
        names, classes = [q.name for q in self.queries], [q.plan.query_class for q in self.queries]
        self.graph = Graph([one.operator.name for one in deployed], owners, edges, names, classes)
        self._table = np.array([address(one.words) for one in deployed] or [0], np.int64)
        self._words[w.OPERATOR_TABLE // 8] = address(self._table)
        if deployed and self.execution is None:
            self.execution = Execution(
                self, self.threads, self.dispatch, trace=self.trace, failed=self._scheduler_failed
            )
            self._place = place
            self.execution.start()  # from here on, whoever brings work wakes these workers
        elif deployed:
            assert self.execution is not None
            kept = [self._place.get(one, -1) for one in deployed]
            try:
                self.execution.resume(kept, threads=self.threads, dispatch=self.dispatch)
            finally:
                if self.execution.graph is self.graph:
                    self._place = place
        for query in new:
            for source in query.sources:
                source.bell_ready(self.wake)

    def _scheduler_failed(self, error: BaseException) -> None:
        """A policy failed that must not, or Python that a worker called: the run ends with this error."""
        if self.supervisor_error is None:
            self.supervisor_error = error
        self.finished.set()

    def reschedule(self, threads: int, dispatch: Dispatch) -> None:
        """Go on with another number of threads or another dispatch."""

        def at_safe_point() -> None:
            self.threads, self.dispatch = threads, dispatch

        if self.execution is not None:
            self.execution.prepare(
                threads, dispatch
            )  # compiles, and refuses what cannot be, while others run
        _undisturbed(lambda: self._change(at_safe_point=at_safe_point))

    def refuse_workers(self) -> None:
        """Raise `GraphError` in a function that a worker runs: it would wait for its own end."""
        execution = self.execution
        if execution is not None and threading.current_thread() in execution._threads:
            raise GraphError("a function of a query cannot change or stop the environment that runs it")

    def add(self, plans: Iterable[QueryPlan], done: Callable[[], None]) -> None:
        """Deploy queries and let them join those that run; ``done`` is called when they have."""

        def work() -> None:
            added = self._deploy(plans)
            try:
                self._change(add=added)
            except BaseException:
                for query in added:
                    query.release(self.allocator)
                raise
            done()

        _undisturbed(work)

    def _change(
        self,
        add: Sequence[RunningQuery] = (),
        remove: Sequence[RunningQuery] = (),
        at_safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        """Add queries to the graph or take them out of it, while no worker runs.

        If that fails, what ran before goes on. Not to be interrupted.
        """
        with self.lock:
            if self._stopping or (add and self.ending):
                raise GraphError("this environment is being stopped")
            former, how = self.queries, (self.threads, self.dispatch)
            self._pause()
            try:
                at_safe_point()
                for query in add:
                    query.began_ns = time.monotonic_ns()
                self.queries = [query for query in former if query not in remove] + list(add)
                self._resume(add)
            except BaseException:
                self.threads, self.dispatch = how
                self._go_back(former, add)
                raise
            if add:
                self.finished.clear()
        self._ring_supervisor()

    def _go_back(self, former: list[RunningQuery], added: Sequence[RunningQuery]) -> None:
        """Let the queries run that did before a change failed."""
        try:
            self._pause()
            for query in added:
                for source in query.sources:
                    source.end()
            self.queries = former
            self._resume([])
        except BaseException as error:  # not even that: the run ends with this error
            self.supervisor_error = error
            self.finished.set()
            raise

    def swap(self, query: RunningQuery, deployed: Deployed, new: Operator) -> None:
        """Let an operator go on with another function: its state, and all that waits, stay."""
        done, pause = [False], 0.001

        def at_safe_point() -> None:
            done[0] = deployed.swap(new, at_once=bool(query.failed[0]))

        while True:
            _undisturbed(lambda: self._change(at_safe_point=at_safe_point))
            if done[0]:
                return
            time.sleep(pause)  # what the former function produced has to leave first
            pause = min(2 * pause, 0.05)

    def end_sources(self, queries: Iterable[RunningQuery] | None = None) -> None:
        """Let the streams end here; what is in flight is still processed."""
        with self.lock:
            self.ending = self.ending or queries is None
            for query in self.queries if queries is None else queries:
                query.ending = True
                for source in query.sources:
                    source.end()
        self.wake()

    def end_if_finished(self) -> bool:
        """Whether no query is left running, or being removed; if so, none can join any more."""
        with self.lock:
            finished = self.finished.is_set() and not any(query.removing for query in self.queries)
            self.ending = self.ending or finished
            return finished

    def remove(
        self, query: RunningQuery, drain: bool, measure: Callable[[], T], forget: Callable[[], None]
    ) -> T:
        """Take a query out of the running graph and free it; what ``measure`` says of it at its end.

        With ``drain``, what is in flight is processed first. ``forget`` is called when it has left.
        """
        measured: list[T] = []

        def at_safe_point() -> None:
            for source in query.sources:
                source.end()
            measured.append(measure())

        def work() -> None:
            self._change(remove=[query], at_safe_point=at_safe_point)
            self._stalls.forget(query)
            query.release(self.allocator)
            forget()

        attempt = object()
        try:
            with self.lock:
                if query.removing is not None or query not in self.queries:
                    raise GraphError(f"query {query.name!r} is being removed already")
                query.removing = attempt
            if drain:
                self.end_sources([query])
                while not (query.over or self._stopping or self.supervisor_error):
                    query.ended.wait(0.05)
            _undisturbed(work)
        finally:
            if query.removing is attempt:
                query.removing = None
        return measured[0]

    def close(self) -> None:
        """Stop every thread at once and free all memory. Safe to call twice."""
        if self._closed:
            return
        self._stopping = True
        self.finished.set()
        with self.lock:
            self._pause()
        if self.execution is not None and self.supervisor_error is None:
            try:
                self.execution.stop()
            except AssertionError as error:
                self.supervisor_error = error
        self._ring_supervisor()
        if self._supervisor.ident is not None:
            self._supervisor.join()
        self._release()

    def _release(self) -> None:
        self._closed = True
        for query in self.queries:
            query.release(self.allocator)
        self.allocator.close()

    # -- measuring --------------------------------------------------------------------------------

    def operator_counts(self) -> dict[Deployed, np.ndarray]:
        """Per operator: runs, busy nanoseconds, events."""
        deployed = self.deployed
        if self.execution is None:
            return {one: np.zeros(3, np.int64) for one in deployed}
        counted = self.execution.operator_statistics()[:, :3]
        return {one: counted[index] for index, one in enumerate(deployed)}

    @property
    def recording(self) -> Recording:
        """What workers did so far, without the memory they did it in."""
        return Recording() if self.execution is None else self.execution.recorded()

    @property
    def policy_errors(self) -> list[PolicyError]:
        """What went wrong in the policy while the run went on."""
        return [] if self.execution is None else self.execution.policy_errors

    def worker_counts(self) -> np.ndarray:
        """Per worker: busy nanoseconds, sleeps, decisions."""
        return np.zeros((0, 3), np.int64) if self.execution is None else self.execution.worker_statistics()

    # -- watching ---------------------------------------------------------------------------------

    def _ring_supervisor(self) -> None:
        from haren.native.waiting import ring_all

        ring_all(address(self._main_bell))

    def _supervise(self) -> None:
        """Notice ended, failed and stalled queries; sets ``finished`` while none is left running."""
        from haren.native.waiting import ticket, wait

        bell = address(self._main_bell)
        try:
            while not self._stopping:
                former = ticket(bell)
                with self.lock:
                    over = [self._watch(query) for query in self.queries]
                    if all(over):
                        self.finished.set()
                wait(bell, former, 0.1)
        except BaseException as error:
            self.supervisor_error = error
            self.finished.set()

    def _watch(self, query: RunningQuery) -> bool:
        query.collect_error()
        if not query.over and not self._stopping and self.execution is not None:
            message = self._stalls.message(query, self._is_active)
            if message is not None:
                query.fail(message)
        if query.over:
            query.ended.set()
        return query.over

    def _is_active(self, deployed: Deployed) -> bool:
        """Whether an operator runs, or can run now or at a time that is known."""
        from haren.native.words import CLAIM

        assert self.execution is not None
        place = self._place[deployed]
        if self._ask(self.handle, place, time.monotonic_ns()) < at.NEVER:
            return True
        return bool(self.execution._operators[place, CLAIM // 8])


def _undisturbed(work: Callable[[], None]) -> None:
    """Do ``work`` in a thread of its own, which no interrupt reaches; then raise what came up."""
    begun, ended = threading.Lock(), threading.Event()
    raised: list[BaseException] = []

    def body() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            work()
        except BaseException as error:
            raised.append(error)
        finally:
            ended.set()

    while not ended.is_set():
        try:
            if not begun.locked():  # an interrupted start may have begun it all the same
                threading.Thread(target=body, name="enjima-change", daemon=True).start()
            ended.wait()
        except KeyboardInterrupt as error:
            raised.append(error)
    if raised:
        raise raised[-1]


def errors_of(queries: Iterable[RunningQuery]) -> list[QueryError]:
    """The errors of queries that failed."""
    return [query.error for query in queries if query.error is not None]
