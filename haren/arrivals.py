"""When events of a simulated source are meant to come: evenly, in steps, in bursts, at random, as recorded.

    net.source(haren.arrivals.poisson(5_000))
    net.source(haren.arrivals.bursty(5_000, on=5, off=15))
    net.source(haren.arrivals.stepped((0, 1_000), (60, 2_000)), ...)

A plain number of events per second is a constant rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from haren import distributions
from haren.distributions import Distribution

__all__ = ["Arrivals", "bursty", "pareto", "poisson", "replay", "stepped"]

NEVER = 2**63 - 1


@dataclass(frozen=True)
class Arrivals:
    """A rate that may change, gaps that may be random around it; or the times themselves."""

    name: str
    steps: tuple[tuple[int, float], ...] = ()
    """From which time on (ns) which rate (events/s); 0: none come."""
    period_ns: int = 0
    """After so long the steps begin anew; 0: the last one stays."""
    gaps: Distribution | None = None
    """Of mean 1: what a gap is of that between two events at the rate; None: always that."""
    times: np.ndarray | None = field(default=None, compare=False)

    @property
    def rate(self) -> float:
        """Events per second on average; of replayed times, over their span."""
        if self.times is not None:
            span = int(self.times[-1] - self.times[0]) if len(self.times) > 1 else 0
            return (len(self.times) - 1) * 1e9 / span if span > 0 else float("nan")
        if not self.period_ns:
            return self.steps[-1][1]
        ends = [at for at, _ in self.steps[1:]] + [self.period_ns]
        parts = zip(self.steps, ends, strict=True)
        return sum(rate * (end - at) for (at, rate), end in parts) / self.period_ns

    def expected(self, seconds: float) -> float:
        """How many events come within so many seconds, on average."""
        if self.times is not None:
            return float(np.searchsorted(self.times, seconds * 1e9, "right"))
        total, at, end = 0.0, 0, int(seconds * 1e9)
        while at < end:
            begin = at // self.period_ns * self.period_ns if self.period_ns else 0
            ends = [begin + step for step, _ in self.steps[1:]]
            ends.append(begin + self.period_ns if self.period_ns else end)
            number = next(i for i, until in enumerate(ends) if at < until)
            until = min(ends[number], end)
            total += self.steps[number][1] * (until - at) / 1e9
            at = until
        return total

    def __repr__(self) -> str:
        return self.name


def _rate(name: str, rate: float, least: float = 1e-6) -> float:
    if not least <= rate < 1e12:
        raise ValueError(f"{name}: rate={rate!r} events/s is out of range")
    return float(rate)


def poisson(rate: float) -> Arrivals:
    """Independent of each other, as from many small sources."""
    return Arrivals(f"poisson({rate:g})", ((0, _rate("poisson", rate)),), gaps=distributions.exponential(1))


def pareto(rate: float, alpha: float = 1.5) -> Arrivals:
    """With gaps of a long tail: crowds, then silence."""
    gaps = distributions.pareto(1, alpha)
    return Arrivals(f"pareto({rate:g}, {alpha:g})", ((0, _rate("pareto", rate)),), gaps=gaps)


def stepped(*steps: tuple[float, float], period: float = 0, gaps: Distribution | None = None) -> Arrivals:
    """From so many seconds on so many events/s: ``stepped((0, 1000), (60, 2000))``; anew each ``period``.

    ``gaps``: a distribution of mean 1, such as `haren.distributions.exponential(1)`, if they are random.
    """
    if not steps or steps[0][0] != 0:
        raise ValueError(f"stepped: {steps!r}; the first step is at 0 seconds")
    times = [int(at * 1e9) for at, _ in steps]
    if any(later <= earlier for earlier, later in pairwise(times)):
        raise ValueError(f"stepped: {steps!r}; the times must grow")
    if period and period * 1e9 <= times[-1]:
        raise ValueError(f"stepped: period={period!r} s ends before the last step")
    rates = [_rate("stepped", rate, 0) for _, rate in steps]
    if not any(rates):
        raise ValueError("stepped: no step has a rate above 0")
    if gaps is not None and abs(gaps.mean - 1) > 1e-6:
        raise ValueError(f"stepped: gaps={gaps!r} have a mean of {gaps.mean:g}; 1 is needed")
    name = f"stepped({', '.join(f'{at:g} s: {rate:g}' for at, rate in steps)})"
    return Arrivals(name, tuple(zip(times, rates, strict=True)), int(period * 1e9), gaps)


def bursty(rate: float, *, on: float, off: float) -> Arrivals:
    """So many events/s for ``on`` seconds, then none for ``off`` seconds, and again."""
    if not on > 0 or not off > 0:
        raise ValueError(f"bursty: on={on!r}, off={off!r} seconds must be positive")
    made = stepped((0, _rate("bursty", rate)), (on, 0), period=on + off)
    return Arrivals(f"bursty({rate:g}, on={on:g}, off={off:g})", made.steps, made.period_ns)


def replay(times_ns: Sequence[int] | np.ndarray) -> Arrivals:
    """At these times, in ns from the beginning, which must not run backwards."""
    times = np.ascontiguousarray(times_ns, np.int64)
    if len(times) == 0 or times[0] < 0 or (np.diff(times) < 0).any():
        raise ValueError("replay: times must be given, in order, from 0 on")
    return Arrivals(f"replay({len(times)} events)", times=times)
