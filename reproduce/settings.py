"""Where things are and which profile is meant when nobody says: the only reader of environment variables."""

from __future__ import annotations

import os
from pathlib import Path

PROFILES = ("smoke", "quick", "paper")
"""Seconds (tests), a laptop's patience (default), the paper's own durations and repetitions."""

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks" / "experiments"


def default_profile() -> str:
    """`HAREN_LAB_PROFILE`, so that a notebook opened by hand or by nbval obeys it too; else quick."""
    return check_profile(os.environ.get("HAREN_LAB_PROFILE", "quick"))


def check_profile(profile: str) -> str:
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}; the profiles are {', '.join(PROFILES)}")
    return profile


def results_directory() -> Path:
    """`HAREN_LAB_RESULTS`, or `results` beside the packages."""
    return Path(os.environ.get("HAREN_LAB_RESULTS", ROOT / "results"))
