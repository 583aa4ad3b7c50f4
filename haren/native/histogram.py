"""A latency histogram: exact count, sum and extremes, and buckets 1/64 of their value wide.

The layout of HDR histograms (log-linear buckets) in native memory, so that sinks record without the GIL
and without allocating, and two snapshots can be subtracted to cut warm-up and cool-down.
"""

from numba import njit

from haren.native.atomics import add_to, load, store

COUNT = 0
SUM = 8
MINIMUM = 16
MAXIMUM = 24
BUCKETS = 32
SUB_BITS = 6
BUCKET_COUNT = (64 - SUB_BITS) << SUB_BITS
HISTOGRAM_BYTES = BUCKETS + 8 * BUCKET_COUNT


@njit
def bucket_of(value):
    """The bucket of a value >= 0; values below 128 have a bucket each."""
    exponent = 0
    scaled = value
    while scaled >= 1 << (SUB_BITS + 1):
        scaled >>= 1
        exponent += 1
    return (exponent << SUB_BITS) + scaled


@njit
def record(histogram, value, times):
    """Count ``value`` (nanoseconds) ``times`` over; a clock that seems to run backwards counts as 0."""
    value = max(value, 0)
    if load(histogram + COUNT) == 0 or value < load(histogram + MINIMUM):
        store(histogram + MINIMUM, value)
    if value > load(histogram + MAXIMUM):
        store(histogram + MAXIMUM, value)
    add_to(histogram + SUM, value * times)
    add_to(histogram + BUCKETS + 8 * bucket_of(value), times)
    add_to(histogram + COUNT, times)


@njit
def record_between(histogram, least, most, times):
    """Count ``times`` values that lie evenly between two, both among them; exact but for rounding."""
    least = max(least, 0)
    most = max(most, least)
    if load(histogram + COUNT) == 0 or least < load(histogram + MINIMUM):
        store(histogram + MINIMUM, least)
    if most > load(histogram + MAXIMUM):
        store(histogram + MAXIMUM, most)
    half = (least + most) * times
    add_to(histogram + SUM, half >> 1)
    done = 0
    while done < times:
        value = least + (most - least) * done // max(times - 1, 1)
        bucket = bucket_of(value)
        top = _top_of(bucket)
        behind = times  # the first of the values that is above this bucket
        if most > top:
            behind = min(times, (top + 1 - least) * (times - 1) // (most - least))
            while behind > done and least + (most - least) * (behind - 1) // (times - 1) > top:
                behind -= 1
            while behind < times and least + (most - least) * behind // (times - 1) <= top:
                behind += 1
        add_to(histogram + BUCKETS + 8 * bucket, behind - done)
        done = behind
    add_to(histogram + COUNT, times)


@njit
def _top_of(bucket):
    """The largest value of a bucket."""
    exponent = max((bucket >> SUB_BITS) - 1, 0)
    return ((bucket - (exponent << SUB_BITS) + 1) << exponent) - 1
