"""to_parquet: the events as Parquet files, each of which appears whole or not at all."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from enjima.errors import SchemaError
from enjima.operators.operator import Instance
from enjima.operators.sink import Sink
from enjima.schema import Schema

__all__ = ["ParquetSink"]

GROUP = 1 << 17  # rows of a row group


class ParquetSink(Sink):
    """One file, there when the stream has ended; or, with ``rows_per_file``, a directory of files."""

    label = "parquet"

    def __init__(
        self,
        name: str,
        inputs: Schema,
        time: str | None,
        path: Any,
        rows_per_file: int | None,
        overwrite: bool,
    ) -> None:
        super().__init__(name, inputs, time)
        where = f"to_parquet {name!r}"
        if rows_per_file is not None and (not isinstance(rows_per_file, int) or rows_per_file < 1):
            raise SchemaError(f"{where}: rows_per_file={rows_per_file!r}; give a positive number, or None")
        self.path = Path(path)
        self.rows_per_file = rows_per_file
        self.overwrite = overwrite
        folder = self.path.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise SchemaError(f"{where}: {folder} is not a directory that can be written to")
        self._check_free(where)

    def _check_free(self, where: str) -> None:
        if rows_are_there(self.path) and not self.overwrite:
            raise SchemaError(f"{where}: {self.path} exists already; remove it or give overwrite=True")

    def deploy(self) -> Instance:
        self._check_free(f"to_parquet {self.name!r}")
        instance = _Writer(self)
        instance.use_python(instance.batch_of())
        return instance

    def describe(self) -> str:
        return f"parquet {self.path.name}"


class _Writer(Instance):
    """Gathers rows into row groups; the file gets its name when it is complete."""

    operator: ParquetSink

    def __init__(self, operator: ParquetSink) -> None:
        super().__init__(operator)
        self.wants_end = True
        self._rows: list[np.ndarray] = []
        self._held = 0
        self._in_file = 0
        self._files = 0
        self._file: Any = None
        self._temporary: str | None = None

    def batch_of(self) -> Callable[..., int]:
        def batch(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            self.progress = 0
            if self.stop_flag():
                return 0
            if count:
                self._add(self.inputs(events, count).copy())
            else:
                self._complete()
            return count

        return batch

    def _add(self, rows: np.ndarray) -> None:
        limit = self.operator.rows_per_file or (1 << 62)
        while len(rows):
            part = rows[: limit - self._in_file]
            self._rows.append(part)
            self._held += len(part)
            self._in_file += len(part)
            rows = rows[len(part) :]
            if self._held >= GROUP or self._in_file == limit:
                self._flush()
            if self._in_file == limit:
                self._publish()

    def _complete(self) -> None:
        if self._in_file or self._files == 0:
            self._flush()
            self._publish()

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        schema = self.operator.inputs
        assert schema is not None
        rows = np.concatenate([np.empty(0, schema.dtype), *self._rows])
        table = pa.table({name: pa.array(np.ascontiguousarray(rows[name])) for name in schema.names})
        if self._file is None:
            folder = self.operator.path
            if self.operator.rows_per_file is None:
                folder = folder.parent
            folder.mkdir(exist_ok=True)
            handle, self._temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=folder)
            os.close(handle)
            self._file = parquet.ParquetWriter(self._temporary, table.schema)
        self._file.write_table(table)
        self._rows, self._held = [], 0

    def _publish(self) -> None:
        assert self._temporary is not None
        self._file.close()
        self._file = None
        target = self.operator.path
        if self.operator.rows_per_file is not None:
            if self._files == 0:
                self._clear(target)
            target = target / f"part-{self._files:05d}.parquet"
        os.chmod(self._temporary, 0o666 & ~_umask())
        os.replace(self._temporary, target)
        self._temporary = None
        self._files += 1
        self._in_file = 0

    def _clear(self, folder: Path) -> None:
        for path in folder.glob("part-*.parquet"):
            path.unlink()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._temporary is not None:
            os.unlink(self._temporary)
            self._temporary = None
            folder = self.operator.path
            if self.operator.rows_per_file is not None and not any(folder.iterdir()):
                folder.rmdir()


def rows_are_there(path: Path) -> bool:
    """Whether there is a file, or a directory with part files, that would be replaced."""
    return path.is_file() or any(path.glob("part-*.parquet"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
