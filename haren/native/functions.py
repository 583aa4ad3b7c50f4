"""A policy's functions as native code: compiled where they can be, else Python behind the same address.

Each is built into a small loop over the feature matrix (`haren.matrix`). Helpers that a user's function calls
are compiled with it. What a function raises, and values that break its contract, become a code: the kind of
mistake, and the operator it happened on; `haren.dispatch.bound` then calls the function again in Python, for
its traceback.
"""

import ctypes
import math
import numbers
import textwrap
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numba import carray, float64, int64, njit
from numba.core.errors import NumbaError

from haren import matrix as m
from haren.errors import PolicyError, PythonFallbackWarning
from haren.features import Feature
from haren.graph import Graph, GraphArrays
from haren.matrix import Matrix, features_type
from haren.memory import address
from haren.native.atomics import load, pointer, store
from haren.native.compiler import Native, compile_native
from haren.policy import Policy

__all__ = ["Functions", "compiled_with_helpers", "mistake"]

# kinds of mistakes; a code is the kind and, from bit 8 on, the operator
RAISED, NOT_A_NUMBER, WRONG_SHAPE, NO_SUCH_THREAD, NOT_POSITIVE = 1, 2, 3, 4, 5

HEAD = """
    n = load(matrix + OPERATORS)
    base = load(matrix + VALUES)
    stride = load(matrix + STRIDE)
    threads = load(matrix + THREADS)
    seed = load(matrix + SEED)
    round_end = load(matrix + ROUND_END)
    F = Features({columns})
    graph = GraphArrays(
        carray(pointer(load(matrix + QUERY)), (n,), int64),
        load(matrix + QUERY_COUNT),
        carray(pointer(load(matrix + UPSTREAM_FROM)), (n + 1,), int64),
        carray(pointer(load(matrix + UPSTREAM)), (load(load(matrix + UPSTREAM_FROM) + 8 * n),), int64),
        carray(pointer(load(matrix + DOWNSTREAM_FROM)), (n + 1,), int64),
        carray(pointer(load(matrix + DOWNSTREAM)), (load(load(matrix + DOWNSTREAM_FROM) + 8 * n),), int64),
    )
    state = carray(pointer(load(matrix + STATE)), (n, {states}), float64)
"""

# every template is evaluate(matrix, operators, count, target, now) -> 0 or a code
TEMPLATES = {
    # the priorities of `count` operators into rows of `target`
    "g": """
    target_rows = carray(pointer(target), (n, {dims}), float64)
    for i in range(count):
        op = load(operators + 8 * i)
        try:
            values = {flat}
        except Exception:
            return RAISED | op << 8
        for d in range({dims}):
            value = values[d]
            if value != value:
                return NOT_A_NUMBER | op << 8
            target_rows[op, d] = value
    return 0
""",
    # the policy's state for `count` operators
    "adapt": """
    for i in range(count):
        op = load(operators + 8 * i)
        try:
            function({call})
        except Exception:
            return RAISED | op << 8
    return 0
""",
    # a thread for each operator into `target`
    "f": """
    try:
        chosen = function({call})
    except Exception:
        return RAISED
    if len(chosen) != n:
        return WRONG_SHAPE
    for op in range(n):
        thread = chosen[op]
        if not 0 <= thread < threads or thread != int(thread):
            return NO_SUCH_THREAD | op << 8
        store(target + 8 * op, int(thread))
    return 0
""",
    # whether operator number `count` may be picked: its answer in `target`
    "eligible": """
    op = count
    try:
        store(target, 1 if function({call}) else 0)
    except Exception:
        return RAISED | op << 8
    return 0
""",
    # how many events operator number `count` may take, in `target`
    "quantum": """
    op = count
    try:
        events = float(function({call}))
    except Exception:
        return RAISED | op << 8
    if events != events:
        return NOT_A_NUMBER | op << 8
    if events < 1.0:
        return NOT_POSITIVE | op << 8
    store(target, int(min(events, 1e15)))
    return 0
""",
    # a derived feature of all flagged operators, into its own row
    "feature": """
    flags = load(matrix + FLAGS)
    row = carray(pointer(base + stride * ROW), (n,), {type})
    mistake = 0
    for i in range(n):
        op = {order}
        if load(flags + 8 * op) != 0:
            try:
                value = float(function({call}))
            except Exception:
                mistake = RAISED | op << 8
                continue
            if value != value or {overflow}:
                mistake = NOT_A_NUMBER | op << 8
                continue
            row[op] = value
    return mistake
""",
}

_WORDS = {name: value for name, value in vars(m).items() if name.isupper() and isinstance(value, int)}
_NAMES = {
    "RAISED": RAISED, "NOT_A_NUMBER": NOT_A_NUMBER, "WRONG_SHAPE": WRONG_SHAPE,
    "NO_SUCH_THREAD": NO_SUCH_THREAD, "NOT_POSITIVE": NOT_POSITIVE, "GraphArrays": GraphArrays,
    "carray": carray, "pointer": pointer, "load": load, "store": store, "int64": int64, "float64": float64,
}  # fmt: skip
LIBRARIES = ("numpy", "numba", "math", "builtins", "operator")
_hopeless: WeakKeyDictionary[Callable, tuple[Sequence[str], Exception]] = WeakKeyDictionary()
"""Functions that numba could not compile, with the features they saw, and why: not tried again."""
SIGNATURE = "int64(int64, int64, int64, int64, int64)"
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)


def compiled_with_helpers(function: Callable, seen: dict[int, Any] | None = None) -> Any:
    """A function compiled by numba, with the plain Python functions it calls compiled as well."""
    if hasattr(function, "py_func"):
        return function
    if not isinstance(function, types.FunctionType):
        raise NumbaError(f"{function!r} is not a function written in Python")
    seen = {} if seen is None else seen
    if id(function) in seen:
        return seen[id(function)]
    seen[id(function)] = function

    def known(value: Any) -> Any:
        if isinstance(value, types.FunctionType) and not _is_library(value):
            return value if value is function else compiled_with_helpers(value, seen)
        if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] not in LIBRARIES:
            part = types.ModuleType(value.__name__)
            part.__dict__.update({name: known(vars(value)[name]) for name in names if name in vars(value)})
            return part
        return value

    code, names = function.__code__, _all_names(function.__code__)
    scope = dict(function.__globals__)
    scope.update({name: known(scope[name]) for name in names if name in scope})
    cells = [types.CellType(known(cell.cell_contents)) for cell in function.__closure__ or ()]
    copy = types.FunctionType(code, scope, function.__name__, function.__defaults__, tuple(cells))
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    jitted = seen[id(function)] = njit(boundscheck=True)(copy)
    for name in names:  # it may call itself
        if scope.get(name) is function:
            scope[name] = jitted
    for cell in cells:
        if cell.cell_contents is function:
            cell.cell_contents = jitted
    return jitted


def _all_names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_all_names, inner))


def _is_library(function: types.FunctionType) -> bool:
    return (function.__module__ or "").split(".")[0] in LIBRARIES


class Functions:
    """The functions of a policy for one matrix: their addresses, and what keeps them alive."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.policy = policy = matrix.policy
        self.python: dict[str, Callable] = {"g": policy.g, "f": policy.f}
        bind = getattr(policy.f, "for_graph", None)
        if bind is not None:
            self.python["f"] = bind(matrix.graph)
        for role in ("eligible", "quantum", "adapt"):
            if getattr(policy, role) is not None:
                self.python[role] = getattr(policy, role)
        self.wanted = {role: policy.arguments(role) for role in self.python}
        self.names = dict.fromkeys(self.python, policy.declared)
        for feature in matrix.derived:
            assert feature.function is not None
            self.python[feature.name] = feature.function
            self.names[feature.name] = tuple(dict.fromkeys([*feature.needs, feature.name]))
            self.wanted[feature.name] = _feature_arguments(policy, feature)
        self.raised: dict[str, BaseException] = {}  # by Python behind an address, to be reported
        self.slow: list[str] = []  # the functions that run as Python
        self.tupled = False
        self.dims = self._dimensions()
        self._keep: list[Any] = []
        self.addresses = {role: self._address(role) for role in self.python}

    def _dimensions(self) -> int:
        """How many numbers a priority has."""
        for op in range(len(self.matrix.graph)):
            try:
                value = self.probe("g", op, 0)
            except Exception:
                continue
            self.tupled = isinstance(value, tuple)
            return max(1, len(value)) if isinstance(value, tuple) else 1
        return 1

    def probe(self, role: str, op: int, now: int) -> Any:
        """Call a function in Python, leaving the policy's state as it is."""
        state = self.matrix.state.copy()
        try:
            return self.call(role, op, now)
        finally:
            self.matrix.state[:] = state

    def call(self, role: str, op: int, now: int) -> Any:
        """Call a function in Python."""
        arguments = self.matrix.arguments(op, self.names[role], self.wanted[role], now)
        return self.python[role](*arguments)

    def compute(self, name: str, now: int) -> None:
        """Compute a derived feature of all flagged operators; raise what is wrong with it."""
        code = CALLBACK(self.addresses[name])(address(self.matrix.words), 0, 0, 0, now)
        if code:
            raise mistake(self, name, code, now)

    def answer(self, role: str, op: int, now: int) -> int:
        """What eligible or quantum says of an operator, by its address."""
        target = np.zeros(1, np.int64)
        code = CALLBACK(self.addresses[role])(address(self.matrix.words), 0, op, address(target), now)
        if code:
            raise mistake(self, role, code, now)
        return int(target[0])

    def _feature(self, role: str) -> Feature | None:
        return next((feature for feature in self.matrix.derived if feature.name == role), None)

    def _address(self, role: str) -> int:
        try:
            native = self._compile(role)
        except Exception as error:  # of numba, of any kind: no code of the user's has run
            _hopeless[self.python[role]] = self.names[role], error
            self.slow.append(role)
            warnings.warn(
                f"policy {self.policy.name!r}: {role} does not compile and runs as Python, with the same "
                f"schedule. {_reason(error)}",
                PythonFallbackWarning,
                stacklevel=2,
            )
            callback = CALLBACK(self._in_python(role))
            self._keep.append(callback)
            return ctypes.cast(callback, ctypes.c_void_p).value or 0
        self._keep.append(native)
        return native.address

    def _compile(self, role: str) -> Native:
        feature, policy = self._feature(role), self.policy
        former = _hopeless.get(self.python[role])
        if former is not None and former[0] == self.names[role]:
            raise former[1]
        template = HEAD + TEMPLATES["feature" if feature else role]
        function = compiled_with_helpers(self.python[role])
        call = ", ".join(self.wanted[role])
        columns = []
        for name in self.names[role]:
            kind = "int64" if policy.resolved[name].dtype == "i8" else "float64"
            columns.append(f"carray(pointer(base + stride * {self.matrix.row[name]}), (n,), {kind})")
        values = f"function({call})"
        flat = values if self.tupled else f"({values},)"
        source = template.format(
            columns=", ".join(columns), states=self.matrix.state.shape[1], dims=self.dims, call=call,
            flat=f"as_floats({flat})", type="int64" if feature and feature.dtype == "i8" else "float64",
            overflow="abs(value) >= 9e18" if feature and feature.dtype == "i8" else "False",
            order="n - 1 - i" if feature and feature.reads == "downstream" else "i",
        )  # fmt: skip
        head = "def evaluate(matrix, operators, count, target, now):\n"
        # numba has no loops over tuples of mixed types, so the conversion is written out
        numbers_ = ", ".join(f"1.0 * v[{i}]" for i in range(self.dims))
        scope: dict[str, Any] = {
            **_WORDS, **_NAMES, "Features": features_type(self.names[role]), "function": function,
            "ROW": self.matrix.row[role] if feature else 0,
        }  # fmt: skip
        check = f"    if len(v) != {self.dims}:\n        raise ValueError\n"
        exec(f"def as_floats(v):\n{check}    return ({numbers_},)", scope)
        scope["as_floats"] = njit(scope["as_floats"])
        exec(
            compile(head + textwrap.indent(textwrap.dedent(source), "    "), "<haren policy>", "exec"), scope
        )
        return compile_native(scope["evaluate"], SIGNATURE)

    # -- the same in Python -----------------------------------------------------------------------

    def _in_python(self, role: str) -> Callable[..., int]:
        inner = {
            "g": self._python_g, "f": self._python_f, "eligible": self._python_eligible,
            "quantum": self._python_quantum, "adapt": self._python_adapt,
        }.get(role) or (lambda *a: self._python_feature(role, *a))  # fmt: skip

        def evaluate(matrix: int, operators: int, count: int, target: int, now: int) -> int:
            try:
                return inner(operators, count, target, now)
            except BaseException as error:  # the code tells the scheduler, which reports it
                self.raised[role] = error
                return RAISED

        return evaluate

    def _python_g(self, operators: int, count: int, target: int, now: int) -> int:
        rows = _words(target, len(self.matrix.graph) * self.dims).view(np.float64).reshape(-1, self.dims)
        for op in _words(operators, count).tolist():
            try:
                values = self.call("g", op, now)
            except Exception as error:
                self.raised["g"] = error
                return RAISED | op << 8
            values = values if isinstance(values, tuple) else (values,)
            if len(values) != self.dims:
                return WRONG_SHAPE | op << 8
            for d, value in enumerate(values):
                if not isinstance(value, numbers.Real) or math.isnan(value):
                    return NOT_A_NUMBER | op << 8
                rows[op, d] = value
        return 0

    def _python_f(self, operators: int, count: int, target: int, now: int) -> int:
        chosen = list(self.call("f", 0, now))
        if len(chosen) != len(self.matrix.graph):
            return WRONG_SHAPE
        for op, thread in enumerate(chosen):
            number = float(thread) if isinstance(thread, numbers.Real) else -1.0
            if not 0 <= number < self.matrix.threads or number != int(number):
                return NO_SUCH_THREAD | op << 8
        if chosen:
            _words(target, len(chosen))[:] = [int(thread) for thread in chosen]
        return 0

    def _python_eligible(self, operators: int, op: int, target: int, now: int) -> int:
        try:
            _words(target, 1)[0] = bool(self.call("eligible", op, now))
        except Exception as error:
            self.raised["eligible"] = error
            return RAISED | op << 8
        return 0

    def _python_quantum(self, operators: int, op: int, target: int, now: int) -> int:
        try:
            events = float(self.call("quantum", op, now))
        except Exception as error:
            self.raised["quantum"] = error
            return RAISED | op << 8
        if math.isnan(events):
            return NOT_A_NUMBER | op << 8
        if events < 1:
            return NOT_POSITIVE | op << 8
        _words(target, 1)[0] = int(min(events, 1e15))
        return 0

    def _python_adapt(self, operators: int, count: int, target: int, now: int) -> int:
        for op in _words(operators, count).tolist():
            try:
                self.call("adapt", op, now)
            except Exception as error:
                self.raised["adapt"] = error
                return RAISED | op << 8
        return 0

    def _python_feature(self, role: str, operators: int, count: int, target: int, now: int) -> int:
        feature, mistake_ = self._feature(role), 0
        assert feature is not None
        column, order = self.matrix.column(role), range(len(self.matrix.graph))
        for op in reversed(order) if feature.reads == "downstream" else order:
            if self.matrix.flags[op]:
                try:
                    value = float(self.call(role, op, now))
                except Exception as error:
                    self.raised[role] = error
                    mistake_ = RAISED | op << 8
                    continue
                if math.isnan(value) or (feature.dtype == "i8" and abs(value) >= 9e18):
                    mistake_ = NOT_A_NUMBER | op << 8
                else:
                    column[op] = value
        return mistake_


def mistake(functions: Functions, role: str, code: int, now: int) -> PolicyError:
    """What went wrong, with the operator and, as the cause, what the function itself raised."""
    kind, op = code & 255, code >> 8
    policy, graph = functions.policy, functions.matrix.graph
    what = role if role in ("f", "g", "eligible", "quantum", "adapt") else f"feature {role}"
    per_operator = role != "f" or kind == NO_SUCH_THREAD
    name = graph.names[op] if per_operator and op < len(graph) else None
    where = f"policy {policy.name!r}: {what}"
    where += f", operator {op} ({name!r})" if name is not None else ""
    cause = functions.raised.pop(role, None)
    value = None
    if cause is None:
        try:
            value = functions.probe(role, op, now)
        except Exception as error:
            cause = error
    if kind == NO_SUCH_THREAD and value is not None:
        thread = list(value)[op]
        why = f"thread {thread} does not exist; there are {functions.matrix.threads}, numbered from 0"
    elif kind == WRONG_SHAPE and role == "f" and value is not None:
        why = f"it returned {len(list(value))} threads for {len(graph)} operators"
    elif kind == WRONG_SHAPE:
        why = f"it returned {value!r}, but {functions.dims} number(s) before"
    elif kind == NOT_A_NUMBER:
        why = f"it returned {value!r}, which is not a number that can be compared"
    elif kind == NOT_POSITIVE:
        why = f"it returned {value!r}; a turn is at least one event"
    elif cause is not None:
        why = f"{type(cause).__name__}: {cause}"
    else:
        why = "it failed in compiled code, and did not when called again in Python"
    made = PolicyError(f"{where}: {why}", policy=policy.name, function=role, operator=name)
    made.__cause__ = cause
    return made


def _feature_arguments(policy: Policy, feature: Feature) -> tuple[str, ...]:
    import inspect

    given = tuple(inspect.signature(feature.function).parameters)  # type: ignore[arg-type]
    if len(given) < 2 or set(given[2:]) - {"graph", "threads", "now"}:
        raise PolicyError(
            f"policy {policy.name!r}: feature {feature.name!r} is computed by a function of (op, F), which "
            f"may ask by name for graph, threads and now; this one takes ({', '.join(given)})",
            policy=policy.name,
            function=feature.name,
        )
    return ("op", "F", *given[2:])


def _words(where: int, count: int) -> np.ndarray:
    if count == 0:
        return np.empty(0, np.int64)
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(where))


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    chosen = [line for line in lines if not line.startswith(("Failed in", "-", "During:", "File"))]
    return (chosen or lines or [type(error).__name__])[0][:300]


def evaluate_all(functions: Functions, role: str, now: int = 0) -> tuple[int, np.ndarray]:
    """For checks: the code and the values of f or g for all operators, by its address."""
    graph: Graph = functions.matrix.graph
    operators = np.arange(len(graph), dtype=np.int64)
    target = np.zeros((len(graph), functions.dims)) if role == "g" else np.zeros(len(graph), np.int64)
    call = CALLBACK(functions.addresses[role])
    arguments: Sequence[int] = (address(operators), len(graph), address(target), now)
    return call(address(functions.matrix.words), *arguments), target
