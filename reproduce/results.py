"""Results on disk: schema version 1, one measured value per row, one Parquet file per point and repetition.

`COLUMNS` is the schema. Rows are checked before they are written and files appear in one piece, so
whatever is found on disk is complete and can be trusted; adding to a result set is adding files.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from reproduce import atomic
from reproduce.settings import PROFILES

SCHEMA_VERSION = 1
MODES = ("real", "virtual")
LATENCY_KINDS = ("marker", "result")
RUN_DURATION = "run_duration"
"""The metric that a run records last: a run that has it is complete."""


class ResultsError(ValueError):
    """Rows that do not fit the schema, or files that this version cannot read."""


def point_json(point: Mapping[str, Any]) -> str:
    """The parameters of a point as text that is equal for equal points."""
    return json.dumps(dict(point), sort_keys=True)


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "must be a non-empty string"


def _one_of(*allowed: str) -> Callable[[Any], str | None]:
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


def _json_object(value: Any) -> str | None:
    try:
        return None if isinstance(json.loads(value), dict) else "must be a JSON object"
    except (TypeError, ValueError):
        return "must be a JSON object"


def _whole(value: Any) -> str | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if whole else "must be a whole number, 0 or more"


def _number(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return None if number else "must be a finite number"


def _duration(value: Any) -> str | None:
    return _number(value) or (None if value >= 0 else "must be 0 or more")


def _utc(value: Any) -> str | None:
    utc = isinstance(value, datetime) and value.utcoffset() == timedelta(0)
    return None if utc else "must be a datetime in UTC"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"


def _version(value: Any) -> str | None:
    return None if value == SCHEMA_VERSION else f"must be {SCHEMA_VERSION}"


@dataclass(frozen=True)
class Column:
    """One column: its type on disk, what a value must be, and what it means."""

    name: str
    type: pa.DataType
    complaint: Callable[[Any], str | None]
    meaning: str
    nullable: bool = False


COLUMNS = (
    Column("schema_version", pa.int32(), _version, "version of this table"),
    Column("experiment", pa.string(), _text, "id, as `reproduce list` shows it"),
    Column("run_id", pa.string(), _text, "one execution of the experiment"),
    Column("point", pa.string(), _json_object, "parameters of the point, a JSON object with sorted keys"),
    Column("repetition", pa.int32(), _whole, "0 for the first"),
    Column("metric", pa.string(), _text, "what was measured"),
    Column("value", pa.float64(), _number, "the value measured"),
    Column("unit", pa.string(), _text, "its unit"),
    Column("latency_kind", pa.string(), _one_of(*LATENCY_KINDS), "the definition of a latency", True),
    Column("query", pa.string(), _text, "the query; null: the whole environment", True),
    Column("mode", pa.string(), _one_of(*MODES), "real threads or virtual clock"),
    Column("profile", pa.string(), _one_of(*PROFILES), "size of the run"),
    Column("dataset", pa.string(), _text, "name of the data set", True),
    Column("dataset_checksum", pa.string(), _text, "checksum in the data set's manifest", True),
    Column("machine_id", pa.string(), _text, "hash of `machine`"),
    Column("machine", pa.string(), _json_object, "fingerprint, a JSON object"),
    Column("git_revision", pa.string(), _text, "commit; null outside git", True),
    Column("started_at", pa.timestamp("us", tz="UTC"), _utc, "when the point was started"),
    Column("duration_s", pa.float64(), _duration, "how long it took"),
    Column("disturbed", pa.bool_(), _flag, "others used the machine meanwhile; null: unknown", True),
)
SCHEMA = pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in COLUMNS])


def check(row: Mapping[str, Any]) -> None:
    """Raise `ResultsError`, naming column and value, unless `row` fits the schema."""
    names = [column.name for column in COLUMNS]
    for name in row:
        if name not in names:
            raise ResultsError(
                f"unknown column {name!r} (value {row[name]!r}); the columns are {', '.join(names)}"
            )
    for column in COLUMNS:
        if column.name not in row:
            raise ResultsError(f"column {column.name!r} is missing ({column.meaning})")
        value = row[column.name]
        if value is None and column.nullable:
            continue
        if complaint := column.complaint(value):
            raise ResultsError(f"column {column.name!r} {complaint}, not {value!r} ({column.meaning})")
    if row["metric"].startswith("latency") and row["latency_kind"] is None:
        raise ResultsError(
            f"column 'latency_kind' must say which latency {row['metric']!r} is: {' or '.join(LATENCY_KINDS)}"
        )


def write(directory: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Check the rows of one point and repetition and write them as one file, in place of an older one."""
    records = [dict(row) for row in rows]
    for record in records:
        check(record)
    owners = {(record["run_id"], record["point"], record["repetition"]) for record in records}
    if len(owners) != 1:
        raise ResultsError(
            f"a file holds the rows of one run, point and repetition, not of {len(owners)}: {sorted(owners)}"
        )
    ((run, point, repetition),) = owners
    name = f"{run}-{hashlib.sha256(point.encode()).hexdigest()[:10]}-{repetition}.parquet"
    buffer = BytesIO()
    pq.write_table(pa.Table.from_pylist(records, schema=SCHEMA), buffer)
    return atomic.write_bytes(Path(directory) / name, buffer.getvalue())


def read(directory: Path | str) -> pd.DataFrame:
    """Every row under `directory`, ordered by time; an empty table with all columns where there is none."""
    root = Path(directory)
    if not root.is_dir():
        raise FileNotFoundError(f"no results directory {str(root)!r}")
    tables = [_read_file(path) for path in sorted(root.rglob("*.parquet"))]
    frame = pa.concat_tables(tables or [SCHEMA.empty_table()]).to_pandas()
    return frame.sort_values("started_at", kind="stable", ignore_index=True)


def widen(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with every parameter of their points as a column of its own."""
    points = pd.DataFrame([json.loads(point) for point in frame["point"]], index=frame.index)
    clash = [str(name) for name in points if name in frame]
    if clash:
        raise ResultsError(f"parameters named like columns of the schema: {', '.join(clash)}")
    return pd.concat([frame, points], axis=1)


def latest_run(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the run that was finished last; none where none was."""
    finished = frame[frame["metric"] == RUN_DURATION].sort_values("started_at")["run_id"].tolist()
    return frame[frame["run_id"].isin(finished[-1:])].reset_index(drop=True)


def _read_file(path: Path) -> pa.Table:
    file = pq.ParquetFile(path)
    if "schema_version" not in file.schema_arrow.names:
        raise ResultsError(f"{path} holds no results: it has no column 'schema_version'")
    table = file.read()
    newest = max(table.column("schema_version").to_pylist(), default=SCHEMA_VERSION)
    if newest > SCHEMA_VERSION:
        raise ResultsError(
            f"{path} was written with schema version {newest}, and this program reads up to "
            f"{SCHEMA_VERSION}: update it, or choose another results directory"
        )
    try:
        return table.select(SCHEMA.names).cast(SCHEMA)
    except (KeyError, ValueError) as error:
        raise ResultsError(
            f"{path} does not have the columns of schema version {SCHEMA_VERSION}: {error}"
        ) from error
