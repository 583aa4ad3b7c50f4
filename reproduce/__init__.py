"""Runs experiments, keeps their results and compares them with what was claimed.

The command line (`reproduce/cli.py`) is the way in. From Python:

    import reproduce
    reproduce.run("ysb-rates", profile="smoke")       # the experiment's notebook, through papermill
    frame = reproduce.read("results")                 # every measured value, one per row

Everything loads on first use, so that `import reproduce` costs nothing: neither Spark nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reproduce import bench, experiments, fingerprint, plots, recorder, report, results, runner
    from reproduce.recorder import Recorder
    from reproduce.results import read
    from reproduce.runner import run

__all__ = [
    "Recorder", "bench", "experiments", "fingerprint", "plots", "read", "recorder", "report", "results",
    "run", "runner",
]  # fmt: skip

_HOME = {"Recorder": "recorder", "read": "results", "run": "runner"}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"reproduce.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"reproduce.{name}")
    raise AttributeError(f"module 'reproduce' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
