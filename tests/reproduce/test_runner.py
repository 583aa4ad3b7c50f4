"""Real notebooks through papermill; the experiments in them are toys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reproduce import experiments, runner
from reproduce.experiments import Experiment


def notebook(path: Path, source: str) -> Path:
    """A notebook with a parameters cell and one more."""

    def cell(name: str, text: str, *tags: str) -> dict[str, object]:
        return {"cell_type": "code", "execution_count": None, "id": name, "metadata": {"tags": tags},
                "outputs": [], "source": text}  # fmt: skip

    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    cells = [cell("a", "profile = None\nout = None\nseconds = None", "parameters"), cell("b", source)]
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setattr(experiments, "NOTEBOOKS", tmp_path)
    experiment = replace(experiments.get("ysb-rates"), id="toy")
    monkeypatch.setattr(experiments, "get", lambda name: experiment)
    return experiment


def test_parameters_go_in_and_progress_comes_out(
    toy: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (
        "import sys\nprint('quiet', profile, seconds)\nprint('point 1 of 1', file=sys.stderr, flush=True)"
    )
    notebook(tmp_path / "toy.ipynb", source)
    directory = runner.run("toy", "smoke", tmp_path / "results", {"seconds": 2.0})
    assert directory.parent == tmp_path / "results" / "toy"
    assert (directory / "notebook.ipynb").exists()
    log = (directory / "log.txt").read_text()
    assert "quiet smoke 2.0" in log and "point 1 of 1" in log
    shown = capsys.readouterr().err
    assert "point 1 of 1" in shown and "quiet" not in shown


def test_a_failing_notebook_says_where_to_look(toy: Experiment, tmp_path: Path) -> None:
    notebook(tmp_path / "toy.ipynb", "raise ValueError('the moon is full')")
    with pytest.raises(
        runner.RunFailed, match=r"toy.ipynb failed with ValueError: the moon is full"
    ) as caught:
        runner.run("toy", "smoke", tmp_path / "results")
    (log,) = (tmp_path / "results").rglob("log.txt")
    assert str(log) in str(caught.value)
    assert "Traceback" in log.read_text()


def test_wrong_requests_leave_no_trace(toy: Experiment, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run from a clone"):
        runner.run("toy", "smoke", tmp_path / "results")
    notebook(tmp_path / "toy.ipynb", "")
    with pytest.raises(ValueError, match="has no parameter 'colour'"):
        runner.run("toy", "smoke", tmp_path / "results", {"colour": "red"})
    with pytest.raises(ValueError, match="unknown profile 'huge'"):
        runner.run("toy", "huge", tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_ctrl_c_ends_the_kernel_too(tmp_path: Path) -> None:
    script = f"""
import sys
from dataclasses import replace
from pathlib import Path
from reproduce import cli, experiments
toy = replace(experiments.get("ysb-rates"), id="toy")
experiments.NOTEBOOKS = Path({str(tmp_path)!r})
experiments.get = lambda name: toy
sys.exit(cli.main(["run", "toy", "--profile", "smoke", "--out", {str(tmp_path / "results")!r}]))
"""
    source = (
        "import os, sys, time\nprint('kernel', os.getpid(), file=sys.stderr, flush=True)\ntime.sleep(600)"
    )
    notebook(tmp_path / "toy.ipynb", source)
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    kernel = next(int(line.split()[1]) for line in process.stderr if line.startswith("kernel "))
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=60) == 130
    assert rest.splitlines()[-1].startswith("reproduce: interrupted")
    assert "Traceback" not in rest
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)
