"""Load a task from a Python file, by path or by the name of a shipped one.

Task files are the user's own code and run in this process: load only files you trust.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import TaskError
from ..model import Case, CaseRole, TaskInfo, Tolerance, content_hash
from .core import FRESH, Definition, Task, seed_of
from .inputs import RESERVED, numbered
from .kernelbench import is_kernelbench, kernelbench_task
from .kernels import is_file
from .refuse import refuse

_KNOWN = frozenset(
    {
        "NAME", "DESCRIPTION", "CASES", "TOLERANCE", "VENDORS", "EXPERT", "EXPERT_RUN", "EXPERT_DECORATORS", "NAIVE",
        "IN_PLACE",
        "reference", "make_inputs", "work", "reduction", "expert_facts",
    }
)  # fmt: skip


def load_task(path_or_name: str | Path, *, check: bool = True) -> Task:
    """The task in a file, or the shipped task of that name.

    ``check`` runs the reference on the check cases and refuses a task that a trivial kernel would pass.
    Raises TaskError with one line and what to do about it.
    """
    path = find_task(path_or_name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"task file {path} cannot be read: {error}", "give the path of a Python file") from None
    module = _execute(path, text)
    task = kernelbench_task(module, path, text) if is_kernelbench(module) else _task_of(module, path, text)
    task.path = path
    if check:
        refuse(task)
    return task


def shipped_tasks() -> dict[str, Path]:
    """Shipped tasks by name: from the wheel, else from the repository this package is installed from."""
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "_shipped" / "tasks", here.parents[3] / "tasks"):
        if folder.is_dir():
            return {p.stem: p for p in sorted(folder.glob("*.py")) if not p.name.startswith("_")}
    return {}


def find_task(path_or_name: str | Path) -> Path:
    """The file of a task given by path or shipped name. Raises TaskError."""
    path = Path(path_or_name)
    if path.is_file():
        return path.resolve()
    shipped = shipped_tasks()
    name = str(path_or_name)
    if name in shipped:
        return shipped[name]
    if path.is_dir():
        raise TaskError(f"{name} is a folder", "give the path of a task file")
    raise TaskError(
        f"no task {name!r}: neither a file nor a shipped task", f"shipped tasks: {', '.join(shipped) or 'none'}"
    )


def _execute(path: Path, text: str) -> ModuleType:
    name = f"klineage_task_{path.stem}_{content_hash(str(path), length=8)}"
    module = ModuleType(name)
    module.__file__ = str(path)
    try:
        code = builtins.compile(text, str(path), "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else str(path)
        raise TaskError(f"{where}: {getattr(error, 'msg', error)}", "correct the Python syntax") from None
    try:
        exec(code, module.__dict__)
    except ModuleNotFoundError as error:
        package = (error.name or "?").partition(".")[0]
        raise TaskError(f"{path.name} needs the package {package!r}", f"install it: pip install {package}") from error
    except TaskError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(f"{path.name} fails when it is run: {type(error).__name__}: {str(error)[:300]}") from error
    return module


def _task_of(module: ModuleType, path: Path, text: str) -> Task:
    given = {k: v for k, v in vars(module).items() if k in _KNOWN}
    reference, make_inputs = _function(given, "reference", path), _function(given, "make_inputs", path)
    _spelling(module, path)
    expert_run = _text(given, "EXPERT_RUN", path)
    expert = _text(given, "EXPERT", path)
    if expert and not is_file(expert) and ":" not in expert:
        raise TaskError(f"{path.name}: EXPERT is {expert!r}", 'write "package.module:function" or a file path')
    if expert and not is_file(expert) and not (expert_run and "def run(" in expert_run):
        raise TaskError(
            f"{path.name}: EXPERT_RUN is missing", "write the text of a run(*inputs) that calls the expert's launcher"
        )
    definition = Definition(
        make_inputs=make_inputs,
        reference=reference,
        vendors=_vendors(given, reference, path),
        work=_function(given, "work", path, needed=False),
        reduction=_function(given, "reduction", path, needed=False),
        expert=expert,
        expert_run=expert_run,
        expert_facts=_function(given, "expert_facts", path, needed=False),
        expert_decorators=_decorators(given.get("EXPERT_DECORATORS", {}), path),
        naive=_text(given, "NAIVE", path),
        folder=path.parent,
    )
    info = TaskInfo(
        name=_text(given, "NAME", path) or path.stem,
        description=_text(given, "DESCRIPTION", path) or "",
        cases=_cases(given.get("CASES"), path),
        tolerance=_tolerance(given.get("TOLERANCE"), path),
        in_place=_in_place(given.get("IN_PLACE", ()), path),
        source_hash=content_hash(text),
        path=str(path),
    )
    return Task(info, definition)


def _function(given: Mapping[str, Any], name: str, path: Path, needed: bool = True) -> Any:
    value = given.get(name)
    if value is None and not needed:
        return None
    if value is None:
        hint = {"reference": "reference(*inputs)", "make_inputs": "make_inputs(case, generator)"}[name]
        raise TaskError(f"{path.name} has no {name}", f"define {hint}; see docs/tasks.md")
    if not callable(value):
        raise TaskError(f"{path.name}: {name} is a {type(value).__name__}", f"make {name} a function")
    return value


def _text(given: Mapping[str, Any], name: str, path: Path) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise TaskError(f"{path.name}: {name} is a {type(value).__name__}", f"make {name} a string")
    return value


def _spelling(module: ModuleType, path: Path) -> None:
    """A near miss of an optional name (``TOLERENCE``) would be ignored in silence: refuse it."""
    import difflib

    for name in vars(module):
        if name in _KNOWN or not name.isupper():
            continue
        close = difflib.get_close_matches(name, [k for k in _KNOWN if k.isupper()], n=1, cutoff=0.88)
        if close and close[0] not in vars(module):
            raise TaskError(f"{path.name}: {name} is not a name of the task format", f"did you mean {close[0]}?")


def _vendors(given: Mapping[str, Any], reference: Any, path: Path) -> dict[str, Any]:
    value = given.get("VENDORS")
    if value is None:
        return {"torch": reference}
    if not isinstance(value, dict) or not all(isinstance(k, str) and callable(v) for k, v in value.items()):
        raise TaskError(f"{path.name}: VENDORS is not a dict of functions", "write {'name': function}")
    return dict(value)


def _tolerance(value: Any, path: Path) -> Tolerance:
    if value is None:
        return Tolerance()
    if isinstance(value, Tolerance):
        return value
    try:
        override, reason = value
        return Tolerance(override=float(override), reason=str(reason))
    except (TypeError, ValueError):
        raise TaskError(
            f"{path.name}: TOLERANCE is {value!r}", "write (relative bound, 'the reason'), or leave it out"
        ) from None


def _in_place(value: Any, path: Path) -> tuple[int, ...]:
    if isinstance(value, tuple | list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        return tuple(value)
    raise TaskError(f"{path.name}: IN_PLACE is {value!r}", "write a tuple of input indices")


def _decorators(value: Any, path: Path) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        return {str(k): str(v) for k, v in value.items()}
    raise TaskError(
        f"{path.name}: EXPERT_DECORATORS is {value!r}", 'write {"decorator": "what to write instead, or nothing"}'
    )


def _cases(value: Any, path: Path) -> tuple[Case, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise TaskError(f"{path.name} has no CASES", "write a list of dicts; klineage.task.inputs has helpers")
    if not all(isinstance(c, dict) for c in value):
        raise TaskError(f"{path.name}: a case is not a dict", "write CASES as a list of dicts")
    cases = tuple(_case(name, given, path) for name, given in numbered(value))
    for role in CaseRole:
        if not any(c.role is role for c in cases):
            raise TaskError(
                f"{path.name} has no {role} case", f"add one with 'role': '{role}'; klineage.task.inputs has helpers"
            )
    return cases


def _case(name: str, given: dict[str, Any], path: Path) -> Case:
    try:
        role = CaseRole(given.get("role", "check"))
    except ValueError:
        raise TaskError(f"{path.name}: case {name} has role {given['role']!r}", "use 'check' or 'bench'") from None
    params = {k: v for k, v in given.items() if k not in RESERVED}
    bad = [k for k, v in params.items() if not isinstance(k, str) or not isinstance(v, bool | int | float | str)]
    if bad:
        raise TaskError(f"{path.name}: case {name}: {bad[0]} is not a number or a string", "use plain parameters")
    seed = given.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
        raise TaskError(f"{path.name}: case {name} has seed {seed!r}", "use a non-negative integer, or fresh=True")
    if given.get("fresh"):
        seed = FRESH
    return Case(name=name, params=params, role=role, seed=seed_of("case", name) if seed is None else seed)
