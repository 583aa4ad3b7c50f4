"""Operators that wait in vain: noticed, and said with what they wait for."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from enjima.deployed import Deployed, RunningQuery
from enjima.memory import layout as at
from enjima.native import words as w

__all__ = ["StallWatch"]

DEADLOCK_S = 1.0


@dataclass
class _Seen:
    progress: tuple
    since: float


class StallWatch:
    """Remembers how far each such operator was, and since when."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self._seen: dict[Deployed, _Seen] = {}

    def forget(self, query: RunningQuery) -> None:
        """A query has gone."""
        for deployed in query.deployed:
            self._seen.pop(deployed, None)

    def message(self, query: RunningQuery, is_active: Callable[[Deployed], bool]) -> tuple[str, str] | None:
        """The operator of a query that has waited too long, and for what; None if none has."""
        if self.timeout is not None and not query.ending:
            for deployed in query.deployed:
                if deployed.operator.kind == w.MERGER and self._stays(deployed, _wait_of(deployed)):
                    return deployed.operator.name, self._reason(deployed)
        return self._deadlock(query, is_active)

    def _stays(self, deployed: Deployed, progress: tuple | None, timeout: float | None = None) -> bool:
        """Whether an operator has been just as far for too long; None: it goes on."""
        if progress is None:
            self._seen.pop(deployed, None)
            return False
        now, seen = time.monotonic(), self._seen.get(deployed)
        if seen is None or seen.progress != progress:
            self._seen[deployed] = _Seen(progress, now)
            return False
        limit = self.timeout if timeout is None else timeout
        return limit is not None and now - seen.since >= limit

    def _deadlock(self, query: RunningQuery, is_active: Callable[[Deployed], bool]) -> tuple[str, str] | None:
        """Nothing runs, nothing can run and nothing will come, but the query is not over.

        Graphs cannot bring this about; should the engine be at fault, it says so instead of hanging.
        """
        first = query.deployed[0]  # a source, which has no stall of its own to remember
        progress = None
        sources = [one for one in query.deployed if not one.inputs]
        if all(one.word(w.DONE) for one in sources) and not any(map(is_active, query.deployed)):
            progress = tuple(
                one.word(word) for one in query.deployed for word in (w.EVENTS_IN, w.EVENTS_OUT, w.DONE)
            )
        if not self._stays(first, progress, DEADLOCK_S):
            return None
        left = [one for one in query.deployed if not one.word(w.DONE)]
        stuck = next((one for one in left if one.pending), left[0])
        full = [c for c in stuck.outputs if c.statistics()["chunks_in_use"] == c.limits.max_chunks]
        reason = "room in its output" if full else "its input to end"
        return stuck.operator.name, (
            f"deadlock: all sources have ended, no operator can go on, and this one waits for {reason} "
            f"with {stuck.pending} events before it. That is a fault of the engine; please report it"
        )

    def _reason(self, deployed: Deployed) -> str:
        blocked = deployed.word(w.BLOCKED_ON) - 1
        watermark = deployed.inputs[blocked].word(at.PUBLISHED_WATERMARK)
        reached = "has sent nothing" if watermark == at.BEGINNING else f"stands at event time {watermark}"
        names = [one.operator.name for one in deployed.upstream]
        waiting = " and ".join(
            f"{deployed.waiting(number)} events of its input {names[number]!r}"
            for number in range(len(names))
            if number != blocked and deployed.waiting(number)
        )
        return (
            f"stalled: {waiting} have waited for {self.timeout:g} s for its input {names[blocked]!r}, which "
            f"{reached}. End that stream, let its event time go on, or set stall_timeout= of the environment "
            "(None: wait for ever)"
        )


def _wait_of(deployed: Deployed) -> tuple | None:
    """What stays the same while an operator waits for one input with events of others; None: it does not."""
    blocked = deployed.word(w.BLOCKED_ON) - 1
    others = [number for number in range(len(deployed.inputs)) if number != blocked]
    if blocked < 0 or deployed.word(w.MORE) or not any(map(deployed.waiting, others)):
        return None
    processed = deployed.ports[:, w.PORT_PROCESSED // 8].tolist()
    watermark = deployed.inputs[blocked].word(at.PUBLISHED_WATERMARK)
    return blocked, watermark, deployed.word(w.EVENTS_OUT), *processed
