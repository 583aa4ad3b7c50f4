"""Where prepared data and other things that can be made again are kept."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """The user's cache directory for this project (XDG convention)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "haren-lab"


def data_dir() -> Path:
    """Where data sets live: `HAREN_LAB_DATA`, or a folder of the cache."""
    named = os.environ.get("HAREN_LAB_DATA")
    return Path(named) if named else cache_dir() / "data"
