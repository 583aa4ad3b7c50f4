"""Queries draw themselves: well-formed SVG with every operator and schema."""

from xml.etree import ElementTree

import enjima as en
from tests.enjima.conftest import make_events


def test_a_drawing_names_operators_and_schemas():
    env = en.Environment()
    stream = env.source(make_events(10), time="time", name="a < b & c")
    branch = stream.filter(lambda e: e.key > 0, name="positive")
    branch.window(en.Tumbling(seconds=1)).aggregate(n=en.count(), name="counted").collect()
    stream.null()
    text = "".join(ElementTree.fromstring(env._repr_html_()).itertext())
    for part in (
        "a < b & c",
        "positive",
        "counted",
        "collect",
        "null",
        "key: i8",
        "window_start: i8",
        "n: i8",
    ):
        assert part in text
    assert "counted" in stream._repr_html_()


def test_a_drawing_shows_only_the_stream_s_own_query():
    env = en.Environment()
    first = env.source(make_events(10), name="first")
    env.source(make_events(10), name="second").null()
    assert "second" not in first._repr_html_()
    assert "second" in env._repr_html_()
