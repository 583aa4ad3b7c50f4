from __future__ import annotations

import math

import numpy as np
import pytest

from reproduce import stats


def test_interval_of_a_known_sample() -> None:
    # mean 3, standard deviation sqrt(2.5), t(4) = 2.776
    half = 2.776 * math.sqrt(2.5) / math.sqrt(5)
    assert stats.interval([1, 2, 3, 4, 5]) == pytest.approx((3 - half, 3 + half))


def test_equal_values_have_no_width() -> None:
    assert stats.half_width([0.1 * 3] * 3) == 0


def test_one_value_has_no_interval() -> None:
    assert math.isnan(stats.half_width([1.0]))


def test_quote() -> None:
    assert stats.quote([1, 2, 3, 4, 5]) == "3 ± 2"
    assert stats.quote([1234.5]) == "1,234"


def test_interval_covers_the_mean_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    intervals = [stats.interval(random.normal(10, 3, size=5)) for _ in range(4000)]
    assert np.mean([low <= 10 <= high for low, high in intervals]) == pytest.approx(0.95, abs=0.015)


def test_spread_is_half_the_interquartile_range() -> None:
    assert stats.median([1, 2, 3, 4, 100]) == 3
    assert stats.spread([1, 2, 3, 4, 100]) == 1
    assert stats.spread([7.0]) == 0
