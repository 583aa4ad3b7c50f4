"""Compile a Python function to a native address once, ever: per process and per machine.

Numba's own disk cache is keyed by the file and time stamp of one function, so it misses for functions
built around a user's lambda and goes stale when a helper in another file changes. Here the key is
content: the function's code and everything it reaches (constants, closures, globals, helpers), the
sources of the native packages, the versions and the CPU. Only object code is stored, so a cached
kernel is loaded without starting numba's type inference.
"""

import dis
import enum
import hashlib
import itertools
import os
import pickle
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from numba import cfunc
from numba.core.bytecode import FunctionIdentity
from numba.core.registry import cpu_target
from numba.core.types import Type
from numba.extending import _Intrinsic

__all__ = [
    "Native",
    "Unhashable",
    "cache_dir",
    "compile_native",
    "compiled_count",
    "fingerprint",
    "register_sources",
]

# Numba numbers the functions it compiles from 1 in every process and makes symbols of the numbers. Object
# code of several processes meets in one here, where equal symbols would silently bind to the first loaded.
FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(5)) << 20)

VERSIONED = ("numba", "numpy", "math", "builtins", "operator")
_memory: dict[str, "Native"] = {}
_sources: list[Path] = [Path(__file__).parent, Path(__file__).parent.parent / "dispatch"]
_compiled = 0
_lock = threading.RLock()


class Unhashable(TypeError):
    """A function reaches a value whose content cannot be hashed; it is compiled anew in each process."""


class Native:
    """A compiled function: its address, and the code library that keeps the address alive."""

    def __init__(self, address: int, library: Any) -> None:
        self.address = address
        self._library = library


def cache_dir() -> Path:
    """Where object code is kept: ``HAREN_CACHE_DIR``, else the user's cache directory."""
    base = os.environ.get("HAREN_CACHE_DIR")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "haren-lab" / "kernels"


def register_sources(directory: Path) -> None:
    """Let a change of any file in ``directory`` invalidate what was compiled before it."""
    if directory not in _sources:
        _sources.append(directory)
        _platform_key.cache_clear()


def compiled_count() -> int:
    """How many functions this process has really compiled (neither remembered nor read from disk)."""
    return _compiled


@cache
def _platform_key() -> bytes:
    digest = hashlib.sha256()
    for part in (numba.__version__, llvmlite.binding.get_host_cpu_name(), np.__version__):
        digest.update(part.encode() + b"\0")
    digest.update(llvmlite.binding.get_host_cpu_features().flatten().encode())
    for directory in _sources:
        for path in sorted(directory.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.digest()


def fingerprint(function: Callable) -> bytes:
    """A digest of all a function's result can depend on; raises `Unhashable` where that is not known."""
    digest = hashlib.sha256()
    _feed(digest, function, set())
    return digest.digest()


def _feed(digest: Any, value: Any, seen: set[int], names: frozenset[str] = frozenset()) -> None:
    """Add a value; ``names`` are those the code it was found in uses, to look up in modules."""
    if isinstance(value, (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))):
        digest.update(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, (tuple, list, frozenset)):
        digest.update(f"{type(value).__name__}{len(value)}[".encode())
        for item in sorted(value, key=repr) if isinstance(value, frozenset) else value:
            _feed(digest, item, seen)
    elif isinstance(value, np.dtype):
        digest.update(f"dtype:{value.descr!r}:{value.itemsize};".encode())
    elif isinstance(value, np.ndarray):
        digest.update(f"array:{value.dtype.descr!r}{value.shape};".encode() + value.tobytes())
    elif isinstance(value, np.generic):
        digest.update(f"scalar:{value.dtype.str};".encode() + value.tobytes())
    elif _is_versioned(value):
        digest.update(f"name:{value.__module__}.{value.__qualname__};".encode())
    elif isinstance(value, types.FunctionType):
        _feed_function(digest, value, seen)
    elif isinstance(getattr(value, "py_func", None), types.FunctionType):
        options = getattr(value, "targetoptions", {})
        _feed(digest, repr(sorted((key, str(option)) for key, option in options.items())), seen)
        _feed_function(digest, value.py_func, seen)
    elif isinstance(value, types.ModuleType):
        _feed_module(digest, value, seen, names)
    elif isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        _feed(digest, (value.__qualname__, value._fields), seen)
    elif isinstance(value, type) and issubclass(value, enum.Enum):
        _feed(digest, [(name, member.value) for name, member in value.__members__.items()], seen)
    elif isinstance(value, enum.Enum):
        _feed(digest, (type(value).__qualname__, value.name, value.value), seen)
    elif isinstance(value, (_Intrinsic, Type)):
        digest.update(f"numba:{getattr(value, '_name', None) or value};".encode())
    else:
        raise Unhashable(f"a {type(value).__name__}")


def _is_versioned(value: Any) -> bool:
    """Whether a name says it all: a function or class of a package whose version is part of every key."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not isinstance(getattr(value, "__qualname__", None), str):
        return False
    return module.split(".")[0] in VERSIONED


def _feed_module(digest: Any, module: types.ModuleType, seen: set[int], names: frozenset[str]) -> None:
    """A module's name and, where its version is not known, what the code may read of it."""
    digest.update(f"module:{module.__name__};".encode())
    if module.__name__.split(".")[0] in VERSIONED:
        return
    for name in sorted(names & set(vars(module))):
        digest.update(name.encode() + b"=")
        _feed(digest, vars(module)[name], seen, names)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those nested in it: lambdas, comprehensions, inner functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@lru_cache(4096)
def _globals_of(code: types.CodeType) -> frozenset[str]:
    """The global names that code loads; an attribute's name may be that of a global by chance."""
    steps = dis.get_instructions(code)
    return frozenset(step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


def _feed_function(digest: Any, function: types.FunctionType, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    names: set[str] = set()
    loaded: set[str] = set()
    for code in _codes(function.__code__):
        digest.update(code.co_code)
        constants = [c for c in code.co_consts if not isinstance(c, types.CodeType)]
        for part in (code.co_names, code.co_varnames, code.co_freevars, tuple(constants)):
            _feed(digest, part, seen)
        names |= set(code.co_names)
        loaded |= _globals_of(code)
    _feed(digest, function.__defaults__, seen)
    _feed(digest, tuple(sorted((function.__kwdefaults__ or {}).items())), seen)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    reached = {name: cell.cell_contents for name, cell in cells}
    reached |= {name: function.__globals__[name] for name in loaded if name in function.__globals__}
    for name in sorted(reached):
        digest.update(name.encode() + b"=")
        _feed(digest, reached[name], seen, frozenset(names))


def compile_native(function: Callable, signature: str, check: Callable[[], None] | None = None) -> Native:
    """The native address of ``function``, whose arguments and result are words (int64).

    ``check`` runs before a real compilation; what was compiled before has passed it.
    """
    global _compiled
    digest = hashlib.sha256(_platform_key() + signature.encode())
    try:
        digest.update(fingerprint(function))
    except Unhashable:
        if check:
            check()
        _compiled += 1
        compiled = cfunc(signature)(function)
        return Native(compiled.address, compiled)
    key = digest.hexdigest()
    with _lock:
        if key not in _memory:
            _memory[key] = _load(key) or _compile(key, function, signature, check)
        return _memory[key]


def _load(key: str) -> Native | None:
    try:
        blob = (cache_dir() / key[:2] / key).read_bytes()
    except OSError:
        return None
    digest, content = blob[:32], blob[32:]
    if hashlib.sha256(content).digest() != digest:
        return None  # cut short or damaged: compiled anew, and replaced
    needs_runtime, name, serialized = pickle.loads(content)
    context = cpu_target.target_context
    if needs_runtime:
        context.refresh()
    library = context.codegen().unserialize_library(serialized)
    return Native(library.get_pointer_to_function(name), library)


def _compile(key: str, function: Callable, signature: str, check: Callable[[], None] | None) -> Native:
    global _compiled
    if check:
        check()
    _compiled += 1
    callback = cfunc(signature)(function)
    library = callback._library
    if not library.has_dynamic_globals:
        needs_runtime = "@NRT_" in library.get_llvm_str()
        content = pickle.dumps((needs_runtime, callback.native_name, library.serialize_using_object_code()))
        _keep(cache_dir() / key[:2] / key, hashlib.sha256(content).digest() + content)
    return Native(callback.address, callback)


def _keep(path: Path, blob: bytes) -> None:
    """Write a file whole or not at all; a cache that cannot be written is done without, and said once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
            stream.write(blob)
        os.replace(stream.name, path)
    except OSError as error:
        warnings.warn(f"compiled code cannot be kept in {cache_dir()}: {error}", RuntimeWarning, stacklevel=2)
