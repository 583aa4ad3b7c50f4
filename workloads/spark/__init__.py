"""The Spark side: finding Java, one session per process, data set pipelines and oracles.

`session.py` has the session, one file per data set makes it, `oracle.py` computes answers. `workloads` and
its modules reach for this package only when they need it, so that Spark is not loaded for nothing.
"""

__all__: list[str] = []
