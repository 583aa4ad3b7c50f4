"""How a worker gets its next piece of work: the one place where the papers' systems differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from haren.graph import Graph

if TYPE_CHECKING:
    from haren.execution import Execution
    from haren.native.compiler import Native

__all__ = ["Dispatch", "Installed", "compiled"]

TURN_LIMIT_NS = 1_000_000  # a turn of a slow operator is shortened to about this


@dataclass
class Installed:
    """A dispatch in one run: its memory, and the native functions over it (see `haren.native.worker`)."""

    words: np.ndarray  # what the functions are given
    functions: tuple[int, int, int]  # the addresses of next, spare and done
    keep: Any = None  # what the words point to
    rounds: int = 0  # address of the phases of the scheduling task; 0: there is none
    epoch_ns: int = 0  # how often a thread of its own does them; 0: all threads meet for them

    def started(self, execution: Execution) -> None:
        """The workers are about to start; a dispatch may add threads of its own."""

    def stopped(self) -> None:
        """The workers have ended."""

    def check(self) -> None:
        """Raise what went wrong in the run, if it must be raised."""


class Dispatch(ABC):
    """A way to hand out work. A description, not a run: one object may serve any number of executions,
    after each other or at once, so what belongs to a run is in what `install` makes anew for each."""

    own_bells = False
    """Whether each worker sleeps on a bell of its own (thread i: bell i); else they share one."""
    wakes: Literal["spare", "neighbours", "epoch"] = "spare"
    """Who lets sleepers look for work, for the virtual clock: whoever has claimed some and sees more; whoever
    has run a neighbour in the graph; only epochs."""
    period_ns = 0
    """How often there is a scheduling task; 0: never."""

    def workers(self, graph: Graph, threads: int) -> int:
        """How many worker threads a run has, if the user asks for ``threads``."""
        return threads

    @abstractmethod
    def install(
        self, graph: Graph, threads: int, former: Installed | None = None, kept: Sequence[int] = ()
    ) -> Installed:
        """The dispatch's memory for one run; ``threads`` is the number of `workers`.

        After a change, ``former`` is what was installed before and ``kept`` has the former number of each
        operator, -1 if it is new.
        """


@cache
def _natives(module: ModuleType) -> tuple[Native, Native, Native]:
    from haren.native.compiler import compile_native

    return (
        compile_native(module.next_unit, "int64(int64, int64, int64)"),
        compile_native(module.spare, "int64(int64, int64, int64)"),
        compile_native(module.done, "int64(int64, int64, int64, int64, int64)"),
    )


def compiled(module: ModuleType) -> tuple[int, int, int]:
    """The addresses of a native module's ``next_unit``, ``spare`` and ``done``, compiled once a process."""
    following, spare, done = (native.address for native in _natives(module))
    return following, spare, done
