"""Figures from results: seaborn, units on every axis, 95 % intervals of the mean over repetitions.

Figures are made without pyplot's global state, so they show once in a notebook and work without a screen.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce import atomic, stats

STATISTICS = {"latency_mean": "mean", "latency_p99": "p99"}
_MEASUREMENT = ["run_id", "point", "repetition"]


def rates(frame: pd.DataFrame, title: str) -> Figure:
    """Latency and delivered rate against the offered rate, side by side."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    latency_against_rate(left, frame)
    delivered_against_offered(right, frame)
    figure.suptitle(title)
    return figure


def latency_against_rate(axes: Axes, frame: pd.DataFrame) -> None:
    """Mean and p99 of marker and result latency, logarithmic, against the offered rate."""
    rows = _against_offered(frame, list(STATISTICS))
    rows = rows.assign(statistic=rows["metric"].map(STATISTICS)).rename(columns={"latency_kind": "latency"})
    sns.lineplot(
        rows, x="offered", y="value", hue="latency", style="statistic", markers=True, errorbar=stats.interval,
        err_style="bars", ax=axes,
    )  # fmt: skip
    axes.set(xlabel="offered rate (M events/s)", ylabel="latency (ms)", yscale="log", xlim=(0, None))
    axes.grid(True, which="both", alpha=0.3)


def delivered_against_offered(axes: Axes, frame: pd.DataFrame) -> None:
    """What sources delivered of what was offered; on the dotted line it is all of it."""
    rows = _against_offered(frame, ["delivered_rate"])
    rows = rows.assign(delivered=rows["value"] / 1e6)
    sns.lineplot(
        rows, x="offered", y="delivered", marker="o", errorbar=stats.interval, err_style="bars",
        label="delivered", ax=axes,
    )  # fmt: skip
    axes.axline((0, 0), slope=1, linestyle=":", color="grey", label="all of it")
    axes.set(
        xlabel="offered rate (M events/s)",
        ylabel="delivered rate (M events/s)",
        xlim=(0, None),
        ylim=(0, None),
    )
    axes.grid(True, alpha=0.3)
    axes.legend()


def save(figure: Figure, path: Path) -> list[Path]:
    """Write the figure beside `path` as PNG and as SVG."""
    return [
        atomic.write_bytes(path.with_name(f"{path.name}.{kind}"), render(figure, kind))
        for kind in ("png", "svg")
    ]


def render(figure: Figure, kind: str) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()


def _against_offered(frame: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """The rows of `metrics` with the offered rate (M events/s, all queries together) of their point."""
    offered = frame[frame["metric"] == "offered_rate"].groupby(_MEASUREMENT)["value"].sum() / 1e6
    return frame[frame["metric"].isin(metrics)].join(offered.rename("offered"), on=_MEASUREMENT)
