"""A parsed module as sites: launches, kernels, loops, loads, stores, dots, reductions, hints and so on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

from ..model import Site, SiteKind
from .query import argument, dotted, walk
from .source import AUTOTUNE_NAMES, Function, Module

_CALL_KINDS = {
    "load": SiteKind.LOAD,
    "store": SiteKind.STORE,
    "dot": SiteKind.DOT,
    "dot_scaled": SiteKind.DOT,
    "program_id": SiteKind.PROGRAM_ID,
    "make_block_ptr": SiteKind.DESCRIPTOR,
    "make_tensor_descriptor": SiteKind.DESCRIPTOR,
    "_experimental_descriptor_load": SiteKind.DESCRIPTOR,
    "multiple_of": SiteKind.HINT,
    "max_contiguous": SiteKind.HINT,
    "max_constancy": SiteKind.HINT,
    "assume": SiteKind.HINT,
}
_REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "reduce_or"}
_SCANS = {"cumsum", "cumprod", "associative_scan", "sort", "flip", "histogram"}
_TL = ("tl.", "triton.language.", "language.")


def make_site(module: Module, kind: SiteKind, node: cst.CSTNode, **detail: str) -> Site:
    """A site value for a node."""
    start, end = module.span(node)
    function = module.function_of(node)
    if isinstance(node, cst.FunctionDef):
        function = node.name.value
    text = module.data[start:end].decode()[:200]
    return Site(kind=kind, function=function, line=module.line(node), start=start, end=end, text=text, detail=detail)


@lru_cache(maxsize=256)
def sites(module: Module) -> tuple[Site, ...]:
    """Every site of the module, in source order."""
    found: list[Site] = [
        make_site(module, SiteKind.LAUNCH, launch.call, kernel=launch.kernel) for launch in module.launches
    ]
    launchers = {launch.function for launch in module.launches}
    for name, function in module.functions.items():
        if function.is_kernel:
            found += _kernel_sites(module, function)
        elif name in launchers:
            found.append(make_site(module, SiteKind.LAUNCHER, function.node))
    return tuple(sorted(found, key=lambda s: (s.start, s.end, s.kind)))


def _kernel_sites(module: Module, function: Function) -> Iterator[Site]:
    yield make_site(module, SiteKind.KERNEL, function.node)
    for decorator, name in zip(function.node.decorators, function.decorators, strict=True):
        if name.split(".")[-1] in AUTOTUNE_NAMES:
            yield make_site(module, SiteKind.AUTOTUNE, decorator)
    for parameter in function.constexprs:
        node = function.param(parameter)
        if node is not None:
            yield make_site(module, SiteKind.CONSTEXPR, node, name=parameter)
    for node in walk(function.node.body):
        if isinstance(node, cst.For | cst.While):
            yield make_site(module, SiteKind.LOOP, node)
        elif isinstance(node, cst.Call):
            yield from _call_sites(module, node)


def _call_sites(module: Module, call: cst.Call) -> Iterator[Site]:
    name = dotted(call.func)
    last = name.split(".")[-1] if name else ""
    if isinstance(call.func, cst.Attribute) and (name is None or not name.startswith(_TL)):
        last = call.func.attr.value
        if last in {"load", "store"}:
            kind = SiteKind.LOAD if last == "load" else SiteKind.STORE
            yield make_site(module, kind, call, form="descriptor")
        elif last in {"sum", "max", "min", "argmax", "argmin"}:
            yield make_site(module, SiteKind.REDUCTION, call, op=last)
        return
    if last in _CALL_KINDS:
        yield make_site(module, _CALL_KINDS[last], call)
        if last in ("load", "store"):
            for hint in ("eviction_policy", "cache_modifier"):
                arg = argument(call, hint)
                if arg is not None:
                    yield make_site(module, SiteKind.HINT, arg, name=hint)
    elif last.startswith("atomic_"):
        yield make_site(module, SiteKind.ATOMIC, call)
    elif name is not None and name.startswith(_TL):
        if last in _REDUCTIONS:
            yield make_site(module, SiteKind.REDUCTION, call, op=last)
        elif last in _SCANS:
            yield make_site(module, SiteKind.SCAN, call, op=last)
