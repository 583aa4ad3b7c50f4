"""Changes while queries run: queries come and go, functions are swapped, and nothing is lost by it."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import enjima as en
from enjima.memory import Allocator
from enjima.profiler import process_usage
from enjima.testing import assert_exact
from tests.enjima.conftest import make_events
from tests.enjima.queries import ROOT, SMALL, table
from tests.enjima.streams import MODES, mode

EVENTS = make_events(2000)
NUMBERS = table(n=np.arange(1000))


def ours():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith(("haren-", "enjima-")))


def open_files():
    return len(os.listdir("/proc/self/fd"))


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def counter(env, name, **source):
    """A query that numbers its events without end; its collecting sink."""
    stream = env.source(lambda i: i, schema="n: i8", name=f"{name}-source", query=name, **source)
    return stream.map(lambda e: e.n, name=f"{name}-map").collect(name=f"{name}-sink")


def is_whole(sink):
    """Every number up to the last, once and in order."""
    return np.array_equal(sink.array()["n"], np.arange(len(sink.array())))


def windows(env, query, loop=True, **source):
    stream = env.source(EVENTS, time="time", loop=loop, query=query, **source)
    return stream.key_by("key").window(en.Tumbling(seconds=1e-6)).aggregate(n=en.count()).collect()


@pytest.fixture(params=MODES)
def env(request):
    environment = en.Environment(threads=2, **mode(request.param))
    yield environment
    if environment.running:
        environment.stop(drain=False)
    assert ours() == []


# -- queries that come ------------------------------------------------------------------------------


def test_queries_join_and_the_others_lose_nothing(env):
    first = windows(env, "first", loop=20, rate=100_000)
    env.start()
    joined = []
    for number in range(4):
        joined.append(windows(env, f"later-{number}", loop=2))
        env.update()
    assert env._engine.finished.wait(60)
    result = env.stop()
    for sink in (first, *joined):
        assert_exact(env, sink)
    counted = result.operators.groupby("query")["events_out"].max()
    assert counted["first"] == 40_000 and (counted.drop("first") == 4000).all()


def test_update_without_anything_new_changes_nothing(env):
    counter(env, "one")
    env.start()
    threads = env._engine.execution._threads
    env.update()
    assert env._engine.execution._threads is threads


def test_a_query_joins_after_all_others_have_ended(env):
    first = env.source(NUMBERS).collect()
    with env:
        assert env._engine.finished.wait(30)
        second = env.source(NUMBERS).collect()
        env.update()
        until(lambda: len(second.array()) == 1000)
        assert env._engine.finished.wait(30)
    assert is_whole(first) and is_whole(second)


def test_another_thread_changes_what_run_waits_for():
    env = en.Environment(threads=2)
    first = counter(env, "first")
    sinks = []

    def change():
        until(lambda: env.running and len(first.array()) > 0)
        sinks.append(env.source(NUMBERS, query="second").collect())
        env.update()
        env.remove("first")

    thread = threading.Thread(target=change)
    thread.start()
    result = env.run()
    thread.join()
    assert is_whole(first) and is_whole(sinks[0]) and len(sinks[0].array()) == 1000
    assert set(result.operators["query"]) == {"second"} and env.plan.query_names == ["second"]


def test_many_threads_change_at_once():
    env = en.Environment(threads=2)
    base = counter(env, "base", rate=50_000)
    env.start()
    failures, building = [], threading.Lock()

    def add_and_remove(number):
        try:
            for turn in range(5):
                with building:
                    sink = env.source(NUMBERS, query=f"{number}-{turn}").collect()
                env.update()
                until(lambda sink=sink: len(sink.array()) == 1000)
                env.remove(f"{number}-{turn}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=add_and_remove, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    env.stop()
    assert failures == [] and is_whole(base) and env.plan.query_names == ["base"]


def test_a_failed_update_leaves_what_runs_and_nothing_else(env, monkeypatch):
    first = counter(env, "first", rate=50_000)
    env.start()
    env.source(NUMBERS, query="fits").collect()
    env.source(NUMBERS, query="does not").filter(lambda e: True).collect()
    mapped, calls = Allocator._map, []

    def fails(self, channel):
        calls.append(channel)
        if len(calls) == 5:
            raise en.MemoryLimitError("no memory")
        return mapped(self, channel)

    before = len(env._engine.allocator._channels)
    monkeypatch.setattr(Allocator, "_map", fails)
    with pytest.raises(en.MemoryLimitError, match="no memory"):
        env.update()
    monkeypatch.undo()
    assert [query.name for query in env._engine.queries] == ["first"]
    assert len(env._engine.allocator._channels) == before
    assert all(channel.maps == [] for channel in calls)
    seen = len(first.array())
    until(lambda: len(first.array()) > seen)
    assert env.remove("does not") is None
    env.update()
    assert sorted(env.plan.running) == ["first", "fits"]
    env.stop()
    assert is_whole(first)


def test_workers_that_cannot_start_leave_those_that_ran(env, monkeypatch):
    """As when the system refuses more threads."""
    from haren import Execution

    first = counter(env, "first", rate=50_000)
    env.start()
    env.source(NUMBERS, query="second").collect()
    start, calls = Execution.start, []

    def fails(self):
        calls.append(self)
        if len(calls) == 1:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(Execution, "start", fails)
    with pytest.raises(RuntimeError, match="new thread"):
        env.update()
    monkeypatch.undo()
    seen = len(first.array())
    until(lambda: len(first.array()) > seen)
    env.update()
    env.stop()
    assert is_whole(first)


def test_an_unfinished_query_is_refused_and_the_others_go_on():
    env = en.Environment()
    first = counter(env, "first", rate=50_000)
    with env:
        loose = env.source(NUMBERS, query="loose")
        with pytest.raises(en.GraphError, match="'loose': nothing consumes"):
            env.update()
        loose.null()
        env.update()
    assert is_whole(first)


def test_running_queries_cannot_be_extended():
    env = en.Environment()
    stream = env.source(NUMBERS, time="n", loop=True, query="runs")
    stream.null()
    with env:
        with pytest.raises(en.GraphError, match="'runs' runs already and cannot grow"):
            stream.filter(lambda e: True)
        other = env.source(NUMBERS, time="n", query="other")
        with pytest.raises(en.GraphError, match="'runs' runs already"):
            other.union(stream)
        other.null()
        env.update()
        assert env.plan.query_names == ["runs", "other"]
    stream.collect()  # it does not run any more


def test_changes_need_a_running_environment():
    env = en.Environment()
    env.source(NUMBERS).null()
    with pytest.raises(en.GraphError, match="not running"):
        env.update()


def test_a_function_of_a_query_cannot_change_its_environment():
    env = en.Environment()
    seen = []

    def change(e):
        for attempt in (env.update, lambda: env.remove("q"), lambda: env.swap("f", lambda e: None)):
            try:
                attempt()
            except en.GraphError as error:
                seen.append(str(error))

    env.source(NUMBERS[:1], query="q").for_each(change, name="f")
    env.start()
    env.source(NUMBERS, query="new").null()
    assert env._engine.finished.wait(30)
    env.stop()
    assert len(seen) == 3 and all("cannot change or stop the environment" in text for text in seen)


# -- queries that go --------------------------------------------------------------------------------


def test_remove_processes_what_is_in_flight(env):
    stays, goes = counter(env, "stays"), counter(env, "goes")
    env.start()
    until(lambda: len(goes.array()) > 1000)
    result = env.remove("goes")
    kept = goes.array()
    assert is_whole(goes) and len(kept) == result.throughput["events"][0]
    assert set(result.operators["query"]) == {"goes"} and (result.memory["pending"] == 0).all()
    assert result.operators.set_index("operator")["events_in"]["goes-sink"] == len(kept)
    assert [query.name for query in env._engine.queries] == ["stays"]
    assert env.plan.query_names == ["stays"] and "goes-map" not in env._repr_html_()
    whole = env.stop()
    assert is_whole(stays) and len(stays.array()) == whole.throughput["events"][0]
    assert set(whole.operators["query"]) == {"stays"}
    assert np.array_equal(goes.array(), kept)


def test_remove_at_once_drops_what_is_in_flight():
    env = en.Environment(threads=2, block_events=64)
    begun, go_on = threading.Event(), threading.Event()

    def slow(events):
        begun.set()
        assert go_on.wait(20)

    stays = counter(env, "stays", rate=50_000)
    env.source(NUMBERS, loop=True, query="goes").for_each_batch(slow)
    env.start()
    assert begun.wait(20)
    threading.Timer(0.2, go_on.set).start()
    result = env.remove("goes", drain=False)
    assert result.memory["pending"][0] > 0
    env.stop()
    assert is_whole(stays)


def test_a_removed_query_s_windows_are_complete():
    env = en.Environment(**SMALL)
    goes = windows(env, "goes", rate=200_000)
    env.start()
    until(lambda: len(goes.array()) > 20)
    events = int(env.remove("goes").throughput["events"][0])
    env.stop()
    assert goes.array()["n"].sum() == events


def test_names_are_free_again():
    env = en.Environment(threads=2)
    counter(env, "stays", rate=10_000)
    with env:
        for _ in range(3):
            sink = env.source(NUMBERS, name="s", query="q").collect(name="c")
            assert sink.name == "c"
            env.update()
            assert env.remove("q").operators["operator"].tolist() == ["s", "c"]
            assert is_whole(sink)


def test_a_query_that_did_not_run_is_only_forgotten():
    env = en.Environment()
    env.source(NUMBERS, query="a").null()
    b = env.source(NUMBERS, query="b").collect()
    assert env.remove("a") is None and env.plan.query_names == ["b"]
    env.run()
    assert is_whole(b) and env.remove("b") is None


def test_remove_and_swap_say_what_there_is():
    env = en.Environment()
    env.source(NUMBERS, name="s", query="there").null(name="n")
    with pytest.raises(en.GraphError, match="no query 'x'; the queries are: there"):
        env.remove("x")
    with pytest.raises(en.GraphError, match="no operator 'x'; the operators are: s, n"):
        env.swap("x", lambda e: e)


def test_a_failed_query_can_be_removed():
    env = en.Environment(threads=2)
    stays = counter(env, "stays", rate=50_000)
    divisors = np.zeros(3, "i8")
    env.source(NUMBERS, query="fails").map(lambda e: 1 // divisors[0], name="divide").null()
    env.start()
    until(lambda: any(query.error for query in env._engine.queries))
    result = env.remove("fails")
    assert "divide" in str(result.errors[0]) and result.errors[0].result is result
    assert env.stop().errors == []
    assert is_whole(stays)


def test_a_removed_query_counts_from_its_own_beginning():
    env = en.Environment(threads=2)
    counter(env, "stays", rate=10_000)
    env.start(sample_every=0.02)
    time.sleep(0.6)
    sink = counter(env, "later", rate=10_000)
    env.update()
    until(lambda: len(sink.array()) > 2000)
    result = env.remove("later")
    throughput = result.throughput.iloc[0]
    assert throughput["seconds"] < result.seconds - 0.5
    assert throughput["delivered_rate"] == pytest.approx(throughput["events"] / throughput["seconds"])
    assert result.latency.set_index("kind")["count"]["result"] == len(sink.array())
    assert set(result.samples["query"]) == {"later"}
    whole = env.stop()
    assert set(whole.samples["query"]) == {"stays", "later"}


def test_warm_up_is_cut_only_from_what_was_there():
    env = en.Environment(threads=2)
    counter(env, "first", rate=20_000)
    sinks = []

    def change():
        until(lambda: env.running)
        time.sleep(0.5)
        sinks.append(env.source(NUMBERS, query="second").collect())
        env.update()

    thread = threading.Thread(target=change)
    thread.start()
    result = env.run(seconds=1.2, warmup=0.3)
    thread.join()
    events = result.throughput.set_index("query")["events"]
    assert events["second"] == 1000 == len(sinks[0].array())
    assert 0 < events["first"] < 20_000 * 1.0


def test_an_iterator_s_thread_ends_with_its_query():
    env = en.Environment(threads=2)
    stays = counter(env, "stays", rate=10_000)
    env.start()
    for drain in (True, False):
        sink = env.source(iter(range(10**9)), schema="n: i8", query="goes").collect()
        env.update()
        until(lambda sink=sink: len(sink.array()) > 10)
        env.remove("goes", drain=drain)
        assert is_whole(sink)
        assert not [name for name in ours() if "feeder" in name]
    env.stop()
    assert is_whole(stays)


def test_an_iterator_is_never_forgotten_by_a_change(env):
    """What a source's own thread brings while the workers change is seen by the new ones."""
    items = 400

    def slowly():
        for i in range(items):
            time.sleep(0.001)
            yield i

    sink = env.source(slowly(), schema="n: i8", query="slow").collect()
    env.start()
    for number in range(20):
        env.source(NUMBERS, query=f"q{number}").null()
        env.update()
        env.remove(f"q{number}")
    assert env._engine.finished.wait(30)
    env.stop()
    assert is_whole(sink) and len(sink.array()) == items


def test_stop_ends_a_removal_that_waits():
    env = en.Environment(threads=2)
    begun, go_on = threading.Event(), threading.Event()

    def slow(e):
        begun.set()
        go_on.wait(20)

    env.source(NUMBERS, query="slow").for_each(slow)
    env.start()
    assert begun.wait(20)
    raised = []

    def remove():
        try:
            env.remove("slow")
        except en.GraphError as error:
            raised.append(str(error))

    thread = threading.Thread(target=remove)
    thread.start()
    until(lambda: env._engine.queries[0].removing)
    with pytest.raises(en.GraphError, match="being removed already"):
        env.remove("slow")
    threading.Timer(0.2, go_on.set).start()
    env.stop(drain=False)
    thread.join(20)
    assert not thread.is_alive() and raised == ["this environment is being stopped"]


def test_fifty_queries_come_and_go_and_leave_nothing():
    env = en.Environment(threads=2)
    stays = counter(env, "stays", rate=20_000)
    env.start(sample_every=10)
    state = []
    for turn in range(60):
        stream = env.source(EVENTS, time="time", loop=True, query="q", name="s")
        both = stream.union(stream).filter(lambda e: e.value % 2 == 1)
        sink = both.key_by("key").window(en.Tumbling(seconds=1e-6)).aggregate(n=en.count()).collect(limit=10)
        env.update()
        until(lambda sink=sink: len(sink.array()) > 0)
        env.remove("q", drain=turn % 2 == 0)
        if turn == 9:
            gc.collect()
            state = [ours(), open_files(), len(env.plan.operators), process_usage()["rss_bytes"]]
    gc.collect()
    assert [ours(), open_files(), len(env.plan.operators)] == state[:3]
    assert process_usage()["rss_bytes"] - state[3] < 8 << 20
    assert len(env._engine.allocator._channels) == 2
    env.stop()
    assert is_whole(stays)


# -- functions that are swapped -----------------------------------------------------------------------


def tagged(env, function, **source):
    """Numbers with the tag that ``function`` gives them."""
    stream = env.source(lambda i: i, schema="n: i8", query="q", **source)
    return stream.map(function, schema="n: i8, tag: i8", name="tag").collect()


def assert_tags(sink, *tags):
    """All numbers in order; the tags in runs, in this order."""
    array = sink.array()
    assert is_whole(sink)
    changes = np.flatnonzero(np.diff(array["tag"])) + 1
    assert array["tag"][[0, *changes]].tolist() == list(tags)


def one(e):
    return e.n, 1


def two(e):
    return e.n, 2


def uncompiled(e):
    return e.n, json.loads("3")


def test_a_swap_takes_effect_from_some_event_on(env):
    sink = tagged(env, one)
    env.start()
    until(lambda: len(sink.array()) > 100)
    env.swap("tag", two)
    until(lambda: sink.array()["tag"][-1] == 2)
    env.swap("tag", one)
    until(lambda: sink.array()["tag"][-1] == 1)
    env.stop()
    assert_tags(sink, 1, 2, 1)


def test_a_swap_to_python_and_back(env):
    sink = tagged(env, one, rate=20_000)
    env.start()
    until(lambda: len(sink.array()) > 100)
    with pytest.warns(en.PythonFallbackWarning):
        env.swap("tag", uncompiled)
    until(lambda: sink.array()["tag"][-1] == 3)
    env.swap("tag", two)
    until(lambda: sink.array()["tag"][-1] == 2)
    env.stop()
    assert_tags(sink, 1, 3, 2)


def test_a_swapped_flat_map_keeps_what_waits_for_room():
    """Blocks of two events, so that results always wait; compiled and as Python."""

    def twice(e):
        yield 2 * e.n, 1
        yield 2 * e.n + 1, 1

    def twice_more(e):
        yield 2 * e.n, 2
        yield 2 * e.n + 1, 2

    def slow(e):
        return [(2 * e.n + i, json.loads("3")) for i in range(2)]

    env = en.Environment(**SMALL)
    stream = env.source(lambda i: i, schema="n: i8", rate=20_000)
    sink = stream.flat_map(twice, schema="n: i8, tag: i8", name="tag").collect()
    env.start()
    until(lambda: len(sink.array()) > 100)
    with pytest.warns(en.PythonFallbackWarning):
        env.swap("tag", slow)
    until(lambda: sink.array()["tag"][-1] == 3)
    env.swap("tag", twice_more)
    until(lambda: sink.array()["tag"][-1] == 2)
    env.stop()
    assert_tags(sink, 1, 3, 2)


def test_a_swapped_filter_and_what_is_behind_it_keep_their_state():
    env = en.Environment(threads=2)
    stream = env.source(EVENTS, time="time", loop=True, rate=200_000)
    kept = stream.filter(lambda e: True, name="keep")
    sink = kept.window(en.Tumbling(seconds=1e-6)).aggregate(n=en.count()).collect()
    passed = kept.collect()
    env.start()
    until(lambda: len(sink.array()) > 3)
    env.swap("keep", lambda e: e.value > 0)
    seen = len(sink.array())
    until(lambda: len(sink.array()) > seen + 3)
    env.stop()
    assert sink.array()["n"].sum() == len(passed.array())
    assert passed.array()["value"][:1000].min() < 0 < passed.array()["value"][-100:].min()


def test_a_swapped_sink_function():
    env = en.Environment(threads=2)
    first, second = [], []
    env.source(lambda i: i, schema="n: i8", rate=20_000).for_each(lambda e: first.append(e.n), name="each")
    env.start()
    until(lambda: len(first) > 100)
    env.swap("each", lambda e: second.append(e.n))
    until(lambda: len(second) > 100)
    env.stop()
    assert first + second == list(range(len(first) + len(second)))


def test_a_swap_before_the_run_is_the_function_that_runs():
    env = en.Environment()
    sink = tagged(env, one, count=100)
    env.swap("tag", two)
    env.run()
    assert_tags(sink, 2)
    env.run()
    assert_tags(sink, 2)


def test_a_swap_stays_for_the_next_run():
    env = en.Environment()
    sink = tagged(env, one, rate=20_000)
    env.start()
    env.swap("tag", two)
    env.stop()
    env.run(seconds=0.1)
    assert_tags(sink, 2)


def test_a_function_that_does_not_fit_is_refused_and_the_former_stays():
    env = en.Environment()
    sink = tagged(env, one, rate=20_000)
    env.start()
    for wrong, message in (
        (lambda e: (1, 2, 3), "3 values"),
        (lambda e: (e.absent, 2), "absent"),
        (lambda: 1, "one argument"),
        (7, "needs a function"),
    ):
        with pytest.raises(en.SchemaError, match=message):
            env.swap("tag", wrong)
    with pytest.raises(en.SchemaError, match="no function that can be swapped"):
        env.swap(sink.name, one)
    until(lambda: len(sink.array()) > 100)
    env.stop()
    assert_tags(sink, 1)


def test_a_swapped_function_that_fails_stops_its_query_alone():
    env = en.Environment(threads=2)
    stays = counter(env, "stays", rate=20_000)
    sink = tagged(env, one, rate=20_000)

    def fails(e):
        if e.n >= 0:
            raise ValueError("no more")
        return e.n, 2

    env.start()
    env.swap("tag", fails)
    until(lambda: any(query.error for query in env._engine.queries))
    env.swap("tag", two)  # too late for this run, and no harm
    with pytest.raises(en.QueryError, match=r"'tag', event .*ValueError: no more"):
        env.stop()
    assert is_whole(stays) and is_whole(sink)


# -- Ctrl-C -------------------------------------------------------------------------------------------

INTERRUPTED = """
import faulthandler, itertools, signal, time
import numpy as np
import enjima as en
numbers = np.zeros(1000, [("n", "i8")])
env = en.Environment(threads=2)
base = env.source(lambda i: i, schema="n: i8", query="base", rate=50_000).collect()
interrupted = 0
faulthandler.enable()
with env:
    print("ready", flush=True)
    for turn in itertools.count():
        try:
            env.source(numbers, query=f"q{turn}").null()
            env.update()
            env.remove(f"q{turn}")
        except KeyboardInterrupt:
            interrupted += 1
            for name in env.plan.query_names[1:]:  # whole or half-built
                env.remove(name)
            if interrupted == 8:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                break
    seen = len(base.array())
    while len(base.array()) == seen:
        time.sleep(0.01)
array = base.array()["n"]
print("whole", bool((array == np.arange(len(array))).all()), env.running, flush=True)
"""


def test_interrupts_leave_the_other_queries_running():
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for number in range(60):  # some may be lost in a callback of the interpreter
            time.sleep(0.1 + 0.013 * (number % 8))
            process.send_signal(signal.SIGINT)
            if process.poll() is not None:
                break
        assert process.communicate(timeout=30)[0] == "whole True False\n"
        assert process.returncode == 0
    finally:
        process.kill()
