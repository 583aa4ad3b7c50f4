"""Block memory: its layout, and the thread that allocates it."""

from enjima.memory.allocator import Allocator, Channel, ChannelLimits

__all__ = ["Allocator", "Channel", "ChannelLimits"]
