"""What a measurement was made on, and whether somebody else was using the machine meanwhile.

A number without its machine means nothing: every result row carries the fingerprint, and a run during
which the hypervisor took CPU time away, or other processes used it, is marked as disturbed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from reproduce.settings import ROOT

PACKAGES = ("numpy", "numba", "llvmlite", "pandas", "pyarrow", "pyspark", "papermill")

STEAL_LIMIT = 0.01
"""Share of the machine's CPU time taken by the hypervisor above which a run counts as disturbed."""
FOREIGN_LIMIT = 0.05
"""Share of the machine's CPU time used by other processes above which a run counts as disturbed."""

_PROC_STAT = Path("/proc/stat")


def fingerprint() -> dict[str, Any]:
    """The machine and its software; a value the system does not tell is None."""
    return {
        "cpu": _cpu_model(),
        "cores": _cores(),
        "smt": _smt(),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def identifier(machine: dict[str, Any]) -> str:
    """A short name: equal for equal hardware, kernel and versions."""
    return hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:10]


def describe(machine: dict[str, Any]) -> str:
    """One line for people."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    smt = {None: "SMT unknown", True: "SMT on", False: "SMT off"}[machine["smt"]]
    return (
        f"{machine['cpu']}, {machine['cores']} cores ({smt}, governor {machine['governor'] or 'unknown'}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['kernel']}, "
        f"Python {machine['python']}, {versions}"
    )


def git_revision(directory: Path = ROOT) -> str | None:
    """The commit the code is at, with `-dirty` where files differ from it; None outside git."""
    revision = _git(directory, "rev-parse", "--verify", "--quiet", "HEAD")
    if revision is None:
        return None
    return f"{revision}-dirty" if _git(directory, "status", "--porcelain") else revision


class Disturbance:
    """Measures, around a `with` block, what others took of the machine.

    `steal` and `foreign` are shares of the CPU time of all cores during the block: taken by the
    hypervisor, and used by processes other than this one and its finished children. Both are None
    where the system keeps no such account (only Linux does).
    """

    steal: float | None = None
    foreign: float | None = None

    def __enter__(self) -> Disturbance:
        self._before = _usage()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        after = _usage()
        if self._before is None or after is None:
            return
        busy, stolen, total, own = (b - a for a, b in zip(self._before, after, strict=True))
        if total > 0:
            self.steal = stolen / total
            self.foreign = max(0.0, busy - own) / total

    @property
    def disturbed(self) -> bool | None:
        """None where it cannot be known."""
        if self.steal is None or self.foreign is None:
            return None
        return self.steal > STEAL_LIMIT or self.foreign > FOREIGN_LIMIT

    def __str__(self) -> str:
        if self.steal is None or self.foreign is None:
            return "disturbance unknown"
        word = "disturbed" if self.disturbed else "undisturbed"
        return f"{word} (steal {self.steal:.1%}, other processes {self.foreign:.1%} of the machine)"


def _usage() -> tuple[float, float, float, float] | None:
    """CPU seconds since boot: busy, stolen, all; and this process's own with its finished children."""
    if not _PROC_STAT.exists():
        return None
    ticks = [int(field) for field in _PROC_STAT.read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = (t / os.sysconf("SC_CLK_TCK") for t in ticks)
    busy = user + nice + system + irq + softirq
    own = time.process_time() + sum(os.times()[2:4])
    return busy, steal, busy + idle + iowait + steal, own


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _smt() -> bool | None:
    active = _first_line("/sys/devices/system/cpu/smt/active")
    return None if active is None else active == "1"


def _first_line(path: str) -> str | None:
    file = Path(path)
    return file.read_text().strip() if file.exists() else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(directory: Path, *arguments: str) -> str | None:
    """What git answers; None where there is no git, no repository or no such thing in it."""
    try:
        done = subprocess.run(["git", "-C", str(directory), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
