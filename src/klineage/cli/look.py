"""Commands that only look: skills, lineage, moves, doctor."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, LibraryOption, StoreOption, TargetOption, choose_target, known_skills, opened

if TYPE_CHECKING:
    from ..model import Skill
    from ..moves.base import Move

skills_app = typer.Typer(no_args_is_help=True, help="The skills: what is known to be sound and worth it, and when.")
lineage_app = typer.Typer(no_args_is_help=True, help="The walks from expert kernels to their naive ends.")
moves_app = typer.Typer(no_args_is_help=True, help="The vocabulary of optimisations.")

SkillName = Annotated[str, typer.Argument(help="A skill's name, as `skills list` shows it.")]


def skills_list(store: StoreOption = None, json: JsonOption = False, library: LibraryOption = None) -> None:
    """List the skills."""
    from ..report import skills_table
    from .output import show

    with opened(store) as evidence:
        skills = known_skills(evidence, library)
    show({"skills": skills}, lambda: skills_table(skills), as_json_text=json)


def skills_show(
    name: SkillName, store: StoreOption = None, json: JsonOption = False, library: LibraryOption = None
) -> None:
    """Print a skill's file."""
    from rich.text import Text

    from ..library import skill_to_text
    from .output import show

    with opened(store) as evidence:
        skill = _skill(name, known_skills(evidence, library))
    show(skill, lambda: Text(skill_to_text(skill).rstrip()), as_json_text=json)


def skills_explain(
    name: SkillName, store: StoreOption = None, json: JsonOption = False, library: LibraryOption = None
) -> None:
    """Explain a skill: what, where, when it is sound, what it gave, what went wrong."""
    from ..report import skill_page
    from .output import show

    with opened(store) as evidence:
        skill = _skill(name, known_skills(evidence, library))
    show(skill, lambda: skill_page(skill), as_json_text=json)


def lineage_show(
    task: Annotated[str | None, typer.Argument(help="A task walked before. [default: all]")] = None,
    target: TargetOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    refused: Annotated[bool, typer.Option("--refused", help="Show refusals too, dimmed.")] = False,
) -> None:
    """Show the latest walk of each task as a tree."""
    from rich.console import Group

    from ..errors import KLineageError
    from ..report import lineage_tree
    from .output import show

    chosen = choose_target(target)
    with opened(store) as evidence:
        latest = {lineage.task: lineage for lineage in evidence.lineages(task, chosen.name)}
    if not latest:
        what = f"task {task}" if task else "any task"
        raise KLineageError(f"no walk of {what} on {chosen.name} in this store", f"klineage walk {task or 'TASK'}")
    trees = list(latest.values())
    show({"lineages": trees}, lambda: Group(*(lineage_tree(t, refused=refused) for t in trees)), as_json_text=json)


def moves_list(json: JsonOption = False) -> None:
    """List the moves."""
    from rich.table import Table

    from ..moves.registry import all_moves
    from .output import show

    moves = all_moves()

    def page() -> Table:
        table = Table(header_style="bold", title=f"{len(moves)} moves")
        for name in ("move", "what", "sites", "carriers"):
            table.add_column(name, overflow="fold")
        for m in moves:
            table.add_row(m.name, m.title, ", ".join(map(str, m.anchors)), ", ".join(m.carriers))
        return table

    show({"moves": [_move_data(m) for m in moves]}, page, as_json_text=json)


def moves_show(name: Annotated[str, typer.Argument(help="A move's name.")], json: JsonOption = False) -> None:
    """Show a move: before and after, and what must hold."""
    from rich.markdown import Markdown

    from ..moves.registry import move
    from .output import show

    found = move(name.replace("-", "_"))
    show(_move_data(found), lambda: Markdown(f"# {found.name}\n\n{inspect.getdoc(type(found))}"), as_json_text=json)


def doctor(store: StoreOption = None, json: JsonOption = False) -> None:
    """Say what this machine can do, and the fix for what it cannot. Exit status 3: not even a run without a GPU."""
    from .doctor import can_run, doctor_page, examine
    from .output import show

    checks = examine(store)
    data = {"ok": can_run(checks), "checks": checks}
    show(data, lambda: doctor_page(checks), as_json_text=json)
    if not can_run(checks):
        raise typer.Exit(3)


def _skill(name: str, skills: Sequence[Skill]) -> Skill:
    from difflib import get_close_matches

    from ..errors import KLineageError

    for skill in skills:
        if skill.name == name:
            return skill
    close = get_close_matches(name, [s.name for s in skills], n=3)
    raise KLineageError(
        f"no skill {name!r}", f"did you mean {' or '.join(close)}?" if close else "klineage skills list shows all"
    )


def _move_data(move: Move) -> dict[str, object]:
    conditions = [{"predicate": c.predicate, "args": dict(c.args), "statement": c.statement} for c in move.conditions]
    return {
        "name": move.name,
        "title": move.title,
        "rank": move.rank,
        "anchors": [str(a) for a in move.anchors],
        "carriers": list(move.carriers),
        "conditions": conditions,
        "doc": inspect.getdoc(type(move)),
    }


skills_app.command("list")(skills_list)
skills_app.command("show")(skills_show)
skills_app.command("explain")(skills_explain)
lineage_app.command("show")(lineage_show)
moves_app.command("list")(moves_list)
moves_app.command("show")(moves_show)
