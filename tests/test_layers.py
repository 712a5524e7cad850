"""The layers hold: import-linter's contracts pass, and would fail if a layer were crossed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import os, sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports;"
        "sys.exit(lint_imports(config_filename='pyproject.toml', no_cache=True))"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


CROSSINGS = [
    ("model/kernel.py", "import torch", "model is pure"),
    ("model/kernel.py", "from .. import store", "layers"),
    ("store/base.py", "from .. import library", "layers"),
    ("walk/__init__.py", "from .. import optimize", "layers"),
    ("gate/__init__.py", "from .. import cli", "layers"),
]


@pytest.mark.parametrize(("file", "line", "contract"), CROSSINGS, ids=[f"{f}:{line}" for f, line, _ in CROSSINGS])
def test_crossing_a_layer_is_found(copy, file, line, contract):
    path = copy / "src" / "klineage" / file
    path.write_text(path.read_text() + f"\n{line}\n")
    result = lint(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout


def test_layers_hold(copy):
    result = lint(copy)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_package_stands_in_the_contract():
    contract = (ROOT / "pyproject.toml").read_text().split("layers = [", 1)[1].split("]", 1)[0]
    for package in (ROOT / "src" / "klineage").iterdir():
        if (package / "__init__.py").is_file():
            assert f"klineage.{package.name}" in contract, package.name
