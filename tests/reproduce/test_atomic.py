from __future__ import annotations

import os
from pathlib import Path

import pytest

from reproduce import atomic


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "made" / "on the way" / "file.txt"
    atomic.write_text(path, "old")
    assert atomic.write_text(path, "new") == path
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = atomic.write_text(tmp_path / "file.txt", "old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        atomic.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
