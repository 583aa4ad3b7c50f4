"""Lengths of turns for ``quantum=`` of a policy."""

from collections.abc import Callable

__all__ = ["rest_of_round"]


def rest_of_round(minimum: int = 1000) -> Callable:
    """As many events as fit into the rest of the round, so that threads come back when it ends.

    Equation 4 of the Enjima paper with N_min = ``minimum``. The paper divides the cost by the time left; that
    would be a number of events only the other way round, as it is here and in its authors' code.
    """
    if minimum < 1:
        raise ValueError(f"minimum={minimum!r}; a turn is at least one event")

    def quantum(op, F, now, round_end):
        return max((round_end - now) / max(F.cost[op], 1e-3), minimum)

    quantum.features = ("cost",)  # type: ignore[attr-defined]
    return quantum
