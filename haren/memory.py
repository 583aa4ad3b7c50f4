"""Memory that native threads share: words on whole cache lines."""

import numpy as np

__all__ = ["address", "lines"]


def lines(count: int) -> np.ndarray:
    """``count`` zeroed cache lines as an array of words."""
    memory = np.zeros(8 * count + 8, np.int64)
    skip = -memory.ctypes.data % 64 // 8
    return memory[skip : skip + 8 * count]


def address(array: np.ndarray) -> int:
    """Where an array's data lies; the caller keeps the array alive."""
    return array.ctypes.data
