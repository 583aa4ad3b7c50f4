"""Benchmarks: one file each, discovered by its name; `reproduce bench NAME` runs it.

A benchmark is a module here with `rows(effort)`, a generator of `Row`s: it is told how much time it may
take ("quick": under 50 seconds, "default": under 3 minutes, "long": a quiet hour) and yields one row for
each line of its table. What is compared is measured in interleaved pairs, because a shared machine
changes its speed from minute to minute and only neighbours in time tell anything.
"""

from __future__ import annotations

import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Literal

from reproduce import stats
from reproduce.fingerprint import Disturbance, fingerprint, identifier
from reproduce.stats import short

__all__ = [
    "Effort",
    "Row",
    "UnknownBenchmark",
    "interleave",
    "middle",
    "names",
    "ratio",
    "run",
    "say",
    "table",
]

Effort = Literal["quick", "default", "long"]


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table.

    `bar` is what must be reached and `aim` what we want; a bar of None: the row is only a report.
    `spread` is half the interquartile range of what `value` is the median of; None for a single run.
    `note` is for people: what the value is made of, or what it means.
    """

    what: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    bar: float | None
    aim: float | None
    spread: float | None
    note: str = ""


class UnknownBenchmark(KeyError):
    """No benchmark has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.message = f"unknown benchmark {name!r}; the benchmarks are: {', '.join(names())}"

    def __str__(self) -> str:
        return self.message


def names() -> list[str]:
    """The modules here that have rows; a command has dashes where a file has underscores."""
    found = [module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)]
    return [name for name in found if hasattr(_module(name), "rows")]


def run(name: str, effort: Effort = "default") -> dict[str, Any]:
    """The rows of one benchmark with the machine they were measured on, ready for JSON."""
    if name not in names():
        raise UnknownBenchmark(name)
    machine = fingerprint()
    with Disturbance() as disturbance:
        rows = [asdict(row) for row in _module(name).rows(effort)]
    watched = {key: getattr(disturbance, key) for key in ("steal", "foreign", "disturbed")}
    return {"bench": name, "machine": {"id": identifier(machine)} | machine | watched, "rows": rows}


def table(outcome: dict[str, Any]) -> str:
    """The outcome of `run` for people."""
    titles = ("what", "value", "spread", "bar", "aim", "")
    lines = [titles, *(_line(row) for row in outcome["rows"])]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:-1], widths[1:-1]), line[-1]]).rstrip()
        for line in lines
    )


def interleave(*measures: Callable[[], float], rounds: int, what: str) -> list[list[float]]:
    """Call the functions in turn (A, B, A, B, ...), `rounds` times; the values of each."""
    values: list[list[float]] = [[] for _ in measures]
    for turn in range(rounds):
        say(f"{what}: round {turn + 1} of {rounds}")
        for measure, series in zip(measures, values, strict=True):
            series.append(measure())
    return values


def middle(values: Sequence[float]) -> tuple[float, float | None]:
    """Median and spread of repeated measurements; a single one has no spread."""
    return stats.median(values), stats.spread(values) if len(values) > 1 else None


def ratio(ours: Sequence[float], limit: Sequence[float]) -> tuple[float, float | None]:
    """Median and spread of the ratios of neighbours in time."""
    return middle([a / b for a, b in zip(ours, limit, strict=True)])


def say(text: str) -> None:
    """One line of progress, apart from the output."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def _module(name: str) -> Any:
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    sign = ">=" if row["better"] == "higher" else "<="
    bar, value = row["bar"], row["value"]
    missed = bar is not None and (value < bar if row["better"] == "higher" else value > bar)
    return (
        row["what"],
        f"{short(value)} {row['unit']}",
        "" if row["spread"] is None else f"± {short(row['spread'])}",
        "report" if bar is None else f"{sign} {short(bar)}",
        "" if row["aim"] is None else short(row["aim"]),
        "; ".join(filter(None, ["MISSED" if missed else "", row["note"]])),
    )
