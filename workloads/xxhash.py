"""Spark's `xxhash64` over 64-bit integers, in numpy.

With the same hash on both sides, a data set generated in this process equals the one generated on
Spark bit by bit, and so do their checksums.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

SEED = 42
"""What Spark starts from."""

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)


def xxhash64(columns: Iterable[npt.ArrayLike]) -> Int64s:
    """Hash rows given as columns of int64; a scalar stands for a column of equal values."""
    hashed = np.array([SEED], dtype=np.uint64)
    for column in columns:
        hashed = _mix(np.atleast_1d(np.asarray(column, dtype=np.int64)).view(np.uint64), hashed)
    return hashed.view(np.int64)


def _mix(values: UInt64s, seed: UInt64s) -> UInt64s:
    """One round of XXH64 for an 8-byte input, with its final avalanche."""
    hashed = seed + _PRIME_5 + np.uint64(8)
    hashed = hashed ^ (_rotate(values * _PRIME_2, 31) * _PRIME_1)
    hashed = _rotate(hashed, 27) * _PRIME_1 + _PRIME_4
    hashed = (hashed ^ (hashed >> np.uint64(33))) * _PRIME_2
    hashed = (hashed ^ (hashed >> np.uint64(29))) * _PRIME_3
    return hashed ^ (hashed >> np.uint64(32))


def _rotate(values: UInt64s, bits: int) -> UInt64s:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
