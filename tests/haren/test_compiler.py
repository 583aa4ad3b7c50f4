"""Native code is compiled once: remembered in the process, kept on disk, and told apart by content."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from haren.native import compiler
from haren.native.compiler import Unhashable, compile_native, compiled_count, fingerprint

ROOT = Path(__file__).parents[2]


def adder(amount):
    def function(value):
        return value + amount

    return function


def call(native, value: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address)(value)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty cache on disk and in the process."""
    monkeypatch.setenv("HAREN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler, "_memory", {})
    return tmp_path


def test_the_same_function_is_compiled_once(fresh):
    before = compiled_count()
    first, second = (compile_native(adder(5), "int64(int64)") for _ in range(2))
    assert first is second and call(first, 1) == 6
    assert compiled_count() == before + 1


def test_what_a_function_closes_over_tells_it_apart(fresh):
    assert call(compile_native(adder(5), "int64(int64)"), 1) == 6
    assert call(compile_native(adder(7), "int64(int64)"), 1) == 8


def test_disk_serves_what_the_process_has_forgotten(fresh, monkeypatch):
    compile_native(adder(11), "int64(int64)")
    monkeypatch.setattr(compiler, "_memory", {})
    before = compiled_count()
    assert call(compile_native(adder(11), "int64(int64)"), 1) == 12
    assert compiled_count() == before


def test_a_check_runs_before_compiling_only(fresh):
    checked = []
    for _ in range(2):
        compile_native(adder(13), "int64(int64)", lambda: checked.append(1))
    assert checked == [1]


def test_fingerprints_reach_helpers_arrays_and_code():
    helper = njit(adder(1))
    table = np.arange(3)

    def uses(value):
        return helper(value) + table[0]

    first = fingerprint(uses)
    table[0] = 9
    assert fingerprint(uses) != first
    assert fingerprint(adder(1)) == fingerprint(adder(1)) != fingerprint(adder(2))


def test_what_cannot_be_hashed_is_compiled_without_the_cache(fresh):
    thing = object()

    def odd(value):
        if False:
            return thing
        return value

    with pytest.raises(Unhashable):
        fingerprint(odd)


SAME_NUMBERS = """
import sys
import numpy as np
import enjima as en
from enjima.testing import assert_exact
for fields in sys.argv[1:]:
    events = np.zeros(100, [(name, "i8") for name in fields])
    events["t"] = range(100)
    events["k"] = [i % 7 for i in range(100)]
    env = en.Environment()
    window = env.source(events, time="t").key_by("k").window(en.Tumbling(seconds=1e-8))
    sink = window.aggregate(n=en.count()).collect()
    env.run()
    assert_exact(env, sink)
"""


def test_code_of_several_processes_meets_in_one_without_mixing(tmp_path):
    """Each process numbers what it compiles from one; what they stored must not share symbols."""
    for fields in (["kt"], ["tk"], ["akt"], ["kt", "tk", "akt"], ["akt", "tk", "kt"]):
        subprocess.run(
            [sys.executable, "-c", SAME_NUMBERS, *fields],
            env={**os.environ, "HAREN_CACHE_DIR": str(tmp_path)},
            cwd=ROOT,
            check=True,
        )


QUERY = """
import numpy as np
import enjima as en
from haren.native.compiler import compiled_count
LIMIT = 3
events = np.zeros(100, [("x", "i8"), ("t", "i8")])
env = en.Environment()
env.source(events, time="t").filter(lambda e: e.x < LIMIT).window(en.Tumbling(seconds=1)).aggregate(
    n=en.count(), s=en.sum("x")).collect()
env.run()
print(compiled_count())
"""


def test_a_second_process_compiles_nothing(tmp_path):
    counts = []
    for _ in range(2):
        output = subprocess.run(
            [sys.executable, "-c", QUERY],
            env={**os.environ, "HAREN_CACHE_DIR": str(tmp_path)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        counts.append(int(output.stdout))
    assert counts[0] > 5
    assert counts[1] == 0
