"""What a function needs: names followed through the modules of a package, conditional blocks decided on the way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import PackageError
from .environment import answer
from .names import bound_names, eager_names, global_names, identifiers
from .package import BUILTINS, ModuleFile, Package
from .pytext import PyText, dotted_name

_SIMPLE_IMPORTS = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Symbol:
    """A module-level name of the package (``module``) or, with ``statement``, an import of another package.

    ``statement`` is the import without its ``as`` part: ``import triton.language`` or ``from math import ceil``.
    """

    module: str
    name: str
    statement: str = ""


@dataclass(frozen=True)
class Reference:
    """Bytes [start, end) of a unit stand for a symbol; ``chain`` is the dotted use, for submodule imports."""

    start: int
    end: int
    symbol: Symbol


@dataclass
class Unit:
    """One module-level statement that is kept."""

    module: ModuleFile
    node: ast.stmt
    defines: set[Symbol] = field(default_factory=set)
    references: list[Reference] = field(default_factory=list)
    needs: set[Symbol] = field(default_factory=set)
    eager: set[Symbol] = field(default_factory=set)  # needed while the module is imported
    replaced: list[tuple[int, int, list[tuple[str, Symbol]]]] = field(default_factory=list)  # imports inside the unit


class Slicer:
    """Collects the units and imports that a set of names needs."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.units: dict[int, Unit] = {}  # by id of the statement, in order of discovery
        self.imports: set[Symbol] = set()
        self._deciding: set[int] = set()
        self._symbols: dict[Symbol, list[Unit]] = {}

    # ------------------------------------------------------------------ what callers ask
    def symbol_names(self) -> dict[Symbol, str]:
        """Every symbol's name in the text to be written: its own unless two clash."""
        taken: dict[str, Symbol] = {}
        names: dict[Symbol, str] = {}
        used = {i for unit in self.units.values() for i in identifiers(unit.node)}
        ordered = [*sorted(self.imports, key=lambda s: (s.name, s.statement)), *self._symbols]
        for symbol in ordered:
            name = "_lazy" if symbol.name == "__getattr__" else symbol.name
            if taken.get(name, symbol) != symbol:
                tail = symbol.module.split(".")[-1].strip("<>_") or "other"
                name = f"{name}_{tail}"
                while name in used or name in taken:
                    name += "_"
            taken[name] = symbol
            names[symbol] = name
        return names

    def defining(self, symbol: Symbol) -> list[Unit]:
        """The kept units that define a symbol, in source order."""
        return self._symbols.get(symbol, [])

    def add_all(self, module: ModuleFile) -> None:
        """Keep every statement of a module (an adapter), its imports apart."""
        for statement in list(module.statements):
            if isinstance(statement, _SIMPLE_IMPORTS):
                for alias in statement.names:
                    self._import(module, statement, alias)
            else:
                self._unit(module, statement)

    # ------------------------------------------------------------------ names
    def resolve(self, module: ModuleFile, name: str, chain: str) -> Symbol | ModuleFile | None:
        """What a module-level name means. None: a builtin, or nothing known."""
        statements = self._decided(module, name, chain)
        if any(isinstance(s, _SIMPLE_IMPORTS) for s in statements):  # triton.set_allocator(...) is no definition
            statements = [s for s in statements if isinstance(s, _SIMPLE_IMPORTS) or name in bound_names([s])]
        if statements and all(isinstance(s, _SIMPLE_IMPORTS) for s in statements):
            found: Symbol | ModuleFile | None = None
            for statement in statements:
                for alias in statement.names:  # type: ignore[attr-defined]
                    if _binds(alias, statement, name, chain):
                        found = self._import(module, statement, alias)
            return found
        if statements:
            symbol = Symbol(module.name, name)
            if symbol not in self._symbols:
                self._symbols[symbol] = []
                for statement in statements:
                    if isinstance(statement, _SIMPLE_IMPORTS):
                        raise PackageError(
                            f"{module.name} both imports and defines {name}", "slice a function that does not use it"
                        )
                    unit = self._unit(module, statement)
                    unit.defines.add(symbol)
                    self._symbols[symbol].append(unit)
            return symbol
        if module.fallback is not None:
            return self.resolve(module.fallback, name, chain)
        return None if name in BUILTINS else self._star(module, name, chain) or self._lazy(module, name)

    def _decided(self, module: ModuleFile, name: str, chain: str) -> list[ast.stmt]:
        """The statements that bind a name, every conditional block among them decided where it can be."""
        while True:
            statements = module.binding(name, chain)
            for block in statements:
                if isinstance(block, ast.If | ast.Try) and id(block) not in self._deciding:
                    self._deciding.add(id(block))
                    taken = self._decide(module, block)
                    if taken is not None:
                        module.expand(block, taken)
                        break
            else:
                return statements

    def _decide(self, module: ModuleFile, block: ast.If | ast.Try) -> list[ast.stmt] | None:
        if isinstance(block, ast.If):
            said = self._ask(module, f"klineage_answer = bool({ast.unparse(block.test)})\n")
            return None if said is None else block.body if said == "True" else block.orelse
        if block.finalbody or block.orelse:
            return None
        text = _trial(module, block)
        said = answer(text) if text else None
        if said is None:
            return None
        return block.body if said == "-1" else block.handlers[int(said)].body

    def _ask(self, module: ModuleFile, program: str) -> str | None:
        """Cut out what a condition needs and run just that."""
        from .write import write_module

        question = ModuleFile("<condition>", PyText(program), False, fallback=module)
        slicer = Slicer(self.package)
        slicer._deciding = self._deciding
        try:
            slicer.add_all(question)
            return answer(write_module(slicer, question))
        except PackageError:
            return None

    def _star(self, module: ModuleFile, name: str, chain: str) -> Symbol | ModuleFile | None:
        for statement in module.statements:
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                other = self.package.module(module.absolute(statement))
                found = self.resolve(other, name, chain) if other is not None and other is not module else None
                if found is not None:
                    return found
        return self.package.module(f"{module.name}.{name}") if module.is_package else None

    def _lazy(self, module: ModuleFile, name: str) -> Symbol | ModuleFile | None:
        """A name that the module's ``__getattr__`` makes (PEP 562): one assignment that asks it."""
        maker = module.binding("__getattr__", "__getattr__")
        if (
            name == "__getattr__"
            or not maker
            or not any(isinstance(n, ast.Constant) and n.value == name for n in ast.walk(maker[0]))
        ):
            return None
        text = PyText(f"{name} = __getattr__({name!r})\n")
        return self.resolve(ModuleFile(module.name, text, module.is_package, fallback=module), name, name)

    def _import(
        self, module: ModuleFile, statement: ast.Import | ast.ImportFrom, alias: ast.alias
    ) -> Symbol | ModuleFile | None:
        """What one alias of an import brings. Imports of other packages are noted."""
        if isinstance(statement, ast.Import):
            if self.package.owns(alias.name):
                return self.package.module(alias.name if alias.asname else self.package.top)
            local = alias.asname or alias.name.split(".")[0]
            return self._external(local, f"import {alias.name}")
        source = module.absolute(statement)
        if source == "__future__" or alias.name == "*":
            return None
        if not self.package.owns(source):
            return self._external(alias.asname or alias.name, f"from {source} import {alias.name}")
        other = self.package.module(source)
        if other is None:  # compiled, or generated when the package is built
            return self._external(alias.asname or alias.name, f"from {source} import {alias.name}")
        if other is module:
            return self.package.module(f"{source}.{alias.name}")
        found = self.resolve(other, alias.name, alias.name) or self.package.module(f"{source}.{alias.name}")
        if found is None:
            raise PackageError(f"{source} has no {alias.name} that can be read", "check the package's version")
        return found

    def _external(self, local: str, statement: str) -> Symbol:
        symbol = Symbol("", local, statement)
        self.imports.add(symbol)
        return symbol

    # ------------------------------------------------------------------ units
    def _unit(self, module: ModuleFile, node: ast.stmt) -> Unit:
        if id(node) in self.units:
            return self.units[id(node)]
        unit = Unit(module, node)
        self.units[id(node)] = unit
        eager = eager_names(node)
        chains = _chains(node)
        for name in global_names(node):
            symbol = self._use(unit, name, chains.get(id(name), []))
            if symbol is not None:
                unit.needs.add(symbol)
                if name.id in eager:
                    unit.eager.add(symbol)
        for inner in ast.walk(node):
            if isinstance(inner, _SIMPLE_IMPORTS):
                self._inner_import(unit, inner)
        return unit

    def _use(self, unit: Unit, name: ast.Name, chain: list[ast.Attribute]) -> Symbol | None:
        module = unit.module
        if not isinstance(name.ctx, ast.Load):
            found = self.resolve(module, name.id, name.id)
        else:
            found = self.resolve(module, name.id, ".".join([name.id, *(a.attr for a in chain)]))
        end: ast.expr = name
        for attribute in chain:
            if not isinstance(found, ModuleFile):
                break
            found, end = self._member(found, attribute.attr), attribute
        if isinstance(found, ModuleFile):
            raise PackageError(
                f"{module.name} uses the module {found.name} as a value", "slice a function that does not"
            )
        if found is None:
            return None
        start, stop = module.text.span(name)[0], module.text.span(end)[1]
        unit.references.append(Reference(start, stop, found))
        return found

    def _member(self, module: ModuleFile, name: str) -> Symbol | ModuleFile:
        found = self.resolve(module, name, name) or self.package.module(f"{module.name}.{name}")
        if found is None:
            raise PackageError(f"{module.name} has no {name} that can be read", "check the package's version")
        return found

    def _inner_import(self, unit: Unit, node: ast.Import | ast.ImportFrom) -> None:
        """An import inside a kept unit: those of the package become plain assignments."""
        names: list[tuple[str, Symbol]] = []
        for alias in node.names:
            own = alias.name if isinstance(node, ast.Import) else unit.module.absolute(node)
            if not self.package.owns(own):
                return
            kept = set(self.imports)
            found = self._import(unit.module, node, alias)
            if not isinstance(found, Symbol) or (isinstance(node, ast.Import)):
                raise PackageError(
                    f"{unit.module.name} imports the module {own} inside a function", "slice a function that does not"
                )
            if found.statement and found not in kept and self.package.owns(found.statement.split()[1]):
                self.imports = kept
                return
            names.append((alias.asname or alias.name, found))
            unit.needs.add(found)
        unit.replaced.append((*unit.module.text.span(node), names))


def _binds(alias: ast.alias, statement: ast.stmt, name: str, chain: str) -> bool:
    key = alias.asname or alias.name
    if isinstance(statement, ast.ImportFrom):
        return key == name
    return key in (name, chain) or chain.startswith(f"{key}.") or key.startswith(f"{name}.")


def _chains(node: ast.AST) -> dict[int, list[ast.Attribute]]:
    """For every Name the attributes that follow it, innermost first."""
    found: dict[int, list[ast.Attribute]] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and dotted_name(inner) is not None:
            parts: list[ast.Attribute] = []
            at: ast.expr = inner
            while isinstance(at, ast.Attribute):
                parts.append(at)
                at = at.value
            if len(parts) > len(found.get(id(at), [])):
                found[id(at)] = parts[::-1]
    return found


def _trial(module: ModuleFile, block: ast.Try) -> str | None:
    """A program that tells which branch of a try block of imports and literals is taken."""
    body = [*block.body, *(s for h in block.handlers for s in h.body)]
    if not all(isinstance(s, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.Pass) for s in body):
        return None
    lines: list[str] = ["try:"]
    lines += [f"    {line}" for s in block.body for line in _plain(module, s)]
    for index, handler in enumerate(block.handlers):
        kind = f" {ast.unparse(handler.type)}" if handler.type is not None else ""
        lines += [f"except{kind}:", f"    klineage_answer = '{index}'"]
    lines += ["else:", "    klineage_answer = '-1'"]
    return "\n".join(lines)


def _plain(module: ModuleFile, statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ImportFrom):
        names = ", ".join(ast.unparse(a) for a in statement.names)
        yield f"from {module.absolute(statement)} import {names}"
    elif isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
        yield "pass"
    else:
        yield from ast.unparse(statement).splitlines()
