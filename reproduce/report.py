"""A short report from the results on disk: Markdown beside the figures, and one HTML file that has it all.

The latest finished run of each experiment is shown. A report is a list of parts, rendered twice.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd

from reproduce import atomic, experiments, fingerprint, plots, results, stats
from reproduce.experiments import Experiment


class NoResults(LookupError):
    """There is nothing to report on."""


@dataclass(frozen=True)
class Heading:
    text: str
    level: int

    def markdown(self) -> str:
        return f"{'#' * self.level} {self.text}"

    def html(self) -> str:
        return f"<h{self.level}>{escape(self.text)}</h{self.level}>"


@dataclass(frozen=True)
class Paragraph:
    text: str

    def markdown(self) -> str:
        return self.text

    def html(self) -> str:
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Table:
    """A table whose first column names the row."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [self.titles, ("---",) * len(self.titles), *self.rows]
        return "\n".join(
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
        )

    def html(self) -> str:
        head = "".join(f"<th>{escape(title)}</th>" for title in self.titles)
        body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>\n" for row in self.rows)
        return f"<table>\n<tr>{head}</tr>\n{body}</table>"


@dataclass(frozen=True)
class Picture:
    """A figure on disk: linked from Markdown, embedded in HTML."""

    path: Path
    link: str
    alt: str

    def markdown(self) -> str:
        return f"![{self.alt}]({self.link})"

    def html(self) -> str:
        data = base64.b64encode(self.path.read_bytes()).decode()
        return f'<img alt="{escape(self.alt)}" src="data:image/png;base64,{data}">'


Part = Heading | Paragraph | Table | Picture

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Haren Lab: report</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ border: 1px solid #ccc; padding: 0.25rem 0.6rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
img {{ max-width: 100%; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def write(directory: Path | str) -> dict[str, Path]:
    """Write `report.md`, `report.html` and the figures (PNG and SVG) under `directory`; where they are."""
    root = Path(directory)
    frame = results.read(root) if root.is_dir() else pd.DataFrame()
    if frame.empty:
        raise NoResults(f"no results under {root}; make some with `reproduce run --headline`")
    parts: list[Part] = [Heading("Haren Lab: report", 1)]
    for name, rows in frame.groupby("experiment", sort=True):
        parts += _section(experiments.get(str(name)), results.latest_run(rows), root)
    markdown = "\n\n".join(part.markdown() for part in parts) + "\n"
    html = _PAGE.format(body="\n".join(part.html() for part in parts))
    return {
        "markdown": atomic.write_text(root / "report.md", markdown),
        "html": atomic.write_text(root / "report.html", html),
    } | {f"figure {part.alt}": part.path for part in parts if isinstance(part, Picture)}


def _section(experiment: Experiment, rows: pd.DataFrame, root: Path) -> list[Part]:
    title = Heading(f"{experiment.id}: {experiment.title}", 2)
    if rows.empty:
        return [title, Paragraph("No run has been finished yet.")]
    first = rows.iloc[0]
    verdicts = tuple((claim.statement, "yes" if claim.holds(rows) else "NO") for claim in experiment.claims)
    pictures = []
    for name, figure in experiment.figures(rows).items():
        png, _ = plots.save(figure, root / experiment.id / str(first["run_id"]) / "figures" / name)
        pictures.append(Picture(png, png.relative_to(root).as_posix(), name))
    return [
        title,
        Paragraph(experiment.sentence(rows)),
        Table(("does it hold?", "verdict"), verdicts),
        *pictures,
        _table(experiment.table(rows)),
        *_caution(rows),
        Paragraph("± is half the width of the 95 % confidence interval of the mean over the repetitions."),
        Heading("How it was measured", 3),
        Table(("what", "value"), _provenance(rows)),
    ]


def _measurements(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each point and repetition."""
    return rows.drop_duplicates(["point", "repetition"])


def _disturbed(runs: pd.DataFrame) -> int:
    return int((runs["disturbed"] == True).sum())  # noqa: E712  (null is neither)


def _caution(rows: pd.DataFrame) -> list[Part]:
    runs = _measurements(rows)
    if not _disturbed(runs):
        return []
    return [
        Paragraph(
            f"Caution: during {_disturbed(runs)} of {len(runs)} measurements others used the machine. "
            "Times and rates may be worse than the engine's own."
        )
    ]


def _provenance(rows: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    first = rows.iloc[0]
    runs = _measurements(rows)
    data = rows.dropna(subset=["dataset_checksum"]).drop_duplicates(["dataset", "dataset_checksum"])
    unknown = int(runs["disturbed"].isna().sum())
    return (
        ("machine", f"{fingerprint.describe(json.loads(first['machine']))} (id {first['machine_id']})"),
        (
            "data",
            "; ".join(f"{d.dataset}, checksum {d.dataset_checksum}" for d in data.itertuples()) or "none",
        ),
        ("run", f"{first['run_id']}, profile {first['profile']}, mode {first['mode']}"),
        ("git revision", str(first["git_revision"]) if pd.notna(first["git_revision"]) else "not in git"),
        ("measurements", f"{len(runs)} in {runs['duration_s'].sum():.0f} s"),
        ("disturbed", f"{_disturbed(runs)} of {len(runs)}" + (f", {unknown} unknown" if unknown else "")),
    )


def _table(frame: pd.DataFrame) -> Table:
    shown = frame.reset_index()
    rows = tuple(tuple(_cell(value) for value in row) for row in shown.itertuples(index=False))
    return Table(tuple(str(name) for name in shown.columns), rows)


def _cell(value: object) -> str:
    return stats.short(value) if isinstance(value, float) else str(value)
