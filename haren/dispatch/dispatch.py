"""How a worker gets its next piece of work: the one place where the papers' systems differ."""

from abc import ABC, abstractmethod

import numpy as np

from haren.graph import Graph

__all__ = ["Dispatch"]


class Dispatch(ABC):
    """A dispatch: memory of its own, and three native functions over it (see `haren.native.worker`)."""

    @abstractmethod
    def install(self, graph: Graph, threads: int) -> tuple[np.ndarray, ...]:
        """The dispatch's memory for one run: the words its functions are given, and what they point to."""

    @abstractmethod
    def functions(self) -> tuple[int, int, int]:
        """The addresses of ``next``, ``spare`` and ``done``."""
