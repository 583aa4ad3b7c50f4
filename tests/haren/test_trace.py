"""The trace: its columns and order, what it forgets, why an operator ran, and what other tools read."""

import json

import numpy as np
import pytest

import haren
from haren.trace import REASONS, ROUND_COLUMNS, TRACE_COLUMNS

P = 0.005


def run(policy="fcfs", *, threads: int = 2, trace: int = 65536, seconds: float = 0.05, **more):
    net = haren.Simulation()
    net.chain(4_000, [1_000, 60_000, 500], [0.5], query="one")
    net.chain(6_000, [1_000, 80_000, 500], query="two")
    return net.run(seconds, haren.Bound(policy, period=P, batch=4, **more), threads=threads, trace=trace)


NAMES = ["source-0", "operator-1", "sink-2", "source-3", "operator-4", "sink-5"]


def test_columns_order_and_values():
    result = run()
    frame = result.trace.frame
    assert tuple(frame.columns) == TRACE_COLUMNS
    assert list(frame.index) == list(range(len(frame))) and len(frame) == len(result.trace)
    keys = list(zip(frame["start_ns"], frame["thread"], strict=True))
    assert keys == sorted(keys)
    assert (frame["end_ns"] > frame["start_ns"]).all()
    assert set(frame["operator"]) == set(NAMES)
    assert dict(zip(frame["operator"], frame["query"], strict=True)) == dict(
        zip(NAMES, ["one"] * 3 + ["two"] * 3, strict=True)
    )
    assert set(frame["thread"]) == {0, 1}
    assert set(frame["reason"]) <= set(REASONS)
    for name in ("start_ns", "end_ns", "thread", "events_in", "events_out"):
        assert frame[name].dtype == np.int64
    for thread in (0, 1):
        mine = frame[frame["thread"] == thread]
        assert (mine["start_ns"].to_numpy()[1:] >= mine["end_ns"].to_numpy()[:-1]).all()
    assert result.trace.frame is frame


def test_it_adds_up_to_what_the_operators_did():
    result = run()
    frame = result.trace.frame.groupby("operator")
    operators = result.operators.set_index("operator")
    names = list(operators.index)
    assert frame["events_out"].sum()[names].tolist() == operators["events_out"].tolist()
    inner = [name for name in names if not name.startswith("source")]
    assert frame["events_in"].sum()[inner].tolist() == operators.loc[inner, "events_in"].tolist()
    assert frame.size()[names].tolist() == operators["runs"].tolist()
    busy = (result.trace.frame["end_ns"] - result.trace.frame["start_ns"]).groupby(
        result.trace.frame["operator"]
    )
    assert (busy.sum()[names] / 1e9).tolist() == pytest.approx(operators["busy_s"].tolist())


@pytest.mark.parametrize("rows", [16, 9])
def test_a_full_buffer_keeps_the_latest_and_counts_what_it_lost(rows):
    whole, part = run(), run(trace=rows)
    assert whole.trace.lost == 0
    frame, kept = whole.trace.frame, part.trace.frame
    assert len(kept) == 2 * 16
    assert part.trace.lost == len(frame) - len(kept) > 0
    for thread in (0, 1):
        latest = frame[frame["thread"] == thread].tail(16).reset_index(drop=True)
        assert kept[kept["thread"] == thread].reset_index(drop=True).equals(latest)
    assert repr(part.trace) == f"<Trace: 32 runs, {part.trace.lost} earlier ones lost>"
    assert repr(whole.trace) == f"<Trace: {len(frame)} runs>"
    assert f"{part.trace.lost} earlier ones lost" in part.trace._repr_html_()


def test_a_trace_may_be_switched_off():
    result = run(trace=0)
    assert len(result.trace) == result.trace.lost == 0
    assert tuple(result.trace.frame.columns) == TRACE_COLUMNS and len(result.trace.frame) == 0
    with pytest.raises(ValueError, match="no run of an operator is remembered"):
        result.trace.explain()
    assert len(result.rounds) > 0


# -- why ------------------------------------------------------------------------------------------


def test_explain_has_all_candidates_and_what_the_policy_saw():
    result = run()
    frame = result.trace.frame
    row = frame[frame["start_ns"] > 0.03e9].iloc[0]
    why = result.trace.explain(row["operator"], int(row["start_ns"]))
    assert list(why.columns) == ["operator", "query", "thread", "rank", "priority", "verdict", "head_time"]
    assert sorted(why["operator"]) == sorted(NAMES)
    assert why.attrs == {"at_ns": row["start_ns"], "thread": row["thread"], "chosen": row["operator"]}
    assert (why["priority"] == [(-head,) for head in why["head_time"]]).all()
    chosen = why[why["operator"] == row["operator"]].iloc[0]
    assert chosen["verdict"] == f"chosen: {row['reason']}"
    assert chosen["thread"] == row["thread"]
    others = why["thread"] != row["thread"]
    assert set(why[others]["verdict"]) <= {"bound to another thread"}
    assert why["verdict"].str.startswith("chosen").sum() == 1
    # first those of its own thread by rank, then the others
    own = why[~others]
    assert own.index.tolist() == list(range(len(own))) and own["rank"].tolist() == list(range(len(own)))
    assert own["priority"].tolist() == sorted(own["priority"], reverse=True)


def test_explain_tells_those_asked_before_from_those_not_asked():
    result = run(threads=1)
    verdicts: set[str] = set()
    for row in result.trace.frame[result.trace.frame["start_ns"] > P * 1e9].itertuples():
        why = result.trace.explain(row.operator, row.start_ns)
        rank = why.set_index("operator")["rank"][row.operator]
        before, behind = why[why["rank"] < rank], why[why["rank"] > rank]
        assert set(behind["verdict"]) <= {"not asked: ranked behind the one chosen"}
        assert set(before["verdict"]) <= {
            "asked before: could not run, or was not eligible", "could not run, or had its turn in this pass",
        }  # fmt: skip
        verdicts.update(why["verdict"])
    assert "asked before: could not run, or was not eligible" in verdicts
    assert "not asked: ranked behind the one chosen" in verdicts


def test_explain_takes_the_last_run_at_or_before_a_time():
    result = run()
    frame = result.trace.frame
    last = frame.iloc[-1]
    assert result.trace.explain().attrs["at_ns"] == last["start_ns"]
    mine = frame[frame["operator"] == "operator-4"]
    assert result.trace.explain("operator-4").attrs["at_ns"] == mine["start_ns"].iloc[-1]
    third, fourth = mine["start_ns"].iloc[2:4]
    assert result.trace.explain("operator-4", int(fourth) - 1).attrs["at_ns"] == third
    assert result.trace.explain("operator-4", int(fourth)).attrs["at_ns"] == fourth
    assert result.trace.explain(at=int(last["start_ns"])).attrs["at_ns"] == last["start_ns"]


def test_explain_before_the_first_round_says_that_all_are_equal():
    why = run().trace.explain(at=0).set_index("operator")
    chosen = why.attrs["chosen"]
    assert why.loc[chosen, "verdict"] == "chosen: before the first round all are equal"
    assert set(why.drop(chosen)["verdict"]) == {"unknown"}


def test_explain_refuses_what_there_is_not():
    trace = run().trace
    with pytest.raises(ValueError, match=r"no operator 'nobody'; the operators are: operator-1, .*source-3"):
        trace.explain("nobody")
    with pytest.raises(ValueError, match="no run of sink-2 at or before 5 is remembered"):
        trace.explain("sink-2", 5)
    with pytest.raises(ValueError, match=r"\(\d\d+ earlier runs were overwritten\)"):
        run(trace=16).trace.explain("sink-2", 5)


def test_explain_does_not_say_that_a_forgotten_round_was_not_there():
    """Rounds are remembered 512 at most: of a run before those nothing is known, but there were rounds."""
    net = haren.Simulation()
    net.chain(10_000, [1_000, 500])
    result = net.run(0.7, haren.Bound("fcfs", period=0.001))
    decisions = result.trace._segments[-1].decisions
    assert len(decisions) == 512 < result.rounds["round"].max()
    early = decisions[0].time - 1
    assert early > 0.1e9
    with pytest.raises(ValueError, match="not remembered any more"):
        result.trace.explain(at=early)


def test_explain_without_snapshots_does_not_say_that_there_was_no_round():
    result = run(snapshots=False)
    assert len(result.rounds) > 0
    try:
        why = result.trace.explain()
    except ValueError as error:
        assert "remembered" in str(error)
    else:
        assert not why["verdict"].str.contains("before the first round").any()


# -- other tools ----------------------------------------------------------------------------------


def test_a_perfetto_file(tmp_path):
    result = run()
    path = tmp_path / "trace.json"
    path.write_text("something older")
    assert result.trace.to_perfetto(path) == path
    assert [one.name for one in tmp_path.iterdir()] == ["trace.json"]
    content = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    events = content["traceEvents"]
    names = [one for one in events if one["ph"] == "M"]
    assert [(one["name"], one["tid"], one["args"]["name"]) for one in names] == [
        ("thread_name", 0, "thread 0"),
        ("thread_name", 1, "thread 1"),
    ]
    complete = [one for one in events if one["ph"] == "X"]
    assert len(names) + len(complete) == len(events)
    frame, rounds = result.trace.frame, result.rounds
    runs = [one for one in complete if one["name"] != "T_S"]
    assert [one["name"] for one in runs] == frame["operator"].tolist()
    assert [one["tid"] for one in runs] == frame["thread"].tolist()
    assert [one["ts"] for one in runs] == (frame["start_ns"] / 1e3).tolist()
    assert [one["dur"] for one in runs] == ((frame["end_ns"] - frame["start_ns"]) / 1e3).tolist()
    assert [one["cat"] for one in runs] == frame["query"].tolist()
    assert runs[0]["args"] == frame.iloc[0][["query", "events_in", "events_out", "reason"]].to_dict()
    scheduling = [one for one in complete if one["name"] == "T_S"]
    assert [one["ts"] for one in scheduling] == (rounds["start_ns"] / 1e3).tolist()
    assert [one["dur"] for one in scheduling] == (rounds["total_ns"] / 1e3).tolist()
    assert all(isinstance(one["ts"], float | int) and one["pid"] == 1 for one in complete)


def test_a_perfetto_file_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    trace, path = run().trace, tmp_path / "trace.json"
    path.write_text("something older")

    def refuse(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("haren.trace.os.replace", refuse)
    with pytest.raises(OSError, match="the disk is full"):
        trace.to_perfetto(path)
    assert path.read_text() == "something older"
    assert [one.name for one in tmp_path.iterdir()] == ["trace.json"]


def test_an_empty_trace_is_a_file_too(tmp_path):
    path = run(trace=0, seconds=0.001).trace.to_perfetto(tmp_path / "empty.json")
    assert [one["ph"] for one in json.loads(path.read_text())["traceEvents"]] == ["M", "M"]


# -- rounds ---------------------------------------------------------------------------------------


def test_the_columns_of_rounds():
    rounds = run(seconds=0.049).rounds
    first, *others = ROUND_COLUMNS
    assert list(rounds.columns) == [first, "thread", *others]
    assert rounds["round"].tolist() == [number for number in range(1, 10) for _ in range(2)]
    assert rounds["thread"].tolist() == [0, 1] * 9
    assert all(ROUND_COLUMNS.values())
    assert (rounds["coordinate_ns"] <= rounds["total_ns"]).all()
    assert rounds.groupby("round")["sequential"].sum().tolist() == [1] * 9
    assert rounds.groupby("round")["full"].sum().tolist() == [6] * 9
    assert list(run(seconds=0.001).rounds.columns) == list(rounds.columns)


def test_only_the_latest_rounds_are_kept():
    net = haren.Simulation()
    net.source(1000, count=0)
    rounds = net.run(0.25, haren.Bound("rr", period=0.0001)).rounds
    assert 2000 <= len(rounds) <= 2048
    assert rounds["round"].tolist() == list(range(2500 - len(rounds) + 1, 2501))


def test_a_pool_has_no_rounds_and_gives_every_run_a_turn():
    net = haren.Simulation()
    net.chain(1000, [10, 10])
    result = net.run(0.01)
    assert len(result.rounds) == 0 and set(result.trace.frame["reason"]) == {"its turn"}
