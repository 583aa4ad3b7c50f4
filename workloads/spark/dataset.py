"""Prepare a data set on Spark: whole or not at all, and only if it is not there yet."""

import fcntl
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from workloads.manifest import FILE, Manifest, Table, checksum
from workloads.spark.session import session


def prepare(
    out: Path,
    name: str,
    parameters: dict[str, Any],
    tables: Mapping[str, Callable[[SparkSession], DataFrame]],
) -> Manifest:
    """Write each table as Parquet under `out/<table>`, with a manifest; reuse what is there if it matches.

    All of it is written beside `out` and renamed at the end. A run that was killed leaves nothing that
    could be taken for a data set, and the next one starts over; of several at once, one does the work.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        present = Manifest.read(out)
        if present is not None and present.describes(name, parameters):
            return present
        _check_ours(out, {FILE, *tables})

        partial = _beside(out, "partial")
        shutil.rmtree(partial, ignore_errors=True)
        spark = session()
        described = {}
        for table, build in tables.items():
            path = str(partial / table)
            build(spark).write.parquet(path)
            described[table] = describe(spark.read.parquet(path))
        manifest = Manifest(name, parameters, described)
        manifest.write(partial)

        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
        return manifest


def describe(frame: DataFrame) -> Table:
    """Rows, checksum and schema of a DataFrame, in one pass over it."""
    row = F.xxhash64(*frame.columns)
    summary = frame.agg(
        F.count("*").alias("rows"),
        F.coalesce(F.bit_xor(row), F.lit(0)).alias("xor"),
        F.coalesce(F.sum(row.bitwiseAND(F.lit(0xFFFFFFFF))), F.lit(0)).alias("total"),
    ).first()
    assert summary is not None  # an aggregate over everything has one row
    return Table(summary["rows"], checksum(summary["xor"], summary["total"]), dict(frame.dtypes))


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """One process at a time works on `out`."""
    with _beside(out, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _beside(out: Path, what: str) -> Path:
    return out.with_name(f".{out.name}.{what}")


def _check_ours(out: Path, names: set[str]) -> None:
    """Refuse to replace a directory that holds anything but a data set of this kind."""
    strangers = sorted(path.name for path in out.glob("*") if path.name not in names)
    if strangers:
        raise FileExistsError(f"{out} is not a data set to be replaced: it holds {', '.join(strangers)}")
