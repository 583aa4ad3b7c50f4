"""Worker threads over an engine: started, stopped, changed and measured; any number of them side by side."""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from haren.dispatch import Dispatch, Installed, dispatch_for
from haren.errors import PolicyError
from haren.memory import address, lines
from haren.policy import Policy
from haren.spe import NativeEngine
from haren.trace import Recording, Trace

__all__ = ["TRACE_ROWS", "Execution"]

PR_SET_TIMERSLACK = 29
TRACE_ROWS = 65536


class Execution:
    """Runs an engine's operators on native threads until `stop`: ``threads`` of them, if the dispatch agrees.

    ``dispatch`` is how threads get work: a `Dispatch`, a `Policy`, or the name of one. The threads run
    compiled code without the GIL. Everything they share is memory of this object, so any number of executions
    can follow each other or run at once in one process. ``trace`` is how many runs each thread remembers.

    `update` changes the number of threads, the dispatch or the operators between two batches. What goes
    wrong in Python that threads call ends the run: ``failed`` is told, or else `stop` raises it.
    """

    virtual = False
    """Whether its threads are simulated."""

    def __init__(
        self,
        engine: Any,
        threads: int,
        dispatch: Dispatch | Policy | str | None = None,
        *,
        trace: int = TRACE_ROWS,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        if trace < 0:
            raise ValueError(f"trace={trace!r}: how many runs each thread remembers, 0 for none")
        self.engine = engine
        self.error: BaseException | None = None
        self._failed = failed
        self._native = NativeEngine(engine, self.fail)
        self._trace_rows = 1 << max(0, trace - 1).bit_length() if trace else 0
        self.recording = Recording()
        self._asked = threads
        self.dispatch = dispatch_for(dispatch)
        self.installed: Installed | None = None
        self._threads: list[threading.Thread] = []
        self._build(None, ())

    def _build(self, former: "_Memory | None", kept: Sequence[int]) -> None:
        """Memory for the workers over the graph as it is now, with what is known of kept operators."""
        from haren.native import waiting
        from haren.native import words as w
        from haren.native import worker as loop
        from haren.native.compiler import compile_native

        graph = self.engine.graph
        threads = self.dispatch.workers(graph, self._asked)
        installed = self.dispatch.install(graph, threads, former.installed if former else None, kept)
        sleepers = threads if self.dispatch.own_bells else 1
        bells = lines(sleepers + (installed.rounds != 0)).reshape(-1, 8)  # the last is that of the barrier
        operators = lines(len(graph) * (w.OPERATOR_BYTES // 64)).reshape(-1, w.OPERATOR_BYTES // 8)
        workers = lines(threads * (w.WORKER_BYTES // 64)).reshape(-1, w.WORKER_BYTES // 8)
        rings = np.zeros((threads, self._trace_rows, w.TRACE_BYTES // 8), np.int64)
        if former is not None:
            new = [op for op, old in enumerate(kept) if old >= 0]
            operators[new] = former.operators[[kept[op] for op in new]]
            operators[:, w.CLAIM // 8] = 0
            common = min(threads, len(former.workers))
            for word in (w.BUSY_NS // 8, w.SLEEPS // 8, w.DECISIONS // 8):
                workers[:common, word] = former.workers[:common, word]
        waiting.prepare()
        self._work = compile_native(loop.work, "int64(int64)")
        following, spare, done = installed.functions
        self._flag = lines(1)  # set to stop
        words = {
            w.STOP: address(self._flag),
            w.BELLS: address(bells),
            w.ENGINE: self._native.handle,
            w.RUN: self._native.run,
            w.READY_AT: self._native.ready_at,
            w.MEASURE: self._native.measure,
            w.DISPATCH: address(installed.words),
            w.NEXT: following,
            w.SPARE: spare,
            w.DONE: done,
            w.ROUNDS: installed.rounds,
            w.OPERATORS: address(operators),
            w.TRACE_MASK: self._trace_rows - 1,
        }
        for index, record in enumerate(workers):
            record[w.THREAD // 8] = index
            record[w.BELL // 8] = address(bells[index if self.dispatch.own_bells else 0])
            record[w.TRACE // 8] = address(rings[index]) if self._trace_rows else 0
            for offset, value in words.items():
                record[offset // 8] = value
        self.graph, self.installed = graph, installed
        self._bells, self._operators, self._workers, self._rings = bells, operators, workers, rings
        self._threads = [
            threading.Thread(
                target=self._body, args=(record.ctypes.data,), name=f"haren-worker-{i}", daemon=True
            )
            for i, record in enumerate(workers)
        ]

    def now(self) -> int:
        """The scheduler's clock, in nanoseconds."""
        return time.monotonic_ns()

    @property
    def bell(self) -> int:
        """The address of the bell all workers sleep on; `wake` also serves where each has its own."""
        if self.dispatch.own_bells:
            raise RuntimeError(f"the workers of {type(self.dispatch).__name__} share no bell; use wake()")
        return address(self._bells)

    def wake(self) -> None:
        """Let every sleeping worker look for work: for whoever brings some from outside."""
        from haren.native.waiting import ring_bells

        ring_bells(address(self._bells), len(self._bells))

    def _body(self, worker: int) -> None:
        precise_sleep()
        ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._work.address)(worker)

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        if any(thread.ident is not None for thread in self._threads):
            raise RuntimeError("an execution starts once; make another one")
        assert self.installed is not None
        self.installed.started(self)
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # of many threads, the last ones may be refused
            self.pause()
            raise

    def pause(self) -> None:
        """Let every worker finish its batch, then end it; `resume` goes on. Safe to call twice."""
        self._flag[0] = 1
        self.wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        assert self.installed is not None
        self.installed.stopped()
        if self._threads:
            self.recording.add(self)
            self._rings = self._rings[:, :0].copy()
        self._threads = []

    def resume(
        self,
        kept: Sequence[int] | None = None,
        *,
        threads: int | None = None,
        dispatch: Dispatch | Policy | str | None = None,
    ) -> None:
        """Go on after a pause with the engine's graph as it is now.

        ``kept`` has the former number of each operator, -1 if it is new; None: they are as before.
        """
        if self._threads:
            raise RuntimeError("pause() first")
        if self.error is not None:
            raise RuntimeError("the execution has failed and cannot go on") from self.error
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        if kept is None:
            kept = range(len(self.graph))
        if len(kept) != len(self.engine.graph):
            raise ValueError(f"kept has {len(kept)} entries for {len(self.engine.graph)} operators")
        before = self._asked, self.dispatch
        assert self.installed is not None
        former = _Memory(self.installed, self._operators, self._workers)
        self._asked = threads or self._asked
        self.dispatch = self.dispatch if dispatch is None else dispatch_for(dispatch)
        try:
            self._build(former, kept)
        except BaseException:
            self._asked, self.dispatch = before
            raise
        self.start()

    def update(
        self,
        kept: Sequence[int] | None = None,
        *,
        threads: int | None = None,
        dispatch: Dispatch | Policy | str | None = None,
    ) -> None:
        """Change the operators, the threads or the policy while running; see `resume`. Nothing is lost.

        The engine changes its graph between `pause` and `resume` if its operators move in memory; one whose
        ``graph`` only has to be read again may call this.
        """
        dispatch = self.dispatch if dispatch is None else dispatch_for(dispatch)
        self.prepare(threads or self._asked, dispatch)
        self.pause()
        self.resume(kept, threads=threads, dispatch=dispatch)

    def prepare(self, threads: int, dispatch: Dispatch) -> None:
        """Compile what a change will need, and refuse what cannot be, before anything stops for it."""
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        graph = self.engine.graph
        dispatch.install(graph, dispatch.workers(graph, threads))

    def stop(self) -> None:
        """Let every worker finish its batch, then end it; raise what went wrong. Safe to call twice."""
        self.pause()
        assert self.installed is not None
        self.installed.check()
        if self.error is not None and self._failed is None:
            error, self.error = self.error, None
            raise error

    def fail(self, error: BaseException) -> None:
        """End the run because of an error; called by whoever meets one on a worker's thread."""
        if self.error is None:
            self.error = error
        self._flag[0] = 1
        self.wake()
        if self._failed is not None:
            self._failed(error)

    def __enter__(self) -> "Execution":
        self.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        self.pause()
        if self.error is not None:
            error.add_note(f"the execution had failed before: {self.error!r}")

    # -- what it did ------------------------------------------------------------------------------

    def recorded(self) -> Recording:
        """What is remembered of the run so far."""
        return self.recording.with_present(self)

    @property
    def trace(self) -> Trace:
        """The runs that the threads remember."""
        return self.recorded().trace()

    @property
    def rounds(self) -> Any:
        """What every scheduling task took, per thread: a DataFrame; see `haren.trace.ROUND_COLUMNS`."""
        return self.recorded().rounds()

    @property
    def policy_errors(self) -> list[PolicyError]:
        """What went wrong in the policy while the run went on, the first thousand."""
        return getattr(self.installed, "mistakes", [])

    def operator_statistics(self) -> np.ndarray:
        """Per operator: runs, busy nanoseconds, events, clock time of the last run's end."""
        from haren.native import words as w

        words = [w.RUNS // 8, w.OPERATOR_BUSY_NS // 8, w.EVENTS // 8, w.LAST_RUN // 8]
        return self._operators[:, words].copy()

    def worker_statistics(self) -> np.ndarray:
        """Per worker: busy nanoseconds, sleeps, decisions."""
        from haren.native import words as w

        return self._workers[:, [w.BUSY_NS // 8, w.SLEEPS // 8, w.DECISIONS // 8]].copy()


def precise_sleep() -> None:
    """Let the calling thread wake when it wants to, not up to 50 microseconds later."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


class _Memory:
    """What a paused execution hands on to the next one."""

    def __init__(self, installed: Installed, operators: np.ndarray, workers: np.ndarray) -> None:
        self.installed, self.operators, self.workers = installed, operators, workers
