"""How a worker gets its next piece of work: the one place where the papers' systems differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from haren.graph import Graph

if TYPE_CHECKING:
    from haren.native.compiler import Native

__all__ = ["Dispatch", "compiled"]

TURN_LIMIT_NS = 1_000_000  # a turn of a slow operator is shortened to about this


class Dispatch(ABC):
    """A dispatch: memory of its own, and three native functions over it (see `haren.native.worker`).

    It is a description, not a run: one object may serve any number of executions, after each other or at
    once, so what belongs to a run is in the memory that `install` makes anew for each.
    """

    own_bells = False
    """Whether each worker sleeps on a bell of its own (thread i: bell i); else they share one."""

    def workers(self, graph: Graph, threads: int) -> int:
        """How many worker threads a run has, if the user asks for ``threads``."""
        return threads

    @abstractmethod
    def install(self, graph: Graph, threads: int) -> tuple[np.ndarray, ...]:
        """The dispatch's memory for one run: the words its functions are given, and what they point to.

        ``threads`` is the number of `workers`.
        """

    @abstractmethod
    def functions(self) -> tuple[int, int, int]:
        """The addresses of ``next``, ``spare`` and ``done``; they stay valid."""


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
