"""The wheel is what users get: build it, install it elsewhere, run it from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built without isolation: the build's only requirement is in the test extra, and nothing is fetched."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel alone in a folder; its dependencies come from this environment."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return folder


def klineage(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    code = "import sys, klineage; print(klineage.__file__, file=sys.stderr); from klineage.cli.app import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.startswith(str(installed)), "the checkout was run, not the wheel"
    return done


def test_wheel_holds_tasks_and_skills_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for folder, source in (("tasks", "tasks"), ("skills", "skills"), ("hostile", "tests/hostile")):
        shipped = {p.name for p in (ROOT / source).iterdir() if p.is_file() and p.suffix in (".py", ".toml")}
        inside = {Path(n).name for n in names if n.startswith(f"klineage/_shipped/{folder}/")}
        assert shipped <= inside
    assert "klineage/py.typed" in names
    assert not [n for n in names if n.startswith(("tests/", "klineage/tests"))]
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_doctor_runs_from_the_wheel(installed, tmp_path):
    done = klineage(installed, tmp_path, "doctor", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"]


def test_shipped_skills_are_found_from_the_wheel(installed, tmp_path):
    done = klineage(installed, tmp_path, "skills", "list", "--json")
    assert done.returncode == 0, done.stderr
    names = {skill["name"] for skill in json.loads(done.stdout)["skills"]}
    assert len(names) == len(list((ROOT / "skills").glob("*.toml")))


def test_script_of_the_wheel_starts(installed, tmp_path):
    script = installed / "bin" / "klineage"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [script, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("klineage ")
