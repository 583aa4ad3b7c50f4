"""Latency histograms as Python reads them: snapshots that subtract, and what they say.

Two definitions, both recorded always: ``marker`` (stamped when it should have been generated, passes
windows at once) and ``result`` (from the intended clock time of the latest source event behind a result).
"""

from dataclasses import dataclass

import numpy as np

from haren.memory import address, lines

__all__ = ["Histogram", "Snapshot"]

SUB_BITS = 6
BUCKET_COUNT = (64 - SUB_BITS) << SUB_BITS
HEADER = 4  # count, sum, minimum, maximum


class Histogram:
    """Native memory that sinks record into (see `haren.native.histogram`)."""

    def __init__(self) -> None:
        self.words = lines(-(-(HEADER + BUCKET_COUNT) // 8))

    @property
    def address(self) -> int:
        return address(self.words)

    def snapshot(self) -> "Snapshot":
        words = self.words.copy()
        return Snapshot(words[HEADER : HEADER + BUCKET_COUNT], int(words[1]), int(words[3]))


@dataclass(frozen=True)
class Snapshot:
    """Counts per bucket, the sum, and the maximum; nanoseconds."""

    buckets: np.ndarray
    total: int
    maximum: int

    def __sub__(self, earlier: "Snapshot") -> "Snapshot":
        """What was recorded since ``earlier``; its maximum is the top of the highest bucket used."""
        buckets = self.buckets - earlier.buckets
        used = np.flatnonzero(buckets)
        highest = int(upper_bounds()[used[-1]]) if len(used) else 0
        return Snapshot(buckets, self.total - earlier.total, min(self.maximum, highest))

    @property
    def count(self) -> int:
        return int(self.buckets.sum())

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else float("nan")

    def quantile(self, share: float) -> float:
        """The smallest bucket bound that ``share`` of the values do not exceed; at most 1/64 too high."""
        if not self.count:
            return float("nan")
        rank = max(1, int(np.ceil(share * self.count)))
        index = int(np.searchsorted(np.cumsum(self.buckets), rank))
        return float(min(upper_bounds()[index], self.maximum))

    def summary(self) -> dict[str, float]:
        """Count, and mean, median, tail and maximum in milliseconds."""
        quantiles = {f"p{p}_ms": self.quantile(p / 100) / 1e6 for p in (50, 95, 99)}
        maximum = self.maximum / 1e6 if self.count else float("nan")
        return {"count": self.count, "mean_ms": self.mean / 1e6, **quantiles, "max_ms": maximum}


EMPTY = Snapshot(np.zeros(BUCKET_COUNT, np.int64), 0, 0)


def upper_bounds() -> np.ndarray:
    """The largest value of each bucket."""
    index = np.arange(BUCKET_COUNT)
    exponent = np.maximum((index >> SUB_BITS) - 1, 0)
    mantissa = index - (exponent << SUB_BITS)
    return ((mantissa + 1).astype(np.float64) * 2.0**exponent) - 1
