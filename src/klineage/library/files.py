"""The skills library: a folder with one TOML file per skill."""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from ..errors import KLineageError
from ..model.skill import Skill
from .text import skill_to_text


class LibraryError(KLineageError):
    """A skill's file that cannot be read or written."""


def shipped_library() -> Path:
    """The folder of shipped skills: inside the installed package, else the repository's ``skills/``."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "_shipped" / "skills"
    return inside if inside.is_dir() else package.parents[1] / "skills"


def load_skill(path: Path) -> Skill:
    """The skill of one file.

    Raises LibraryError, naming the file and the field, when it is not a valid skill.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LibraryError(f"cannot read skill {path}: {error.strerror}", "check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LibraryError(f"skill {path} is not TOML: {error}", "correct the file") from error
    try:
        return Skill.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise LibraryError(f"skill {path}: {where}: {first['msg']}", f"correct {where} in the file") from error


def load_library(paths: Iterable[Path] = ()) -> list[Skill]:
    """Skills of files and folders (their ``*.toml``), by name; with no paths, the shipped library.

    Raises LibraryError for a path that is not there, a bad file, or one name in two files.
    """
    found: dict[str, tuple[Path, Skill]] = {}
    for file in _files(list(paths) or [shipped_library()]):
        skill = load_skill(file)
        if skill.name in found:
            raise LibraryError(
                f"skill {skill.name} stands in both {found[skill.name][0]} and {file}", "rename or remove one of them"
            )
        found[skill.name] = (file, skill)
    return [found[name][1] for name in sorted(found)]


def save_skill(skill: Skill, folder: Path) -> Path:
    """Write a skill to ``folder/<name>.toml`` (whole or not at all) and return the path.

    Raises LibraryError when the file cannot be written or the name of another skill gives the same file.
    """
    path = folder / f"{file_stem(skill.name)}.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and load_skill(path).name != skill.name:
            raise LibraryError(f"{path} already holds another skill", f"rename {skill.name}")
        _write_whole(path, skill_to_text(skill))
    except OSError as error:
        raise LibraryError(f"cannot write skill {path}: {error.strerror}", "check the folder's permissions") from error
    return path


def file_stem(name: str) -> str:
    """A skill's name as a file name: lower case, words joined by hyphens."""
    return re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-.") or "skill"


def _files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(path.glob("*.toml"))
        elif path.exists():
            files.append(path)
        else:
            raise LibraryError(f"no skills at {path}", "check the path")
    return files


def _write_whole(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
