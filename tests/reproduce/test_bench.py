from __future__ import annotations

import json
from pathlib import Path

import pytest

from reproduce import bench, cli

TOY = """
from reproduce.bench import Row

def rows(effort):
    yield Row("speed", 0.5, "x", "higher", 0.4, 0.8, 0.01)
    yield Row("wait", 3.0, "ms", "lower", 2, 0.3, None)
    yield Row("rate", 123456.0, "events/s", "higher", None, None, 10.0, "as claimed")
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One benchmark and one helper, found because they are there."""
    (tmp_path / "toy_bench.py").write_text(TOY)
    (tmp_path / "toy_helper.py").write_text("")
    monkeypatch.setattr(bench, "__path__", [str(tmp_path)])


@pytest.mark.usefixtures("toy")
def test_json_is_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "toy-bench", "--json", "--quick"]) == 0
    output = capsys.readouterr()
    (line,) = output.out.splitlines()
    outcome = json.loads(line)
    assert set(outcome) == {"bench", "machine", "rows"} and outcome["bench"] == "toy-bench"
    assert {"id", "cpu", "cores", "steal", "disturbed"} <= set(outcome["machine"])
    assert outcome["rows"][0] == {
        "what": "speed", "value": 0.5, "unit": "x", "better": "higher", "bar": 0.4, "aim": 0.8,
        "spread": 0.01, "note": "",
    }  # fmt: skip
    assert outcome["rows"][2]["bar"] is None
    assert "speed" in output.err


@pytest.mark.usefixtures("toy")
def test_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "toy-bench"]) == 0
    title, speed, wait, rate = capsys.readouterr().out.splitlines()
    assert title.split() == ["what", "value", "spread", "bar", "aim"]
    assert speed.split() == ["speed", "0.5", "x", "±", "0.01", ">=", "0.4", "0.8"]
    assert wait.split() == ["wait", "3", "ms", "<=", "2", "0.3", "MISSED"]
    assert rate.split() == ["rate", "123,456", "events/s", "±", "10", "report", "as", "claimed"]


@pytest.mark.usefixtures("toy")
def test_an_unknown_benchmark_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "nonsense"]) == 2
    assert "unknown benchmark 'nonsense'; the benchmarks are: toy-bench\n" in capsys.readouterr().err


def test_pairs_are_interleaved_and_their_ratios_summarised(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    ours, limit = iter([1.0, 4.0, 3.0]), iter([2.0, 4.0, 4.0])

    def a() -> float:
        calls.append("a")
        return next(ours)

    def b() -> float:
        calls.append("b")
        return next(limit)

    values = bench.interleave(a, b, rounds=3, what="toy")
    assert "".join(calls) == "ababab"
    assert bench.ratio(*values) == (0.75, 0.125)  # of 0.5, 1, 0.75
    assert bench.ratio([1.0], [2.0]) == (0.5, None)
    assert "toy: round 3 of 3" in capsys.readouterr().err
