"""Static policy: a tripwire that turns away what an honest kernel never needs. Never the sole ground for trust.

A candidate may define kernels and a launcher. It may allocate with torch and ask tensors about themselves. It may not
compute the answer with torch, patch anything, do I/O, start threads or processes, or look at the interpreter.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

_MODULES_REFUSED = {
    "asyncio", "atexit", "builtins", "code", "concurrent", "copyreg", "ctypes", "cffi", "dis", "faulthandler", "fcntl",
    "gc", "http", "io", "marshal", "mmap", "multiprocessing", "pathlib", "pickle", "posix", "ptrace", "pty",
    "requests", "resource", "runpy", "select", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile",
    "threading", "_thread", "time", "timeit", "traceback", "tracemalloc", "types", "urllib", "weakref", "klineage",
    "cupy", "numba", "jax", "scipy", "sklearn",
}  # fmt: skip
_CALLS_REFUSED = {
    "eval", "exec", "compile", "__import__", "open", "input", "globals", "locals", "vars", "setattr", "delattr",
    "breakpoint", "memoryview", "exit", "quit", "print",
}  # fmt: skip
_ATTRIBUTES_REFUSED = {
    "__globals__", "__builtins__", "__code__", "__closure__", "__subclasses__", "__bases__", "__mro__", "__dict__",
    "__defaults__", "__kwdefaults__", "f_back", "f_locals", "f_globals", "gi_frame", "_getframe", "_current_frames",
    "settrace", "setprofile", "modules", "environ", "getenv", "putenv", "_exit", "fork", "forkpty", "kill", "system",
    "popen", "spawnv", "execv", "set_default_dtype", "set_default_device", "set_default_tensor_type", "allow_tf32",
    "set_float32_matmul_precision", "use_deterministic_algorithms", "set_num_threads", "load_library", "load_inline",
    "from_file", "__torch_function__", "__torch_dispatch__", "_make_subclass", "_make_wrapper_subclass",
    "wait_stream", "synchronize", "do_bench", "_utils", "set_active",
}  # fmt: skip
_TORCH_COMPUTE = {
    "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "einsum", "tensordot", "dot", "mv", "inner", "outer",
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "softmax", "log_softmax", "layer_norm", "rms_norm",
    "group_norm", "batch_norm", "instance_norm", "scaled_dot_product_attention", "cross_entropy", "nll_loss", "gelu",
    "silu", "relu", "sigmoid", "tanh", "softplus", "leaky_relu", "elu", "hardtanh", "topk", "sort", "argsort",
    "cumsum", "cumprod", "logsumexp", "bilinear", "embedding", "cdist", "kl_div", "mse_loss", "normalize",
    "native_layer_norm", "_scaled_mm", "_int_mm", "chain_matmul", "multi_dot", "var_mean", "std_mean", "fft", "ifft",
}  # fmt: skip
_MODULES_OF_TORCH_REFUSED = (
    "torch.ops",
    "torch.nn.functional",
    "torch.compile",
    "torch.jit",
    "torch.utils.cpp_extension",
)


@dataclass(frozen=True)
class Finding:
    """One breach of the policy."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


def check_policy(source: str) -> list[Finding]:
    """All breaches in a candidate's text; an empty list means the tripwire did not fire.

    A syntax error is reported as a finding, since what cannot be read cannot be trusted.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return [Finding(getattr(error, "lineno", None) or 1, f"syntax error: {getattr(error, 'msg', error)}")]
    visitor = _Visitor(_kernel_functions(tree))
    visitor.visit(tree)
    return sorted(visitor.findings, key=lambda f: f.line)


def _kernel_functions(tree: ast.Module) -> set[ast.AST]:
    """Functions compiled by Triton: there ``@``, tl.* and Python-looking names mean something else."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            found.update(ast.walk(node))
    return found


def _dotted(node: ast.AST) -> str:
    try:
        return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
    except ValueError:
        return ""


def _computed_getattr(node: ast.Call) -> bool:
    return _dotted(node.func) == "getattr" and len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)


class _Visitor(ast.NodeVisitor):
    def __init__(self, in_kernel: set[ast.AST]) -> None:
        self.findings: list[Finding] = []
        self.in_kernel = in_kernel
        self.imported: set[str] = set()

    def _add(self, node: ast.AST, what: str) -> None:
        self.findings.append(Finding(getattr(node, "lineno", 1), what))

    def _import(self, node: ast.AST, module: str) -> None:
        top = module.split(".", maxsplit=1)[0]
        if top in _MODULES_REFUSED:
            self._add(node, f"imports {top}: kernels need no I/O, threads, clocks or introspection")
        elif module.startswith(_MODULES_OF_TORCH_REFUSED):
            self._add(node, f"imports {module}: the answer must come from the candidate's own kernels")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(node, alias.name)
            self.imported.add((alias.asname or alias.name).split(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            self._import(node, f"{module}.{alias.name}" if module == "torch" else module)
            if alias.name in _ATTRIBUTES_REFUSED:
                self._add(node, f"imports {alias.name}")
            if module.split(".")[0] == "torch" and alias.name in _TORCH_COMPUTE:
                self._add(node, f"imports {module}.{alias.name}, a torch operator that computes an answer")
            self.imported.add(alias.asname or alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        name = _dotted(node.func)
        if isinstance(node.func, ast.Name) and name in _CALLS_REFUSED and node not in self.in_kernel:
            self._add(node, f"calls {name}()")
        if isinstance(node.func, ast.Call) and _computed_getattr(node.func):
            self._add(node, "calls what getattr() finds under a computed name")
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            self._attribute(node, str(node.args[1].value))
        if node not in self.in_kernel:
            self._torch_compute(node, name)
        self.generic_visit(node)

    def _torch_compute(self, node: ast.Call, name: str) -> None:
        parts = name.split(".")
        last = parts[-1]
        if len(parts) > 1 and last in _TORCH_COMPUTE and parts[0] in {"torch", "F", "functional", "nn", "aten"}:
            self._add(node, f"calls {name}(), a torch operator that computes an answer")
        elif name.startswith(_MODULES_OF_TORCH_REFUSED):
            self._add(node, f"calls {name}()")
        elif (
            isinstance(node.func, ast.Attribute) and parts[0] not in {"tl", "triton"} and not name.startswith("torch.")
        ):
            method = node.func.attr
            if method in {"matmul", "mm", "bmm", "addmm", "softmax", "log_softmax", "baddbmm", "addmm_", "topk"}:
                self._add(node, f"calls the tensor method .{method}(), which computes an answer")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult) and node not in self.in_kernel:
            self._add(node, "multiplies matrices with @ outside a kernel")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._attribute(node, node.attr)
        self.generic_visit(node)

    def _attribute(self, node: ast.AST, attribute: str) -> None:
        if attribute in _ATTRIBUTES_REFUSED:
            self._add(node, f"uses .{attribute}")

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._patch(target)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._patch(node.target)
        self.generic_visit(node)

    def _patch(self, target: ast.AST) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self._patch(element)
        if isinstance(target, ast.Attribute):
            head = _dotted(target).split(".")[0]
            if head in self.imported or head == "builtins":
                self._add(target, f"assigns to {_dotted(target)}: patching is refused")

    def visit_Global(self, node: ast.Global) -> None:
        self._add(node, f"keeps state between calls (global {', '.join(node.names)})")
