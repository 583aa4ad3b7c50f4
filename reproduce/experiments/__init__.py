"""The experiments: one file each, holding `EXPERIMENT` and the functions its notebook calls.

Adding an experiment is adding a file here and a notebook of the same id in `notebooks/experiments/`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduce.settings import NOTEBOOKS, PROFILES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Claim", "Experiment", "UnknownExperiment", "experiments", "get"]


class UnknownExperiment(KeyError):
    """No experiment has this id."""

    def __init__(self, identifier: str) -> None:
        super().__init__(identifier)
        self.message = f"unknown experiment {identifier!r}; the experiments are: {', '.join(experiments())}"

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Claim:
    """A statement that results confirm or refute."""

    statement: str
    holds: Callable[[pd.DataFrame], bool]


@dataclass(frozen=True)
class Experiment:
    """What is run, with which parameters, and how its results are shown.

    `profiles` gives every parameter a value in every profile; the notebook's `parameters` cell has the
    same names. `table`, `figures` and `sentence` take the rows of one run.
    """

    id: str
    paper: str
    title: str
    profiles: Mapping[str, Mapping[str, Any]]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    figures: Callable[[pd.DataFrame], Mapping[str, Figure]]
    sentence: Callable[[pd.DataFrame], str]
    claims: tuple[Claim, ...] = field(default=())
    headline: bool = False

    def __post_init__(self) -> None:
        if set(self.profiles) != set(PROFILES):
            raise ValueError(f"experiment {self.id!r} must have the profiles {', '.join(PROFILES)}")
        if len({frozenset(parameters) for parameters in self.profiles.values()}) != 1:
            raise ValueError(f"experiment {self.id!r} must have the same parameters in every profile")

    @property
    def notebook(self) -> Path:
        return NOTEBOOKS / f"{self.id}.ipynb"

    def parameters(self, profile: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """The profile's parameters with `overrides`, refused when their name or type is wrong."""
        chosen = dict(self.profiles[profile])
        for name, value in overrides.items():
            if name not in chosen:
                raise ValueError(f"{self.id} has no parameter {name!r}; it has {', '.join(chosen)}")
            chosen[name] = _like(chosen[name], value, f"{self.id}: parameter {name!r}")
        return chosen


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment by its id."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = [import_module(f"{__name__}.{name}").EXPERIMENT for name in names]
    return {experiment.id: experiment for experiment in found}


def get(identifier: str) -> Experiment:
    if identifier not in experiments():
        raise UnknownExperiment(identifier)
    return experiments()[identifier]


def _like(pattern: Any, value: Any, what: str) -> Any:
    """`value` as the type of `pattern`: a whole number may stand for a float, and nothing else converts."""
    if isinstance(pattern, list) and isinstance(value, list):
        return [_like(pattern[0], item, what) for item in value]
    if isinstance(pattern, float) and type(value) is int:
        return float(value)
    if type(value) is not type(pattern):
        raise ValueError(f"{what} must be {type(pattern).__name__} like {pattern!r}, not {value!r}")
    return value
