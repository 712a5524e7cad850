"""The Python files of an installed package, read without importing it."""

from __future__ import annotations

import ast
import builtins
import difflib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

from ..errors import KernelError, PackageError
from .names import bound_names
from .pytext import PyText

BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}


@dataclass
class ModuleFile:
    """One module of a package: its text and the module-level statements that count.

    ``statements`` starts as the module's body; a conditional block whose branch is known is replaced by that branch.
    """

    name: str
    text: PyText
    is_package: bool
    statements: list[ast.stmt] = field(default_factory=list)
    fallback: ModuleFile | None = None  # where names are looked up that this text does not bind (an adapter's host)

    def __post_init__(self) -> None:
        self.statements = list(self.text.tree.body)

    def binding(self, name: str, chain: str) -> list[ast.stmt]:
        """Statements that bind or change ``name``; ``chain`` is the dotted use, which decides ``import a.b.c``."""
        found: list[ast.stmt] = []
        partial: list[ast.stmt] = []
        for statement in self.statements:
            keys = statement_keys(statement)
            if name in keys or any(k != name and (chain == k or chain.startswith(f"{k}.")) for k in keys):
                found.append(statement)
            elif any(k.startswith(f"{name}.") for k in keys):
                partial.append(statement)
        return found or partial

    def expand(self, block: ast.stmt, taken: list[ast.stmt]) -> None:
        """Put a block's taken branch in its place."""
        at = self.statements.index(block)
        self.statements[at : at + 1] = taken

    def absolute(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module an import names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
        return ".".join([*parts, *([node.module] if node.module else [])])


@lru_cache(maxsize=4096)
def statement_keys(statement: ast.stmt) -> frozenset[str]:
    """What a statement binds or changes: names, and dotted names for ``import a.b.c``."""
    if isinstance(statement, ast.Import):
        return frozenset(a.asname or a.name for a in statement.names)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func  # table.update(...), registry.append(...)
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return frozenset({function.value.id})
        return frozenset()
    if isinstance(statement, ast.If | ast.Try | ast.With):
        inner = [s for block in _blocks(statement) for s in block]
        return frozenset(k for s in inner for k in statement_keys(s))
    names = bound_names([statement])
    for node in ast.walk(statement) if isinstance(statement, ast.Assign | ast.AugAssign | ast.For) else ():
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            base: ast.expr = node
            while isinstance(base, ast.Subscript | ast.Attribute):
                base = base.value
            if isinstance(base, ast.Name):
                names.add(base.id)
    return frozenset(names)


def _blocks(statement: ast.If | ast.Try | ast.With) -> list[list[ast.stmt]]:
    blocks = [statement.body]
    if not isinstance(statement, ast.With):
        blocks.append(statement.orelse)
    if isinstance(statement, ast.Try):
        blocks += [statement.finalbody, *(h.body for h in statement.handlers)]
    return blocks


class Package:
    """An installed top-level package.

    Raises PackageError when it is not installed.
    """

    def __init__(self, top: str) -> None:
        self.top = top
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            known = metadata.packages_distributions().get(top, [top.replace("_", "-")])[0]
            raise PackageError(f"package {top} is not installed", f"pip install {known}")
        self.roots = [Path(p) for p in spec.submodule_search_locations or ()]
        self.file = Path(spec.origin) if spec.origin and not self.roots else None
        self._modules: dict[str, ModuleFile | None] = {}

    def owns(self, module: str) -> bool:
        """True when a module name belongs to this package."""
        return module == self.top or module.startswith(f"{self.top}.")

    def module(self, name: str) -> ModuleFile | None:
        """The module's text, or None when there is no such Python file."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def _read(self, name: str) -> ModuleFile | None:
        if not self.owns(name):
            return None
        if self.file is not None:
            return _load(name, self.file, False) if name == self.top else None
        parts = name.split(".")[1:]
        for root in self.roots:
            base = root.joinpath(*parts)
            for path, is_package in ((base / "__init__.py", True), (base.with_name(f"{base.name}.py"), False)):
                if path.is_file() and (parts or is_package):
                    return _load(name, path, is_package)
        return None

    def header(self, spec: str) -> str:
        """The comment line that names the origin: package, version and licence."""
        for distribution in _distributions(tuple(sys.path)).get(self.top, []):
            info = metadata.metadata(distribution)
            licence = _licence(info)
            return f"# Cut out of {distribution} {info['Version']} ({licence}): {spec}\n"
        return f"# Cut out of {self.top} (version and licence not stated): {spec}\n"


@cache
def _distributions(_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Distributions by top-level package; reading them takes seconds where many are installed."""
    return metadata.packages_distributions()


def _licence(info: metadata.PackageMetadata) -> str:
    fields = info.json
    for key in ("license_expression", "license"):
        value = str(fields.get(key) or "").strip()
        if value and value.upper() != "UNKNOWN":
            return value.splitlines()[0].strip()[:60]
    for classifier in fields.get("classifier") or ():
        if str(classifier).startswith("License ::"):
            return str(classifier).split("::")[-1].strip()
    return "licence not stated"


def _load(name: str, path: Path, is_package: bool) -> ModuleFile:
    try:
        return ModuleFile(name, PyText(path.read_text(encoding="utf-8")), is_package)
    except (KernelError, UnicodeDecodeError, OSError) as error:
        raise PackageError(f"{name} cannot be read: {error}", "reinstall the package") from error


def close_names(name: str, module: ModuleFile) -> str:
    """What to suggest for a misspelt function: up to three close names, else some functions there are."""
    functions = [n.name for n in module.statements if isinstance(n, ast.FunctionDef)]
    close = difflib.get_close_matches(name, functions, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"functions there: {', '.join(functions[:8])}" if functions else f"{module.name} defines no function"
