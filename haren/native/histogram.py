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
