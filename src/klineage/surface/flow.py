"""Constants followed through the statements of a function, and through calls from the entry on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .fold import NOT_NONE, Known, Lookup, Value, join
from .names import local_names
from .program import Call, Program, default_of, is_constexpr
from .pyast import parse_ast
from .pytext import COMPREHENSIONS, SCOPES, dotted_name, parameters

Env = dict[str, Value]


class Flow:
    """What is known of every expression of one function, given values of its parameters.

    ``known`` maps ids of expression nodes to values; ``dead`` holds ids of statements that are never reached;
    ``truths`` maps ids of tests to their outcome. Names assigned in a kernel become tensors there, so in kernels only
    parameters and ``name: tl.constexpr`` lines carry constants.
    """

    def __init__(self, program: Program, function: ast.FunctionDef, start: Env) -> None:
        self.program = program
        self.function = function
        self.kernel = function.name in program.kernels
        self.evaluator = program.evaluator(self.kernel)
        self.known: dict[int, Value] = {}
        self.truths: dict[int, bool] = {}
        self.dead: set[int] = set()
        self.locals = local_names(function)
        self.unsafe = _shared(function)
        self.once = _bound_once(function)
        self.falls_through = self._block(function.body, {k: v for k, v in start.items() if k not in self.unsafe})

    # ------------------------------------------------------------------ statements
    def _block(self, body: list[ast.stmt], env: Env | None) -> Env | None:
        """Env after the block; None when its end is not reached."""
        for statement in body:
            if env is None:
                self.dead.add(id(statement))
                continue
            env = self._statement(statement, env)
        return env

    def _statement(self, node: ast.stmt, env: Env) -> Env | None:
        if isinstance(node, ast.If):
            return self._if(node, env)
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):
            return self._loop(node, env)
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self._expression(item.context_expr, env)
            inside = self._block(node.body, _without(env, node))
            after = _without(env, node)  # a context manager may swallow an exception half-way through the body
            return None if inside is None and not _swallows(node) else after
        if isinstance(node, ast.Try | ast.Match) or type(node).__name__ == "TryStar":
            return self._opaque(node, env)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._nested(node, env)
            return _without(env, node, {node.name})
        self._expressions(node, env)
        if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return None
        return self._assign(node, env)

    def _if(self, node: ast.If, env: Env) -> Env | None:
        self._expression(node.test, env)
        truth = self.evaluator.truth(node.test, self._lookup(env))
        env = _without(env, node.test)
        if truth is not None:
            self.truths[id(node.test)] = truth
            return self._block(node.body if truth else node.orelse, env)
        then = self._block(node.body, _refined(env, node.test, True))
        other = self._block(node.orelse, _refined(env, node.test, False))
        if then is None or other is None:
            return other if then is None else then
        joined = {k: join(v, other.get(k)) for k, v in then.items()}
        return {k: v for k, v in joined.items() if v is not None}

    def _loop(self, node: ast.For | ast.While | ast.AsyncFor, env: Env) -> Env | None:
        if not isinstance(node, ast.While):
            self._expression(node.iter, env)
        env = _without(env, node)
        if isinstance(node, ast.While):
            self._expression(node.test, env)
        self._block(node.body, dict(env))
        self._block(node.orelse, dict(env))
        return env

    def _opaque(self, node: ast.stmt, env: Env) -> Env:
        """Try and match: every part starts from what is known whatever happened before it."""
        env = _without(env, node)
        for child in ast.walk(node):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(child, field, None)
                if isinstance(block, list) and not isinstance(child, SCOPES) and child is node:
                    self._block(block, dict(env))
        for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._block(handler.body, dict(env))
        if isinstance(node, ast.Match):
            self._expression(node.subject, env)
        return env

    def _assign(self, node: ast.stmt, env: Env) -> Env:
        value: Value | None = None
        target: ast.expr | None = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], self.known.get(id(node.value))
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and not self.kernel:
                return self._assign_tuple(target, node.value, _without(env, node))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target = node.target
            constexpr = is_constexpr(ast.arg("", node.annotation))
            value = self.known.get(id(node.value)) if constexpr or not self.kernel else None
        env = _without(env, node)
        if isinstance(node, ast.Assign) and self.kernel:
            return env
        if isinstance(target, ast.Name) and value is not None and target.id not in self.unsafe:
            env[target.id] = value
        return env

    def _assign_tuple(self, target: ast.Tuple, value: ast.Tuple, env: Env) -> Env:
        if len(target.elts) == len(value.elts):
            for name, part in zip(target.elts, value.elts, strict=True):
                known = self.known.get(id(part))
                if isinstance(name, ast.Name) and known is not None and name.id not in self.unsafe:
                    env[name.id] = known
        return env

    # ------------------------------------------------------------------ expressions
    def _lookup(self, env: Env, hidden: set[str] | frozenset[str] = frozenset()) -> Lookup:
        def lookup(name: str) -> Value | None:
            if name in env:
                return env[name]
            return None if name in self.locals or name in hidden else self.program.constants.get(name)

        return lookup

    def _expressions(self, node: ast.stmt, env: Env) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child, env)

    def _expression(self, node: ast.expr, env: Env) -> None:
        """Evaluate an expression and everything below it."""
        env = _without(env, node) if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)) else env
        for part, inner in self._parts(node, env):
            value = self.evaluator.evaluate(part, self._lookup(inner))
            if value is not None:
                self.known[id(part)] = value
            truth = self.evaluator.truth(part, self._lookup(inner))
            if truth is not None:
                self.truths[id(part)] = truth

    def _parts(self, node: ast.AST, env: Env) -> Iterator[tuple[ast.expr, Env]]:
        if isinstance(node, ast.expr):
            yield node, env
        if isinstance(node, ast.Lambda):
            env = {k: v for k, v in env.items() if k in self.once} if not self.kernel else {}
            env = {k: v for k, v in env.items() if k not in {a.arg for a in parameters(node.args)}}
        elif isinstance(node, ast.FunctionDef):
            env = {k: v for k, v in env.items() if k not in local_names(node)}
        elif isinstance(node, COMPREHENSIONS):
            env = _without(env, node)
        for child in ast.iter_child_nodes(node):
            yield from self._parts(child, env)

    def _nested(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, env: Env) -> None:
        """Bodies of nested functions run later: only names bound once keep their value there."""
        if isinstance(node, ast.ClassDef) or self.kernel:
            return
        hidden = local_names(node)
        inner = {k: v for k, v in env.items() if k in self.once and k not in hidden}
        for statement in node.body:
            for part, known in self._parts(statement, inner):
                value = self.evaluator.evaluate(part, self._lookup(known, hidden))
                if value is not None:
                    self.known[id(part)] = value


def _swallows(node: ast.With | ast.AsyncWith) -> bool:
    """``contextlib.suppress`` and test helpers; device and stream contexts let exceptions through."""
    names = [ast.unparse(i.context_expr) for i in node.items]
    return not all("device" in n or "stream" in n or "no_grad" in n for n in names)


def _refined(env: Env, test: ast.expr, outcome: bool) -> Env:
    """``x is not None`` tells something in its branches."""
    env = dict(env)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
        right = test.comparators[0]
        if isinstance(right, ast.Constant) and right.value is None and isinstance(test.ops[0], ast.Is | ast.IsNot):
            if isinstance(test.ops[0], ast.IsNot) is outcome:
                env.setdefault(test.left.id, NOT_NONE)
            else:
                env[test.left.id] = Known(None)
    return env


def _without(env: Env, node: ast.AST, more: frozenset[str] | set[str] = frozenset()) -> Env:
    """The environment without every name that is bound anywhere below a node."""
    gone = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)} | more
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import | ast.ImportFrom):
            gone |= {a.asname or a.name.split(".")[0] for a in inner.names}
        elif isinstance(inner, ast.FunctionDef | ast.ClassDef) or (
            isinstance(inner, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and inner.name
        ):
            gone.add(inner.name or "")
        elif isinstance(inner, ast.MatchMapping) and inner.rest:
            gone.add(inner.rest)
    return {k: v for k, v in env.items() if k not in gone}


def _shared(function: ast.FunctionDef) -> set[str]:
    """Names that nested functions may rebind."""
    return {n for node in ast.walk(function) if isinstance(node, ast.Nonlocal | ast.Global) for n in node.names}


def _bound_once(function: ast.FunctionDef) -> set[str]:
    stores = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
    stores += [a.arg for a in parameters(function.args)]
    loops = {
        n.id
        for loop in ast.walk(function)
        if isinstance(loop, ast.For | ast.While)
        for n in ast.walk(loop)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return {name for name in stores if stores.count(name) == 1 and name not in loops}


class Flows:
    """Flows of every function that the entry reaches, callers before callees."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.of: dict[str, Flow] = {}
        self.starts: dict[str, Env] = {}
        waiting = [n for n in program.functions if n != program.entry]
        if program.entry in program.functions:
            self._run(program.entry, _entry_env(program.functions[program.entry]))
        while waiting:
            ready = [n for n in waiting if all(c.caller in ("", n, *self.of) for c in program.calls[n])]
            name = (ready or waiting)[0]
            waiting.remove(name)
            self._run(name, self._start(name) if ready else {})

    def _run(self, name: str, start: Env) -> None:
        self.starts[name] = start
        self.of[name] = Flow(self.program, self.program.functions[name], start)

    def _start(self, name: str) -> Env:
        calls = self.program.calls[name]
        recursive = any(c.caller == name for c in calls)
        if name in self.program.escaped or not calls or recursive or name == self.program.entry:
            return {}
        found: Env = {}
        for parameter in self.program.functions[name].args.args:
            value = self.argument(name, parameter.arg)
            if value is not None:
                found[parameter.arg] = value
        return found

    def argument(self, name: str, parameter: str) -> Value | None:
        """What a parameter is on every call that is reached."""
        function = self.program.functions[name]
        kernel = name in self.program.kernels
        chooser = heuristic(function, parameter)
        if chooser is not None:
            return self._chosen(name, chooser)
        supplied = self.program.decorator_strings(function)
        values: list[Value | None] = []
        for call in self.program.calls[name]:
            flow = self.of.get(call.caller)
            if flow is not None and not self._reached(call, flow):
                continue
            values.append(self._passed(call, parameter, function, flow, parameter in supplied))
        if not values:
            return None
        result = values[0]
        for value in values[1:]:
            result = join(result, value)
        node = next((a for a in function.args.args if a.arg == parameter), None)
        if kernel and node is not None and not is_constexpr(node) and isinstance(result, Known):
            return result if result.value is None else NOT_NONE
        return result

    def _chosen(self, name: str, chooser: ast.Lambda) -> Value | None:
        """The value of a ``@triton.heuristics`` entry: a lambda over the launch's arguments."""
        arguments = chooser.args.args[0].arg if len(chooser.args.args) == 1 else ""
        body = _Arguments(arguments).visit(parse_ast(ast.unparse(chooser.body), mode="eval").body)
        wanted = {n.id for n in ast.walk(body) if isinstance(n, ast.Name) and n.id.startswith(_ARGUMENT)}
        values = {n: self.argument(name, n.removeprefix(_ARGUMENT)) for n in wanted}
        value = self.program.evaluator(False).evaluate(body, values.get)
        return value if isinstance(value, Known) else None

    def _passed(
        self, call: Call, parameter: str, function: ast.FunctionDef, flow: Flow | None, supplied: bool
    ) -> Value | None:
        if call.opaque:
            return None
        node = call.arguments.get(parameter)
        if node is None:
            default = default_of(function, parameter)
            if default is None or supplied:
                return None
            value = self.program.evaluator(False).evaluate(default, self.program.constants.get)
            return _with_text(value, default, self.program)
        if flow is None:
            value = self.program.evaluator(False).evaluate(node, self.program.constants.get)
        else:
            value = flow.known.get(id(node))
        return _with_text(value, node, self.program)

    @staticmethod
    def _reached(call: Call, flow: Flow) -> bool:
        current: ast.AST | None = call.node
        parents = flow.program.parents
        while current is not None and current is not flow.function:
            if id(current) in flow.dead:
                return False
            above = parents.get(id(current))
            if isinstance(above, ast.If | ast.IfExp) and id(above.test) in flow.truths and current is not above.test:
                body = above.body if isinstance(above.body, list) else [above.body]
                if any(current is b for b in body) is not flow.truths[id(above.test)]:
                    return False
            current = above
        return True


_ARGUMENT = "argument of the launch "


class _Arguments(ast.NodeTransformer):
    """``args["x"]`` becomes a name that no source text can hold."""

    def __init__(self, arguments: str) -> None:
        self.arguments = arguments

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        index = node.slice
        if isinstance(node.value, ast.Name) and node.value.id == self.arguments and isinstance(index, ast.Constant):
            return ast.Name(f"{_ARGUMENT}{index.value}", ast.Load())
        return self.generic_visit(node)


def heuristic(function: ast.FunctionDef, parameter: str) -> ast.Lambda | None:
    """The ``@triton.heuristics`` lambda that supplies a parameter."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and (dotted_name(decorator.func) or "").split(".")[-1] == "heuristics":
            tables = [*decorator.args, *(k.value for k in decorator.keywords)]
            for table in tables:
                for key, value in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
                    if isinstance(key, ast.Constant) and key.value == parameter and isinstance(value, ast.Lambda):
                        return value
    return None


def _with_text(value: Value | None, node: ast.expr, program: Program) -> Value | None:
    if isinstance(value, Known) and isinstance(node, ast.Constant) and isinstance(node.value, float):
        return Known(value.value, program.text.text(node))
    return value


def _entry_env(function: ast.FunctionDef) -> Env:
    """The entry's inputs are tensors or numbers; None only where the signature says so."""
    found: Env = {}
    for parameter in (*function.args.posonlyargs, *function.args.args):
        annotation = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
        if default_of(function, parameter.arg) is None and "None" not in annotation and "Optional" not in annotation:
            found[parameter.arg] = NOT_NONE
    return found
