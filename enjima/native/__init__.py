"""Compiled code of the engine: channels, the transfer loop, kernels, hash tables, histograms."""

__all__: list[str] = []
