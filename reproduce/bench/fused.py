"""The limit: YSB written by hand as one loop, with nothing of an engine around it.

It does the work of `workloads.ysb.query` on the same 64-byte records: keep the views, look up the campaign
of the ad in a dense table, count per campaign, and hand the counts over when a tumbling window ends. Each
thread goes over an array of its own again and again, with event times shifted on by every pass.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numba import njit

from workloads.ysb import SECOND, VIEW

WINDOW_END, RESULTS, VIEWS = range(3)
"""What a thread remembers between passes: the end of the open window, and what closed ones added up to."""


@njit(nogil=True, cache=True)
def one_pass(ads, campaign_of, counts, memory, shift, window):
    """Run the query over `ads` once, `shift` nanoseconds later than they say."""
    end = memory[WINDOW_END]
    for event in ads:
        if event.event_type == VIEW:
            now = event.event_time + shift
            if now >= end:
                close(counts, memory)
                end = now // window * window + window
                memory[WINDOW_END] = end
            counts[campaign_of[event.ad_id]] += 1


@njit(nogil=True, cache=True)
def close(counts, memory):
    """Hand over the counts of a window and begin the next."""
    for campaign in range(len(counts)):
        memory[RESULTS] += counts[campaign] > 0
        memory[VIEWS] += counts[campaign]
        counts[campaign] = 0


class Query:
    """The hand-fused query over one array."""

    def __init__(self, ads: np.ndarray, campaigns: np.ndarray, window_seconds: float = 10) -> None:
        self.ads = ads
        self.window = round(window_seconds * SECOND)
        self.campaign_of = np.zeros(campaigns["ad_id"].max() + 1, np.int64)
        self.campaign_of[campaigns["ad_id"]] = campaigns["campaign_id"]
        self.counts = np.zeros(campaigns["campaign_id"].max() + 1, np.int64)
        self.memory = np.zeros(3, np.int64)
        self._span = int(ads["event_time"][-1] - ads["event_time"][0]) + 1
        self._shift = 0

    def again(self) -> int:
        """One more pass over the array; the number of its events."""
        one_pass(self.ads, self.campaign_of, self.counts, self.memory, self._shift, self.window)
        self._shift += self._span
        return len(self.ads)

    def finish(self) -> tuple[int, int]:
        """Close the open window; how many results there were, and how many views they counted."""
        close(self.counts, self.memory)
        return int(self.memory[RESULTS]), int(self.memory[VIEWS])


class Passes(Protocol):
    """What can go over its data again and again."""

    def again(self) -> int:
        """One more pass; the number of its events."""
        ...


def rate(queries: Sequence[Passes], seconds: float, warmup: float) -> float:
    """Events per second of all queries together, each on a thread of its own."""
    rates = [0.0] * len(queries)
    together = threading.Barrier(len(queries))

    def work(index: int) -> None:
        again = queries[index].again
        again()
        together.wait()
        begin = time.perf_counter() + warmup
        while time.perf_counter() < begin:
            again()
        events, start = 0, time.perf_counter()
        while time.perf_counter() < start + seconds:
            events += again()
        rates[index] = events / (time.perf_counter() - start)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(queries))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)
