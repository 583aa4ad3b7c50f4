"""Compiled code of the scheduler: atomics, clock, waiting, the worker loop, dispatch decisions."""

__all__: list[str] = []
