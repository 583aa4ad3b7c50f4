"""What all tests share: the --long option and one Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="runs only with --long"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark, started once for all tests that ask for it; mark them `spark`."""
    from workloads.spark.session import session

    running = session()
    yield running
    running.stop()
