"""What a prepared data set says of itself: how it was made and what exactly is in it.

A checksum covers the set of rows, not their order or the files they lie in, so that it is the same
whatever the number of Spark partitions. Results carry it: two runs with equal checksums had equal input.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.xxhash import xxhash64

SCHEMA_VERSION = 1
FILE = "manifest.json"


class ManifestError(ValueError):
    """A manifest that cannot be read, or data that is not what its manifest says."""


@dataclass(frozen=True)
class Table:
    """One table: its size, its content, and its columns with their Spark types."""

    rows: int
    checksum: str
    schema: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """A data set's name, the parameters it was made with, and its tables."""

    name: str
    parameters: dict[str, Any]
    tables: dict[str, Table]
    schema_version: int = SCHEMA_VERSION

    @property
    def checksum(self) -> str:
        """One value for the content of all tables."""
        content = json.dumps({name: table.checksum for name, table in self.tables.items()}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    def describes(self, name: str, parameters: dict[str, Any]) -> bool:
        """Whether this is the data set that is asked for, in the form we write today."""
        asked = (name, parameters, SCHEMA_VERSION)
        return (self.name, self.parameters, self.schema_version) == asked

    def write(self, directory: Path) -> None:
        """Write it, whole or not at all."""
        partial = directory / f".{FILE}.partial"
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n")
        os.replace(partial, directory / FILE)

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """The manifest in a directory; None if there is none."""
        path = directory / FILE
        if not path.exists():
            return None
        try:
            fields = json.loads(path.read_text())
            fields["tables"] = {name: Table(**table) for name, table in fields["tables"].items()}
            return cls(**fields)
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(f"{path} is not a manifest ({error}); remove {directory}") from error


def describe(records: np.ndarray) -> Table:
    """Describe an array of int64 records, as `workloads.spark.dataset.describe` describes a DataFrame."""
    names = list(records.dtype.names or ())
    hashes = xxhash64(records[name] for name in names)
    return Table(
        rows=len(records),
        checksum=checksum(int(np.bitwise_xor.reduce(hashes)), int(np.sum(hashes & 0xFFFFFFFF))),
        schema=dict.fromkeys(names, "bigint"),
    )


def checksum(xor: int, total: int) -> str:
    """Two ways to combine the hashes of all rows: exclusive or, and the sum of their lower halves."""
    return f"{xor & 0xFFFFFFFFFFFFFFFF:016x}{total:016x}"
