"""Open addressing over slots of words: a generation, an origin, the keys, then what is kept per key.

A slot is taken when its generation is the table's, so a new window empties the table by counting up. The
order of arrival is kept beside it, so results do not depend on how keys hash.
"""

from numba import int64, njit, uint64

from enjima.native import words as w
from enjima.native.raw import copy, reallocate
from haren.native.atomics import add_to, load, store

GOLDEN = -7046029254386353131  # 2**64 / golden ratio, odd, as a signed word

# the words of a table
SLOTS = 0
CAPACITY = 8  # a power of two
TAKEN = 16
ORDER = 24  # address: slot numbers in order of arrival
GENERATION = 32
SHIFT = 40  # 64 - log2(capacity)

# the words of a slot
SLOT_GENERATION = 0
SLOT_ORIGIN = 8
SLOT_KEYS = 16


@njit
def home(mixed, shift):
    """The slot a mixed key belongs in: its top bits, which spread keys that count up almost evenly."""
    return int64(uint64(mixed) >> uint64(shift))


@njit
def grow(op, table, slot_bytes, keys):
    """Double the table (or make its first slots) and put every taken slot in its new place."""
    former = load(table + SLOTS)
    former_order = load(table + ORDER)
    capacity = max(16, 2 * load(table + CAPACITY))
    shift = 60 if capacity == 16 else load(table + SHIFT) - 1
    slots = reallocate(0, capacity * slot_bytes)
    order = reallocate(0, 8 * capacity)
    for number in range(capacity):
        store(slots + number * slot_bytes + SLOT_GENERATION, 0)
    for index in range(load(table + TAKEN)):
        place = former + load(former_order + 8 * index) * slot_bytes
        store(order + 8 * index, _settle(slots, capacity, shift, place, slot_bytes, keys))
    if former != 0:
        reallocate(former, 0)
        reallocate(former_order, 0)
    store(table + SLOTS, slots)
    store(table + ORDER, order)
    store(table + CAPACITY, capacity)
    store(table + SHIFT, shift)
    add_to(op + w.GROWTHS, 1)


@njit
def rehash(table, slot_bytes, keys):
    """Put only the slots named in the order of arrival into a table of the same size; the rest is dropped."""
    former = load(table + SLOTS)
    order = load(table + ORDER)
    capacity = load(table + CAPACITY)
    slots = reallocate(0, capacity * slot_bytes)
    for number in range(capacity):
        store(slots + number * slot_bytes + SLOT_GENERATION, 0)
    for index in range(load(table + TAKEN)):
        place = former + load(order + 8 * index) * slot_bytes
        store(order + 8 * index, _settle(slots, capacity, load(table + SHIFT), place, slot_bytes, keys))
    reallocate(former, 0)
    store(table + SLOTS, slots)


@njit
def _settle(slots, capacity, shift, place, slot_bytes, keys):
    """Copy a slot to its place among new ones; its number."""
    mixed = 0
    for key in range(keys):
        mixed = (mixed ^ load(place + SLOT_KEYS + 8 * key)) * GOLDEN
    number = home(mixed, shift)
    while load(slots + number * slot_bytes + SLOT_GENERATION) != 0:
        number = (number + 1) & (capacity - 1)
    copy(slots + number * slot_bytes, place, slot_bytes)
    return number


@njit
def clear(table):
    """Forget every key."""
    store(table + TAKEN, 0)
    add_to(table + GENERATION, 1)
