"""Parsing loses nothing: every Triton kernel file of the corpus prints back byte for byte, and an edit stays local."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import libcst as cst
import pytest

from klineage.model import Site
from klineage.surface import Editor, Module, sites
from klineage.surface.query import walk

_SCRIPT = Path(__file__).parents[2] / "scripts" / "corpus_report.py"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_report", _SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["corpus_report"] = module
    spec.loader.exec_module(module)
    return module


corpus = _script()
LEAST_JIT_FUNCTIONS = {"liger_kernel": 90, "fla": 400, "flag_gems": 500, "conch": 30, "cut_cross_entropy": 8}


def _files(package: str) -> list[Path]:
    root = corpus.package_root(package)
    if root is None:
        pytest.skip(f"{corpus.PACKAGES[package]} is not installed")
    return list(corpus.kernel_files(root))


def test_some_package_of_the_corpus_is_there() -> None:
    found = [p for p in corpus.PACKAGES if corpus.package_root(p) is not None]
    assert found, "no corpus: pip install --no-deps --target .corpus -r scripts/corpus.txt"
    assert any(_files(p) for p in found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("package", list(LEAST_JIT_FUNCTIONS))
def test_every_kernel_file_prints_back_byte_for_byte(package: str) -> None:
    root = corpus.package_root(package)
    if root is None:
        pytest.skip(f"{corpus.PACKAGES[package]} is not installed")
    row = corpus.report(package, root, with_sites=False)
    assert row.failed == []
    assert row.parsed >= LEAST_JIT_FUNCTIONS[package]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("package", list(LEAST_JIT_FUNCTIONS))
def test_an_edit_changes_its_span_and_nothing_else(package: str) -> None:
    chance = random.Random(f"{package}-1")
    files = _files(package)
    edited = 0
    for path in chance.sample(files, min(8, len(files))):
        source = path.read_bytes().decode()
        module = Module.parse(source)
        found = sites(module)
        if not found:
            continue
        site = chance.choice(found)
        whole = source.encode()
        same = Editor(module)
        same.replace_span(site.start, site.end, whole[site.start : site.end].decode())
        assert same.apply() == source, path
        statement = module.statement(_node(module, site))
        commented = Editor(module)
        commented.insert_before(statement, "# a comment")
        lines, before = commented.apply().splitlines(keepends=True), source.splitlines(keepends=True)
        at = next(i for i, (a, b) in enumerate(zip(lines, [*before, ""], strict=True)) if a != b)
        assert lines[at].strip() == "# a comment", path
        assert lines[:at] + lines[at + 1 :] == before, path
        edited += 1
    assert edited >= min(2, len(files))


def _node(module: Module, site: Site) -> cst.CSTNode:
    """The outermost node that spans a site exactly."""
    kinds = cst.BaseExpression | cst.FunctionDef | cst.For | cst.While | cst.Decorator | cst.Arg | cst.Param
    whole = (n for n in walk(module.tree) if isinstance(n, kinds))
    return next(n for n in whole if module.span(n) == (site.start, site.end))


def test_sites_are_found_in_an_expert_kernel() -> None:
    root = corpus.package_root("liger_kernel")
    if root is None:
        pytest.skip("liger-kernel is not installed")
    row = corpus.Row("one")
    module = Module.parse((root / "ops" / "rms_norm.py").read_text(encoding="utf-8"))
    row.kinds.update(s.kind for s in sites(module))
    for kind in ("kernel", "launch", "launcher", "load", "store", "reduction", "program_id", "constexpr", "loop"):
        assert row.kinds[kind] > 0, kind


def test_the_report_fails_when_it_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "liger_kernel").mkdir()
    assert corpus.report("liger_kernel", tmp_path / "liger_kernel", with_sites=False).parsed == 0
