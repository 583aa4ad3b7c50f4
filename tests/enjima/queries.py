"""Short ways to build a table of events, run one query over it, and read what came out."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import enjima as en

ROOT = Path(__file__).parents[2]
SMALL = {"threads": 2, "block_events": 2, "blocks_per_chunk": 2, "max_chunks": 3}  # every path is taken


def table(**columns: Any) -> np.ndarray:
    """A structured array of these columns; plain numbers become 64 bits wide."""
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    result = np.zeros(
        len(next(iter(arrays.values()))), [(name, column.dtype) for name, column in arrays.items()]
    )
    for name, column in arrays.items():
        result[name] = column
    return result


def rows(array: np.ndarray) -> list[tuple]:
    """The events as tuples."""
    return [tuple(row) for row in array.tolist()]


def outcome(data: Any, build: Callable[[en.Stream], en.Stream], options: Any = SMALL, **source: Any) -> list:
    """The events a query produces, as tuples: ``data``, the steps of ``build``, a collecting sink."""
    env = en.Environment(**options)
    sink = build(env.source(data, **source)).collect()
    env.run()
    return rows(sink.array())


def unchanged(stream: en.Stream) -> en.Stream:
    return stream


def python(script: str, *arguments: str, timeout: float = 120, **environment: str) -> str:
    """What a script prints in a Python process of its own, which must end well."""
    import os

    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout
