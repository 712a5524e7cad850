"""The tensor a launcher allocates for a kernel's result: how it starts, its type, and what happens to it afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from ..surface import Editor, Launch, Module
from ..surface.query import argument, assignment, code, names_read, names_written
from ._launches import launcher
from ._nodes import find

_FLOAT = ("torch.float32", "torch.float")
_EMPTY = {"torch.empty": "torch.zeros", "torch.empty_like": "torch.zeros_like"}
_ZEROS = {new: old for old, new in _EMPTY.items()}


@dataclass(frozen=True)
class Output:
    """``name = torch.empty(...)`` in the launcher."""

    name: str
    statement: cst.SimpleStatementLine
    maker: cst.Call
    reads: tuple[cst.SimpleStatementLine, ...]  # statements after the launch that read it

    @property
    def function(self) -> str:
        """``torch.empty`` and the like."""
        return code(self.maker.func).strip()

    @property
    def dtype(self) -> str | None:
        """The element type as an expression (None: torch's default)."""
        arg = argument(self.maker, "dtype")
        if arg is not None:
            return code(arg.value).strip()
        if self.function.endswith("_like") and self.maker.args:
            return f"{code(self.maker.args[0].value).strip()}.dtype"
        return None


def output_of(module: Module, launch: Launch, parameter: str) -> Output | str:
    """The launcher's allocation of what it passes for ``parameter``, or why there is none."""
    host = launcher(module, launch)
    arg = launch.bound.get(parameter)
    if host is None or arg is None or not isinstance(arg.value, cst.Name):
        return f"the launcher does not pass {parameter} by name"
    name = arg.value.value
    bound = [s for s in find(host.node.body, cst.SimpleStatementLine) if name in names_written(s)]
    pair = assignment(bound[0]) if bound else None
    limit = module.span(launch.call)
    if pair is None or not isinstance(pair[1], cst.Call) or module.span(bound[0])[0] > limit[0]:
        return f"the launcher does not allocate {name} itself"
    if any(module.span(s)[0] < limit[1] for s in bound[1:]):
        return f"the launcher binds {name} more than once"
    lines = find(host.node.body, cst.SimpleStatementLine)
    between = [s for s in lines if module.span(bound[0])[1] < module.span(s)[0] < limit[0]]
    if any(name in names_read(s) and launch.call not in find(s, cst.Call) for s in between):
        return f"the launcher uses {name} before the launch"
    after = [s for s in lines if module.span(s)[0] > limit[1] and name in names_read(s)]
    return Output(name, bound[0], pair[1], tuple(after))


def start_at_zero(editor: Editor, found: Output) -> str:
    """Allocate zeros of fp32 and give the result its type at the end; a reason when that cannot be done."""
    zeros = _EMPTY.get(found.function)
    if zeros is None:
        return f"{found.name} is not allocated by torch.empty or torch.empty_like"
    editor.replace(found.maker.func, zeros)
    if found.dtype is None or found.dtype in _FLOAT:
        return ""
    editor.set_keyword(found.maker, "dtype", "torch.float32")
    final = _final_read(found)
    if final is None:
        return f"{found.name} is used in several places after the launch"
    editor.replace(final, f"{found.name}.to({found.dtype})")
    return ""


def start_anyhow(editor: Editor, found: Output) -> str:
    """Allocate without zeros, in the type the result is cast to; a reason when the output does not start at zero."""
    empty = _ZEROS.get(found.function)
    if empty is None:
        return f"{found.name} does not start as zeros of its own"
    editor.replace(found.maker.func, empty)
    cast = _final_cast(found)
    if cast is None or found.dtype not in _FLOAT:
        return ""
    wanted = code(cast.args[0].value).strip()
    dtype = argument(found.maker, "dtype")
    like = f"{code(found.maker.args[0].value).strip()}.dtype" if found.function.endswith("_like") else ""
    if dtype is not None and wanted == like:
        editor.remove_argument(found.maker, dtype)
    else:
        editor.set_keyword(found.maker, "dtype", wanted)
    editor.replace(cast, found.name)
    return ""


def _final_read(found: Output) -> cst.Name | None:
    """The one place after the launch that reads the output: a return statement."""
    names = [n for s in found.reads for n in find(s, cst.Name) if n.value == found.name]
    returns = len(found.reads) == 1 and isinstance(found.reads[0].body[0], cst.Return)
    return names[0] if len(names) == 1 and returns else None


def _final_cast(found: Output) -> cst.Call | None:
    """``out.to(T)`` when that is all that happens to the output."""
    name = _final_read(found)
    if name is None:
        return None
    for call in find(found.reads[0], cst.Call):
        func = call.func
        if isinstance(func, cst.Attribute) and func.value is name and func.attr.value == "to" and len(call.args) == 1:
            return call
    return None
