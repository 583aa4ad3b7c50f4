import numpy as np
import pytest

from workloads.xxhash import xxhash64


@pytest.mark.spark
def test_equals_sparks_own(spark) -> None:
    from pyspark.sql import functions as F

    edges = [0, 1, -1, 42, 2**63 - 1, -(2**63), 123456789012345678]
    frame = spark.createDataFrame([(a, b) for a in edges for b in edges], "a bigint, b bigint")
    rows = frame.select("a", "b", F.xxhash64("a", "b").alias("hash")).collect()

    columns = [np.array([row[name] for row in rows]) for name in ("a", "b")]
    assert xxhash64(columns).tolist() == [row["hash"] for row in rows]


def test_a_scalar_stands_for_a_column() -> None:
    column = np.arange(5)
    assert np.array_equal(xxhash64([7, column]), xxhash64([np.full(5, 7), column]))
