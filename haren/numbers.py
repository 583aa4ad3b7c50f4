"""Random integers that are the same compiled and in Python, on every machine: no overflow is relied on."""

__all__ = ["draw", "next_seed"]

MODULUS = 2**31 - 1
FACTOR = 48271


def next_seed(seed: int) -> int:
    """The next integer of a sequence, from 1 to 2**31 - 2 (Lehmer's generator)."""
    return seed * FACTOR % MODULUS


def draw(seed: int, op: int) -> int:
    """A random integer from 0 to 2**23 - 1 for an operator, given the round's seed."""
    mixed = (seed + op * 69621) % MODULUS
    for _ in range(3):
        mixed = (mixed ^ (mixed >> 15)) * FACTOR % MODULUS + 1
    return mixed >> 8
