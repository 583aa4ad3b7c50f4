"""Compile a Python function to a native address once, ever: per process and per machine.

Numba's own disk cache is keyed by the file and time stamp of one function, so it misses for functions
built around a user's lambda and goes stale when a helper in another file changes. Here the key is
content: the function's code and everything it reaches (constants, closures, globals, helpers), the
sources of the native packages, the versions and the CPU. Only object code is stored, so a cached
kernel is loaded without starting numba's type inference.
"""

import hashlib
import inspect
import itertools
import os
import pickle
import tempfile
import threading
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from numba import cfunc
from numba.core.bytecode import FunctionIdentity
from numba.core.registry import cpu_target

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


def _feed(digest: Any, value: Any, seen: set[int]) -> None:
    if isinstance(value, (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))):
        digest.update(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, (tuple, list, frozenset)):
        digest.update(f"{type(value).__name__}{len(value)}[".encode())
        for item in sorted(value, key=repr) if isinstance(value, frozenset) else value:
            _feed(digest, item, seen)
    elif isinstance(value, np.dtype):
        digest.update(f"dtype:{value.descr!r}:{value.itemsize};".encode())
    elif isinstance(value, np.ndarray):
        digest.update(
            f"array:{value.dtype.descr!r}{value.shape};".encode() + np.ascontiguousarray(value).tobytes()
        )
    elif isinstance(value, np.generic):
        digest.update(f"scalar:{value.dtype.str};".encode() + value.tobytes())
    elif isinstance(value, types.CodeType):
        _feed_code(digest, value, seen)
    elif isinstance(value, types.FunctionType):
        _feed_function(digest, value, seen)
    elif isinstance(getattr(value, "py_func", None), types.FunctionType):
        _feed(digest, repr(sorted((k, str(v)) for k, v in getattr(value, "targetoptions", {}).items())), seen)
        _feed_function(digest, value.py_func, seen)
    elif isinstance(value, (types.ModuleType, types.BuiltinFunctionType, type, np.ufunc)):
        name = getattr(value, "__qualname__", getattr(value, "__name__", repr(value)))
        digest.update(
            f"name:{getattr(value, '__module__', '')}.{name}:{getattr(value, '__version__', '')};".encode()
        )
    elif getattr(type(value), "__module__", "").startswith("numba"):
        digest.update(f"numba:{getattr(value, '_name', None) or value};".encode())
    else:
        raise Unhashable(f"a {type(value).__name__}")


def _feed_code(digest: Any, code: types.CodeType, seen: set[int]) -> None:
    digest.update(code.co_code)
    for part in (code.co_names, code.co_varnames, code.co_freevars, code.co_consts):
        _feed(digest, part, seen)


def _feed_function(digest: Any, function: types.FunctionType, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    _feed_code(digest, function.__code__, seen)
    _feed(digest, function.__defaults__, seen)
    reached = inspect.getclosurevars(function)
    for group in (reached.nonlocals, reached.globals):
        for name in sorted(group):
            digest.update(name.encode() + b"=")
            _feed(digest, group[name], seen)


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
    except FileNotFoundError:
        return None
    needs_runtime, name, serialized = pickle.loads(blob)
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
        blob = pickle.dumps((needs_runtime, callback.native_name, library.serialize_using_object_code()))
        _write_atomically(cache_dir() / key[:2] / key, blob)
    return Native(callback.address, callback)


def _write_atomically(path: Path, blob: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(blob)
    os.replace(temporary, path)
