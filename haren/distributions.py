"""Random costs, selectivities and gaps of simulated operators and sources, drawn with whole numbers only.

    net.operator(source, cost=haren.distributions.exponential(20_000))

A distribution is its quantile function, kept as a table: one part for each halving of what is left above
(u from 1/2 to 3/4, from 3/4 to 7/8, ...), so that long tails are as precise as the middle. A draw is a part,
a place in it, and a straight line between two entries (`haren.native.chance`). The mean of what is drawn
differs from the mean asked for by rounding only. Nothing but whole numbers takes part in a draw, so that a
run can be repeated to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

__all__ = [
    "Distribution",
    "bernoulli",
    "constant",
    "empirical",
    "exponential",
    "lognormal",
    "pareto",
    "uniform",
]

PARTS, ENTRIES = 40, 256
FINER = 64  # points in a cell of a distribution that jumps
SCALE = 1024  # table values are in 1/1024


@dataclass(frozen=True)
class Distribution:
    """Values from 0 on: ``quantile(u)`` for an array of u in [0, 1); ``steps`` if it jumps between values."""

    name: str
    mean: float
    quantile: Callable[[np.ndarray], np.ndarray]
    steps: bool = False

    @cached_property
    def table(self) -> np.ndarray:
        """Parts by entries and one more, in 1/1024, such that their mean is the one asked for."""
        return self._table(SCALE)

    @cached_property
    def fine_table(self) -> np.ndarray:
        """The same in 1/2**30: for gaps of mean 1, whose parts are far smaller."""
        return self._table(1 << 30)

    def _table(self, scale: int) -> np.ndarray:
        place = np.arange(ENTRIES + 1) / ENTRIES
        part = np.arange(PARTS)[:, None]
        u = 1 - 2.0**-part * (1 - place / 2)
        values = np.asarray(self.quantile(np.minimum(u, 1 - 2.0**-52)), float)
        if self.steps:  # a cell with a jump gets what it holds on average
            within = (place[:-1, None] + (np.arange(FINER) + 0.5) / (FINER * ENTRIES)).ravel()
            inside = 1 - 2.0**-part * (1 - within / 2)
            cells = np.asarray(self.quantile(np.minimum(inside, 1 - 2.0**-52)), float)
            values[:, :-1] = cells.reshape(PARTS, ENTRIES, FINER).mean(axis=2)
        inner = values[:, :-1] if self.steps else (values[:, :-1] + values[:, 1:]) / 2
        weights = 2.0 ** -(part[:, 0] + 1)
        weights[-1] *= 2  # the last part stands for all that is above
        drawn = float(weights @ inner.mean(axis=1))
        if drawn > 0 and not self.steps:
            values = values * (self.mean / drawn)
        return np.ascontiguousarray(np.minimum(np.rint(values * scale), 2.0**60).astype(np.int64))

    def __repr__(self) -> str:
        return self.name


def _positive(name: str, **given: float) -> None:
    for what, value in given.items():
        if not 0 < value < 1e15:
            raise ValueError(f"{name}: {what}={value!r} must be positive")


def constant(value: float) -> Distribution:
    """Always the same."""
    if not 0 <= value < 1e15:
        raise ValueError(f"constant: value={value!r} must not be negative")
    return Distribution(f"constant({value:g})", value, lambda u: np.full(u.shape, float(value)), steps=True)


def exponential(mean: float) -> Distribution:
    """Without memory; with a mean of 1/rate the gaps of a Poisson process."""
    _positive("exponential", mean=mean)
    return Distribution(f"exponential({mean:g})", mean, lambda u: -mean * np.log1p(-u))


def uniform(low: float, high: float) -> Distribution:
    """Any value between two alike."""
    if not 0 <= low < high < 1e15:
        raise ValueError(f"uniform: low={low!r}, high={high!r}; 0 <= low < high")
    return Distribution(f"uniform({low:g}, {high:g})", (low + high) / 2, lambda u: low + (high - low) * u)


def lognormal(mean: float, sigma: float) -> Distribution:
    """The exponential of a normal distribution with standard deviation ``sigma``."""
    _positive("lognormal", mean=mean, sigma=sigma)
    normal, shift = NormalDist(), np.log(mean) - sigma**2 / 2

    def quantile(u: np.ndarray) -> np.ndarray:
        flat = [normal.inv_cdf(min(max(float(one), 1e-12), 1 - 1e-12)) for one in u.ravel()]
        return np.exp(shift + sigma * np.reshape(flat, u.shape))

    return Distribution(f"lognormal({mean:g}, {sigma:g})", mean, quantile)


def pareto(mean: float, alpha: float) -> Distribution:
    """A long tail: the chance of more than x falls as x to the minus ``alpha`` (above 1)."""
    _positive("pareto", mean=mean)
    if not 1 < alpha <= 100:
        raise ValueError(f"pareto: alpha={alpha!r}; above 1, or there is no mean")
    least = mean * (alpha - 1) / alpha
    return Distribution(f"pareto({mean:g}, {alpha:g})", mean, lambda u: least * (1 - u) ** (-1 / alpha))


def empirical(values: Sequence[float] | np.ndarray) -> Distribution:
    """What was measured: any of these values alike."""
    known = np.sort(np.asarray(values, float))
    if len(known) == 0 or not (known >= 0).all() or not np.isfinite(known).all():
        raise ValueError("empirical: values must be given, finite, and not negative")

    def quantile(u: np.ndarray) -> np.ndarray:
        return known[np.minimum((u * len(known)).astype(int), len(known) - 1)]

    return Distribution(f"empirical({len(known)} values)", float(known.mean()), quantile, steps=True)


def bernoulli(share: float) -> Distribution:
    """1 with this chance, else 0: a filter that passes events at random."""
    if not 0 <= share <= 1:
        raise ValueError(f"bernoulli: share={share!r}; from 0 to 1")
    return Distribution(
        f"bernoulli({share:g})", share, lambda u: np.where(u >= 1 - share, 1.0, 0.0), steps=True
    )
