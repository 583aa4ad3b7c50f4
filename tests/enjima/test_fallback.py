"""Functions that do not compile run as Python: with a warning that names them, and the same results."""

import warnings

import numpy as np
import pytest

import enjima as en
from tests.enjima.conftest import make_events
from tests.enjima.queries import SMALL, outcome, table

EVENTS = make_events(300)
WINDOW = en.Tumbling(seconds=100e-9)


def plain(number):
    """The number itself, by a way numba does not know."""
    return int(format(number, "d"))


def odd(e):
    return e.value % 2 == 1


def odd_in_python(e):
    return plain(e.value) % 2 == 1


def doubled(e):
    return e.key, e.value * 2, e.weight, e.time


def doubled_in_python(e):
    return e.key, plain(e.value) * 2, e.weight, e.time


def repeated(e):
    for i in range(e.key % 4):
        yield e.key + i, e.value, e.weight, e.time


def repeated_in_python(e):
    for i in range(plain(e.key) % 4):
        yield e.key + i, e.value, e.weight, e.time


def listed_in_python(e):
    return [(e.key + i, e.value, e.weight, e.time) for i in range(plain(e.key) % 4)]


def weighed(state, e):
    return state[0] + e.weight, state[1] + e.value


def weighed_in_python(state, e):
    return state[0] + e.weight, state[1] + plain(e.value)


def window_of(add):
    aggregate = en.Aggregate(
        init=lambda: (0.0, 0),
        add=add,
        merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        result=lambda state: state[0] + state[1],
    )
    return lambda s: (
        s.key_by("key").window(WINDOW).aggregate(total=aggregate, n=en.count(), top=en.max("value"))
    )


TWINS = {
    "filter": (lambda s: s.filter(odd), lambda s: s.filter(odd_in_python), "odd_in_python"),
    "map": (lambda s: s.map(doubled), lambda s: s.map(doubled_in_python), "doubled_in_python"),
    "flat_map": (
        lambda s: s.flat_map(repeated),
        lambda s: s.flat_map(repeated_in_python),
        "repeated_in_python",
    ),
    "flat_map list": (
        lambda s: s.flat_map(repeated),
        lambda s: s.flat_map(listed_in_python),
        "listed_in_python",
    ),
    "window": (window_of(weighed), window_of(weighed_in_python), "weighed_in_python"),
}


@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize("block_events", [1, 7, 384])
def test_python_gives_the_results_of_compiled_code(kind, block_events):
    compiled, in_python, function = TWINS[kind]
    options = {**SMALL, "block_events": block_events}
    expected = outcome(EVENTS, compiled, options, time="time", loop=2)
    with pytest.warns(en.PythonFallbackWarning) as caught:
        got = outcome(EVENTS, in_python, options, time="time", loop=2)
    assert got == expected and len(got) > 0
    (warning,) = caught
    assert f"operator '{kind.split()[0]}': {function} (test_fallback.py:" in str(warning.message)
    assert "does not compile and runs as Python" in str(warning.message)
    assert warning.filename == __file__


def test_a_source_function_in_python():
    def squares(i):
        return plain(i) ** 2, i

    with pytest.warns(en.PythonFallbackWarning, match=r"operator 'numbers': squares \(test_fallback.py:"):
        got = outcome(squares, lambda s: s, schema="x: i8, time: i8", time="time", count=500, name="numbers")
    assert got == [(i * i, i) for i in range(500)]


def test_a_chain_of_python_steps_on_many_threads():
    chain = ["filter", "map", "flat_map", "window"]

    def built(which):
        def build(stream):
            for kind in chain:
                stream = TWINS[kind][which](stream)
            return stream

        return build

    options = {"threads": 8, "block_events": 7, "blocks_per_chunk": 1, "max_chunks": 2}
    expected = outcome(EVENTS, built(0), options, time="time", loop=3)
    with pytest.warns(en.PythonFallbackWarning):
        got = outcome(EVENTS, built(1), options, time="time", loop=3)
    assert got == expected


def test_what_compiles_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for compiled, _, _ in TWINS.values():
            outcome(EVENTS[:3], compiled, time="time")


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda e: (e.value * 3_000_000, e.time), id="wider than its field"),
        pytest.param(lambda e: (e.value - 2**31, e.time), id="constant wider than its field"),
        pytest.param(lambda e: (e.value / 7 * 1e6, e.time), id="true division"),
        pytest.param(lambda e: (-e.value // 7 * (e.value % 5), e.time), id="floor and modulo of negatives"),
        pytest.param(lambda e: (e.value**2, e.time), id="power"),
    ],
)
def test_numbers_mean_the_same_in_python(function):
    """A 32-bit field is computed with in 64 bits by compiled code, so it must be in Python, too."""
    events = table(value=np.array([1000, -5, 2**31 - 1, 1 - 2**31], "i4"), time=[1, 2, 3, 4])
    schema = "result: i8, time: i8"

    def in_python(e):
        format(1, "d")
        return function(e)

    with pytest.warns(en.PythonFallbackWarning):
        got = outcome(events, lambda s: s.map(in_python, schema=schema))
    assert got == outcome(events, lambda s: s.map(function, schema=schema))


def test_fields_called_like_numpy_attributes_mean_the_fields_in_python():
    events = table(size=[1, 5], data=[2, 6], real=[3, 7], max=[4, 8])

    def total(e):
        return e.size + e.data + e.real + e.max

    def total_in_python(e):
        return plain(e.size) + e.data + e.real + e.max

    assert outcome(events, lambda s: s.map(total, schema="x: i8")) == [(10,), (26,)]
    with pytest.warns(en.PythonFallbackWarning):
        got = outcome(events, lambda s: s.map(total_in_python, schema="x: i8"))
    assert got == [(10,), (26,)]
    got = []
    env = en.Environment()
    env.source(events).for_each(lambda e: got.append(int(e.size)))
    env.run()
    assert got == [1, 5]


@pytest.mark.parametrize("where", ["compiled", "python"])
def test_a_division_by_zero_is_an_error_in_both(where):
    def compiled(e):
        return 12 // e.value, e.time

    def in_python(e):
        return plain(12) // e.value, e.time

    env = en.Environment(**SMALL)
    stream = env.source(table(value=[3, 2, 0, 1], time=[1, 2, 3, 4]))
    if where == "compiled":
        stream = stream.map(compiled)
    else:
        with pytest.warns(en.PythonFallbackWarning):
            stream = stream.map(in_python)
    stream.null()
    with pytest.raises(en.QueryError) as caught:
        env.run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert (caught.value.number, caught.value.event) == (2, {"value": 0, "time": 3})


def test_callables_of_every_kind_run():
    """A bound method, an object and a partial do not compile; they run as Python and are named."""
    import functools

    class Add:
        def __call__(self, e):
            return e.key + 1, e.value, e.weight, e.time

        def method(self, e):
            return e.key + 1, e.value, e.weight, e.time

    expected = outcome(EVENTS[:20], lambda s: s.map(lambda e: (e.key + 1, e.value, e.weight, e.time)))
    plus = functools.partial(lambda n, e: (e.key + n, e.value, e.weight, e.time), 1)
    for function, name in ((Add(), "Add"), (Add().method, "method"), (plus, "partial")):
        with pytest.warns(en.PythonFallbackWarning, match=name):
            assert outcome(EVENTS[:20], lambda s, f=function: s.map(f)) == expected
