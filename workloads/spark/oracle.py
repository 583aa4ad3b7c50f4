"""Answers computed by Spark over the prepared data: what an engine's results are compared with."""

import pandas as pd
from pyspark.sql import functions as F

from workloads.spark.session import session
from workloads.ysb import VIEW, YsbData, window_ns


def ysb_counts(data: YsbData, window_seconds: float = 10, limit: int | None = None) -> pd.DataFrame:
    """Views per window and campaign, over all events of a loaded data set or its first `limit`."""
    if data.directory is None:
        raise ValueError("Spark needs a data set on disk: load() one, a synthetic() one is in memory only")
    spark = session()
    events = spark.read.parquet(str(data.directory / "ads"))
    if limit is not None:
        events = events.filter(F.col("sequence") < limit)
    width = window_ns(window_seconds)
    counts = (
        events.filter(F.col("event_type") == VIEW)
        .join(spark.read.parquet(str(data.directory / "campaigns")), "ad_id")
        .withColumn("window_start", F.expr(f"event_time div {width}L * {width}L"))
        .groupBy("window_start", "campaign_id")
        .agg(F.count("*").alias("views"))
        .orderBy("window_start", "campaign_id")
    )
    return counts.toArrow().to_pandas()
