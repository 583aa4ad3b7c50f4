from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from reproduce import fingerprint as fp


def test_fingerprint_survives_json_and_has_a_stable_id() -> None:
    machine = fp.fingerprint()
    assert json.loads(json.dumps(machine)) == machine
    assert fp.identifier(machine) == fp.identifier(fp.fingerprint())
    assert fp.identifier(machine) != fp.identifier(machine | {"cores": machine["cores"] + 1})
    assert machine["cores"] >= 1 and machine["memory_bytes"] > 0 and machine["cpu"]
    assert machine["packages"]["numpy"] in fp.describe(machine)


def test_a_package_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp, "PACKAGES", ("no-such-package",))
    assert fp.fingerprint()["packages"] == {"no-such-package": None}


def test_git_revision(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.check_output(["git", "-C", str(tmp_path), *who, *arguments], text=True).strip()

    git("init", "--quiet")
    assert fp.git_revision(tmp_path) is None
    git("commit", "--quiet", "--allow-empty", "--message", "first")
    head = git("rev-parse", "HEAD")
    assert fp.git_revision(tmp_path) == head
    (tmp_path / "new").touch()
    assert fp.git_revision(tmp_path) == f"{head}-dirty"


def test_outside_git_there_is_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert fp.git_revision(tmp_path) is None


@pytest.mark.parametrize(
    ("after", "disturbed"),
    [
        ((1.5, 0.0, 10.0, 1.5), False),  # all our own
        ((3.0, 0.0, 10.0, 1.0), True),  # others used a fifth
        ((1.0, 0.5, 10.0, 1.0), True),  # a twentieth was stolen
    ],
)
def test_disturbance(after: tuple[float, ...], disturbed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = iter([(0.0, 0.0, 0.0, 0.0), after])
    monkeypatch.setattr(fp, "_usage", lambda: next(accounts))
    with fp.Disturbance() as disturbance:
        pass
    assert disturbance.disturbed is disturbed
    assert ("undisturbed" in str(disturbance)) is not disturbed


def test_disturbance_is_unknown_where_nobody_keeps_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp, "_PROC_STAT", Path("/no/such/file"))
    with fp.Disturbance() as disturbance:
        pass
    assert disturbance.disturbed is None and "unknown" in str(disturbance)


def test_accounts_of_this_machine_make_sense() -> None:
    with fp.Disturbance() as disturbance:
        sum(range(3_000_000))
    if disturbance.steal is not None and disturbance.foreign is not None:
        assert 0 <= disturbance.steal <= 1 and 0 <= disturbance.foreign <= 1
