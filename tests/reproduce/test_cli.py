from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from reproduce import cli, report, runner


@pytest.fixture(autouse=True)
def results_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAREN_LAB_RESULTS", str(tmp_path / "default"))
    monkeypatch.delenv("HAREN_LAB_PROFILE", raising=False)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    assert "* ysb-rates  ours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nonsense"], "unknown experiment 'nonsense'; the experiments are: "),
        (["run"], "name experiments or --headline"),
        (["run", "ysb-rates", "--headline"], "name experiments or --headline"),
        (["run", "ysb-rates", "--set", "colour=red"], "has no parameter 'colour'; it has "),
        (["run", "ysb-rates", "--set", "seconds=soon"], "must be float"),
        (["run", "ysb-rates", "--set", "seconds"], "--set takes NAME=VALUE, not 'seconds'"),
        (["report"], "no results under "),
    ],
)
def test_a_wrong_request_says_what_would_be_right(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    output = capsys.readouterr()
    assert message in output.err and output.out == ""


def test_a_profile_from_the_environment_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HAREN_LAB_PROFILE", "tiny")
    assert cli.main(["run", "--headline"]) == 2
    assert "unknown profile 'tiny'" in capsys.readouterr().err


def test_headline_runs_and_reports(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def run(name: str, profile: str, out: Path, overrides: dict[str, Any]) -> None:
        calls.append((name, profile, overrides))
        shutil.copytree(sample, out)

    monkeypatch.setattr(runner, "run", run)
    out = tmp_path / "out"
    assert cli.main(["run", "--headline", "--out", str(out), "--set", "fractions=[0.5]"]) == 0
    assert calls == [("ysb-rates", "quick", {"fractions": [0.5]})]
    shown = capsys.readouterr().out
    for path in (out, out / "report.html", out / "report.md"):
        assert str(path) in shown and path.exists()
    assert cli.main(["report", "--out", str(out)]) == 0
    assert cli.main(["list", "--out", str(out)]) == 0
    assert "[1 run]" in capsys.readouterr().out


def test_a_failed_run_is_not_reported_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise runner.RunFailed("the notebook failed")

    monkeypatch.setattr(runner, "run", fail)
    assert cli.main(["run", "ysb-rates"]) == 1
    assert "reproduce: the notebook failed" in capsys.readouterr().err


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "write", interrupt)
    assert cli.main(["report"]) == 130
    assert capsys.readouterr().err.startswith("reproduce: interrupted")


def test_the_parser_refuses_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["nonsense"], ["bench"], ["run", "ysb-rates", "--profile", "huge"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == 2
    capsys.readouterr()
