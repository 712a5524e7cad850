"""Prompts as files (``prompts/*.md.j2``) that a person reads and replaces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from ..errors import KLineageError

SHIPPED = Path(__file__).parent / "prompts"


class Prompts:
    """The shipped prompts, those of ``folder`` standing for the ones of the same name.

    Raises KLineageError when the folder is not there or holds a file that stands for no prompt.
    """

    def __init__(self, folder: Path | None = None) -> None:
        known = sorted(p.name for p in SHIPPED.glob("*.md.j2"))
        if folder is not None:
            if not folder.is_dir():
                raise KLineageError(f"there is no folder of prompts at {folder}", "check --prompts")
            strange = sorted(p.name for p in folder.iterdir() if p.name.endswith(".j2") and p.name not in known)
            if strange:
                raise KLineageError(f"{folder / strange[0]} stands for no prompt", f"the prompts: {', '.join(known)}")
        places = [str(p) for p in (folder, SHIPPED) if p is not None]
        self._environment = Environment(
            loader=FileSystemLoader(places),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            autoescape=False,
        )

    def render(self, name: str, facts: Mapping[str, Any]) -> str:
        """The text of prompt ``name`` ("simplify") with the facts filled in.

        Raises KLineageError when the file is not a template or uses a fact that there is not.
        """
        try:
            return self._environment.get_template(f"{name}.md.j2").render(**facts).strip() + "\n"
        except TemplateError as error:
            where = getattr(error, "lineno", None)
            at = f" line {where}" if where else ""
            raise KLineageError(f"prompt {name}.md.j2{at}: {error.message}", "correct the file") from error
