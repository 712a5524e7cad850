"""Autotune configurations read from text: lists, comprehensions, loops that append, and helpers made of these."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_LIMIT = 4096  # values one evaluation may make: a set of configurations is far smaller
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b, ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}  # fmt: skip
_BUILTINS: Mapping[str, Callable[..., Any]] = {
    "range": range, "list": list, "tuple": tuple, "min": min, "max": max, "len": len, "dict": dict, "int": int,
    "sorted": sorted, "zip": zip, "enumerate": enumerate, "product": itertools.product,
    "itertools.product": itertools.product,
}  # fmt: skip
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class NotConstantError(Exception):
    """An expression whose value does not follow from the text; the message says which."""


@dataclass(frozen=True)
class Symbol:
    """A name such as ``tl.float16`` that a configuration passes on."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Configuration:
    """One ``triton.Config``: values of the kernel's constexprs, and launch options written out."""

    values: Mapping[str, Any]
    options: Mapping[str, int] = field(default_factory=dict[str, int])
    hooked: bool = False  # carries a pre_hook

    @property
    def keywords(self) -> dict[str, str]:
        """Launch keywords: constexprs, then options, as source text."""
        return {name: repr(value) for name, value in (*self.values.items(), *self.options.items())}


def configurations(module_tree: ast.Module, node: ast.expr) -> list[Configuration]:
    """The value of an autotuner's ``configs`` expression.

    Raises NotConstantError when it does not follow from the module's text.
    """
    found = _Evaluator(module_tree).value(node, {})
    if not isinstance(found, list | tuple) or not all(isinstance(c, Configuration) for c in found):
        raise NotConstantError(f"{_short(node)} is not a list of configurations")
    return list(found)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Evaluator:
    """Evaluates a small part of Python; anything else raises NotConstantError."""

    def __init__(self, tree: ast.Module) -> None:
        self.bound: dict[str, list[ast.stmt]] = {}
        self.made = 0
        self.depth = 0
        for statement in tree.body:
            for name in _binds(statement):
                self.bound.setdefault(name, []).append(statement)

    def value(self, node: ast.expr, env: Mapping[str, Any]) -> Any:
        self.made += 1
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is None or self.made > _LIMIT:
            raise NotConstantError(f"{_short(node)} does not follow from the text")
        try:
            return handler(node, env)
        except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise NotConstantError(f"{_short(node)} does not follow from the text") from error

    # ------------------------------------------------------------ expressions
    def _Constant(self, node: ast.Constant, _env: Mapping[str, Any]) -> Any:
        return node.value

    def _Name(self, node: ast.Name, env: Mapping[str, Any]) -> Any:
        if node.id in env:
            return env[node.id]
        found = self.bound.get(node.id, [])
        if len(found) != 1 or not isinstance(found[0], ast.Assign | ast.AnnAssign) or found[0].value is None:
            raise NotConstantError(f"{node.id} is not a constant of the module")
        target = found[0].targets[0] if isinstance(found[0], ast.Assign) else found[0].target
        return self._assigned(target, self.value(found[0].value, {}))[node.id]

    def _Attribute(self, node: ast.Attribute, _env: Mapping[str, Any]) -> Any:
        text = ast.unparse(node)
        if text == "torch.version.hip":
            return None
        if text.startswith(("tl.", "torch.")) and text.count(".") == 1:
            return Symbol(text)
        raise NotConstantError(f"{text} does not follow from the text")

    def _List(self, node: ast.List | ast.Tuple | ast.Set, env: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                found += self.value(item.value, env)
            else:
                found.append(self.value(item, env))
        return found

    _Set = _List

    def _Tuple(self, node: ast.Tuple, env: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(self._List(node, env))

    def _Dict(self, node: ast.Dict, env: Mapping[str, Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            found |= self.value(value, env) if key is None else {self.value(key, env): self.value(value, env)}
        return found

    def _BinOp(self, node: ast.BinOp, env: Mapping[str, Any]) -> Any:
        left, right = self.value(node.left, env), self.value(node.right, env)
        if isinstance(node.op, ast.Pow | ast.LShift):
            if not isinstance(left, int) or not isinstance(right, int) or not 0 <= right <= 32:
                raise NotConstantError(f"{_short(node)} does not follow from the text")
            return left**right if isinstance(node.op, ast.Pow) else left << right
        if not isinstance(node.op, ast.Add) and not all(isinstance(v, int | float) for v in (left, right)):
            raise NotConstantError(f"{_short(node)} does not follow from the text")
        return _BINARY[type(node.op)](left, right)

    def _UnaryOp(self, node: ast.UnaryOp, env: Mapping[str, Any]) -> Any:
        value = self.value(node.operand, env)
        return not value if isinstance(node.op, ast.Not) else -value if isinstance(node.op, ast.USub) else +value

    def _BoolOp(self, node: ast.BoolOp, env: Mapping[str, Any]) -> Any:
        value: Any = None
        for part in node.values:
            value = self.value(part, env)
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def _Compare(self, node: ast.Compare, env: Mapping[str, Any]) -> bool:
        left = self.value(node.left, env)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other, env)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def _IfExp(self, node: ast.IfExp, env: Mapping[str, Any]) -> Any:
        return self.value(node.body if self.value(node.test, env) else node.orelse, env)

    def _Subscript(self, node: ast.Subscript, env: Mapping[str, Any]) -> Any:
        return self.value(node.value, env)[self.value(node.slice, env)]

    def _ListComp(self, node: ast.ListComp | ast.GeneratorExp, env: Mapping[str, Any]) -> list[Any]:
        return [self.value(node.elt, inner) for inner in self._turns(node.generators, env)]

    _GeneratorExp = _ListComp

    def _turns(self, generators: list[ast.comprehension], env: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if not generators:
            yield env
            return
        first = generators[0]
        for item in self.value(first.iter, env):
            inner = {**env, **self._assigned(first.target, item)}
            if all(self.value(test, inner) for test in first.ifs):
                yield from self._turns(generators[1:], inner)

    def _assigned(self, target: ast.expr, value: Any) -> dict[str, Any]:
        if isinstance(target, ast.Name):
            return {target.id: value}
        if not isinstance(target, ast.Tuple | ast.List):
            raise NotConstantError(f"{_short(target)} is assigned")
        found: dict[str, Any] = {}
        for part, item in zip(target.elts, value, strict=True):
            found |= self._assigned(part, item)
        return found

    # ------------------------------------------------------------------ calls
    def _Call(self, node: ast.Call, env: Mapping[str, Any]) -> Any:
        name = ast.unparse(node.func)
        if name in ("triton.Config", "Config"):
            return self._config(node, env)
        if isinstance(node.func, ast.Name) and isinstance(self._function(node.func.id), ast.FunctionDef):
            return self._helper(self._function(node.func.id), node, env)
        if name not in _BUILTINS or name in self.bound:
            raise NotConstantError(f"{_short(node)} does not follow from the text")
        args = self._List(ast.List(elts=node.args), env)
        made = _BUILTINS[name](*args, **self._keywords(node, env))
        if not isinstance(made, Iterable) or isinstance(made, dict):
            return made
        return list(itertools.islice(made, _LIMIT))

    def _keywords(self, node: ast.Call, env: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, env)
            found |= value if keyword.arg is None else {keyword.arg: value}
        return found

    def _config(self, node: ast.Call, env: Mapping[str, Any]) -> Configuration:
        hooked = any(k.arg == "pre_hook" and not _is_none(k.value) for k in node.keywords)
        plain = ast.Call(node.func, node.args, [k for k in node.keywords if k.arg != "pre_hook"])
        keywords = self._keywords(plain, env)
        args = self._List(ast.List(elts=node.args), env)
        values = keywords.pop("kwargs", args[0] if args else {})
        options = {**dict(zip(_OPTIONS, args[1:], strict=False)), **keywords}
        if set(options) - set(_OPTIONS):
            raise NotConstantError(f"{_short(node)} carries options that a launch does not take")
        return Configuration(dict(values), {n: v for n, v in options.items() if v is not None}, hooked)

    def _function(self, name: str) -> ast.stmt | None:
        found = self.bound.get(name, [])
        return found[0] if len(found) == 1 else None

    def _helper(self, helper: ast.stmt | None, node: ast.Call, env: Mapping[str, Any]) -> Any:
        assert isinstance(helper, ast.FunctionDef)
        parameters = helper.args.args
        inner = dict(zip((p.arg for p in parameters), self._List(ast.List(elts=node.args), env), strict=False))
        defaults = helper.args.defaults
        for parameter, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True):
            inner.setdefault(parameter.arg, self.value(default, {}))
        inner |= self._keywords(node, env)
        self.depth += 1
        try:
            if self.depth > 4 or helper.decorator_list:
                raise NotConstantError(f"{helper.name}() does not follow from the text")
            return self._body(helper.body, inner)[1]
        finally:
            self.depth -= 1

    def _body(self, body: list[ast.stmt], env: dict[str, Any]) -> tuple[bool, Any]:
        """Run statements; (whether they returned, what)."""
        for statement in body:
            if isinstance(statement, ast.Return):
                return True, None if statement.value is None else self.value(statement.value, env)
            inner = self._statement(statement, env)
            if inner is not None and inner[0]:
                return inner
        return False, None

    def _statement(self, statement: ast.stmt, env: dict[str, Any]) -> tuple[bool, Any] | None:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            env |= self._assigned(statement.targets[0], self.value(statement.value, env))
        elif isinstance(statement, ast.If):
            return self._body(statement.body if self.value(statement.test, env) else statement.orelse, env)
        elif isinstance(statement, ast.For) and not statement.orelse:
            for item in self.value(statement.iter, env):
                env |= self._assigned(statement.target, item)
                inner = self._body(statement.body, env)
                if inner[0]:
                    return inner
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._append(statement.value, env)
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            raise NotConstantError(f"{_short(statement)} does not follow from the text")
        return None

    def _append(self, call: ast.Call, env: dict[str, Any]) -> None:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("append", "extend") or len(call.args) != 1:
            raise NotConstantError(f"{_short(call)} does not follow from the text")
        owner, item = self.value(func.value, env), self.value(call.args[0], env)
        if not isinstance(owner, list):
            raise NotConstantError(f"{_short(call)} does not follow from the text")
        owner += item if func.attr == "extend" else [item]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _binds(statement: ast.stmt) -> set[str]:
    """Names a module-level statement binds (those inside a nested block count, so that they are not constants)."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
