"""Streams of small random events that the tests share."""

import numpy as np
import pytest

EVENT = np.dtype([("key", "i8"), ("value", "i4"), ("weight", "f8"), ("time", "i8")])


def make_events(count: int, seed: int = 1, keys: int = 7, gap: int = 3) -> np.ndarray:
    """Random events in time order."""
    random = np.random.default_rng(seed)
    events = np.zeros(count, EVENT)
    events["key"] = random.integers(-keys, keys, count)
    events["value"] = random.integers(-1000, 1000, count)
    events["weight"] = random.integers(0, 64, count) / 4  # exact in binary: order does not matter
    events["time"] = np.cumsum(random.integers(0, gap, count))
    return events


@pytest.fixture
def events() -> np.ndarray:
    return make_events(5000)
