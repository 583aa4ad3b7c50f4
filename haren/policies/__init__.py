"""The policies that come with haren, one file each, registered by importing it.

START HERE to add one: copy ``fcfs.py``; its name in `haren.policies()` is what it registers.
"""

import pkgutil
from importlib import import_module

__all__: list[str] = []

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
