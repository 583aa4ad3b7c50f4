"""Dispatch styles: how a worker gets its next piece of work."""

from haren.dispatch.dedicated import Dedicated
from haren.dispatch.dispatch import Dispatch
from haren.dispatch.pool import Pool

__all__ = ["Dedicated", "Dispatch", "Pool"]
