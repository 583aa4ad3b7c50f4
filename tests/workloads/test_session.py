import sys

import pytest

pytestmark = pytest.mark.spark


def test_one_session_per_process(spark) -> None:
    from workloads.spark.session import session

    assert session() is spark
    with pytest.raises(RuntimeError, match="Spark runs on"):
        session("local[7]")


def test_settings_that_results_depend_on(spark) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"


def test_python_workers_are_of_this_environment(spark) -> None:
    executables = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert executables == [sys.executable]
