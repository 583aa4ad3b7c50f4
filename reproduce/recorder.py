"""Measures the points of an experiment one after another and keeps what was measured.

An experiment says how one point is measured; the recorder does the rest: repetitions, progress with an
estimate, a watch on the machine, and one results file per point and repetition.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from reproduce import experiments, results, settings
from reproduce.fingerprint import Disturbance, fingerprint, git_revision, identifier


class Metric(NamedTuple):
    """One measured value; a latency also says which definition of latency it follows."""

    metric: str
    value: float
    unit: str
    latency_kind: str | None = None
    query: str | None = None


Measure = Callable[[Mapping[str, Any]], Iterable[Metric]]


class Recorder:
    """One run of one experiment.

    `parameters` holds the profile's values with the overrides that are not None; `directory` is where
    the run leaves its files: under the results directory unless `out` says otherwise.
    """

    def __init__(
        self, experiment: str, profile: str | None = None, out: Path | str | None = None, **overrides: Any
    ) -> None:
        self.experiment = experiments.get(experiment)
        self.profile = settings.check_profile(profile) if profile else settings.default_profile()
        given = {name: value for name, value in overrides.items() if value is not None}
        self.parameters = self.experiment.parameters(self.profile, given)
        self.run_id = new_run_id() if out is None else Path(out).name
        self.directory = Path(out) if out else settings.results_directory() / experiment / self.run_id
        self.machine = fingerprint()
        self.dataset: str | None = None
        self.dataset_checksum: str | None = None
        self._revision = git_revision()
        self._started = time.monotonic()

    def use_dataset(self, name: str, checksum: str) -> None:
        """Name the data that the following points are measured on."""
        self.dataset, self.dataset_checksum = name, checksum

    def sweep(self, points: Sequence[Mapping[str, Any]], repetitions: int, measure: Measure) -> None:
        """Measure every point `repetitions` times.

        A repetition goes over all points before the next begins, so that a machine that slows down
        meanwhile slows all points alike.
        """
        started, total = time.monotonic(), len(points) * repetitions
        for done in range(total):
            repetition, index = divmod(done, len(points))
            shown = ", ".join(f"{name} {value}" for name, value in points[index].items())
            elapsed = time.monotonic() - started
            left = f", about {elapsed / done * (total - done):.0f} s left" if done else ""
            self.say(
                f"point {done + 1} of {total} ({shown}, repetition {repetition + 1}), "
                f"{elapsed:.0f} s elapsed{left}"
            )
            self.record(points[index], measure, repetition)

    def record(self, point: Mapping[str, Any], measure: Measure, repetition: int = 0) -> None:
        """Measure one point once and write its file; its row says all parameters the point depends on."""
        started_at, start = datetime.now(UTC), time.monotonic()
        with Disturbance() as disturbance:
            metrics = list(measure(point))
        common = {
            "schema_version": results.SCHEMA_VERSION,
            "experiment": self.experiment.id,
            "run_id": self.run_id,
            "point": results.point_json(self._settings() | dict(point)),
            "repetition": repetition,
            "mode": "real",
            "profile": self.profile,
            "dataset": self.dataset,
            "dataset_checksum": self.dataset_checksum,
            "machine_id": identifier(self.machine),
            "machine": json.dumps(self.machine, sort_keys=True),
            "git_revision": self._revision,
            "started_at": started_at,
            "duration_s": time.monotonic() - start,
            "disturbed": disturbance.disturbed,
        }
        results.write(self.directory / "points", [common | metric._asdict() for metric in metrics])

    def finish(self) -> None:
        """Record that all points are there: reports are made of finished runs only."""
        duration = Metric(results.RUN_DURATION, time.monotonic() - self._started, "s")
        self.record({}, lambda point: [duration])

    def results(self) -> pd.DataFrame:
        """What this run has measured so far."""
        return results.read(self.directory)

    def _settings(self) -> dict[str, Any]:
        """The parameters all points share: not those that say which points there are, and how often."""
        shared = self.parameters.items()
        return {name: v for name, v in shared if name != "repetitions" and not isinstance(v, list)}

    def say(self, text: str) -> None:
        """One line of progress, where the runner and a terminal show it."""
        print(f"{self.experiment.id}: {text}", file=sys.stderr, flush=True)


def new_run_id() -> str:
    """The time, for people, and a few random digits, for two runs in the same second."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:4]}"
