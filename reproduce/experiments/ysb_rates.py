"""ysb-rates: what latency and throughput of one YSB query do as the offered rate rises to the maximum.

The functions are the notebook's steps, in its order: prepare, verify, maximum, sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reproduce import results, stats
from reproduce.experiments import Claim, Experiment
from reproduce.recorder import Metric, Recorder

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from workloads.ysb import YsbData

EXACTNESS, MAXIMUM, RATE = "exactness", "maximum", "rate"
"""The stages a point can belong to."""

QUOTED = (
    ("offered, M events/s", "offered_rate", None, 1e-6),
    ("delivered, M events/s", "delivered_rate", None, 1e-6),
    ("marker mean, ms", "latency_mean", "marker", 1),
    ("marker p99, ms", "latency_p99", "marker", 1),
    ("result mean, ms", "latency_mean", "result", 1),
    ("result p99, ms", "latency_p99", "result", 1),
)
"""Columns of the table: title, metric, kind of latency, scale."""

WINDOWS = 10
"""So many windows are compared with Spark's: the data spans a fraction of a second of event time."""

FOLLOWS = 0.99
"""A source follows its rate when it delivers this share of it."""


def prepare(recorder: Recorder) -> YsbData:
    """The data, made on Spark once and kept."""
    from workloads import ysb

    recorder.say("data, prepared on Spark where it is not there yet")
    data = ysb.load(events=recorder.parameters["events"], seed=recorder.parameters["seed"])
    recorder.use_dataset("ysb", data.manifest.checksum)
    return data


def verify(recorder: Recorder, data: YsbData) -> None:
    """Record how many of the engine's counts differ from Spark's over the same data, in `WINDOWS` windows."""
    from workloads import ysb
    from workloads.spark import oracle

    recorder.say("Spark's counts, and the engine's")
    span = int(data.ads["event_time"][-1]) / ysb.SECOND
    window_seconds = span / WINDOWS
    counts = oracle.ysb_counts(data, window_seconds)
    recorder.record({"stage": EXACTNESS}, lambda point: _compare(recorder, data, window_seconds, counts))


def maximum(recorder: Recorder, data: YsbData) -> float:
    """Events per second when the source never waits: the median over the repetitions."""
    points = [{"stage": MAXIMUM}]
    recorder.sweep(points, recorder.parameters["repetitions"], lambda point: _run(recorder, data, rate=None))
    return _maximum(recorder.results())


def sweep(recorder: Recorder, data: YsbData, highest: float) -> None:
    """Measure every fraction of the maximum as often as the profile says."""
    points = [{"stage": RATE, "fraction": fraction} for fraction in recorder.parameters["fractions"]]

    def measure(point: Mapping[str, Any]) -> Iterator[Metric]:
        return _run(recorder, data, rate=point["fraction"] * highest)

    recorder.sweep(points, recorder.parameters["repetitions"], measure)


def summary(frame: pd.DataFrame, quote: Callable[[pd.Series], Any] = stats.mean) -> pd.DataFrame:
    """The columns of the table by fraction, each the `quote` of its repetitions."""
    import pandas as pd

    rows = _rates(frame)
    shown = {}
    for title, metric, kind, scale in QUOTED:
        chosen = rows[rows["metric"] == metric]
        if kind:
            chosen = chosen[chosen["latency_kind"] == kind]
        shown[title] = (chosen["value"] * scale).groupby(chosen["fraction"]).agg(quote)
    return pd.DataFrame(shown).rename_axis("fraction of the maximum")


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The summary for people: means with half the width of their 95 % interval."""
    return summary(frame, stats.quote).astype(object).fillna("–")


def figures(frame: pd.DataFrame) -> dict[str, Figure]:
    from reproduce import plots

    rows = _rates(frame)
    return {"ysb-rates": plots.rates(rows, f"YSB, one query, {rows['threads'].iloc[0]:.0f} threads")}


def sentence(frame: pd.DataFrame) -> str:
    """The run in one sentence."""
    rows = summary(frame)
    half = min(rows.index, key=lambda fraction: abs(fraction - 0.5))
    at = rows.loc[half]
    return (
        f"The engine takes {_maximum(frame) / 1e6:.1f} M events/s at most; at {half:.0%} of that the mean "
        f"marker latency is {at['marker mean, ms']:.2f} ms (p99 {at['marker p99, ms']:.2f} ms), and its "
        f"counts {'equal' if _exact(frame) else 'DIFFER FROM'} those of Spark."
    )


def _run(recorder: Recorder, data: YsbData, rate: float | None) -> Iterator[Metric]:
    import enjima as en
    from reproduce import metrics
    from workloads import ysb

    chosen = recorder.parameters
    env = en.Environment(threads=chosen["threads"], marker_interval=chosen["marker_interval"])
    ysb.query(env, data, rate=rate, loop=True, window_seconds=chosen["window_seconds"], sink="null")
    yield from metrics.of_run(
        env.run(seconds=chosen["seconds"], warmup=chosen["cut_seconds"], cooldown=chosen["cut_seconds"])
    )


def _compare(
    recorder: Recorder, data: YsbData, window_seconds: float, counts: pd.DataFrame
) -> Iterator[Metric]:
    import enjima as en
    from workloads import ysb

    env = en.Environment(threads=recorder.parameters["threads"])
    ours = ysb.query(env, data, window_seconds=window_seconds, sink="collect")
    env.run()
    yield Metric("oracle_counts", float(len(counts)), "counts")
    yield Metric("oracle_mismatches", float(mismatches(ours.frame(), counts)), "counts")


def mismatches(ours: pd.DataFrame, spark: pd.DataFrame) -> int:
    """Windows of a campaign with another count, on one side only, or there twice."""
    keys = ["window_start", "campaign_id"]
    both = ours[[*keys, "views"]].merge(
        spark[[*keys, "views"]], on=keys, how="outer", suffixes=("", "_spark")
    )
    return int((both["views"] != both["views_spark"]).sum()) + int(both.duplicated(keys).sum())


def _rates(frame: pd.DataFrame) -> pd.DataFrame:
    rows = results.widen(frame)
    return rows[rows["stage"] == RATE]


def _maximum(frame: pd.DataFrame) -> float:
    rows = results.widen(frame)
    return stats.median(
        rows[(rows["stage"] == MAXIMUM) & (rows["metric"] == "delivered_rate")]["value"].tolist()
    )


def _exact(frame: pd.DataFrame) -> bool:
    compared, wrong = (
        frame.loc[frame["metric"] == m, "value"].sum() for m in ("oracle_counts", "oracle_mismatches")
    )
    return bool(compared > 0 and wrong == 0)


def _follows(frame: pd.DataFrame) -> bool:
    rows = summary(frame)
    low = rows[rows.index <= 0.8]
    return bool((low["delivered, M events/s"] >= FOLLOWS * low["offered, M events/s"]).all())


EXPERIMENT = Experiment(
    id="ysb-rates",
    paper="ours",
    title="YSB on one engine: latency and throughput against the offered rate",
    profiles={
        "smoke": {
            "events": 100_000, "seed": 1, "fractions": [0.25, 0.5], "repetitions": 1, "seconds": 0.6,
            "cut_seconds": 0.1, "threads": 2, "window_seconds": 0.1, "marker_interval": 0.001,
        },
        "quick": {
            "events": 1_000_000, "seed": 1, "fractions": [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1],
            "repetitions": 3, "seconds": 2.0, "cut_seconds": 0.25, "threads": 2, "window_seconds": 0.5,
            "marker_interval": 0.001,
        },
        "paper": {
            "events": 10_000_000, "seed": 1,
            "fractions": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1], "repetitions": 5,
            "seconds": 300.0, "cut_seconds": 30.0, "threads": 2, "window_seconds": 10.0,
            "marker_interval": 0.05,
        },
    },
    table=table,
    figures=figures,
    sentence=sentence,
    claims=(
        Claim("The engine's counts equal Spark's to the last one", _exact),
        Claim(f"Up to 80 % of the maximum, {FOLLOWS:.0%} of what is offered is delivered", _follows),
    ),
    headline=True,
)  # fmt: skip
