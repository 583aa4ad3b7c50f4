from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reproduce import experiments, settings
from reproduce.experiments import UnknownExperiment


def test_registry() -> None:
    known = experiments.experiments()
    assert "ysb-rates" in known
    assert all(name == experiment.id for name, experiment in known.items())
    with pytest.raises(UnknownExperiment, match=r"unknown experiment 'ysb'; .* are: .*ysb-rates"):
        experiments.get("ysb")


@pytest.mark.parametrize("name", list(experiments.experiments()))
def test_notebook_has_the_parameters_and_is_clean(name: str) -> None:
    experiment = experiments.get(name)
    notebook = json.loads(experiment.notebook.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tagged,) = [cell for cell in code if "parameters" in cell["metadata"].get("tags", [])]
    assigned: dict[str, object] = {}
    exec("".join(tagged["source"]), assigned)
    assert set(assigned) - {"__builtins__"} == {"profile", "out", *experiment.profiles["quick"]}
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}


def test_overrides() -> None:
    experiment = experiments.get("ysb-rates")
    chosen = experiment.parameters("smoke", {"seconds": 3, "fractions": [1, 0.5]})
    assert chosen == {**experiment.profiles["smoke"], "seconds": 3.0, "fractions": [1.0, 0.5]}
    assert experiment.parameters("smoke", {}) == experiment.profiles["smoke"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"secnds": 3}, "has no parameter 'secnds'; it has events, seed, fractions"),
        ({"seconds": "3"}, "parameter 'seconds' must be float like 0.6, not '3'"),
        ({"events": 1.5}, "parameter 'events' must be int"),
        ({"events": True}, "parameter 'events' must be int"),
        ({"fractions": 0.5}, "parameter 'fractions' must be list"),
        ({"fractions": ["a"]}, "parameter 'fractions' must be float"),
    ],
)
def test_wrong_overrides_are_refused(override: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        experiments.get("ysb-rates").parameters("smoke", override)


def test_profiles_are_complete() -> None:
    experiment = experiments.get("ysb-rates")
    with pytest.raises(ValueError, match="must have the profiles smoke, quick, paper"):
        replace(experiment, profiles={"smoke": {}})
    with pytest.raises(ValueError, match="the same parameters in every profile"):
        replace(experiment, profiles={"smoke": {"a": 1}, "quick": {}, "paper": {}})


def test_default_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HAREN_LAB_PROFILE", raising=False)
    assert settings.default_profile() == "quick"
    monkeypatch.setenv("HAREN_LAB_PROFILE", "smoke")
    assert settings.default_profile() == "smoke"
    monkeypatch.setenv("HAREN_LAB_PROFILE", "tiny")
    with pytest.raises(ValueError, match="unknown profile 'tiny'"):
        settings.default_profile()
