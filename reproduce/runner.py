"""Runs an experiment's notebook through papermill.

The notebook measures and writes results by itself; the runner checks parameters before anything starts,
gives the run a directory, shows the progress the notebook reports, and keeps a log.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from reproduce import experiments, settings
from reproduce.recorder import new_run_id


class RunFailed(RuntimeError):
    """The notebook of an experiment raised."""


class _Tee:
    """A text file that writes to several, so that what is shown is also logged."""

    def __init__(self, *files: TextIO) -> None:
        self._files = files

    def write(self, text: str) -> None:
        for file in self._files:
            file.write(text)

    def flush(self) -> None:
        for file in self._files:
            file.flush()


def _abandon(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Let go of a cell that Ctrl-C ended: nobody waits for it any more, and its traceback is no news."""
    from nbclient.exceptions import CellExecutionError

    if not isinstance(context.get("exception"), CellExecutionError):
        loop.default_exception_handler(context)


def run(
    experiment: str,
    profile: str | None = None,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Path:
    """Run one experiment and return the directory with its executed notebook, log and points."""
    chosen = experiments.get(experiment)
    profile = settings.check_profile(profile) if profile else settings.default_profile()
    overrides = dict(overrides or {})
    chosen.parameters(profile, overrides)
    if not chosen.notebook.exists():
        raise FileNotFoundError(f"no notebook {chosen.notebook}: experiments run from a clone of the project")
    root = Path(out) if out else settings.results_directory()
    directory = (root / chosen.id / new_run_id()).resolve()
    directory.mkdir(parents=True)
    _execute(chosen.notebook, directory, {"profile": profile, "out": str(directory), **overrides})
    return directory


def _execute(notebook: Path, directory: Path, parameters: dict[str, Any]) -> None:
    import papermill
    from jupyter_core.utils import ensure_event_loop
    from papermill.exceptions import PapermillExecutionError

    ensure_event_loop().set_exception_handler(_abandon)
    log_path = directory / "log.txt"
    with log_path.open("w") as log:
        try:
            papermill.execute_notebook(
                str(notebook),
                str(directory / "notebook.ipynb"),
                parameters=parameters,
                progress_bar=False,
                extra_arguments=["--IPKernelApp.log_level=CRITICAL"],  # the kernel's log, not the notebook's
                stdout_file=log,
                stderr_file=_Tee(sys.stderr, log),
            )
        except PapermillExecutionError as error:
            log.write(str(error))
            raise RunFailed(
                f"{notebook.name} failed with {error.ename}: {error.evalue}\n"
                f"the traceback is in {log_path}, the notebook as far as it came beside it"
            ) from error
