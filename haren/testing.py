"""Does a policy keep its contract? `check_policy` tries it on small graphs, the smallest first.

    haren.testing.check_policy(mine)

It is run over every registered policy by haren's own tests. A check that fails raises a `PolicyError` that
says what was wrong and on which example, the smallest one that shows it.
"""

import copy
import math
import numbers
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from haren.dispatch import Bound, Shared
from haren.errors import PolicyError, PythonFallbackWarning
from haren.graph import Graph
from haren.matrix import Matrix
from haren.policy import Policy
from haren.registry import make
from haren.virtual import Simulation

__all__ = ["Report", "check_policy"]

GRAPHS = (
    Graph(["source"], [0]),
    Graph(["source", "sink"], [0, 0], [(0, 1)]),
    Graph(["source", "filter", "map", "sink"], [0] * 4, [(0, 1), (1, 2), (2, 3)]),
    Graph(["source", "left", "right", "join", "sink"], [0] * 5, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]),
    Graph(["a", "a-map", "a-sink", "b", "b-map", "b-sink", "b-sink-2"], [0] * 3 + [1] * 4,
          [(0, 1), (1, 2), (3, 4), (4, 5), (4, 6)], classes=[1, 0]),
)  # fmt: skip
DRAWS = 8  # of feature values for each graph and number of threads
NOW = 10**12


@dataclass(frozen=True)
class Report:
    """What was checked, and what is worth knowing of the policy."""

    policy: str
    checks: tuple[str, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [f"ok    {check}" for check in self.checks] + [f"note  {note}" for note in self.notes]
        return "\n".join([f"policy {self.policy!r}", *lines])


class Example:
    """A policy on a small graph, with values for its features."""

    def __init__(self, policy: Policy, graph: Graph, threads: int, draw: int) -> None:
        from haren.native.functions import Functions

        self.policy, self.graph, self.threads = policy, graph, threads
        self.matrix = Matrix(policy, graph, threads, seed=draw)
        if draw:
            _fill(self.matrix, draw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PythonFallbackWarning)
            self.functions = Functions(self.matrix)
        for feature in self.matrix.derived:
            self.functions.compute(feature.name, NOW)

    def fail(self, role: str, what: str, op: int | None = None, cause: BaseException | None = None) -> None:
        """Say what is wrong, and on what."""
        where = f", operator {op} ({self.graph.names[op]!r})" if op is not None else ""
        edges = ", ".join(
            f"{self.graph.names[up]} -> {self.graph.names[down]}" for up, down in self.graph.edges
        )
        values = "".join(
            f"\n  F.{name} = {self.matrix.column(name).tolist()}" for name in self.policy.resolved
        )
        raise PolicyError(
            f"policy {self.policy.name!r}: {role}{where}: {what}\n"
            f"for operators {', '.join(self.graph.names)}{' with ' + edges if edges else ''}, "
            f"{self.threads} thread(s), seed {self.matrix.arguments(0, (), ('seed',), 0)[0]}{values}",
            policy=self.policy.name,
            function=role,
            operator=self.graph.names[op] if op is not None else None,
        ) from cause

    def call(self, role: str, op: int = 0) -> Any:
        """Call a function in Python, from a state that is as before."""
        state = self.matrix.state.copy()
        try:
            return self.functions.call(role, op, NOW)
        except Exception as error:
            undeclared = isinstance(error, AttributeError) and " 'F' " in f" {error} "
            what = f"it raises {type(error).__name__}: {error}"
            if undeclared or (isinstance(error, AttributeError) and "'F' object" in str(error)):
                what += "; it reads a feature that features=[...] does not declare"
            if isinstance(error, ValueError) and "read-only" in str(error):
                what = "it writes to F or to graph; both are there to be read, state= is there to be changed"
            self.fail(role, what, None if role == "f" else op, error)
        finally:
            self.matrix.state[:] = state


def check_policy(policy: Policy | str) -> Report:
    """Raise `PolicyError` unless the policy keeps its contract; see the top of this file.

    Shapes and types; every operator on one existing thread; priorities that can be compared (+-inf may be,
    NaN not); inputs unchanged; the same answers for the same seed; compiled as in Python; only declared
    features read; and, unless the policy is declared ``unfair``, all work of small queries done in the end.
    """
    policy = make(policy)
    notes: list[str] = []
    checks: list[str] = []
    ranks = policy.dispatch != "dedicated" or policy.g is not Policy.g
    if ranks:
        ranking = replace(policy, dispatch="bound")
        slow: set[str] = set()
        for example in _examples(ranking):
            _check_f(example)
            _check_g(example)
            _check_options(example)
            _check_untouched(example)
            _check_compiled(example)
            _check_adapt(example)
            slow.update(example.functions.slow)
        checks = [
            "f: one existing thread for each operator",
            "g: numbers that can be compared, as many for each operator",
            "F and graph are not changed, and hold declared features only",
            "the same seed gives the same answers",
            "compiled and Python agree",
        ]
        if slow:
            notes.append(f"runs as Python, since it does not compile: {', '.join(sorted(slow))}")
    if policy.unfair:
        notes.append("declared unfair: whether all work is done in the end was not checked")
    elif policy.dispatch != "dedicated":
        _check_liveness(policy)
        checks.append("all work of small queries is done in the end")
    return Report(policy.name, tuple(checks), tuple(notes))


def _examples(policy: Policy) -> Iterator[Example]:
    for graph in GRAPHS:
        if getattr(policy.f, "for_graph", None) is not None:
            policy = replace(policy, f=Policy.f)  # pins name operators of the user's own graph
        for threads in (1, 2, 3):
            for draw in range(DRAWS if threads == 2 else 2):
                yield Example(policy, graph, threads, draw)


def _fill(matrix: Matrix, draw: int) -> None:
    """Values as they may be: also none waiting, nothing measured yet, nothing bounded."""
    random = np.random.default_rng(draw)
    for feature in matrix.features:
        if feature.static or feature.derived:
            continue
        count = len(matrix.graph)
        values = random.integers(1, 1000, count) * 10.0 ** random.integers(0, 4, count)
        if feature.name == "selectivity":
            values = random.choice([0.0, 0.1, 0.5, 1.0, 3.0], count)
        if feature.name == "thread":
            values = random.integers(0, matrix.threads, count)
        if feature.name == "pending":
            values = values * random.integers(0, 2, count)
        column = matrix.column(feature.name)
        column[:] = values
        if feature.empty is not None:
            column[random.random(count) < 0.3] = feature.empty


def _check_f(example: Example) -> None:
    chosen = example.call("f")
    count, threads = len(example.graph), example.threads
    try:
        chosen = list(chosen)
    except TypeError as error:
        example.fail("f", f"it returns {chosen!r}, not one thread for each operator", cause=error)
    if len(chosen) != count:
        example.fail("f", f"it returns {len(chosen)} threads for {count} operators: {chosen!r}")
    for op, thread in enumerate(chosen):
        if not isinstance(thread, numbers.Real) or thread != thread or int(float(thread)) != thread:
            example.fail("f", f"it returns {thread!r}, which is no number of a thread", op)
        if not 0 <= float(thread) < threads:
            example.fail("f", f"thread {thread} does not exist; there are {threads}, numbered from 0", op)


def _check_g(example: Example) -> None:
    widths = set()
    for op in range(len(example.graph)):
        value = example.call("g", op)
        parts = value if isinstance(value, tuple) else (value,)
        widths.add(len(parts))
        if not parts:
            example.fail("g", "it returns an empty tuple", op)
        for part in parts:
            if not isinstance(part, (numbers.Real, np.bool_)):
                example.fail("g", f"it returns {value!r}; a number or a tuple of numbers is needed", op)
            if math.isnan(part):
                example.fail("g", f"it returns {value!r}; NaN cannot be compared", op)
    if len(widths) > 1:
        example.fail(
            "g", f"priorities have {' and '.join(map(str, sorted(widths)))} numbers; give all as many"
        )


def _check_options(example: Example) -> None:
    for op in range(len(example.graph)):
        if example.policy.eligible is not None:
            answer = example.call("eligible", op)
            if not isinstance(answer, (bool, np.bool_, int)):
                example.fail("eligible", f"it returns {answer!r}; True or False is needed", op)
        if example.policy.quantum is not None:
            events = example.call("quantum", op)
            if not isinstance(events, numbers.Real) or not float(events) >= 1:
                example.fail("quantum", f"it returns {events!r}; at least one event is needed", op)


def _check_untouched(example: Example) -> None:
    """What functions are given stays as it is, and they answer twice alike."""
    before = copy.deepcopy(example.graph.arrays)
    for role in example.functions.python:
        for op in range(len(example.graph)):
            first, second = example.call(role, op), example.call(role, op)
            if not _same(first, second):
                example.fail(
                    role, f"it returns {first!r}, then {second!r} for the same; use seed or state", op
                )
            for name, old, new in zip(before._fields, before, example.graph.arrays, strict=True):
                if not np.array_equal(np.asarray(old), np.asarray(new)):
                    example.fail(role, f"it changes graph.{name}", op)


def _check_compiled(example: Example) -> None:
    from haren.native.functions import evaluate_all, mistake

    values = {name: example.matrix.column(name).copy() for name in example.policy.resolved}
    state = example.matrix.state.copy()
    for role in ("f", "g"):
        code, compiled = evaluate_all(example.functions, role, NOW)
        if code:
            raise mistake(example.functions, role, code, NOW)
        for name, before in values.items():
            if not np.array_equal(before, example.matrix.column(name)):
                example.fail(role, f"compiled, it writes to F.{name}; features are there to be read")
        example.matrix.state[:] = state
        if role == "f":
            plain: Any = np.asarray(list(example.functions.call("f", 0, NOW)), np.int64)
        else:
            rows = [example.functions.call("g", op, NOW) for op in range(len(example.graph))]
            plain = np.array([row if isinstance(row, tuple) else (row,) for row in rows], float)
        example.matrix.state[:] = state
        if not np.array_equal(plain, compiled):
            example.fail(role, f"compiled it returns {compiled.tolist()}, as Python {plain.tolist()}")
    for role in {"eligible", "quantum"} & set(example.functions.python):
        for op in range(len(example.graph)):
            answer, said = int(min(example.call(role, op), 1e15)), example.functions.answer(role, op, NOW)
            example.matrix.state[:] = state
            if answer != said:
                example.fail(role, f"compiled it returns {said}, as Python {answer}", op)


def _check_adapt(example: Example) -> None:
    """It leaves numbers behind, the same ones compiled and as Python."""
    from haren.native.functions import evaluate_all, mistake

    if example.policy.adapt is None:
        return
    before = example.matrix.state.copy()
    code, _ = evaluate_all(example.functions, "adapt", NOW)
    if code:
        raise mistake(example.functions, "adapt", code, NOW)
    compiled, example.matrix.state[:] = example.matrix.state.copy(), before
    for op in range(len(example.graph)):
        example.functions.call("adapt", op, NOW)
        state = example.matrix.state[op].tolist()
        if any(map(math.isnan, state)):
            example.fail("adapt", f"it leaves NaN in state: {state}", op)
        if state != compiled[op].tolist():
            example.fail("adapt", f"compiled it leaves {compiled[op].tolist()}, as Python {state}", op)
    example.matrix.state[:] = before


def _check_liveness(policy: Policy) -> None:
    if getattr(policy.f, "for_graph", None) is not None:
        policy = replace(policy, f=Policy.f)
    for threads in (1, 2):
        net = Simulation(capacity=4)
        for number in range(2):
            source = net.source(2000, cost=1_000, count=200, query_class=number)
            fork = net.operator(source, cost=30_000, selectivity=0.5)
            left, right = net.operator(fork, cost=20_000), net.operator(fork, cost=90_000)
            net.sink(net.operator(left, right, cost=10_000), cost=1_000)
        how = (
            Shared(policy, epoch=0.01, batch=3, strict=True)
            if policy.dispatch == "shared"
            else Bound(policy, period=0.01, batch=3, strict=True)
        )
        result = net.run(20, how, threads=threads, trace=0)
        stuck = result.operators[result.operators["pending"] > 0]
        if len(stuck):
            waiting = ", ".join(f"{row.operator} ({row.pending} events)" for row in stuck.itertuples())
            raise PolicyError(
                f"policy {policy.name!r}: on {threads} thread(s), work was left though there was time "
                f"for all of it: {waiting}. If that is meant, declare the policy with unfair=True",
                policy=policy.name,
            )


def _same(first: Any, second: Any) -> bool:
    return bool(np.array_equal(np.asarray(first, object), np.asarray(second, object)))
