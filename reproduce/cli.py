"""START HERE: the `reproduce` command.

    reproduce list                              the experiments
    reproduce run ysb-rates --profile smoke     one experiment, its results and a report
    reproduce run --headline                    what `make reproduce` runs
    reproduce bench ysb --json                  a benchmark
    reproduce report                            the report again, from the results on disk

An experiment is a file in `reproduce/experiments/` (parameters, claims, how to show it) and a notebook in
`notebooks/experiments/`; `runner` executes the notebook, `recorder` measures and keeps its points in the
form `results` defines, `report` and `plots` show them. A benchmark is a file in `reproduce/bench/`.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduce import settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0: done; 1: an experiment failed; 2: a wrong request; 130: interrupted."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except KeyboardInterrupt:
        kept = "; the points measured so far are kept" if arguments.command is _run else ""
        print(f"reproduce: interrupted{kept}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reproduce", description="Run experiments and benchmarks.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="show the experiments")
    listing.set_defaults(command=_list)

    run = commands.add_parser("run", help="run experiments and write a report")
    run.add_argument("ids", nargs="*", metavar="ID", help="as `reproduce list` shows them")
    run.add_argument("--headline", action="store_true", help="the headline experiments")
    run.add_argument("--profile", choices=settings.PROFILES, help="default: HAREN_LAB_PROFILE, else quick")
    run.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a parameter"
    )
    run.set_defaults(command=_run)

    bench = commands.add_parser("bench", help="run a benchmark")
    bench.add_argument("name", metavar="NAME")
    bench.add_argument("--json", action="store_true", help="one JSON object as the last line of the output")
    effort = bench.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick", dest="effort", action="store_const", const="quick", help="under 50 seconds"
    )
    effort.add_argument("--long", dest="effort", action="store_const", const="long", help="for a quiet hour")
    bench.set_defaults(command=_bench, effort="default")

    report = commands.add_parser("report", help="write the report from the results on disk")
    report.set_defaults(command=_report)

    for command in (run, report, listing):
        command.add_argument(
            "--out", type=Path, default=settings.results_directory(), metavar="DIR", help="results"
        )
    return parser


def _list(arguments: argparse.Namespace) -> int:
    from reproduce.experiments import experiments

    width = max(len(name) for name in experiments())
    for experiment in experiments().values():
        runs = list((arguments.out / experiment.id).glob("*/points"))
        mark, plural = "*" if experiment.headline else " ", "" if len(runs) == 1 else "s"
        title = f"{experiment.title}  [{len(runs)} run{plural}]"
        print(f"{mark} {experiment.id:{width}}  {experiment.paper:9}  {title}")
    print("\n* runs with --headline")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from reproduce import runner
    from reproduce.experiments import UnknownExperiment, experiments, get

    if bool(arguments.ids) == arguments.headline:
        return _refuse(f"name experiments or --headline, one of both; there are: {', '.join(experiments())}")
    try:
        chosen = [get(name) for name in arguments.ids] or [e for e in experiments().values() if e.headline]
        profile = arguments.profile or settings.default_profile()
        overrides = dict(_assignment(text) for text in arguments.set)
        for experiment in chosen:
            experiment.parameters(profile, overrides)
    except (UnknownExperiment, ValueError) as error:
        return _refuse(str(error))
    for experiment in chosen:
        try:
            runner.run(experiment.id, profile, arguments.out, overrides)
        except runner.RunFailed as error:
            print(f"reproduce: {error}", file=sys.stderr)
            return 1
    return _report(arguments)


def _report(arguments: argparse.Namespace) -> int:
    from reproduce import report
    from reproduce.results import ResultsError

    try:
        written = report.write(arguments.out)
    except (report.NoResults, ResultsError) as error:
        return _refuse(str(error))
    print(f"results  {arguments.out}")
    for what, path in written.items():
        print(f"{what}  {path}")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    import json

    from reproduce import bench

    try:
        outcome = bench.run(arguments.name, arguments.effort)
    except bench.UnknownBenchmark as error:
        return _refuse(str(error))
    print(bench.table(outcome), file=sys.stderr if arguments.json else sys.stdout)
    if arguments.json:
        print(json.dumps(outcome))
    return 0


def _assignment(text: str) -> tuple[str, Any]:
    """`name=value`, the value as Python would write it, or else a string."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"--set takes NAME=VALUE, not {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _refuse(message: str) -> int:
    print(f"reproduce: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
