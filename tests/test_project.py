"""The house rules that no other test would notice broken."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ["haren", "enjima", "workloads", "reproduce"]
"""Each may import itself and those before it."""

NATIVE = ("haren/native/", "enjima/native/")
"""Where LLVM is spoken."""


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# Versions


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), "plain name==version lines only"
    return {normalised(name): version for name, version in (line.split("==") for line in lines)}


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {normalised(re.split(r"[^\w.-]", requirement)[0]) for requirement in requirements}


def test_the_nine_packages_are_declared(project: dict) -> None:
    nine = {"jupyterlab", "numpy", "numba", "pandas", "seaborn", "papermill", "pyspark", "pytest", "nbval"}
    assert nine <= names(project["dependencies"])


def test_every_dependency_is_pinned(project: dict, pins: dict[str, str]) -> None:
    extras = project["optional-dependencies"]
    wanted = names([*project["dependencies"], *extras["dev"], *extras["java"], "setuptools", "wheel"])
    assert wanted <= pins.keys()


def test_conda_environment_is_the_same_as_the_constraints(project: dict, pins: dict[str, str]) -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = [line for line in environment if isinstance(line, str)]
    pinned = dict(line.split("=") for line in conda if re.fullmatch(r"[\w-]+=[\w.]+", line))

    assert pinned.pop("openjdk") == "17"
    assert f"python{project['requires-python']}" in conda
    assert {"pip": ["-e ."]} in environment
    wanted = names([*project["dependencies"], *project["optional-dependencies"]["dev"], "setuptools"])
    assert pinned == {name: pins[name] for name in wanted}


# Layers


def imports(path: Path) -> Iterator[str]:
    """Every dotted name that a file imports, wherever in the file it does."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, node.module] if node.module else above)
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", LAYERS)
def test_imports_go_one_way(package: str) -> None:
    forbidden = set(LAYERS[LAYERS.index(package) + 1 :])
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(package)
        for name in imports(path)
        if name.split(".")[0] in forbidden
    ]
    assert not wrong


def test_llvm_is_spoken_only_in_the_native_folders() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for package in LAYERS
        for path in sources(package)
        if not path.relative_to(ROOT).as_posix().startswith(NATIVE) and speaks_llvm(path)
    ]
    assert not wrong


def speaks_llvm(path: Path) -> bool:
    imported = any(
        name.split(".")[0] == "llvmlite"
        or name.startswith(("numba.extending.intrinsic", "numba.core.cgutils"))
        for name in imports(path)
    )
    attributes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute))
    return imported or any(ast.unparse(node).endswith("extending.intrinsic") for node in attributes)


def packages() -> list[str]:
    inits = [path for package in LAYERS for path in sources(package) if path.name == "__init__.py"]
    return [".".join(path.parent.relative_to(ROOT).parts) for path in inits]


@pytest.mark.parametrize("package", packages())
def test_all_names_what_there_is(package: str) -> None:
    module = importlib.import_module(package)
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert not missing


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for package in LAYERS for path in sources(package)}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


# Text

MACHINE_PATH = re.compile(
    r"(?<![\w.~-])(?:file://)?/(?:work|root|home/\w+|Users/\w+)(?=[/\s\"'`)\]]|$)", re.MULTILINE
)
REGISTRIES = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("conda", "anaconda", "org"),
        ("repo", "maven", "apache", "org"),
        ("registry", "npmjs", "org"),
    ]
]


def project_files() -> list[Path]:
    """All files git tracks or would track."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path: Path) -> str:
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode()


def test_no_file_names_this_machine_or_a_package_registry() -> None:
    wrong = []
    for path in project_files():
        text = text_of(path)
        found = [*MACHINE_PATH.findall(text), *(host for host in REGISTRIES if host in text)]
        wrong += [f"{path.relative_to(ROOT)}: {what}" for what in found]
    assert not wrong


@pytest.mark.parametrize("command", ["make test", "make reproduce"])
def test_readme_shows(command: str) -> None:
    assert command in (ROOT / "README.md").read_text()


def test_ci_runs_what_everybody_runs() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
