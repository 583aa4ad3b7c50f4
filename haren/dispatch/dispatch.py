"""How a worker gets its next piece of work: the one place where the papers' systems differ."""

from abc import ABC, abstractmethod

from haren.graph import Graph

__all__ = ["Dispatch"]


class Dispatch(ABC):
    """A dispatch: memory of its own, and three native functions over it (see `haren.native.worker`)."""

    @abstractmethod
    def install(self, graph: Graph, threads: int) -> int:
        """Make the dispatch's memory for one run and return its address; the object keeps it alive."""

    @abstractmethod
    def functions(self) -> tuple[int, int, int]:
        """The addresses of ``next``, ``spare`` and ``done``."""
