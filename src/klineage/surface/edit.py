"""Edits on byte spans: everything outside an edit keeps its text, comments and formatting."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from ..errors import KernelError
from .source import Function, Launch, Module

Items = Sequence[cst.Arg] | Sequence[cst.Param]


class Editor:
    """Collects edits on one module and applies them together.

    Edits may not overlap. ``apply`` parses the result, so a broken edit never leaves this class.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self._edits: list[tuple[int, int, str]] = []
        self._removed: dict[cst.CSTNode, tuple[Items, set[cst.CSTNode]]] = {}  # by the list's first item

    @property
    def count(self) -> int:
        """Edits collected so far."""
        return len(self._edits) + sum(len(gone) for _, gone in self._removed.values())

    def replace_span(self, start: int, end: int, text: str) -> None:
        """Replace bytes [start, end)."""
        self._edits.append((start, end, text))

    def replace(self, node: cst.CSTNode, text: str) -> None:
        """Replace a node's text, the parentheses that belong to it included."""
        self.replace_span(*self.module.outer_span(node), text)

    def insert_before(self, statement: cst.CSTNode, text: str) -> None:
        """Insert whole lines (without indentation of their own level) before a statement."""
        start = self._line_start(statement)
        self.replace_span(start, start, self._block(text, self.module.indent(statement)))

    def insert_after(self, statement: cst.CSTNode, text: str) -> None:
        """Insert whole lines after a statement, at its indentation."""
        end = self._line_end(statement)
        block = self._block(text, self.module.indent(statement))
        if end > 0 and self.module.data[end - 1 : end] != b"\n":
            block = "\n" + block
        self.replace_span(end, end, block)

    def remove_statement(self, statement: cst.CSTNode) -> None:
        """Remove a statement with its line ends (comment lines above it stay)."""
        self.replace_span(self._line_start(statement), self._line_end(statement), "")

    def replace_statement(self, statement: cst.CSTNode, text: str) -> None:
        """Replace a whole statement by lines at its indentation."""
        block = self._block(text, self.module.indent(statement))
        self.replace_span(self._line_start(statement), self._line_end(statement), block)

    def replace_statements(self, first: cst.CSTNode, last: cst.CSTNode, text: str) -> None:
        """Replace the statements from ``first`` to ``last`` (siblings) by lines at their indentation."""
        block = self._block(text, self.module.indent(first))
        self.replace_span(self._line_start(first), self._line_end(last), block)

    def set_keyword(self, call: cst.Call, name: str, value: str) -> None:
        """Set a keyword argument, adding it at the end when absent."""
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value == name:
                self.replace(arg.value, value)
                return
        self._append_item(call, list(call.args), f"{name}={value}")

    def append_argument(self, call: cst.Call, text: str) -> None:
        """Append an argument (``name=value`` or positional text)."""
        self._append_item(call, list(call.args), text)

    def remove_argument(self, call: cst.Call, arg: cst.Arg) -> None:
        """Remove one argument and its comma."""
        self._remove_item(list(call.args), arg)

    def remove_keyword(self, call: cst.Call, name: str) -> bool:
        """Remove a keyword argument; False when absent."""
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value == name:
                self.remove_argument(call, arg)
                return True
        return False

    def set_option(self, launch: Launch, name: str, value: str) -> None:
        """Set a launch option such as num_warps."""
        self.set_keyword(launch.call, name, value)

    def add_parameter(self, function: Function, text: str) -> None:
        """Append a parameter such as ``EVEN_K: tl.constexpr`` (must carry a default if the last one has)."""
        params = [*function.node.params.posonly_params, *function.node.params.params]
        if function.node.params.kwonly_params or function.node.params.star_kwarg is not None:
            raise KernelError(
                f"{function.name} takes keyword-only parameters", "rewrite its signature without a bare *"
            )
        if not params:
            start = self.module.data.index(b"(", self.module.span(function.node.name)[1]) + 1
            self.replace_span(start, start, text)
            return
        end = self._item_end(params[-1])
        self.replace_span(end, end, f", {text}")

    def remove_parameter(self, function: Function, name: str) -> None:
        """Remove a parameter of a function."""
        params = [*function.node.params.posonly_params, *function.node.params.params]
        node = function.param(name)
        if node is None:
            raise KernelError(f"{function.name} has no parameter {name}", "report this as a bug")
        self._remove_item(params, node)

    def apply(self) -> str:
        """The new module text.

        Raises KernelError when edits overlap or the result does not parse.
        """
        data = self.module.data
        parts: list[bytes] = []
        at = 0
        for start, end, text in sorted([*self._edits, *self._removals()], key=lambda e: (e[0], e[1])):
            if start < at:
                raise KernelError("two edits overlap", "report this move as a bug")
            parts += [data[at:start], text.encode()]
            at = end
        parts.append(data[at:])
        source = b"".join(parts).decode()
        Module.parse(source)
        return source

    # ------------------------------------------------------------------ spans
    def _line_start(self, statement: cst.CSTNode) -> int:
        start = self.module.span(statement)[0]
        if isinstance(statement, cst.FunctionDef) and statement.decorators:
            start = min(start, self.module.span(statement.decorators[0])[0])
        return self.module.data.rfind(b"\n", 0, start) + 1

    def _line_end(self, statement: cst.CSTNode) -> int:
        end = self.module.span(statement)[1]
        if end > 0 and self.module.data[end - 1 : end] == b"\n":
            return end
        newline = self.module.data.find(b"\n", end)
        return len(self.module.data) if newline < 0 else newline + 1

    @staticmethod
    def _block(text: str, indent: str) -> str:
        lines = text.strip("\n").split("\n")
        return "".join(f"{indent}{line}\n" if line.strip() else "\n" for line in lines)

    def _item_end(self, item: cst.CSTNode) -> int:
        """End of an Arg or Param without its comma."""
        end = self.module.span(item)[1]
        text = self.module.data[:end].rstrip()
        return len(text) - 1 if text.endswith(b",") else len(text)

    def _append_item(self, call: cst.Call, items: list[cst.Arg], text: str) -> None:
        if not items:
            end = self.module.span(call)[1] - 1
            self.replace_span(end, end, text)
            return
        end = self._item_end(items[-1])
        self.replace_span(end, end, f", {text}")

    def _remove_item(self, items: Items, item: cst.CSTNode) -> None:
        self._removed.setdefault(items[0], (items, set()))[1].add(item)

    def _removals(self) -> list[tuple[int, int, str]]:
        """Deletions of arguments and parameters with their commas; neighbours go in one piece."""
        edits: list[tuple[int, int, str]] = []
        for items, gone in self._removed.values():
            index = 0
            while index < len(items):
                if items[index] not in gone:
                    index += 1
                    continue
                first = index
                while index < len(items) and items[index] in gone:
                    index += 1
                edits.append((*self._run_span(items, first, index), ""))
        return edits

    def _run_span(self, items: Items, first: int, after: int) -> tuple[int, int]:
        """Bytes of the items [first, after) and of the commas that go with them."""
        if after < len(items):
            return self.module.span(items[first])[0], self.module.span(items[after])[0]
        end = self._item_end(items[-1])
        if first > 0:
            return self._item_end(items[first - 1]), end
        rest = self.module.data[end:]
        stripped = rest.lstrip()
        comma = len(rest) - len(stripped) + 1 if stripped.startswith(b",") else 0
        return self.module.span(items[first])[0], end + comma
