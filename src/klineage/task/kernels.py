"""The kernels a task ships: an expert (from an installed package or a file) and a naive start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TaskError
from ..model import Kernel

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


def expert_kernel(task: Task) -> Kernel | None:
    """The task's expert as a self-contained module, specialised to the bench cases' launches.

    A file is taken as it is. ``package.module:function`` is sliced out of the installed package, the task's ``run``
    adapter is appended, and what the cases fix is folded in. Raises TaskError or PackageError.
    """
    spec = task.definition.expert
    if spec is None:
        return None
    if is_file(spec):
        return kernel_of(task.definition.folder, spec)
    from ..surface.slicing import slice_function

    return slice_function(spec, task.definition.expert_run or "")


def is_file(spec: str) -> bool:
    """Whether an expert spec names a file, not a module."""
    return spec.partition(":")[0].endswith(".py")
