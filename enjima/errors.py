"""What can be wrong, said early and by name."""

from haren.errors import PythonFallbackWarning

__all__ = ["GraphError", "MemoryLimitError", "PythonFallbackWarning", "QueryError", "SchemaError"]


class SchemaError(ValueError):
    """A field, type or function does not fit the stream it is used on."""


class GraphError(ValueError):
    """The query graph cannot be run as it is."""


class MemoryLimitError(ValueError):
    """The memory parameters do not allow the query to start."""


class QueryError(RuntimeError):
    """A query stopped while it ran; other queries went on.

    ``query``, ``operator``, ``event`` (a dict) and ``number`` (of the event at that operator, from 0) say
    where; ``result`` holds what the run measured; the original exception is the cause.
    """

    def __init__(
        self, message: str, *, query: str, operator: str, event: dict | None = None, number: int | None = None
    ) -> None:
        super().__init__(message)
        self.query = query
        self.operator = operator
        self.event = event
        self.number = number
        self.result: object | None = None
