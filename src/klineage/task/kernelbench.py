"""Tasks from KernelBench files (``Model``, ``get_inputs``, ``get_init_inputs``), read unchanged.

A candidate's entry is ``run(*get_inputs())``; when ``Model`` has parameters or buffers they follow, in the order of
``named_parameters()`` and then ``named_buffers()``. Parameters are initialised with a fixed seed and the module is in
eval mode. ``ModelNew`` classes are not read.

The given shapes are the bench case. They are too big to interpret, so check cases are derived: every integer above 32
in the file's top-level assignments and in the two input functions is replaced by a smaller one by each *scheme* below,
place by place or, where the model refuses that, equal ones alike; and the file is run again. A scheme that the model
refuses (a constructor or forward that raises, a result that is not finite) is left out. When all are, the given shapes
are checked, and a note says so.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import TaskError
from ..model import Case, CaseRole, TaskInfo, Tolerance, content_hash
from ..surface.pyast import parse_ast
from .core import FRESH, Definition, Task, seed_of
from .inputs import with_layout
from .specs import InputSpec, input_specs

_PARAMETER_SEED = 0
_SMALL = 32  # integers up to here are kept: kernel sizes, heads, strides, channels
_MAX_ELEMENTS = 1 << 17  # of all tensors of a derived check case together
_MAX_GIVEN = 1 << 24  # above this the given shapes are no check case: fp64 on the CPU takes minutes
_GIVEN = "given"


def _by_list(sizes: Sequence[int]) -> Callable[[int, int], int]:
    """Integers, in order of appearance, become ``sizes`` in turn (a smaller integer stays)."""
    return lambda value, index: min(value, sizes[index % len(sizes)])


def _halved(limit: int) -> Callable[[int, int], int]:
    """Divide by two while above ``limit`` and even: what is divisible by heads or groups mostly stays so."""

    def shrink(value: int, _: int) -> int:
        while value > limit and value % 2 == 0:
            value //= 2
        return value

    return shrink


SCHEMES: dict[str, Callable[[int, int], int]] = {
    "odd": _by_list((33, 129, 47, 65)),
    "tail": _by_list((31, 127, 67, 33)),
    "one": _by_list((1, 257, 33, 35)),
    "long": _by_list((2, 1031, 35, 33)),
    "small": _by_list((5, 17, 9, 33)),
    "eights": _by_list((8, 24, 17, 40)),
    "halved": _halved(64),
    "eighths": _halved(16),
}
_BY_PLACE = "place"
_HALVES = ("halved", "eighths")  # the same either way
_MOST = 6  # derived check cases
VARIANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "given": lambda x: x,
    "signed": lambda x: (x - 0.5) * 4,
    "padded": lambda x: with_layout((x - 0.5) * 4, "padded"),
    "shifted": lambda x: x + 3,
    "large": lambda x: (x - 0.5) * 128,
}


def is_kernelbench(module: ModuleType) -> bool:
    """Whether a module is a KernelBench problem (and not a task file)."""
    names = vars(module)
    return "Model" in names and "get_inputs" in names and "reference" not in names


def kernelbench_task(module: ModuleType, path: Path, text: str) -> Task:
    """The task of a KernelBench file. Raises TaskError when it cannot be built or run."""
    problem = _Problem(module, path, text)
    cases, notes = _cases(problem)
    definition = Definition(
        make_inputs=problem.make_inputs,
        reference=problem.reference,
        vendors={"torch": problem.reference},
        reduction_of=_reduction,
        folder=path.parent,
        notes=notes,
    )
    description = (getattr(module.Model, "__doc__", None) or "").strip().partition("\n")[0]
    info = TaskInfo(
        name=path.stem,
        description=description,
        cases=cases,
        tolerance=Tolerance(),
        source_hash=content_hash(text),
        path=str(path),
    )
    return Task(info, definition)


class _Problem:
    """One KernelBench file under every scheme: its modules, built once each, found again by input shapes."""

    def __init__(self, module: ModuleType, path: Path, text: str) -> None:
        self.name = path.name
        self._path, self._text = path, text
        self._spaces: dict[str, dict[str, Any]] = {_GIVEN: vars(module)}
        self._models: dict[str, nn.Module] = {}
        self._scheme_of: dict[tuple[Any, ...], str] = {}

    def make_inputs(self, params: Mapping[str, Any], generator: torch.Generator) -> list[Any]:
        """``get_inputs()`` of the case's scheme and variant, then parameters and buffers."""
        scheme, variant = str(params["scheme"]), VARIANTS[str(params["values"])]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            values = list(self._space(scheme)["get_inputs"]())
        values = [variant(v) if isinstance(v, Tensor) and v.is_floating_point() else v for v in values]
        state = self._state(scheme, values)
        inputs = [*values, *state]
        self._scheme_of[_shapes(inputs)] = scheme
        return inputs

    def reference(self, *inputs: Any) -> Any:
        """``Model.forward`` with the parameters and buffers among the inputs."""
        scheme = self._scheme_of.get(_shapes(inputs), _GIVEN)
        model = self._model(scheme)
        names = _state_names(model)
        values, state = inputs[: len(inputs) - len(names)], inputs[len(inputs) - len(names) :]
        return torch.func.functional_call(model, dict(zip(names, state, strict=True)), tuple(values))

    def _state(self, scheme: str, values: Sequence[Any]) -> list[Tensor]:
        if any(isinstance(v, Tensor) and v.is_meta for v in values) and scheme not in self._models:
            model = self._built(scheme)  # made on meta, so not to be kept
        else:
            model = self._model(scheme)
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return [state[name].detach().clone() for name in _state_names(model)]

    def _model(self, scheme: str) -> nn.Module:
        if scheme not in self._models:
            model = self._built(scheme)
            if any(p.is_meta for p in model.parameters()):
                return model
            self._models[scheme] = model
        return self._models[scheme]

    def _built(self, scheme: str) -> nn.Module:
        space = self._space(scheme)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_PARAMETER_SEED)
            arguments = space["get_init_inputs"]() if "get_init_inputs" in space else []
            return space["Model"](*arguments).eval()

    def _space(self, scheme: str) -> dict[str, Any]:
        if scheme not in self._spaces:
            name, _, how = scheme.partition("/")
            tree = _Shrink(SCHEMES[name], by_place=how == _BY_PLACE).shrunk(parse_ast(self._text))
            space: dict[str, Any] = {"__name__": f"klineage_task_{self._path.stem}_{scheme}"}
            exec(compile(tree, str(self._path), "exec"), space)
            self._spaces[scheme] = space
        return self._spaces[scheme]


class _Shrink(ast.NodeTransformer):
    """Replaces integers above 32 where a KernelBench file keeps its sizes: each in turn, or equal ones alike."""

    def __init__(self, shrink: Callable[[int, int], int], by_place: bool) -> None:
        self._shrink, self._by_place = shrink, by_place
        self._places = 0
        self._seen: dict[int, int] = {}

    def shrunk(self, tree: ast.Module) -> ast.Module:
        """The module with its sizes replaced in top-level assignments and in the two input functions."""
        for node in tree.body:
            sizes = isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs")
            if sizes or isinstance(node, ast.Assign | ast.AnnAssign):
                self.visit(node)
        return ast.fix_missing_locations(tree)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        folded = _folded(node.value)
        if folded is not None and folded > _SMALL:
            node.value = ast.Constant(folded)
        self.generic_visit(node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if type(value) is not int or value <= _SMALL:
            return node
        index = self._places if self._by_place else len(self._seen)
        self._places += 1
        if self._by_place or value not in self._seen:
            self._seen[value] = max(1, self._shrink(value, index))
        return ast.copy_location(ast.Constant(self._seen[value]), node)


def _folded(node: ast.expr) -> int | None:
    """The integer that an expression of integer literals only (``1024 * 8``, ``2 ** 12``) gives."""
    if any(not isinstance(n, ast.Constant | ast.BinOp | ast.operator) for n in ast.walk(node)):
        return None
    if isinstance(node, ast.Constant):
        return None  # visit_Constant's matter
    try:
        value = eval(compile(ast.Expression(node), "<size>", "eval"), {"__builtins__": {}})
    except (ArithmeticError, TypeError, ValueError):
        return None
    return value if type(value) is int else None


def _cases(problem: _Problem) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    bench = Case(
        name="bench-given", params={"scheme": _GIVEN, "values": "given"}, role=CaseRole.BENCH, seed=seed_of("bench")
    )
    reasons: list[str] = []
    derived, notes = _derived(problem, reasons), ()
    if not derived:
        derived = [(_GIVEN, v) for v in ("given", "signed") if _accepts(problem, _GIVEN, v, reasons, _MAX_GIVEN)]
        notes = (f"no smaller shapes could be derived ({reasons[0]}): the given shapes are checked",)
    if not derived:
        raise TaskError(
            f"{problem.name}: no check case can be made ({'; '.join(dict.fromkeys(reasons))})"[:600],
            "write a task file with CASES of its own: docs/tasks.md",
        )
    last = len(derived) - 1
    checks = [
        Case(
            name=f"check-{scheme.partition('/')[0]}-{values}",
            params={"scheme": scheme, "values": values},
            seed=FRESH if index == last else seed_of("check", scheme, values),
        )
        for index, (scheme, values) in enumerate(derived)
    ]
    return (*checks, bench), notes


def _derived(problem: _Problem, reasons: list[str]) -> list[tuple[str, str]]:
    """(scheme, variant) of the check cases: schemes of distinct shapes, a variant dealt to each where it is taken."""
    derived: list[tuple[str, str]] = []
    shapes: set[tuple[Any, ...]] = set()
    variants = cycle(("signed", "padded", "shifted", "large"))
    for name in SCHEMES:
        if len(derived) >= _MOST:
            break
        scheme, found = f"{name}/{_BY_PLACE}", None
        if name not in _HALVES:
            found = _accepts(problem, scheme, "given", reasons, _MAX_ELEMENTS)
        if found is None:
            scheme, found = name, _accepts(problem, name, "given", reasons, _MAX_ELEMENTS)
        if found is None or found in shapes:
            continue
        if not derived:
            derived.append((scheme, "given"))
        shapes.add(found)
        variant = next(variants)
        taken = _accepts(problem, scheme, variant, [], _MAX_ELEMENTS) is not None
        if taken or len(derived) > 1:
            derived.append((scheme, variant if taken else "given"))
    return derived


def _accepts(problem: _Problem, scheme: str, values: str, reasons: list[str], limit: int) -> tuple[Any, ...] | None:
    """Shapes of the inputs when the model takes them and gives something finite, else None with a reason."""
    params = {"scheme": scheme, "values": values}

    def make() -> list[Any]:
        return problem.make_inputs(params, torch.Generator().manual_seed(1))

    try:
        size = sum(math.prod(s[1]) for s in input_specs(make) if s[0] == "tensor")
        if size > limit:
            reasons.append(f"{scheme}: {size} elements")
            return None
        inputs = make()
        with torch.no_grad():
            outputs = problem.reference(*inputs)
    except Exception as error:  # the model is the user's: any refusal leaves this scheme out
        reasons.append(f"{scheme}: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
        return None
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    finite = all(isinstance(o, Tensor) and o.numel() and bool(torch.isfinite(o).all()) for o in outputs)
    if not finite:
        reasons.append(f"{scheme}: the result is not finite")
    return _shapes(inputs) if finite else None


def _reduction(specs: Sequence[InputSpec]) -> int:
    """All of one sample: every dimension but the first of the first floating input (a bound; the file cannot say)."""
    for spec in specs:
        if spec[0] == "tensor" and spec[1]:
            shape = list(spec[1])
            return max(1, math.prod(shape[1:] or shape))
    return 1


def _state_names(model: nn.Module) -> list[str]:
    return [n for n, _ in model.named_parameters()] + [n for n, _ in model.named_buffers()]


def _shapes(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__ for v in inputs)
