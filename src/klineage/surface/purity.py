"""Expressions that may go when nobody reads their value."""

from __future__ import annotations

import ast

from .program import Program, has_docstring
from .pytext import dotted_name

# ruff: noqa: SIM905 (word lists read better than a column of strings)
# Triton functions that only compute. Not here: store, atomics, barriers, asserts, prints, inline assembly.
_TL = frozenset(
    """abs add advance arange argmax argmin associative_scan bitwise_and broadcast broadcast_to cast cat cdiv ceil clamp
    cos cumprod cumsum div_rn dot dot_scaled erf exp exp2 expand_dims expm1 fdiv flip floor fma full gather histogram
    interleave join libdevice load log log1p log2 make_block_ptr max max_constancy max_contiguous maximum min minimum
    multiple_of num_programs ones permute philox pow program_id rand randint randn range ravel reduce reshape rsqrt
    sigmoid sin softmax sort split sqrt sqrt_rn sum swizzle2d tanh to trans umulhi view where xor_sum zeros
    zeros_like tensor topk constexpr static_range""".split()
)
_TENSOR_METHODS_IN_KERNELS = frozenset(
    {"to", "cast", "trans", "reshape", "view", "sum", "max", "min", "abs", "type_as"}
)
_BUILTINS = frozenset(
    {"float", "int", "bool", "str", "len", "min", "max", "abs", "range", "tuple", "isinstance", "round"}
)
_TORCH = frozenset(
    """empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor arange is_floating_point
    finfo iinfo device Size""".split()
)
_TRITON = frozenset({"cdiv", "next_power_of_2"})
_METHODS = frozenset(
    """stride size numel dim ndimension data_ptr element_size is_contiguous view reshape contiguous to sum mean max min
    any all item transpose permute squeeze unsqueeze flatten expand detach float half bfloat16 long int bool
    masked_select new_empty new_zeros startswith endswith get values keys items clone type""".split()
)


def pure(node: ast.expr, program: Program, kernel: bool) -> bool:
    """True when evaluating an expression does nothing but give a value (or fail where nobody counts on failing)."""
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        if isinstance(part, ast.Call) and not _pure_call(part, program, kernel):
            return False
    return True


def _pure_call(call: ast.Call, program: Program, kernel: bool) -> bool:
    name = dotted_name(call.func)
    volatile = any(k.arg == "volatile" for k in call.keywords)
    if volatile or any(k.arg == "out" or k.arg is None for k in call.keywords):
        return False
    if isinstance(call.func, ast.Name):
        if call.func.id in program.functions:
            return _pure_function(call.func.id, program, frozenset())
        return call.func.id in _BUILTINS or (kernel and call.func.id in _imported_device_functions(program))
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    head = (name or "").split(".")[0]
    if kernel:
        from_library = head in ("tl", "tldevice", "libdevice", "math", "triton", "language")
        return last in _TL if from_library else last in _TENSOR_METHODS_IN_KERNELS
    if head == "torch":
        return last in _TORCH
    if head == "triton":
        return last in _TRITON
    return head in ("math", "operator") or last in _METHODS


def _pure_function(name: str, program: Program, path: frozenset[str]) -> bool:
    """A helper whose statements are pure assignments, ifs and returns."""
    function = program.functions[name]
    kernel = name in program.kernels
    if name in path or (function.decorator_list and not kernel):
        return False
    body = function.body[1:] if has_docstring(function) else function.body
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt) and not isinstance(node, ast.Assign | ast.AnnAssign | ast.If | ast.Return):
                return False
            if isinstance(node, ast.Assign) and not all(isinstance(t, ast.Name | ast.Tuple) for t in node.targets):
                return False
            if isinstance(node, ast.Call):
                helper = dotted_name(node.func)
                if helper in program.functions:
                    if not _pure_function(helper, program, path | {name}):
                        return False
                elif not _pure_call(node, program, kernel):
                    return False
    return True


def _imported_device_functions(program: Program) -> set[str]:
    """Names imported from Triton's math and libdevice modules: all of them only compute."""
    found: set[str] = set()
    for node in program.text.tree.body:
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if module.startswith("triton.language.") and module.split(".")[-1] in ("libdevice", "math"):
            found |= {a.asname or a.name for a in node.names}  # type: ignore[attr-defined]
    return found
