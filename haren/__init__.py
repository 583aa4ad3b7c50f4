"""haren decides: which operator of a stream query runs next, and on which thread.

It knows operators, streams, threads and time, and nothing of events; any engine that offers the contract
of `haren.spe` can be scheduled. START HERE: ``haren/policy.py`` to write a policy; ``haren/policies/`` has
those of the papers, ``haren/dispatch/`` the ways threads get work, ``haren/spe.py`` what an engine offers.
"""

import haren.policies as _builtin  # noqa: F401  (first: the function of this name, below, goes before it)
from haren import arrivals, assign, distributions, teaching
from haren.dispatch import Bound, Dedicated, Dispatch, Pool, Shared
from haren.errors import PolicyError, PolicyWarning, PythonFallbackWarning
from haren.execution import Execution
from haren.features import FEATURES, Feature
from haren.graph import Graph, GraphArrays, downstream, upstream
from haren.numbers import draw
from haren.policy import Policy
from haren.quantum import rest_of_round
from haren.registry import make, policies, register
from haren.spe import Engine
from haren.trace import Trace

from haren.virtual import OverloadWarning, Simulation  # isort: skip
from haren import testing  # isort: skip

__all__ = [
    "FEATURES",
    "Bound",
    "Dedicated",
    "Dispatch",
    "Engine",
    "Execution",
    "Feature",
    "Graph",
    "GraphArrays",
    "OverloadWarning",
    "Policy",
    "PolicyError",
    "PolicyWarning",
    "Pool",
    "PythonFallbackWarning",
    "Shared",
    "Simulation",
    "Trace",
    "arrivals",
    "assign",
    "distributions",
    "downstream",
    "draw",
    "make",
    "policies",
    "register",
    "rest_of_round",
    "teaching",
    "testing",
    "upstream",
]
