from __future__ import annotations

from pathlib import Path

import pytest

from reproduce import plots, results


def test_rates(sample: Path, tmp_path: Path) -> None:
    frame = results.widen(results.read(sample))
    figure = plots.rates(frame[frame["stage"] == "rate"], "title")
    latency, throughput = figure.axes
    assert latency.get_yscale() == "log"
    assert "(ms)" in latency.get_ylabel() and "(M events/s)" in latency.get_xlabel()
    assert "(M events/s)" in throughput.get_ylabel()
    shown = {text.get_text() for text in latency.get_legend().get_texts()}
    assert {"marker", "result", "mean", "p99"} <= shown
    delivered = throughput.get_lines()[0]
    assert list(delivered.get_xdata()) == pytest.approx([25, 50])
    assert list(delivered.get_ydata()) == pytest.approx([25, 50])

    png, svg = plots.save(figure, tmp_path / "figures" / "name")
    assert png.read_bytes().startswith(b"\x89PNG") and png.name == "name.png"
    assert b"<svg" in svg.read_bytes() and svg.name == "name.svg"
