"""An engine whose operators only count, in chains: it notices runs of an operator that overlap."""

import threading
import time

from numba import njit

import haren
from haren.memory import address, lines
from haren.native.atomics import add_to, compare_exchange, fetch_add, load, load_acquire, store_release
from haren.native.compiler import compile_native
from haren.spe import EVENTS_OUT, HEAD_TIME, NEVER, PENDING

__all__ = ["Chains", "finish_disturbed"]

TOTAL, OVERLAPS, COUNTS, LENGTH = (8 * i for i in range(4))


@njit
def _count(net, operator):
    return load(net + COUNTS) + 64 * operator


@njit
def _waiting(net, operator):
    """Events behind the operator's predecessor in its chain; of a source, what is left."""
    ahead = load(net + TOTAL)
    if operator % load(net + LENGTH) > 0:
        ahead = load_acquire(_count(net, operator - 1))
    return ahead - load_acquire(_count(net, operator))


def _ready_at(net, operator, now):
    return 0 if _waiting(net, operator) > 0 else NEVER


def _run(net, operator, quota):
    mine = _count(net, operator)
    if not compare_exchange(mine + 8, 0, 1):
        fetch_add(net + OVERLAPS, 1)
    count = min(quota, _waiting(net, operator))
    for _ in range(200):  # long enough for somebody else to come in
        add_to(mine + 16, 1)
    store_release(mine, load(mine) + count)
    store_release(mine + 8, 0)
    return count


def _measure(net, operator, which, now):
    if which == EVENTS_OUT:
        return load(_count(net, operator))
    if which == PENDING:
        return _waiting(net, operator)
    if which == HEAD_TIME:
        return load(_count(net, operator)) if _waiting(net, operator) > 0 else NEVER
    return 0


class Chains:
    """Compiled chains in which events are only counted, and overlapping runs as well."""

    def __init__(self, chains: int, length: int, total: int) -> None:
        functions = ((_ready_at, 3), (_run, 3), (_measure, 4))
        self._code = [compile_native(f, f"int64({', '.join(['int64'] * n)})") for f, n in functions]
        self.ready_at, self.run, self.measure = (code.address for code in self._code)
        self.total, self.length = total, length
        self._counts, self._net = lines(256).reshape(-1, 8), lines(1)
        self.handle = address(self._net)
        for offset, value in {TOTAL: total, COUNTS: address(self._counts), LENGTH: length}.items():
            self._net[offset // 8] = value
        self.arrange(chains)

    def arrange(self, chains: int) -> None:
        names = [f"op{i}" for i in range(chains * self.length)]
        edges = [(i, i + 1) for i in range(len(names) - 1) if (i + 1) % self.length]
        self.graph = haren.Graph(names, [i // self.length for i in range(len(names))], edges)

    @property
    def counts(self) -> list[int]:
        return self._counts[: len(self.graph), 0].tolist()

    @property
    def overlaps(self) -> int:
        return int(self._net[OVERLAPS // 8])

    def wait(self) -> bool:
        deadline = time.monotonic() + 60
        while min(self.counts) < self.total:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True


def finish_disturbed(execution: haren.Execution, engine: Chains) -> None:
    """Wait until all is done, while somebody rings all bells all the time."""
    over = threading.Event()

    def disturb() -> None:
        while not over.is_set():
            execution.wake()

    ringer = threading.Thread(target=disturb)
    ringer.start()
    try:
        assert engine.wait()
    finally:
        over.set()
        ringer.join()
