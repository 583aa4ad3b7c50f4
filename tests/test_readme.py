"""What the documents claim: code that runs, results that come out, files and commands that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUN = ["README.md", "docs/operators.md"]
DOCUMENTS = [*RUN, "CONTRIBUTING.md", "docs/design.md"]
CLAIM = "# -> "
"""`expression  # -> repr` in a Python block: the expression has this value."""

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n((?:\|[^\n]*\n)+))?", re.DOTALL | re.MULTILINE)
"""A Python block; a table right after it shows the DataFrame that is the block's last expression."""


def text(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str) -> Iterator[tuple[ast.Module, str | None]]:
    """The Python blocks of a document, with the table after each; their line numbers are the document's."""
    for found in BLOCK.finditer(text(document)):
        before = text(document)[: found.start(1)].count("\n")
        yield ast.increment_lineno(ast.parse(found[1], document), before), found[2]


def run(module: ast.Module, table: str | None, document: str, scope: dict[str, Any]) -> int:
    """Execute a block and check what it claims; the number of claims."""
    lines, claims = text(document).splitlines(), 0
    for statement in module.body:
        last = lines[(statement.end_lineno or 0) - 1]
        where = f"{document}:{statement.lineno}"
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), document, "exec"), scope)
            continue
        value = eval(compile(ast.Expression(statement.value), document, "eval"), scope)
        if CLAIM in last:
            assert repr(value) == last.split(CLAIM)[1], where
            claims += 1
        elif table is not None and statement is module.body[-1]:
            assert markdown(value) == table, where
            claims += 1
    return claims


def markdown(frame: Any) -> str:
    """A DataFrame as a document shows it."""
    title, *rows = (
        f"| {' | '.join(map(str, line))} |\n" for line in [frame.columns, *frame.itertuples(index=False)]
    )
    return "".join([title, "|---" * len(frame.columns), "|\n", *rows])


@pytest.mark.parametrize("document", RUN)
def test_the_code_in_a_document_runs_and_says_what_it_does(document: str) -> None:
    scope: dict[str, Any] = {"__name__": "document"}
    claims = [run(module, table, document, scope) for module, table in blocks(document)]
    assert claims and all(claims), f"a block that claims nothing proves little: {claims}"


def test_a_table_that_is_wrong_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = "```python\nimport pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [0.5, 1]})\n```\n\n"
    table = "| a | b |\n|---|---|\n| 1 | 0.5 |\n| 2 | 1.0 |\n"
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "right.md").write_text(f"{right}{table}\nmore\n")
    (tmp_path / "wrong.md").write_text(f"{right}{table.replace('0.5', '0.7')}")
    assert [run(module, found, "right.md", {}) for module, found in blocks("right.md")] == [1]
    with pytest.raises(AssertionError, match=r"wrong.md:3"):
        [run(module, found, "wrong.md", {}) for module, found in blocks("wrong.md")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text(document))
    assert not [link for link in links if not (ROOT / document).parent.joinpath(link).exists()]


@pytest.mark.parametrize("document", ["README.md", "docs/design.md"])
def test_files_that_are_named_exist(document: str) -> None:
    rooms = "haren|enjima|workloads|reproduce|notebooks|tests|docs"
    named = re.findall(rf"`((?:{rooms})/[\w./-]*)`", text(document))
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_that_are_named_exist(document: str) -> None:
    targets = set(re.findall(r"^([a-z]+):.*##", text("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:^    |`)make ([a-z]+)", text(document), re.MULTILINE))
    assert named <= targets
