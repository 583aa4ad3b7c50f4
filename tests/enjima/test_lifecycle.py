"""Starting, stopping, interrupting and repeating runs: nothing is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import enjima as en
from enjima.testing import assert_exact
from haren.native.compiler import compiled_count
from tests.enjima.conftest import make_events

ROOT = Path(__file__).parents[2]


def build(env: en.Environment, **options) -> en.Stream:
    return env.source(make_events(1000), time="time", **options).filter(lambda e: e.value % 2 == 1)


def engine_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(("haren", "enjima"))]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_start_and_stop_process_everything_that_was_emitted():
    env = en.Environment(threads=2)
    sink = build(env, loop=True, rate=200_000).collect()
    env.start()
    assert env.running
    while env.sample().empty:
        time.sleep(0.01)
    result = env.stop()
    assert not env.running
    emitted = int(result.throughput["events"].iloc[0])
    values = np.resize(make_events(1000)["value"], emitted)
    assert np.array_equal(sink.array()["value"], values[values % 2 == 1])


def test_stop_without_drain_ends_at_once_and_keeps_order():
    env = en.Environment(threads=2)
    sink = build(env, loop=True, rate=200_000).collect()
    env.start()
    env.stop(drain=False)
    got = sink.array()["value"]
    values = np.resize(make_events(1000)["value"], 3 * len(got) + 1000)
    assert np.array_equal(got, values[values % 2 == 1][: len(got)])


def test_context_manager_runs_while_the_block_does():
    env = en.Environment()
    build(env, rate=10_000, loop=True).null()
    with env:
        assert env.running
        with pytest.raises(en.GraphError, match="running already"):
            env.run()
    assert not env.running and not engine_threads()


def test_stop_needs_a_running_environment():
    with pytest.raises(en.GraphError, match="not running"):
        en.Environment().stop()


def test_an_exception_in_the_block_stops_the_engine():
    env = en.Environment()
    build(env, loop=True).null()
    with pytest.raises(ZeroDivisionError), env:
        _ = 1 / 0
    assert not env.running and not engine_threads()


def test_two_engines_run_at_once():
    first, second = en.Environment(threads=2), en.Environment(threads=3, block_events=7)
    sinks = [build(env, loop=20).collect() for env in (first, second)]
    first.start()
    second.start()
    for env, sink in zip((first, second), sinks, strict=True):
        while not env._engine.finished.wait(0.1):
            pass
        env.stop()
        assert_exact(env, sink)


def test_an_environment_can_be_run_again():
    env = en.Environment(threads=2)
    sink = build(env).key_by("key").window(en.Tumbling(seconds=1e-7)).aggregate(n=en.count()).collect()
    env.run()
    first = sink.frame()
    env.run()
    assert first.equals(sink.frame())
    assert_exact(env, sink)


def test_200_cycles_leave_nothing_behind_and_compile_once():
    def cycle() -> None:
        env = en.Environment(threads=3)
        sink = build(env).key_by("key").window(en.Tumbling(seconds=1e-7)).aggregate(n=en.count()).collect()
        env.run()
        assert len(sink.array())

    for _ in range(40):
        cycle()
    files, memory, compiled = open_files(), resident(), compiled_count()
    for _ in range(160):
        cycle()
    assert not engine_threads()
    assert open_files() == files
    assert compiled_count() == compiled
    assert resident() - memory < 8 << 20


INTERRUPTED = """
import time
import numpy as np
import enjima as en
events = np.zeros(1000, [("x", "i8")])
env = en.Environment(threads=2)
stream = env.source(events, loop=True)
{sink}
print("ready", flush=True)
try:
    env.run()
except KeyboardInterrupt:
    print("interrupted", env.running, flush=True)
"""


@pytest.mark.parametrize("sink", ["stream.null()", "stream.for_each(lambda e: time.sleep(0.001))"])
def test_an_interrupt_stops_the_run(sink):
    script = INTERRUPTED.format(sink=sink)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=10)[0] == "interrupted False\n"
        assert process.returncode == 0
    finally:
        process.kill()


IDLE = """
import time
import threading
import enjima as en

def nothing():
    threading.Event().wait({seconds})
    yield 1

env = en.Environment(threads=2)
env.source(nothing(), schema="x: i8").null()
env.start()
time.sleep(0.2)
before = time.process_time()
time.sleep({seconds} - 0.5)
print((time.process_time() - before) / ({seconds} - 0.5))
env.stop()
"""


def test_an_engine_without_input_sleeps():
    output = subprocess.run(
        [sys.executable, "-c", IDLE.format(seconds=3)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert float(output.stdout) < 0.05
