"""What a launcher's expressions are worth: local names opened, sizes and strides of tensors it allocates resolved."""

from __future__ import annotations

import ast

import libcst as cst

from ..surface import Launch, Module
from ..surface.pyast import parse_ast
from ..surface.query import code
from ._flow import canonical, parse
from ._launches import local_definitions, module_constants

Shape = tuple[ast.expr, ast.expr]
_EMPTY = ("torch.empty", "torch.zeros")
_LIKE = ("torch.empty_like", "torch.zeros_like")


class HostValues:
    """Values in one launcher. Two expressions whose ``text`` is equal are equal at run time."""

    def __init__(self, module: Module, launch: Launch) -> None:
        local = local_definitions(module, launch)
        self.bound = {n: v for n, v in module_constants(module).items() if n not in local}
        self.bound |= {n: v for n, v in local.items() if v is not None}
        self.module = module

    def text(self, node: ast.expr | cst.BaseExpression | str) -> str:
        """A text in which equal values are equal."""
        if isinstance(node, cst.BaseExpression):
            node = code(node)
        return canonical(self.value(parse(node) if isinstance(node, str) else node))

    def value(self, node: ast.expr, depth: int = 8) -> ast.expr:
        """The expression with names opened; tensors keep their names."""
        values = self

        class Open(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                bound = values.bound.get(node.id)
                if bound is None or depth <= 0 or isinstance(bound, cst.Lambda) or values.made(node.id) is not None:
                    return node
                return values.value(parse(code(bound)), depth - 1)

            def visit_Call(self, node: ast.Call) -> ast.AST:
                return values.measure(node) or self.generic_visit(node)

            def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
                if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
                    found = values.size(node.value.value, node.slice)
                    return node if found is None else found
                return self.generic_visit(node)

        opened = Open().visit(parse_ast(ast.unparse(node), mode="eval").body)
        assert isinstance(opened, ast.expr)
        return opened

    def made(self, name: str) -> ast.Call | None:
        """The call of a torch function that makes a tensor of this name."""
        bound = self.bound.get(name)
        value = parse(code(bound)) if isinstance(bound, cst.Call) else None
        return value if isinstance(value, ast.Call) and ast.unparse(value.func).startswith("torch.") else None

    def allocated(self, name: str) -> bool:
        """Whether the launcher allocates the tensor itself."""
        made = self.made(name)
        return made is not None and ast.unparse(made.func) in (*_EMPTY, *_LIKE)

    def shape(self, node: ast.expr) -> Shape | None:
        """Rows and columns of a contiguous tensor that the launcher allocates, opened."""
        made = self.made(node.id) if isinstance(node, ast.Name) else None
        if made is None or not made.args:
            return None
        function = ast.unparse(made.func)
        if function in _LIKE:
            return self.shape(made.args[0])
        if function not in _EMPTY:
            return None
        first = made.args[0]
        if isinstance(first, ast.Attribute) and first.attr == "shape" and len(made.args) == 1:
            return self.shape(first.value)
        sizes = first.elts if isinstance(first, ast.Tuple | ast.List) else made.args
        return (self.value(sizes[0]), self.value(sizes[1])) if len(sizes) == 2 else None

    def measure(self, node: ast.Call) -> ast.expr | None:
        """``numel()``, ``size(i)`` and ``stride(i)`` of such a tensor."""
        func = node.func
        if not isinstance(func, ast.Attribute) or (shape := self.shape(func.value)) is None:
            return None
        if func.attr == "numel" and not node.args:
            return ast.BinOp(shape[0], ast.Mult(), shape[1])
        if func.attr == "size" and len(node.args) == 1:
            return self.size(func.value, node.args[0])
        if func.attr == "stride" and len(node.args) == 1:
            return {"0": shape[1], "-2": shape[1], "1": parse("1"), "-1": parse("1")}.get(ast.unparse(node.args[0]))
        return None

    def size(self, tensor: ast.expr, index: ast.expr) -> ast.expr | None:
        """The size along an axis."""
        shape = self.shape(tensor)
        if shape is None:
            return None
        return {"0": shape[0], "-2": shape[0], "1": shape[1], "-1": shape[1]}.get(ast.unparse(index))
