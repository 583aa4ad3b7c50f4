"""The engine: a graph of operators deployed in native memory, run by haren's worker threads."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from enjima.errors import QueryError
from enjima.latency import Histogram
from enjima.memory import Allocator, Channel, ChannelLimits
from enjima.memory import layout as at
from enjima.native import words as w
from enjima.operators.operator import Instance, Operator
from enjima.operators.source import SourceInstance
from haren import Dispatch, Execution, Graph
from haren.memory import address, lines

__all__ = ["Deployed", "Engine"]


@dataclass
class Deployed:
    """One operator in native memory."""

    operator: Operator
    query: int
    instance: Instance
    words: np.ndarray
    outputs: list[Channel]
    input: Channel | None
    marker: Histogram | None
    result: Histogram | None
    keep: list[np.ndarray]

    def word(self, offset: int) -> int:
        return int(self.words[offset // 8])


class Engine:
    """Deploys operators and runs them; `close` leaves no thread and no memory behind.

    ``operators`` are topologically sorted with each query's contiguous; ``edges`` connect their indices.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        edges: Sequence[tuple[int, int]],
        queries: Sequence[int],
        query_names: Sequence[str],
        *,
        threads: int,
        limits: ChannelLimits,
        marker_interval_ns: int,
        granularity_ns: int,
        dispatch: Dispatch | None = None,
    ) -> None:
        from enjima.native.functions import generic, prepare

        prepare()
        self.graph = Graph([operator.name for operator in operators], list(queries), list(edges))
        self.query_names = list(query_names)
        self._words = lines(w.ENGINE_BYTES // 64)
        self._main_bell = lines(1)
        self._main_bell[1] = 1
        self._failed = lines(len(query_names)).reshape(-1, 8)
        self._functions = (generic("ready_at"), generic("run"))
        self.ready_at, self.run = (function.address for function in self._functions)
        self.handle = address(self._words)
        self.errors: dict[int, QueryError] = {}
        self.finished = threading.Event()
        self.supervisor_error: BaseException | None = None
        self._stopping = False
        self._closed = False
        self.allocator = Allocator()
        self.deployed: list[Deployed] = []
        try:
            self._deploy(operators, edges, queries, limits, marker_interval_ns, granularity_ns)
            self.execution = Execution(self, threads, dispatch)
        except BaseException:
            self._release()
            raise
        self._supervisor = threading.Thread(target=self._supervise, name="enjima-supervisor", daemon=True)

    # -- deployment -------------------------------------------------------------------------------

    def _deploy(
        self,
        operators: Sequence[Operator],
        edges: Sequence[tuple[int, int]],
        queries: Sequence[int],
        limits: ChannelLimits,
        marker_interval_ns: int,
        granularity_ns: int,
    ) -> None:
        channels: dict[tuple[int, int], Channel] = {}
        for upstream, downstream in edges:
            schema = operators[upstream].output
            assert schema is not None
            channels[upstream, downstream] = self.allocator.channel(schema.size, limits)
        for index, operator in enumerate(operators):
            outputs = [channel for (upstream, _), channel in channels.items() if upstream == index]
            inputs = [channel for (_, downstream), channel in channels.items() if downstream == index]
            deployed = self._place(operator, queries[index], inputs[0] if inputs else None, outputs)
            self.deployed.append(deployed)
            if operator.kind == w.SOURCE:
                state = deployed.instance.state
                state[w.MARKER_EVERY // 8] = marker_interval_ns
                state[w.GRANULARITY // 8] = granularity_ns
        self._table = np.array([address(deployed.words) for deployed in self.deployed], np.int64)
        sinks = sum(operator.kind == w.SINK for operator in operators)
        self._words[w.OPERATOR_TABLE // 8] = address(self._table)
        self._words[w.RUNNING_SINKS // 8] = sinks
        self._words[w.MAIN_BELL // 8] = address(self._main_bell)

    def _place(
        self, operator: Operator, query: int, source: Channel | None, outputs: list[Channel]
    ) -> Deployed:
        instance = operator.deploy()
        instance.stop_flag = lambda: self._stopping
        words = instance.words = lines(w.OPERATOR_BYTES // 64)
        output_table = np.array([channel.address for channel in outputs] or [0], np.int64)
        failed_event = lines(max(1, at.padded(operator.inputs.size if operator.inputs else 8) // 64))
        is_sink = operator.kind == w.SINK
        marker, result = (Histogram(), Histogram()) if is_sink else (None, None)
        for offset, value in {
            w.KIND: operator.kind,
            w.BATCH: instance.batch,
            w.STATE: instance.state_address,
            w.INPUT: source.address if source else 0,
            w.OUTPUT_COUNT: len(outputs),
            w.OUTPUTS: address(output_table),
            w.EVENT_OUT_BYTES: operator.output.size if operator.output else 0,
            w.QUERY_FAILED: address(self._failed[query]),
            w.MARKER_LATENCY: marker.address if marker else 0,
            w.RESULT_LATENCY: result.address if result else 0,
            w.FAILED_EVENT: address(failed_event),
            w.INPUT_BYTES: operator.inputs.size if operator.inputs else 0,
            w.TIME: at.BEGINNING,
            w.TIME_AT: operator.time_at(),
        }.items():
            words[offset // 8] = value
        return Deployed(
            operator, query, instance, words, outputs, source, marker, result, [output_table, failed_event]
        )

    # -- life -------------------------------------------------------------------------------------

    @property
    def sources(self) -> list[SourceInstance]:
        return [d.instance for d in self.deployed if isinstance(d.instance, SourceInstance)]

    def start(self) -> None:
        from haren.native.waiting import ring_all

        self.started_ns = time.monotonic_ns()
        self.allocator.start(self.execution.bell)
        self.execution.start()
        for source in self.sources:
            source.bell_ready(lambda: ring_all(self.execution.bell))
        self._supervisor.start()

    def end_sources(self) -> None:
        """Let the streams end here; what is in flight is still processed."""
        from haren.native.waiting import ring_all

        for source in self.sources:
            source.end()
        ring_all(self.execution.bell)

    def close(self) -> None:
        """Stop every thread at once and free all memory. Safe to call twice."""
        from haren.native.waiting import ring_all

        if self._closed:
            return
        self._stopping = True
        self.finished.set()
        self.execution.stop()
        ring_all(address(self._main_bell))
        if self._supervisor.ident is not None:
            self._supervisor.join()
        self.ended_ns = time.monotonic_ns()
        self._release()

    def _release(self) -> None:
        from enjima.native.functions import free

        self._closed = True
        for deployed in self.deployed:
            deployed.instance.close()
            for word in (w.SPILL, w.SPILL_ORIGINS):
                free(deployed.word(word))
        self.allocator.close()

    # -- watching ---------------------------------------------------------------------------------

    def _supervise(self) -> None:
        """Notice ended and failed queries; sets ``finished`` when none is left running."""
        from haren.native.waiting import ticket, wait

        bell = address(self._main_bell)
        try:
            while not self._stopping:
                former = ticket(bell)
                self._collect_errors()
                if all(self._query_over(query) for query in range(len(self.query_names))):
                    break
                wait(bell, former, 0.1)
        except BaseException as error:
            self.supervisor_error = error
        self.finished.set()

    def _query_over(self, query: int) -> bool:
        if self._failed[query, 0]:
            return query in self.errors
        sinks = [d for d in self.deployed if d.query == query and d.operator.kind == w.SINK]
        return all(d.word(w.DONE) for d in sinks)

    def _collect_errors(self) -> None:
        for deployed in self.deployed:
            failure = deployed.instance.failure() if isinstance(deployed.instance, SourceInstance) else None
            if deployed.query in self.errors:
                continue
            if self.allocator.error is not None:
                failure = self.allocator.error
            if failure is not None:
                self._failed[deployed.query, 0] = 1
                self.errors[deployed.query] = self._outside_error(deployed, failure)
            elif deployed.word(w.ERROR):
                self.errors[deployed.query] = self._error_of(deployed)

    def _outside_error(self, deployed: Deployed, failure: BaseException) -> QueryError:
        query = self.query_names[deployed.query]
        message = f"query {query!r} stopped: operator {deployed.operator.name!r}: {failure}"
        error = QueryError(message, query=query, operator=deployed.operator.name)
        error.__cause__ = failure
        return error

    def _error_of(self, deployed: Deployed) -> QueryError:
        """The error of an operator, with the event and the user function's own traceback."""
        operator, query = deployed.operator, self.query_names[deployed.query]
        is_source = isinstance(deployed.instance, SourceInstance)
        number: int | None = (
            deployed.instance.position
            if isinstance(deployed.instance, SourceInstance)
            else deployed.word(w.EVENTS_IN)
        )
        event: dict[str, Any] | None = None
        cause = deployed.instance.error
        subject: Any = number
        if not is_source and operator.inputs is not None:
            memory = deployed.keep[1].view(np.uint8)[: operator.inputs.size]
            subject = next(operator.inputs.events(memory.view(operator.inputs.dtype)))
            event = subject._asdict()
        where = f"query {query!r} stopped: operator {operator.name!r}, event {number}"
        where += f" {event}" if event else ""
        if deployed.word(w.ERROR) == w.RESULT_ERROR:
            where = f"query {query!r} stopped: operator {operator.name!r}, the result of a window"
            number = event = None
            cause = _raised(operator.replay_result, deployed.word(w.ERROR_VALUE))
        if deployed.word(w.ERROR) == w.TIME_BACKWARDS:
            what = f"event time runs backwards, below {deployed.word(w.ERROR_VALUE)}"
        elif deployed.word(w.ERROR) == w.LATE_EVENT:
            what = (
                f"the event is late: windows before {deployed.word(w.ERROR_VALUE)} are closed "
                "(use window(..., late='drop') to drop and count such events)"
            )
        else:
            cause = cause or _raised(operator.replay, subject)
            what = (
                f"{type(cause).__name__}: {cause}"
                if cause
                else "its function failed in compiled code, not in Python"
            )
        error = QueryError(
            f"{where}: {what}", query=query, operator=operator.name, event=event, number=number
        )
        error.__cause__ = cause
        return error


def _raised(replay: Callable[[Any], None], subject: Any) -> BaseException | None:
    """The exception a user function raises in Python on what it failed on in compiled code."""
    try:
        replay(subject)
    except Exception as error:
        return error
    return None


def process_usage() -> dict[str, float]:
    """What the process has used so far: CPU seconds, page faults, resident bytes."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "rss_bytes": resident,
    }
