"""Operators with several inputs that wait in vain: noticed, and said with what they wait for."""

import time
from dataclasses import dataclass

from enjima.deployed import Deployed, RunningQuery
from enjima.memory import layout as at
from enjima.native import words as w

__all__ = ["StallWatch"]


@dataclass
class _Seen:
    progress: tuple
    since: float


class StallWatch:
    """Remembers how far each such operator was, and since when."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self._seen: dict[tuple[Deployed, int], _Seen] = {}

    def message(self, query: RunningQuery) -> tuple[str, str] | None:
        """The operator of a query that has waited too long, and for what; None if none has."""
        if self.timeout is None:
            return None
        for deployed in query.deployed:
            if deployed.operator.kind == w.MERGER:
                for number in range(len(deployed.inputs)):
                    if self._waits_in_vain(deployed, number):
                        return deployed.operator.name, self._reason(deployed, number)
        return None

    def _waits_in_vain(self, deployed: Deployed, number: int) -> bool:
        """Whether an input's events wait, and neither they nor what they wait for came any further."""
        key = (deployed, number)
        blocked = deployed.word(w.BLOCKED_ON) - 1
        if blocked in (-1, number) or deployed.waiting(number) == 0 or deployed.word(w.MORE):
            self._seen.pop(key, None)
            return False
        processed = int(deployed.ports[number, w.PORT_PROCESSED // 8])
        progress = (processed, blocked, deployed.inputs[blocked].word(at.PUBLISHED_WATERMARK))
        now = time.monotonic()
        seen = self._seen.get(key)
        if seen is None or seen.progress != progress:
            self._seen[key] = _Seen(progress, now)
            return False
        assert self.timeout is not None
        return now - seen.since >= self.timeout

    def _reason(self, deployed: Deployed, number: int) -> str:
        blocked = deployed.word(w.BLOCKED_ON) - 1
        watermark = deployed.inputs[blocked].word(at.PUBLISHED_WATERMARK)
        reached = "has sent nothing" if watermark == at.BEGINNING else f"stands at event time {watermark}"
        waiting, awaited = deployed.upstream[number].operator.name, deployed.upstream[blocked].operator.name
        return (
            f"stalled: {deployed.waiting(number)} events of its input {waiting!r} have waited for "
            f"{self.timeout:g} s for its input {awaited!r}, which {reached}. End that stream, let its event "
            "time go on, or set stall_timeout= of the environment (None: wait for ever)"
        )
