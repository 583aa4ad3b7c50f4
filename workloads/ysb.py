"""The Yahoo Streaming Benchmark: how often are a campaign's ads viewed in each ten seconds?

Ads are shown, clicked and bought. The query keeps the views, finds the campaign of each ad in a table
that stays in memory, and counts per campaign and window.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from workloads import manifest
from workloads.manifest import Manifest, ManifestError
from workloads.paths import data_dir as default_data_dir
from workloads.xxhash import Int64s, xxhash64

if TYPE_CHECKING:
    import enjima as en

VIEW = 0
"""The event type that is counted."""

AD_EVENT = np.dtype([(name, "i8") for name in (
    "user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address", "sequence",
)])  # fmt: skip
"""An event, 64 bytes; `event_time` in nanoseconds from 0, `sequence` is its number."""

CAMPAIGN = np.dtype([("ad_id", "i8"), ("campaign_id", "i8")])
"""Which campaign an ad belongs to."""

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
ADS = CAMPAIGNS * ADS_PER_CAMPAIGN
EVENT_TYPES = 3

UNIFORM = {"user_id": 100, "page_id": 100, "ad_id": ADS, "ad_type": 5, "ip_address": 2**32}
"""Fields drawn evenly from 0 up to, but not including, this."""

SALT = {name: salt for salt, name in enumerate([*UNIFORM, "event_type", "campaign_id"])}
"""Every field of row n is drawn from a hash of (seed, salt, n), so that rows can be made in any order."""

MILLION = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Parameters:
    """All that the data set depends on. `view_share` is one third unless given."""

    events: int
    seed: int = 1
    events_per_second: int = 10 * MILLION
    view_share: float | None = None

    def __post_init__(self) -> None:
        if self.events < 1:
            raise ValueError(f"events must be at least 1, not {self.events}")
        if not 1 <= self.events_per_second <= SECOND:
            raise ValueError(f"events_per_second must be 1 to {SECOND}, not {self.events_per_second}")
        if self.view_share is not None and not 0 <= self.view_share <= 1:
            raise ValueError(f"view_share must be 0 to 1, not {self.view_share}")

    def directory(self, data_dir: Path | str | None = None) -> Path:
        """Where this data set is kept."""
        share = "" if self.view_share is None else f"-views{self.view_share}"
        name = f"ysb-{self.events}-seed{self.seed}-rate{self.events_per_second}{share}"
        return Path(data_dir or default_data_dir()) / name

    @property
    def views_per_million(self) -> int | None:
        return None if self.view_share is None else round(self.view_share * MILLION)


@dataclass(frozen=True)
class YsbData:
    """The events in order of time, the campaigns, the manifest that identifies both, and where they lie."""

    ads: np.ndarray
    campaigns: np.ndarray
    manifest: Manifest
    directory: Path | None = None


def load(
    events: int = MILLION,
    seed: int = 1,
    data_dir: Path | str | None = None,
    *,
    events_per_second: int = 10 * MILLION,
    view_share: float | None = None,
) -> YsbData:
    """The data set from disk; the first time it is prepared on Spark, which takes some seconds.

    It is kept in `data_dir`, else in `HAREN_LAB_DATA`, else in the user's cache.
    """
    parameters = Parameters(events, seed, events_per_second, view_share)
    directory = parameters.directory(data_dir)
    found = Manifest.read(directory)
    if found is None or not found.describes("ysb", asdict(parameters)):
        from workloads.spark import ysb as pipeline

        found = pipeline.prepare(parameters, directory)
    return YsbData(
        ads=_read(directory, "ads", AD_EVENT, found),
        campaigns=_read(directory, "campaigns", CAMPAIGN, found),
        manifest=found,
        directory=directory,
    )


def synthetic(
    events: int,
    seed: int = 1,
    *,
    events_per_second: int = 10 * MILLION,
    view_share: float | None = None,
) -> YsbData:
    """The very same data set made in this process: for tests that must not wait for Spark."""
    parameters = Parameters(events, seed, events_per_second, view_share)
    number = np.arange(events, dtype=np.int64)

    ads = np.empty(events, AD_EVENT)
    for field, size in UNIFORM.items():
        ads[field] = _draw(seed, field, number) % size
    ads["event_type"] = _event_types(_draw(seed, "event_type", number), parameters.views_per_million)
    ads["event_time"] = number * SECOND // events_per_second
    ads["sequence"] = number

    campaigns = np.empty(ADS, CAMPAIGN)
    campaigns["ad_id"] = np.arange(ADS)
    shuffled = np.argsort(_draw(seed, "campaign_id", campaigns["ad_id"]), kind="stable")
    campaigns["campaign_id"][shuffled] = np.arange(ADS) // ADS_PER_CAMPAIGN

    tables = {"ads": manifest.describe(ads), "campaigns": manifest.describe(campaigns)}
    return YsbData(ads, campaigns, Manifest("ysb", asdict(parameters), tables))


def query(
    env: en.Environment,
    data: YsbData,
    rate: float | None = None,
    loop: bool | int | None = None,
    window_seconds: float = 10,
    name: str | None = None,
    sink: Literal["collect", "null"] = "collect",
) -> Any:
    """Build the query on an environment and return its sink: window_start, campaign_id, views.

    `name` is the query's, for environments with several.
    """
    import enjima as en

    counts = (
        env.source(data.ads, rate=rate, time="event_time", loop=loop, name="ads", query=name)
        .filter(lambda e: e.event_type == VIEW, name="views")
        .map(lambda e: (e.ad_id, e.event_time), schema="ad_id: i8, event_time: i8", name="project")
        .join_static(data.campaigns, on="ad_id", name="campaign")
        .key_by("campaign_id")
        .window(en.Tumbling(seconds=window_seconds))
        .aggregate(views=en.count(), name="count")
    )
    match sink:
        case "collect":
            return counts.collect()
        case "null":
            return counts.null()
    raise ValueError(f"sink must be collect or null, not {sink!r}")


def expected(data: YsbData, window_seconds: float = 10) -> pd.DataFrame:
    """The answer to the query over all events, once, by pandas; ordered by window and campaign."""
    events = pd.DataFrame({name: data.ads[name] for name in ("ad_id", "event_type", "event_time")})
    campaigns = pd.DataFrame({name: data.campaigns[name] for name in ("ad_id", "campaign_id")})
    views = events[events.event_type == VIEW].merge(campaigns, on="ad_id")
    width = window_ns(window_seconds)
    views["window_start"] = views.event_time // width * width
    return views.groupby(["window_start", "campaign_id"]).size().rename("views").reset_index()


def window_ns(window_seconds: float) -> int:
    return round(window_seconds * SECOND)


def _draw(seed: int, field: str, number: Int64s) -> Int64s:
    return xxhash64([seed, SALT[field], number])


def _event_types(drawn: Int64s, views_per_million: int | None) -> Int64s:
    if views_per_million is None:
        return drawn % EVENT_TYPES
    others = VIEW + 1 + drawn % (EVENT_TYPES - 1)
    return np.where(drawn % MILLION < views_per_million, VIEW, others)


def _read(directory: Path, table: str, dtype: np.dtype, found: Manifest) -> np.ndarray:
    """Read a table of Parquet files, in the order of their names, into an array of records."""
    from pyarrow import parquet

    records = np.empty(found.tables[table].rows, dtype)
    names = list(dtype.names or ())
    filled = 0
    for path in sorted((directory / table).glob("*.parquet")):
        for batch in parquet.ParquetFile(path).iter_batches(columns=names):
            part = records[filled : filled + batch.num_rows]
            if len(part) < batch.num_rows:
                raise ManifestError(f"{directory / table} has more rows than its manifest says")
            for name in names:
                part[name] = batch.column(name).to_numpy()
            filled += batch.num_rows
    if filled < len(records):
        raise ManifestError(f"{directory / table} has {filled} rows, its manifest says {len(records)}")
    return records
