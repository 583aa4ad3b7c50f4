"""One Spark session per process: local, quiet, and the same on every machine."""

import os
import sys
import warnings
from pathlib import Path

from pyspark.sql import SparkSession

from workloads.spark.java import java_home

_CONFIG: dict[str, bool | float | int | str | None] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.execution.arrow.pyspark.enabled": True,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": 8,
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
}


# PySpark's caution about pandas 3 is about handing frames over; we hand over Arrow tables.
_CAUTION = "PySpark does not yet fully support pandas"


def session(master: str = "local[*]", app: str = "haren-lab") -> SparkSession:
    """The process's Spark session, started on the first call.

    Sets JAVA_HOME and PYSPARK_PYTHON of this process, because Spark starts its virtual machine and its
    Python workers from them, and the workers must be of this very environment.
    """
    running = SparkSession.getActiveSession() or _start(master, app)
    if running.sparkContext.master != master:
        raise RuntimeError(f"Spark runs on {running.sparkContext.master} in this process, not on {master}")
    return running


def _start(master: str, app: str) -> SparkSession:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).with_name("conf")))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", message=_CAUTION, category=FutureWarning)
    return SparkSession.builder.master(master).appName(app).config(map=_CONFIG).getOrCreate()
