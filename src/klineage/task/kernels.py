"""The kernels a task ships: an expert (from an installed package or a file) and a naive start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TaskError
from ..model import Kernel, Target

if TYPE_CHECKING:
    from .core import Task


def kernel_of(folder: Path, spec: str) -> Kernel:
    """The kernel in a file: ``path`` or ``path:entry``, relative to the task file. Raises TaskError."""
    name, _, entry = spec.partition(":")
    path = folder / name
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(
            f"kernel file {path} cannot be read: {error}", "give a path relative to the task file"
        ) from None
    return Kernel(source=source, entry=entry or "run", origin=Path(name).as_posix())


def expert_kernel(task: Task, target: Target | None) -> Kernel | None:
    """The task's expert as a self-contained module with what its calls fix folded in.

    A file is taken as it is. ``package.module:function`` is sliced out of the installed package, the task's ``run``
    adapter is appended, and the result is specialised; with a ``target``, also to the facts the task knows of it.
    Raises TaskError, PackageError or KernelError.
    """
    spec = task.definition.expert
    if spec is None:
        return None
    if is_file(spec):
        return kernel_of(task.definition.folder, spec)
    from ..surface.decorators import replace_decorators
    from ..surface.pinned import pin_facts
    from ..surface.slicing import slice_function
    from ..surface.specialize import specialize

    kernel = slice_function(spec, task.definition.expert_run or "")
    source = replace_decorators(kernel.source, task.definition.expert_decorators)
    known = task.definition.expert_facts
    facts = known(target.arch) if known is not None and target is not None else None
    source = pin_facts(source, facts or {})
    return Kernel(source=specialize(source, kernel.entry, facts), entry=kernel.entry, origin=spec)


def is_file(spec: str) -> bool:
    """Whether an expert spec names a file, not a module."""
    return spec.partition(":")[0].endswith(".py")
