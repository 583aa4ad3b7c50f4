"""The few statistics that results are quoted with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5 % for 1 to 30 degrees of freedom; above that the normal value is close enough."""


def half_width(values: ArrayLike) -> float:
    """Half the width of the 95 % confidence interval of the mean; NaN for a single value."""
    sample = np.asarray(values, dtype=float)
    if sample.size < 2:
        return float("nan")
    if np.ptp(sample) == 0:
        return 0.0  # where the formula would leave rounding errors
    freedom = sample.size - 1
    t = _T95[freedom - 1] if freedom <= len(_T95) else 1.96
    return float(t * sample.std(ddof=1) / np.sqrt(sample.size))


def mean(values: ArrayLike) -> float:
    return float(np.mean(np.asarray(values, dtype=float)))


def quote(values: ArrayLike) -> str:
    """The mean with half the width of its 95 % confidence interval, if it has one."""
    half = half_width(values)
    return short(mean(values)) if np.isnan(half) else f"{short(mean(values))} ± {short(half, 2)}"


def short(value: float, digits: int = 3) -> str:
    """A number with as many digits as mean something."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"


def interval(values: ArrayLike) -> tuple[float, float]:
    """The 95 % confidence interval of the mean, in the form seaborn's `errorbar` takes."""
    sample = np.asarray(values, dtype=float)
    half = half_width(sample)
    return float(sample.mean() - half), float(sample.mean() + half)


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def spread(values: Sequence[float]) -> float:
    """Half the interquartile range: how far a typical repetition lies from the median."""
    low, high = np.percentile(values, [25, 75])
    return float(high - low) / 2
