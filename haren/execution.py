"""Worker threads over an engine: started, stopped and measured; any number of them side by side."""

import ctypes
import threading
from types import TracebackType

import numpy as np

from haren.dispatch import Dispatch, Pool
from haren.memory import address, lines
from haren.spe import Engine

__all__ = ["Execution"]

PR_SET_TIMERSLACK = 29


class Execution:
    """Runs an engine's operators on native threads until `stop`: ``threads`` of them, if the dispatch agrees.

    The threads run compiled code without the GIL. Everything they share is memory of this object, so any
    number of executions can follow each other or run at once in one process. It takes the engine's graph as
    it is now: an engine whose graph changes stops its execution and makes another, which counts from 0.
    """

    def __init__(self, engine: Engine, threads: int, dispatch: Dispatch | None = None) -> None:
        from haren.native import waiting
        from haren.native import worker as w
        from haren.native.compiler import compile_native

        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self.engine = engine
        self.dispatch = dispatch or Pool()
        threads = self.dispatch.workers(engine.graph, threads)
        self._flag = lines(1)  # set to stop
        self._bells = lines(threads if self.dispatch.own_bells else 1).reshape(-1, 8)
        self._operators = lines(2 * len(engine.graph.names)).reshape(-1, w.OPERATOR_BYTES // 8)
        self._workers = lines(threads * (w.WORKER_BYTES // 64)).reshape(-1, w.WORKER_BYTES // 8)
        waiting.prepare()
        self._work = compile_native(w.work, "int64(int64)")
        following, spare, done = self.dispatch.functions()
        self._installed = self.dispatch.install(engine.graph, threads)
        words = {
            w.STOP: address(self._flag),
            w.BELLS: address(self._bells),
            w.ENGINE: engine.handle,
            w.RUN: engine.run,
            w.READY_AT: engine.ready_at,
            w.DISPATCH: address(self._installed[0]),
            w.NEXT: following,
            w.SPARE: spare,
            w.DONE: done,
            w.OPERATORS: address(self._operators),
        }
        for index, record in enumerate(self._workers):
            record[w.THREAD // 8] = index
            record[w.BELL // 8] = address(self._bells[index if self.dispatch.own_bells else 0])
            for offset, value in words.items():
                record[offset // 8] = value
        self._threads = [
            threading.Thread(
                target=self._body, args=(record.ctypes.data,), name=f"haren-worker-{i}", daemon=True
            )
            for i, record in enumerate(self._workers)
        ]

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
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._work.address)(worker)

    def start(self) -> None:
        if any(thread.ident is not None for thread in self._threads):
            raise RuntimeError("an execution starts once; make another one")
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # of many threads, the last ones may be refused
            self.stop()
            raise

    def stop(self) -> None:
        """Let every worker finish its batch, then end it. Safe to call twice."""
        self._flag[0] = 1
        self.wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def __enter__(self) -> "Execution":
        self.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def operator_statistics(self) -> np.ndarray:
        """Per operator: runs, busy nanoseconds, events, clock time of the last run's end."""
        from haren.native import worker as w

        words = [w.RUNS // 8, w.OPERATOR_BUSY_NS // 8, w.EVENTS // 8, w.LAST_RUN // 8]
        return self._operators[:, words].copy()

    def worker_statistics(self) -> np.ndarray:
        """Per worker: busy nanoseconds, sleeps, decisions."""
        from haren.native import worker as w

        return self._workers[:, [w.BUSY_NS // 8, w.SLEEPS // 8, w.DECISIONS // 8]].copy()
