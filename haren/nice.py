"""Nice values from a policy: the operating system schedules, and a ranking tells it what is urgent.

The way of Lachesis: a thread for each operator, and every period the policy's g ranks the operators; the best
has nice 0, the worst 19. Features are read while operators run, so they are a moment old. Going back to a
lower nice value needs the right to do so (root, CAP_SYS_NICE or a limit of RLIMIT_NICE).
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from haren.dispatch.bound import COUNT, LEVELS, ORDER, Bound, BoundSchedule
from haren.dispatch.dispatch import Installed
from haren.errors import PolicyError
from haren.graph import Graph
from haren.memory import address

if TYPE_CHECKING:
    from haren.dispatch.dedicated import Dedicated
    from haren.execution import Execution

__all__ = ["MOST_NICE", "NiceThreads", "nice_values"]

MOST_NICE = 19


def nice_values(order: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The nice value of each operator: equal priorities share one, 0 for the best, 19 for the last."""
    values = np.zeros(len(order), np.int64)
    values[order] = levels * MOST_NICE // max(1, int(levels[-1])) if len(levels) else 0
    return values


class NiceThreads(Installed):
    """A dispatch of dedicated threads, with one more that ranks them."""

    def __init__(self, words: Any, functions: Any, keep: Any, how: Dedicated, graph: Graph) -> None:
        from dataclasses import replace

        super().__init__(words, functions, keep)
        assert how.policy is not None
        policy = replace(how.policy, dispatch="bound")
        self.schedule: BoundSchedule = Bound(policy, period=how.period, snapshots=False).schedule(graph, 1)
        self.period, self.values = how.period, np.zeros(len(graph), np.int64)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def started(self, execution: Execution) -> None:
        self.schedule._execution = execution
        self._thread = threading.Thread(target=self._rank, args=(execution,), name="haren-nice", daemon=True)
        self._thread.start()

    def stopped(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _rank(self, execution: Execution) -> None:
        try:
            phase = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
            phases = [phase(where) for where in self.schedule._phases.tolist()]
            worker = execution._workers[0].copy()  # thread 0 of the schedule, which has all operators
            arguments = address(self.schedule.words), address(worker)
            while not self._stop.wait(self.period):
                for each in phases:
                    each(*arguments, execution.now())
                self._set(execution._threads)
        except BaseException as error:
            execution.fail(error)

    def _set(self, threads: list[threading.Thread]) -> None:
        count = int(self.schedule.records[0, COUNT // 8])
        record = self.schedule.records[0]
        order, levels = (_words(int(record[word // 8]), count) for word in (ORDER, LEVELS))
        for op, value in enumerate(nice_values(order, levels).tolist()):
            tid = threads[op].native_id
            if value == self.values[op] or tid is None:
                continue
            try:
                os.setpriority(os.PRIO_PROCESS, tid, value)
            except ProcessLookupError:
                continue  # it has just ended
            except PermissionError as error:
                raise PolicyError(
                    f"policy {self.schedule.policy.name!r}: the thread of operator "
                    f"{self.schedule.graph.names[op]!r} may not go from nice {self.values[op]} to {value}: "
                    "run as root, or with CAP_SYS_NICE, or raise the limit (ulimit -e)",
                    policy=self.schedule.policy.name,
                ) from error
            self.values[op] = value


def _words(where: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(where))
