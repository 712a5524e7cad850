"""Parse every Triton kernel file of the corpus of expert packages and count what is found.

Usage: python scripts/corpus_report.py [--corpus DIR] [--sites]

The corpus is the folder named by KLINEAGE_CORPUS, else ./.corpus, else whichever of the packages are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from klineage.errors import KLineageError
from klineage.surface import Module, sites

PACKAGES = {
    "liger_kernel": "liger-kernel",
    "fla": "fla-core",
    "flag_gems": "flag-gems",
    "conch": "conch-triton-kernels",
    "cut_cross_entropy": "cut-cross-entropy",
}
OTHER_VENDORS = ("_aipu", "_amd", "_arm", "_ascend", "_cambricon", "_enflame", "_hygon", "_iluvatar", "_kunlunxin",
                 "_metax", "_mthreads", "_sunrise", "_tsingmicro", "ascend", "triton_ascend")  # fmt: skip


@dataclass
class Row:
    """What one package holds."""

    package: str
    files: int = 0
    parsed: int = 0  # jit functions
    failed: list[str] = field(default_factory=list)  # files that do not parse, or do not print back
    kinds: Counter[str] = field(default_factory=Counter)


def package_root(package: str, corpus: Path | None = None) -> Path | None:
    """The folder of a package: in the corpus, else where it is installed."""
    named = corpus or (Path(os.environ["KLINEAGE_CORPUS"]) if "KLINEAGE_CORPUS" in os.environ else Path(".corpus"))
    if (named / package).is_dir():
        return named / package
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def kernel_files(root: Path) -> Iterator[Path]:
    """The files of a package that define Triton kernels, those for other vendors' devices left out."""
    for path in sorted(root.rglob("*.py")):
        if not set(path.relative_to(root).parts) & set(OTHER_VENDORS):
            text = path.read_text(encoding="utf-8", errors="replace")
            if "import triton" in text and ("triton.jit" in text or "@jit" in text):
                yield path


def report(package: str, root: Path, with_sites: bool) -> Row:
    """Parse all of a package's kernel files."""
    row = Row(package)
    for path in kernel_files(root):
        row.files += 1
        try:
            text = path.read_bytes().decode()
            module = Module.parse(text)
            if module.tree.bytes != text.encode():
                raise UnicodeError("printing gives other bytes")
            row.parsed += len(module.jit_functions)
            if with_sites:
                row.kinds.update(site.kind for site in sites(module))
        except (KLineageError, UnicodeError) as error:
            row.failed.append(f"{path.relative_to(root)}: {error}")
    return row


def main() -> int:
    """Print the table; status 1 when a file failed or nothing was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, help="folder the packages are installed in")
    parser.add_argument("--sites", action="store_true", help="count sites by kind too (several minutes)")
    options = parser.parse_args()
    rows: list[Row] = []
    for package, distribution in PACKAGES.items():
        root = package_root(package, options.corpus)
        if root is None:
            print(f"{distribution}: not installed", file=sys.stderr)
        else:
            rows.append(report(package, root, options.sites))
    print(f"{'package':<24}{'files':>7}{'jit functions':>15}{'failed':>8}")
    for row in rows:
        print(f"{PACKAGES[row.package]:<24}{row.files:>7}{row.parsed:>15}{len(row.failed):>8}")
        for line in row.failed:
            print(f"    {line}")
    if options.sites:
        kinds = sorted({k for row in rows for k in row.kinds})
        print(f"\n{'package':<24}" + "".join(f"{k:>12}" for k in kinds))
        for row in rows:
            print(f"{PACKAGES[row.package]:<24}" + "".join(f"{row.kinds[k]:>12}" for k in kinds))
    return 1 if not any(row.parsed for row in rows) or any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
