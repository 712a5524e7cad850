"""A module's functions and how they call each other, for the passes of ``specialize``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from .fold import Constexpr, Evaluator, Known, Maker, Value
from .names import global_names
from .pytext import PyText, dotted_name, is_jit, parameters

if TYPE_CHECKING:
    from .flow import Flows

_READ_METHODS = frozenset({"values", "keys", "items", "get"})


@dataclass
class Call:
    """One direct use of a function: ``f(...)`` or a launch ``f[grid](...)``."""

    node: ast.Call
    caller: str  # "" at module level
    launch: bool
    arguments: dict[str, ast.expr] = field(default_factory=dict)  # by parameter; omitted ones are absent
    opaque: bool = False  # *args, **kwargs, or more arguments than parameters


class Program:
    """One parse of a module with its call graph (top-level functions only)."""

    def __init__(self, source: str, entry: str, facts: Mapping[str, object] | None = None) -> None:
        self.text = PyText(source)
        self.entry = entry
        self.facts = facts or {}
        body = self.text.tree.body
        self.functions = {n.name: n for n in body if isinstance(n, ast.FunctionDef)}
        self.kernels = {name for name, node in self.functions.items() if is_jit(node)}
        self.parents = {id(c): p for p in ast.walk(self.text.tree) for c in ast.iter_child_nodes(p)}
        self.calls: dict[str, list[Call]] = {name: [] for name in self.functions}
        self.escaped: set[str] = set()  # used other than by a direct call
        bound: list[str] = []
        for statement in body:
            caller = statement.name if isinstance(statement, ast.FunctionDef) else ""
            for name in global_names(statement):
                if name.id in self.functions and isinstance(name.ctx, ast.Load):
                    self._use(name, caller)
                elif isinstance(name.ctx, ast.Store):
                    bound.append(name.id)
        names = [n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        self.escaped |= {n for n in names if names.count(n) > 1 or n in bound}
        self._bound = bound

    def _use(self, name: ast.Name, caller: str) -> None:
        parent = self.parents[id(name)]
        launch = isinstance(parent, ast.Subscript) and parent.value is name
        function: ast.AST = parent if launch else name
        call = self.parents[id(function)]
        if not isinstance(call, ast.Call) or call.func is not function:
            self.escaped.add(name.id)
            return
        found = Call(call, caller, launch)
        self._bind(found, self.functions[name.id])
        self.calls[name.id].append(found)

    @staticmethod
    def _bind(call: Call, function: ast.FunctionDef) -> None:
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        known = {a.arg for a in parameters(arguments)}
        for index, node in enumerate(call.node.args):
            if isinstance(node, ast.Starred) or index >= len(names):
                call.opaque = True
                return
            call.arguments[names[index]] = node
        for keyword in call.node.keywords:
            if keyword.arg is None:
                call.opaque = True
            elif keyword.arg in known:
                call.arguments[keyword.arg] = keyword.value

    # ------------------------------------------------------------------ constants
    @cached_property
    def constants(self) -> dict[str, Value]:
        """Module-level names bound once to a constant that nothing changes."""
        found: dict[str, Value] = {}
        evaluator = Evaluator(found, {}, self.facts)
        globals_declared = {n for g in ast.walk(self.text.tree) if isinstance(g, ast.Global) for n in g.names}
        for statement in self.text.tree.body:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if isinstance(statement, ast.AnnAssign):
                target = statement.target
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(target, ast.Name):
                continue
            name = target.id
            if self._bound.count(name) != 1 or name in globals_declared or statement.value is None:
                continue
            value = evaluator.evaluate(statement.value, found.get)
            if isinstance(value, Known) and self._unchanged(name, value):
                found[name] = value
        return found

    def _unchanged(self, name: str, value: Known) -> bool:
        if not isinstance(value.value, dict):
            return isinstance(value.value, bool | int | float | str | tuple | Constexpr | type(None))
        for node in ast.walk(self.text.tree):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                parent = self.parents[id(node)]
                reads = isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load)
                reads |= isinstance(parent, ast.Compare) and parent.left is not node
                reads |= isinstance(parent, ast.Attribute) and parent.attr in _READ_METHODS
                if not reads:
                    return False
        return True

    @cached_property
    def flows(self) -> Flows:
        """What is known of every expression of every function the entry reaches."""
        from .flow import Flows

        return Flows(self)

    @cached_property
    def makers(self) -> dict[str, Maker]:
        """Undecorated functions that only return an expression of plain parameters."""
        found: dict[str, Maker] = {}
        for name, node in self.functions.items():
            body = node.body[1:] if has_docstring(node) else node.body
            single = body[0] if len(body) == 1 else None
            plain = len(parameters(node.args)) == len(node.args.args) and not node.args.defaults
            if plain and not node.decorator_list and isinstance(single, ast.Return) and single.value is not None:
                found[name] = Maker(tuple(a.arg for a in node.args.args), single.value)
        return found

    def evaluator(self, kernel: bool) -> Evaluator:
        """An evaluator for the bodies of kernels or of Python functions."""
        return Evaluator(self.constants, self.makers, self.facts, kernel)

    # ------------------------------------------------------------------ decorators
    def decorator_strings(self, function: ast.FunctionDef) -> dict[str, list[ast.Constant]]:
        """String constants in a function's decorators, by value (autotune keys, heuristics, configurations)."""
        found: dict[str, list[ast.Constant]] = {}
        for decorator in function.decorator_list:
            for node in ast.walk(decorator):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.setdefault(node.value, []).append(node)
        return found

    def in_key_list(self, node: ast.Constant) -> bool:
        """True for an element of ``key=[...]`` or ``do_not_specialize=[...]`` of a decorator."""
        parent = self.parents[id(node)]
        keyword = self.parents.get(id(parent))
        names = ("key", "do_not_specialize", "do_not_specialize_on_alignment")
        return isinstance(parent, ast.List) and isinstance(keyword, ast.keyword) and keyword.arg in names


def has_docstring(node: ast.FunctionDef) -> bool:
    """True when a function's first statement is a docstring."""
    first = node.body[0]
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def is_constexpr(parameter: ast.arg) -> bool:
    """True for a parameter annotated ``tl.constexpr``."""
    annotation = parameter.annotation
    if isinstance(annotation, ast.Constant):
        return "constexpr" in str(annotation.value)
    return annotation is not None and (dotted_name(annotation) or "").split(".")[-1] == "constexpr"


def default_of(function: ast.FunctionDef, name: str) -> ast.expr | None:
    """A parameter's default."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    for parameter, default in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        if parameter.arg == name:
            return default
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if parameter.arg == name:
            return default
    return None
