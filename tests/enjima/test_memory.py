"""Block memory: chunks at deployment, recycling, limits and back-pressure; no allocation per event."""

import time

import numpy as np
import pytest

import enjima as en
from enjima.memory import layout
from tests.enjima.conftest import make_events
from tests.enjima.queries import table

EVENTS = make_events(1000)


def test_a_channel_starts_with_two_chunks():
    env = en.Environment(block_events=100, blocks_per_chunk=2)
    env.source(EVENTS[:10]).filter(lambda e: True).null()
    memory = env.run().memory
    assert memory["channel"].tolist() == ["source -> filter", "filter -> null"]
    assert (memory["chunks_allocated"] == 2).all()
    assert (memory[["chunk_requests", "chunks_recycled", "stalls", "pending"]] == 0).all(axis=None)


def test_a_chunk_is_preambles_events_and_origins_on_whole_cache_lines():
    assert layout.padded(1) == 64 and layout.padded(64) == 64 and layout.padded(65) == 128
    assert layout.block_bytes(28, 7) == 3 * 64 + 256 + 64
    assert layout.chunk_bytes(28, 7, 3) == 64 + 3 * layout.block_bytes(28, 7)
    env = en.Environment(block_events=7, blocks_per_chunk=3)
    env.source(EVENTS).null()
    assert env.run().memory["chunk_bytes"][0] == layout.chunk_bytes(EVENTS.itemsize, 7, 3)


@pytest.mark.parametrize("block_events", [1, 2, 7, 384])
@pytest.mark.parametrize("max_chunks", [2, 5])
def test_chunks_are_recycled_within_the_limit(block_events, max_chunks):
    env = en.Environment(threads=2, block_events=block_events, blocks_per_chunk=3, max_chunks=max_chunks)
    sink = env.source(EVENTS, loop=20).map(lambda e: (e.key, e.value, e.weight, e.time)).collect()
    memory = env.run().memory
    assert np.array_equal(sink.array(), np.tile(EVENTS, 20))
    assert (memory["max_chunks"] == max_chunks).all()
    assert memory["chunks_allocated"].between(2, max_chunks).all()
    assert (memory["chunks_allocated"] == 2 + memory["chunk_requests"]).all()
    assert memory["chunks_in_use"].between(1, memory["chunks_allocated"]).all()
    assert (memory["pending"] == 0).all()
    chunks_filled = 20_000 // (3 * block_events)
    assert (memory["chunks_recycled"] >= chunks_filled - max_chunks).all()


def test_a_slow_sink_holds_its_source_back():
    """What is in flight never exceeds what the channel's chunks hold."""
    blocks, chunks, size = 2, 3, 8
    env = en.Environment(threads=2, block_events=size, blocks_per_chunk=blocks, max_chunks=chunks)
    pending = []
    env.source(EVENTS, loop=5).for_each(lambda e: pending.append(env._engine.deployed[1].pending))
    memory = env.run().memory
    assert len(pending) == 5000
    assert max(pending) <= size * blocks * chunks
    assert memory["chunks_allocated"][0] == chunks
    assert memory["stalls"][0] > 0


def test_back_pressure_goes_through_the_steps_between():
    env = en.Environment(threads=4, block_events=4, blocks_per_chunk=1, max_chunks=2)
    most = np.zeros(4, int)

    def watch(e):
        pending = [d.pending for d in env._engine.deployed]
        np.maximum(most, pending, out=most)

    stream = env.source(EVENTS, loop=3).map(lambda e: (e.key, e.value, e.weight, e.time))
    stream.filter(lambda e: True).for_each(watch)
    env.run()
    assert most[3] > 0 and most.max() <= 8


def test_a_fast_branch_waits_for_a_slow_one_and_both_get_everything():
    env = en.Environment(threads=2, block_events=4, blocks_per_chunk=1, max_chunks=2)
    stream = env.source(EVENTS)
    seen = []
    stream.for_each(lambda e: seen.append(int(e.value)))
    sink = stream.collect()
    env.run()
    assert seen == EVENTS["value"].tolist() == sink.array()["value"].tolist()


def test_overflow_is_kept_by_the_operator_and_counted():
    def many(e):
        for i in range(300):
            yield e.key, i

    env = en.Environment(threads=2, block_events=2, blocks_per_chunk=1, max_chunks=2)
    sink = env.source(EVENTS[:20]).flat_map(many, schema="key: i8, i: i8").collect()
    operators = env.run().operators.set_index("operator")
    assert sink.array()["i"].tolist() == list(range(300)) * 20
    assert operators["state_growths"]["flat_map"] == 4  # 64, 128, 256, 512 events of overflow


def wait_for_events(env, count):
    """Measure when the source has emitted so many."""
    deadline = time.monotonic() + 60
    while env._engine.queries[0].sources[0].position < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    deployed = env._engine.deployed
    measured = env._profiler.measure()
    return (
        measured.process,
        [measured.counts(d) for d in deployed],
        [(d.word(232), [channel.statistics()["chunks_allocated"] for channel in d.inputs]) for d in deployed],
    )


def test_nothing_is_allocated_on_the_path_of_events():
    """Fifty million events, and neither chunks nor state nor pages of memory grow with them."""
    env = en.Environment(threads=2, max_chunks=2)  # both there from the start: more would come when needed
    numbers = table(key=np.arange(100_000) % 1000, time=np.arange(100_000))
    stream = env.source(numbers, time="time", loop=True).filter(lambda e: e.key % 4 == 1)
    stream.key_by("key").window(en.Tumbling(seconds=1e-5)).aggregate(n=en.count()).null()
    env.start(sample_every=10)
    try:
        process, first, before = wait_for_events(env, 20_000_000)
        later, last, after = wait_for_events(env, first[0].position + 50_000_000)
    finally:
        env.stop(drain=False)
    assert after == before
    assert later["minor_faults"] - process["minor_faults"] < 500
    assert later["rss_bytes"] - process["rss_bytes"] < 1 << 20
    assert (last[2].events_in - first[2].events_in) > 10_000_000
