"""Static policy: a tripwire that turns away what an honest kernel never needs. Never the sole ground for trust.

A candidate may define kernels and a launcher. It may allocate with torch and ask tensors about themselves. It may not
compute the answer with torch, patch anything, do I/O, start threads or processes, or look at the interpreter.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..surface.pyast import parse_ast

_MODULES_REFUSED = {
    "asyncio", "atexit", "base64", "builtins", "code", "codecs", "concurrent", "copyreg", "ctypes", "cffi", "dis",
    "faulthandler", "fcntl", "gc", "http", "io", "linecache", "marshal", "mmap", "multiprocessing", "pathlib",
    "pickle", "posix", "ptrace", "pty", "requests", "resource", "runpy", "sched", "sqlite3", "zlib", "select",
    "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "_thread", "time", "timeit",
    "traceback", "tracemalloc", "types", "urllib", "weakref", "klineage", "cupy", "numba", "jax", "scipy",
    "sklearn",
}  # fmt: skip
_CALLS_REFUSED = {
    "eval", "exec", "compile", "__import__", "open", "input", "globals", "locals", "vars", "setattr", "delattr",
    "breakpoint", "memoryview", "exit", "quit", "print", "SystemExit", "KeyboardInterrupt",
}  # fmt: skip
_ATTRIBUTES_REFUSED = {
    "__globals__", "__builtins__", "__code__", "__closure__", "__subclasses__", "__bases__", "__mro__", "__dict__",
    "__defaults__", "__kwdefaults__", "f_back", "f_locals", "f_globals", "gi_frame", "_getframe", "_current_frames",
    "settrace", "setprofile", "setrecursionlimit", "setswitchinterval", "modules", "meta_path", "write",
    "set_trace", "stdout", "stderr", "stdin", "putenv", "unsetenv", "environb", "tb_frame", "cr_frame", "ag_frame",
    "currentframe", "_exit", "fork", "forkpty", "kill", "system", "popen", "spawnv", "execv", "waitpid", "setsid",
    "killpg", "pipe", "dup", "dup2", "fdopen", "set_blocking", "ptrace", "cudnn", "set_grad_enabled",
    "set_flush_denormal", "set_num_interop_threads", "manual_seed", "Stream", "ExternalStream",
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "_disable_current_modes", "_C",
    "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction", "methodcaller",
    "attrgetter", "__matmul__", "__rmatmul__", "__imatmul__", "__setattr__", "__delattr__", "set_default_dtype",
    "set_default_device", "set_default_tensor_type", "allow_tf32", "set_float32_matmul_precision",
    "use_deterministic_algorithms", "set_num_threads", "load_library", "load_inline", "from_file",
    "__torch_function__", "__torch_dispatch__", "_make_subclass", "_make_wrapper_subclass", "wait_stream",
    "synchronize", "do_bench", "_utils", "set_active",
}  # fmt: skip
_TORCH_COMPUTE = {
    "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "einsum", "tensordot", "dot", "mv", "inner", "outer",
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "softmax", "log_softmax", "layer_norm", "rms_norm",
    "group_norm", "batch_norm", "instance_norm", "scaled_dot_product_attention", "cross_entropy", "nll_loss",
    "gelu", "silu", "relu", "sigmoid", "tanh", "softplus", "leaky_relu", "elu", "hardtanh", "topk", "cummax",
    "logsumexp", "bilinear", "embedding", "cdist", "kl_div", "mse_loss", "normalize", "native_layer_norm",
    "_scaled_mm", "_int_mm", "chain_matmul", "multi_dot", "var_mean", "std_mean", "fft", "ifft",
}  # fmt: skip
_TENSOR_METHODS = {
    "matmul", "mm", "bmm", "addmm", "addmm_", "baddbmm", "baddbmm_", "softmax", "log_softmax", "topk", "tanh",
    "sigmoid", "__matmul__",
}  # fmt: skip
_MODULES_OF_TORCH_REFUSED = (
    "torch.ops",
    "torch.compile",
    "torch.jit",
    "torch.func",
    "torch.vmap",
    "torch._refs",
    "torch._decomp",
    "torch._softmax",
    "torch.utils.cpp_extension",
)
_ABOUT_LAYOUT = {"torch.ops.aten.is_non_overlapping_and_dense"}  # asks, computes nothing
_TORCH_NAMES = {"torch", "F", "functional", "nn", "aten"}
_NN_ALLOWED = {"Module", "Parameter", "Buffer", "ParameterList", "ModuleList", "functional", "init", "utils"}
_ENVIRONMENT = {"os.getenv", "os.environ.get"}
# switches of expert packages, unset wherever they matter; any other variable tells the judge from the user
_SWITCHES = ("FLA_", "LIGER_", "GEMS_", "FLAGGEMS_", "CONCH_", "CCE_")
_OWN = {"self", "cls", "ctx"}  # whose attributes a method may set


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
        tree = parse_ast(source)
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


def _in_refused_module(name: str) -> bool:
    if name in _ABOUT_LAYOUT:
        return False
    return name.startswith("torch._foreach") or any(
        name == module or name.startswith(f"{module}.") for module in _MODULES_OF_TORCH_REFUSED
    )


def _targets(node: ast.AST) -> list[ast.AST]:
    """What a statement or expression binds."""
    if isinstance(node, ast.Assign | ast.Delete):
        return list(node.targets)
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.comprehension | ast.NamedExpr):
        return [node.target]
    if isinstance(node, ast.With):
        return [item.optional_vars for item in node.items if item.optional_vars is not None]
    return []


def _head(target: ast.AST) -> ast.AST:
    """What an attribute or element chain begins with."""
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
        target = target.value
    return target


class _Visitor(ast.NodeVisitor):
    def __init__(self, in_kernel: set[ast.AST]) -> None:
        self.findings: list[Finding] = []
        self.in_kernel = in_kernel
        self.imported: set[str] = set()
        self.functions: set[str] = set()
        self.torch_names = set(_TORCH_NAMES)
        self._allowed: set[ast.AST] = set()  # environment reads of constant names

    def _add(self, node: ast.AST, what: str) -> None:
        self.findings.append(Finding(getattr(node, "lineno", 1), what))

    def visit_Module(self, node: ast.Module) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.add(inner.name)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        for target in _targets(node):
            self._patch(target)
        super().generic_visit(node)

    def _import(self, node: ast.AST, module: str) -> None:
        top = module.split(".", maxsplit=1)[0]
        if top in _MODULES_REFUSED:
            self._add(node, f"imports {top}: kernels need no I/O, threads, clocks or introspection")
        elif _in_refused_module(module):
            self._add(node, f"imports {module}: the answer must come from the candidate's own kernels")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(node, alias.name)
            self._named(node, alias.name)
            self.imported.add((alias.asname or alias.name).split(".")[0])
            if alias.asname and alias.name.split(".")[0] == "torch":
                self.torch_names.add(alias.asname)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            self._import(node, f"{module}.{alias.name}" if module == "torch" else module)
            if alias.name in _ATTRIBUTES_REFUSED:
                self._add(node, f"imports {alias.name}")
            if module.split(".")[0] in ("torch", "operator") and alias.name in _TORCH_COMPUTE:
                self._add(node, f"imports {module}.{alias.name}, a torch operator that computes an answer")
            self.imported.add(alias.asname or alias.name)
            if module.split(".")[0] == "torch":
                self.torch_names.add(alias.asname or alias.name)

    def _named(self, node: ast.AST, module: str) -> None:
        for part in module.split(".")[1:]:
            if part in _ATTRIBUTES_REFUSED:
                self._add(node, f"imports {module}")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in {"SystemExit", "KeyboardInterrupt", "__builtins__", "__loader__", "__spec__"}:
            self._add(node, f"uses {node.id}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _dotted(node.func)
        if isinstance(node.func, ast.Name) and name in _CALLS_REFUSED and node not in self.in_kernel:
            self._add(node, f"calls {name}()")
        if isinstance(node.func, ast.Call) and _computed_getattr(node.func):
            self._add(node, "calls what getattr() finds under a computed name")
        elif _computed_getattr(node) and _dotted(node.args[0]).split(".")[0] in {"F", "functional", "aten", "operator"}:
            self._add(node, f"looks up a computed name in {_dotted(node.args[0])}")
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            self._attribute(node, str(node.args[1].value))
        if name in _ENVIRONMENT:
            self._environment(node)
        if node not in self.in_kernel:
            self._torch_compute(node, name)
        self.generic_visit(node)

    def _environment(self, node: ast.Call) -> None:
        asked = node.args[0] if node.args else None
        text = str(asked.value) if isinstance(asked, ast.Constant) else ""
        if not text.startswith(_SWITCHES):
            self._add(node, f"reads the environment ({text or 'under a computed name'})")
        else:
            self._allowed.update(ast.walk(node.func))

    def _torch_compute(self, node: ast.Call, name: str) -> None:
        parts = name.split(".")
        if _in_refused_module(name) or name in {"operator.matmul", "operator.imatmul"}:
            self._add(node, f"calls {name}()")
        elif "nn" in parts[:-1] and parts[0] in {"torch", "nn"} and parts[-1][:1].isupper():
            if parts[-1] not in _NN_ALLOWED:
                self._add(node, f"makes a {name}, a torch module that computes an answer")
        elif isinstance(node.func, ast.Attribute) and parts[0] not in {"tl", "triton", "math", "libdevice", "torch"}:
            method = node.func.attr
            if method in _TENSOR_METHODS and (parts[0] not in self.imported or parts[0] in self.torch_names):
                self._add(node, f"calls the tensor method .{method}(), which computes an answer")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult) and node not in self.in_kernel:
            self._add(node, "multiplies matrices with @ outside a kernel")
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        for attribute in node.kwd_attrs:
            self._attribute(node, attribute)
            if attribute in _TORCH_COMPUTE:
                self._add(node, f"takes .{attribute} out of an object by matching")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._attribute(node, node.attr)
        parts = _dotted(node).split(".")
        outside = node not in self.in_kernel
        if outside and len(parts) > 1 and parts[-1] in _TORCH_COMPUTE and parts[0] in self.torch_names:
            self._add(node, f"uses {'.'.join(parts)}, a torch operator that computes an answer")
        self.generic_visit(node)

    def _attribute(self, node: ast.AST, attribute: str) -> None:
        read = attribute in {"environ", "getenv"} and node not in self._allowed
        if read or attribute in _ATTRIBUTES_REFUSED:
            self._add(node, f"uses .{attribute}")

    def _patch(self, target: ast.AST) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self._patch(element)
        if not isinstance(target, ast.Attribute):
            return
        head = _head(target)
        name = head.id if isinstance(head, ast.Name) else ""
        if name in self.functions:
            self._add(target, f"keeps state between calls on the function {name}")
        elif name in self.imported or not (name in _OWN or isinstance(target.value, ast.Subscript)):
            # autotune's hooks set what they find in a dict; anything else under a name may be a module's alias
            self._add(target, f"assigns to {ast.unparse(target)[:60]}: patching is refused")

    def visit_Global(self, node: ast.Global) -> None:
        self._add(node, f"keeps state between calls (global {', '.join(node.names)})")
