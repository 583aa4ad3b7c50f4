"""Data sets and the queries over them.

START HERE to add a workload. It is one file in this folder, `workloads/<name>.py`, and its test,
`tests/workloads/test_<name>.py`. `workloads/ysb.py` is the one to copy; a workload has

- a numpy dtype for each kind of record: all that the engine ever sees;
- `load(...)`, which returns the records as numpy arrays together with the data set's manifest, and
  prepares the data set on Spark (`workloads/spark/<name>.py`) when it is not there yet;
- `synthetic(...)`, the same records made in this process, for tests that must not wait for Spark;
- `query(env, data, ...)`, which builds the query on an `enjima.Environment`;
- `expected(data, ...)`, the answer computed in some other way: what the engine says is compared with it.

Name the module in `__all__` below. Importing this package loads neither Spark nor the engine.
"""

from workloads import chains, ysb

__all__ = ["chains", "ysb"]
