"""Cut one function of an installed package out into a self-contained module text.

The package is read, never imported: its functions, kernels, constants and helpers are followed from name to name
through relative imports and re-exports. Definitions keep their own formatting and comments.
"""

from __future__ import annotations

from ..errors import PackageError
from ..model import Kernel
from .package import ModuleFile, Package, close_names
from .pytext import PyText
from .reach import Slicer, Symbol
from .write import write_module

ADAPTER = "<adapter>"


def slice_function(spec: str, adapter: str = "") -> Kernel:
    """The function ``package.module:function`` with all it needs, as one module.

    ``adapter`` is the text of ``def run(...)``, appended at the end; it may use any name of the function's module.
    The kernel's entry is ``run`` with an adapter, else the function itself.

    Raises PackageError when the package is not installed, the module or function does not exist, or the code uses
    its package in a way that cannot be cut out; KernelError when the adapter is not Python.
    """
    module_name, _, function = spec.partition(":")
    if not module_name or not function.isidentifier():
        raise PackageError(f"{spec!r} does not name a function", "write package.module:function")
    package = Package(module_name.split(".")[0])
    module = package.module(module_name)
    if module is None:
        raise PackageError(
            f"package {package.top} has no module {module_name}", "check the name and the package's version"
        )
    slicer = Slicer(package)
    key = slicer.resolve(module, function, function)
    if key is None:
        raise PackageError(f"{module_name} has no function {function}", close_names(function, module))
    host = _adapter_module(adapter or f"{function} = {function}\n", module)
    if adapter:
        slicer.add_all(host)
        return Kernel(source=package.header(spec) + write_module(slicer, host), entry="run", origin=spec)
    source = package.header(spec) + write_module(slicer, None)
    entry = slicer.symbol_names().get(key, function) if isinstance(key, Symbol) else function
    return Kernel(source=source, entry=entry, origin=spec)


def _adapter_module(text: str, module: ModuleFile) -> ModuleFile:
    return ModuleFile(ADAPTER, PyText(text.strip("\n") + "\n"), False, fallback=module)
