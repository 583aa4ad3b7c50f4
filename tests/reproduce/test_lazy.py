"""`import reproduce` and the command line stay light."""

from __future__ import annotations

import subprocess
import sys

import pytest

import reproduce


@pytest.mark.parametrize("module", ["reproduce", "reproduce.cli"])
def test_importing_loads_neither_spark_nor_matplotlib(module: str) -> None:
    script = (
        f"import sys, {module}; print([m for m in ('pyspark', 'matplotlib', 'numba') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in reproduce.__all__:
        assert getattr(reproduce, name) is not None
    assert dir(reproduce) == sorted(reproduce.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        reproduce.nonsense  # noqa: B018
