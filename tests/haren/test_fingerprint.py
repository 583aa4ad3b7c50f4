"""Cached code is never stale: whatever a function's result depends on is part of its key; disks may fail."""

import ctypes
import enum
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numba
import pytest

from haren.native import compiler
from haren.native.compiler import Unhashable, compile_native, fingerprint

ROOT = Path(__file__).parents[2]


def defined(source: str, **names):
    """The function ``f`` of this source, among these global names."""
    scope = dict(names)
    exec(source, scope)
    return scope["f"]


def module_with(value):
    module = types.ModuleType("settings")
    module.LIMIT = value
    return module


def vectorized(value):
    def add(x):
        return x + value

    return numba.vectorize(["int64(int64)"])(add)


def jitted(value):
    def add(x):
        return x + value

    return numba.njit(add)


def enumeration(value):
    return enum.IntEnum("Kind", {"VIEW": value})


def keyed(function):
    """A function's key; None if it is not cached at all, which is never stale."""
    try:
        return fingerprint(function)
    except Unhashable:
        return None


@pytest.mark.parametrize(
    ("source", "thing"),
    [
        ("def f(x): return x + G", lambda value: value),
        ("def f(x): return G(x)", jitted),
        ("def f(x): return (lambda y: y + G)(x)", lambda value: value),
        ("def f(x): return [y + G for y in range(x)]", lambda value: value),
        ("def f(x): return sum(y + G for y in range(x))", lambda value: value),
        ("def f(x):\n    def inner(y):\n        return y + G\n    return inner(x)", lambda value: value),
        ("def f(x): return x + G.LIMIT", module_with),
        ("def f(x): return x == G.VIEW", enumeration),
        ("def f(x): return x + G", lambda value: enumeration(value).VIEW),
        ("def f(x): return G(x)", vectorized),
        ("def f(x): return x + G[0]", lambda value: (value, 0)),
        ("def f(x): return x + G", float),
        ("def f(x): return x + G", bool),
    ],
    ids=[
        "global", "jitted helper", "nested lambda", "comprehension", "generator", "inner function",
        "constant of a module", "enum", "member of an enum", "vectorized helper", "tuple", "float", "bool",
    ],
)  # fmt: skip
def test_a_changed_constant_is_another_key(source, thing):
    first, second = (keyed(defined(source, G=thing(value))) for value in (0, 1))
    assert first is None or first != second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x): return x + 1", "def f(x): return x + 2"),
        ("def f(x): return x + 1", "def f(x): return x - 1"),
        ("def f(x): return x + 1", "def f(x): return x + 1.0"),
        ("def f(x): return x + 1", "def f(x): return x + True"),
        ("def f(x): return x.a", "def f(x): return x.b"),
        ("def f(x, y=1): return x + y", "def f(x, y=2): return x + y"),
        ("def f(x, *, y=1): return x + y", "def f(x, *, y=2): return x + y"),
        ("def f(x): return (lambda y: y + 1)(x)", "def f(x): return (lambda y: y + 2)(x)"),
        ("def f(x): return 0.0", "def f(x): return -0.0"),
    ],
)
def test_another_text_is_another_key(one, other):
    assert fingerprint(defined(one)) != fingerprint(defined(other))


def test_place_and_name_are_not_part_of_the_key():
    assert fingerprint(defined("def f(x): return x + 1")) == fingerprint(
        defined("\n\n# elsewhere\ndef f(x):\n    return x + 1")
    )


def test_an_attribute_with_the_name_of_a_global_is_not_that_global():
    """A field may be called as a module that the user has imported, which has no known content."""
    import time

    source = "def f(e):\n    return e.time + 1"
    assert fingerprint(defined(source, time=time)) == fingerprint(defined(source))
    with pytest.raises(Unhashable):
        fingerprint(defined("def f(e):\n    return time.time() + e.time", time=time))


def test_a_function_may_call_itself():
    assert fingerprint(defined("def f(x): return f(x - 1) if x else 0"))


# -- the cache on disk ------------------------------------------------------------------------------


def call(native, value: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address)(value)


def times(factor):
    return defined(f"def f(x): return x * {factor}")


@pytest.fixture
def forgetful(monkeypatch):
    """Each use of it forgets what the process has compiled, so that the disk is asked."""

    def forget():
        monkeypatch.setattr(compiler, "_memory", {})

    forget()
    return forget


@pytest.mark.parametrize("content", [b"", b"rubbish", None], ids=["empty", "rubbish", "cut short"])
def test_a_broken_file_is_compiled_anew(tmp_path, monkeypatch, forgetful, content):
    monkeypatch.setenv("HAREN_CACHE_DIR", str(tmp_path))
    compile_native(times(3), "int64(int64)")
    (path,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    forgetful()
    assert call(compile_native(times(3), "int64(int64)"), 5) == 15


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch, forgetful):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HAREN_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert call(compile_native(times(4), "int64(int64)"), 5) == 20


def test_no_half_written_files_stay(tmp_path, monkeypatch, forgetful):
    monkeypatch.setenv("HAREN_CACHE_DIR", str(tmp_path))
    compile_native(times(5), "int64(int64)")
    assert [len(p.name) for p in tmp_path.rglob("*") if p.is_file()] == [64]


def test_code_of_several_processes_does_not_mix(tmp_path):
    """Symbols of one name in two files are one function to the linker, so no name may be there twice."""
    script = (
        "import sys, numba\n"
        "from haren.native.compiler import compile_native\n"
        "amount = int(sys.argv[1])\n"
        "@numba.njit\n"
        "def helper(x): return x + amount\n"
        "def whole(x): return helper(x)\n"
        "compile_native(whole, 'int64(int64)')"
    )
    for amount in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", script, amount],
            cwd=ROOT,
            env={**os.environ, "HAREN_CACHE_DIR": str(tmp_path)},
            check=True,
        )
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    first, second = (set(re.findall(rb"_ZN\w*?(?:helper|whole)B\w+", content)) for content in files)
    assert first and second and not first & second


def test_the_sources_of_native_code_are_part_of_every_kernels_key():
    """An edited intrinsic makes all kernels anew, those compiled before the first engine, too."""
    script = (
        "import enjima.native.kernels, haren.native.compiler as c\n"
        "print(*(f'{d.parent.name}/{d.name}' for d in c._sources))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {"haren/native", "haren/dispatch", "enjima/native", "enjima/memory"} <= set(done.stdout.split())
