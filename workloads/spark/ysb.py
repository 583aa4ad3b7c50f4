"""The YSB data set on Spark: DataFrame expressions over row numbers, so no Python per row.

`workloads.ysb` says what the fields are and makes the same rows without Spark.
"""

from dataclasses import asdict
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from workloads import ysb
from workloads.manifest import Manifest
from workloads.spark import dataset


def prepare(parameters: ysb.Parameters, out: Path, partitions: int | None = None) -> Manifest:
    """Write the data set to `out`, unless it is there; `partitions` changes the files, not the rows."""
    tables = {
        "ads": lambda spark: ads(spark, parameters, partitions),
        "campaigns": lambda spark: campaigns(spark, parameters.seed),
    }
    return dataset.prepare(out, "ysb", asdict(parameters), tables)


def ads(spark: SparkSession, parameters: ysb.Parameters, partitions: int | None = None) -> DataFrame:
    """The events, in order of time."""
    number = F.col("id")
    seed = parameters.seed
    columns = {field: F.pmod(_draw(seed, field, number), _long(n)) for field, n in ysb.UNIFORM.items()}
    columns["event_type"] = _event_type(_draw(seed, "event_type", number), parameters.views_per_million)
    columns["event_time"] = F.expr(f"id * {ysb.SECOND}L div {parameters.events_per_second}L")
    columns["sequence"] = number
    rows = spark.range(0, parameters.events, 1, partitions)
    return rows.select(*(columns[name].alias(name) for name in ysb.AD_EVENT.names or ()))


def campaigns(spark: SparkSession, seed: int) -> DataFrame:
    """Ten ads for each campaign, dealt from a shuffled deck."""
    place = F.row_number().over(Window.orderBy(_draw(seed, "campaign_id", F.col("ad_id")), "ad_id")) - 1
    campaign = F.floor(place / ysb.ADS_PER_CAMPAIGN).cast("bigint")
    deck = spark.range(0, ysb.ADS, 1, 1).withColumnRenamed("id", "ad_id")
    return deck.withColumn("campaign_id", campaign).orderBy("ad_id").coalesce(1)


def _draw(seed: int, field: str, number: Column) -> Column:
    return F.xxhash64(_long(seed), _long(ysb.SALT[field]), number)


def _event_type(drawn: Column, views_per_million: int | None) -> Column:
    if views_per_million is None:
        return F.pmod(drawn, _long(ysb.EVENT_TYPES))
    others = F.pmod(drawn, _long(ysb.EVENT_TYPES - 1)) + _long(ysb.VIEW + 1)
    return F.when(F.pmod(drawn, _long(ysb.MILLION)) < views_per_million, _long(ysb.VIEW)).otherwise(others)


def _long(value: int) -> Column:
    return F.lit(value).cast("bigint")
