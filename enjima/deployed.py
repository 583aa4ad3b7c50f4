"""A query in native memory: its operators' words, channels and state, and what went wrong with it."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from enjima.errors import QueryError
from enjima.memory import Allocator, Channel
from enjima.memory import layout as at
from enjima.native import words as w
from enjima.operators.merge import Merger
from enjima.operators.operator import Instance, Operator
from enjima.operators.source import IteratorSource, SourceInstance
from enjima.plan import QueryPlan
from haren.latency import Histogram
from haren.memory import address, lines

if TYPE_CHECKING:
    from enjima.engine import Engine

__all__ = ["Deployed", "RunningQuery"]


class Deployed:
    """One operator in native memory."""

    def __init__(
        self, operator: Operator, upstream: list["Deployed"], inputs: list[Channel], outputs: list[Channel]
    ) -> None:
        self.operator = operator
        self.upstream = upstream
        self.inputs = inputs
        self.outputs = outputs
        self.instance: Instance = operator.deploy()
        self.words = self.instance.words = lines(w.OPERATOR_BYTES // 64)
        is_sink = operator.kind == w.SINK
        self.marker = Histogram() if is_sink else None
        self.result = Histogram() if is_sink else None
        self._output_table = np.array([channel.address for channel in outputs] or [0], np.int64)
        largest = max((schema.size for schema in self.input_schemas), default=8)
        self.failed_event = lines(max(1, at.padded(largest) // 64))
        self.ports = lines(len(inputs) * w.PORT_BYTES // 64).reshape(-1, w.PORT_BYTES // 8)

    @property
    def input_schemas(self) -> tuple:
        if isinstance(self.operator, Merger):
            return self.operator.input_schemas
        return () if self.operator.inputs is None else (self.operator.inputs,)

    def write(self, failed: np.ndarray, eventwise: bool) -> None:
        """Fill in the operator's words."""
        operator = self.operator
        for offset, value in {
            w.KIND: operator.kind,
            w.BATCH: self.instance.batch,
            w.STATE: self.instance.state_address,
            w.INPUT: self.inputs[0].address if self.inputs else 0,
            w.INPUT_COUNT: len(self.inputs),
            w.PORTS: address(self.ports),
            w.OUTPUT_COUNT: len(self.outputs),
            w.OUTPUTS: address(self._output_table),
            w.EVENT_OUT_BYTES: operator.output.size if operator.output else 0,
            w.QUERY_FAILED: address(failed),
            w.MARKER_LATENCY: self.marker.address if self.marker else 0,
            w.RESULT_LATENCY: self.result.address if self.result else 0,
            w.FAILED_EVENT: address(self.failed_event),
            w.INPUT_BYTES: operator.inputs.size if operator.inputs else 0,
            w.TIME: at.BEGINNING,
            w.TIME_AT: operator.time_at(),
            w.WANTS_END: int(self.instance.wants_end),
            w.EVENTWISE: int(eventwise),
        }.items():
            self.words[offset // 8] = value
        if isinstance(operator, Merger):
            ports = zip(self.ports, self.inputs, operator.input_schemas, operator.times_at(), strict=True)
            for port, channel, schema, time_at in ports:
                port[w.PORT_CHANNEL // 8] = channel.address
                port[w.PORT_EVENT_BYTES // 8] = schema.size
                port[w.PORT_TIME_AT // 8] = time_at
                port[w.PORT_LATEST // 8] = port[w.PORT_FRONTIER // 8] = at.BEGINNING

    def word(self, offset: int) -> int:
        return int(self.words[offset // 8])

    def waiting(self, number: int) -> int:
        """Events of an input that were sent and not yet used."""
        return self.inputs[number].pending + int(self.ports[number, w.PORT_INBOX_COUNT // 8])

    @property
    def pending(self) -> int:
        """Events of all inputs that were sent and not yet used."""
        return sum(self.waiting(number) for number in range(len(self.inputs)))

    def swap(self, new: Operator, at_once: bool = False) -> bool:
        """Go on with the function of ``new``; False while results of the former one wait for room."""
        if self.word(w.MORE) != 0 and not at_once:
            return False
        vars(self.operator).update(vars(new))
        self.operator.install(self.instance)
        self.words[w.BATCH // 8] = self.instance.batch
        return True

    def release(self, allocator: Allocator) -> None:
        """Free what the operator has allocated, and its input channels."""
        from enjima.native.functions import free

        self.instance.close()
        for word in (w.SPILL, w.SPILL_ORIGINS):
            free(self.word(word))
            self.words[word // 8] = 0
        for port in self.ports:
            for word in (w.PORT_INBOX, w.PORT_INBOX_ORIGINS):
                free(int(port[word // 8]))
                port[word // 8] = 0
        allocator.release(self.inputs)


class RunningQuery:
    """A query that runs: its operators, whether it is over, and its error if it failed."""

    def __init__(self, plan: QueryPlan) -> None:
        self.name = plan.name
        self.plan = plan
        self.deployed: list[Deployed] = []
        self.failed = lines(1)
        self.error: QueryError | None = None
        self.ending = False  # its sources have been told to end
        self.removing: object | None = None  # who removes it
        self.began_ns = 0  # when it joined queries that ran already
        self.ended = threading.Event()

    def deploy(self, engine: "Engine") -> None:
        """Allocate channels and state; nothing runs yet."""
        plan = self.plan
        channels: list[list[Channel]] = []
        outputs: list[list[Channel]] = [[] for _ in plan.operators]
        loose: list[Channel] = []
        try:
            for inputs in plan.inputs:
                channels.append([])
                for up in inputs:
                    schema = plan.operators[up].output
                    assert schema is not None
                    channel = engine.allocator.channel(schema.size, engine.limits)
                    loose.append(channel)
                    channels[-1].append(channel)
                    outputs[up].append(channel)
            for operator, inputs, read, written in zip(
                plan.operators, plan.inputs, channels, outputs, strict=True
            ):
                one = Deployed(operator, [self.deployed[up] for up in inputs], read, written)
                self.deployed.append(one)
                loose = [channel for channel in loose if channel not in read]
                one.instance.stop_flag = self._stop_flag(one, engine)
                one.write(self.failed, engine.queue)
                if isinstance(one.instance, SourceInstance):
                    one.instance.state[w.MARKER_EVERY // 8] = engine.marker_interval_ns
                    one.instance.state[w.GRANULARITY // 8] = engine.granularity_ns
                    if not engine.lend:
                        one.instance.state[w.LENDS // 8] = 0
        except BaseException:
            engine.allocator.release(loose)
            raise

    def _stop_flag(self, one: Deployed, engine: "Engine") -> Callable[[], bool]:
        """When a Python kernel ends its turn: when it has to stop; before a change if it can go on behind."""
        if isinstance(one.operator, (Merger, IteratorSource)) or one.instance.wants_end:
            return lambda: engine.stopping or bool(self.failed[0])
        return lambda: engine.pausing or engine.stopping or bool(self.failed[0])

    @property
    def sources(self) -> list[SourceInstance]:
        return [d.instance for d in self.deployed if isinstance(d.instance, SourceInstance)]

    @property
    def over(self) -> bool:
        """Whether every sink has met the end of its stream, or the query has failed."""
        if self.failed[0]:
            return self.error is not None
        return all(d.word(w.DONE) for d in self.deployed if d.operator.kind == w.SINK)

    def release(self, allocator: Allocator) -> None:
        """Free all memory; no worker may run the query any more."""
        for deployed in self.deployed:
            deployed.release(allocator)

    # -- errors -----------------------------------------------------------------------------------

    def collect_error(self) -> None:
        """Notice the first error of an operator, of a source's feeder, or of the allocator."""
        for deployed in self.deployed:
            if self.error is not None:
                return
            instance = deployed.instance
            failures = [channel.error for channel in deployed.outputs]
            failures += [instance.failure()] if isinstance(instance, SourceInstance) else []
            failure = next((failure for failure in failures if failure is not None), None)
            if failure is not None:
                self.fail((deployed.operator.name, str(failure)), failure)
            elif deployed.word(w.ERROR):
                self.error = self._error_of(deployed)

    def fail(self, where_and_why: tuple[str, str], cause: BaseException | None = None) -> None:
        """Stop the query for a reason that no worker has met."""
        operator, why = where_and_why
        message = f"query {self.name!r} stopped: operator {operator!r}: {why}"
        error = QueryError(message, query=self.name, operator=operator)
        error.__cause__ = cause
        self.failed[0] = 1
        self.error = error

    def _error_of(self, deployed: Deployed) -> QueryError:
        """The error of an operator, with the event and the user function's own traceback."""
        operator, code = deployed.operator, deployed.word(w.ERROR)
        number, event, subject = self._subject(deployed)
        where = f"query {self.name!r} stopped: operator {operator.name!r}, event {number}"
        where += f" {event}" if event else ""
        cause = deployed.instance.error
        if code == w.RESULT_ERROR or (isinstance(operator, Merger) and code == w.USER_ERROR):
            where = f"query {self.name!r} stopped: operator {operator.name!r}, the result of a window"
            number = event = None
            cause = cause or _raised(operator.replay_result, deployed.word(w.ERROR_VALUE))
        if code == w.TIME_BACKWARDS:
            what = f"event time runs backwards, below {deployed.word(w.ERROR_VALUE)}"
        elif code == w.LATE_EVENT:
            what = (
                f"the event is late: windows before {deployed.word(w.ERROR_VALUE)} are closed "
                "(use late='drop' to drop and count such events)"
            )
        else:
            cause = cause or _raised(operator.replay, subject)
            what = (
                f"{type(cause).__name__}: {cause}"
                if cause
                else "its function failed in compiled code, not in Python"
            )
        error = QueryError(
            f"{where}: {what}", query=self.name, operator=operator.name, event=event, number=number
        )
        error.__cause__ = cause
        return error

    def _subject(self, deployed: Deployed) -> tuple[int | None, dict[str, Any] | None, Any]:
        """What an operator failed on: its number, the event as a dict, and what its function was given."""
        if isinstance(deployed.instance, SourceInstance):
            return deployed.instance.position, None, deployed.instance.position
        number, schemas = deployed.word(w.EVENTS_IN), deployed.input_schemas
        schema = schemas[max(deployed.word(w.BLOCKED_ON) - 1, 0)]
        memory = deployed.failed_event.view(np.uint8)[: schema.size]
        subject = next(schema.events(memory.view(schema.dtype)))
        return number, subject._asdict(), subject


def _raised(replay: Callable[[Any], None], subject: Any) -> BaseException | None:
    """The exception a user function raises in Python on what it failed on in compiled code."""
    try:
        replay(subject)
    except Exception as error:
        return error
    return None
