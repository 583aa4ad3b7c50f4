"""What the documents claim: code that runs, results that come out, files and commands that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/design.md"]
CLAIM = "# -> "
"""`expression  # -> repr` in a Python block: the expression has this value."""


def text(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str) -> Iterator[ast.Module]:
    """The Python blocks of a document; their line numbers are the document's."""
    for found in re.finditer(r"^```python\n(.*?)^```", text(document), re.DOTALL | re.MULTILINE):
        before = text(document)[: found.start(1)].count("\n")
        yield ast.increment_lineno(ast.parse(found[1], document), before)


def run(module: ast.Module, document: str, scope: dict[str, Any]) -> int:
    """Execute a block and check what it claims; the number of claims."""
    lines, claims = text(document).splitlines(), 0
    for statement in module.body:
        last = lines[(statement.end_lineno or 0) - 1]
        if isinstance(statement, ast.Expr) and CLAIM in last:
            value = eval(compile(ast.Expression(statement.value), document, "eval"), scope)
            assert repr(value) == last.split(CLAIM)[1], f"{document}:{statement.lineno}"
            claims += 1
        else:
            exec(compile(ast.Module([statement], []), document, "exec"), scope)
    return claims


def test_the_code_in_the_readme_runs_and_says_what_it_does() -> None:
    scope: dict[str, Any] = {"__name__": "readme"}
    claims = [run(module, "README.md", scope) for module in blocks("README.md")]
    assert claims and all(claims), "a block that claims nothing proves little"


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
