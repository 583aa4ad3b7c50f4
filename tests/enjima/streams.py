"""Short ways to run one query over several tables of events, and the modes of the engine."""

from collections.abc import Callable
from typing import Any

import numpy as np

import enjima as en
import haren
from enjima.testing import assert_exact
from tests.enjima.queries import SMALL, rows

MODES = ("blocks-pool", "blocks-dedicated", "queue-pool", "queue-dedicated", "blocks-bound")
TINY = {"threads": 2, "block_events": 1, "blocks_per_chunk": 1, "max_chunks": 2}
TEN = en.Tumbling(seconds=10e-9)
TEN_BY_FIVE = en.Sliding(seconds=10e-9, every=5e-9)


def mode(name: str, quantum: int = 16384) -> dict[str, Any]:
    """Options of an environment for one of the modes."""
    memory, dispatch = name.split("-")
    ways = {
        "pool": lambda: haren.Pool(quantum=quantum, shared_quantum=quantum),
        "dedicated": lambda: haren.Dedicated(quantum=quantum),
        "bound": lambda: haren.Bound("random", period=0.001, batch=quantum, check=True),
    }
    return {"memory": memory, "dispatch": ways[dispatch]()}


def none(stream: en.Stream) -> en.Stream:
    """A stream that brings nothing but its end."""
    return stream.filter(lambda e: False)


def ran(
    build: Callable[..., en.Stream], *tables: np.ndarray, options: Any = SMALL, **source: Any
) -> tuple[en.RunResult, list[tuple]]:
    """Run ``build`` over a source for each table; the results must be those of the plain interpretation."""
    env = en.Environment(**options)
    sink = build(*(env.source(part, time="time", **source) for part in tables)).collect()
    result = env.run()
    assert_exact(env, sink)
    return result, rows(sink.array())


def combined(
    build: Callable[..., en.Stream], *tables: np.ndarray, options: Any = SMALL, **source: Any
) -> list:
    """The results alone."""
    return ran(build, *tables, options=options, **source)[1]


def late_events(result: en.RunResult, operator: str) -> int:
    """How many events an operator dropped as late."""
    return int(result.operators.set_index("operator")["late"][operator])
