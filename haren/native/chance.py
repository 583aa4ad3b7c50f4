"""Draws from the tables of `haren.distributions`, and the generator behind them: whole numbers only."""

from numba import njit

from haren.distributions import ENTRIES, PARTS
from haren.native.atomics import load, store

# the words of a table's head
TABLE = 0  # address of the entries
STEPS = 8  # 1: entries are taken as they are, 0: a straight line between them
HEAD_BYTES = 16

_LOGICAL = (1 << 57) - 1


@njit
def next_bits(seed):
    """64 random bits from a word that is not 0, and keeps the state (Marsaglia's xorshift)."""
    bits = load(seed)
    bits ^= bits << 13
    bits ^= (bits >> 7) & _LOGICAL
    bits ^= bits << 17
    store(seed, bits)
    return bits


@njit
def draw_from(head, seed):
    """A value in 1/1024."""
    bits = next_bits(seed)
    part = 0
    while part < PARTS - 1 and bits & 1:
        bits >>= 1
        part += 1
    bits >>= 1
    place = (bits >> 12) & (ENTRIES - 1)
    within = (next_bits(seed) >> 20) & 0xFFFFF
    entry = load(head + TABLE) + 8 * (part * (ENTRIES + 1) + place)
    if load(head + STEPS) != 0:
        return load(entry)
    low = load(entry)
    rise = load(entry + 8) - low
    if rise < 1 << 40:
        return low + ((rise * within) >> 20)
    return low + (rise >> 20) * within
