"""Commands for coding agents: a workspace of files, and an MCP server."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    JobsOption,
    JsonOption,
    LibraryOption,
    StoreOption,
    TargetOption,
    choose_target,
    chosen_skills,
    cores,
    opened,
)

if TYPE_CHECKING:
    from ..api import Session

agent_app = typer.Typer(no_args_is_help=True, help="A workspace of files for any coding agent that has a shell.")

TaskArgument = Annotated[str, typer.Argument(help="A shipped task's name, a task file, or a KernelBench file.")]
KernelOption = Annotated[Path | None, typer.Option("--kernel", help="Another kernel file.", show_default=False)]


@contextmanager
def _session(target: str, store: str | None, jobs: int | None) -> Generator[Session, None, None]:
    with opened(store) as evidence:
        from ..api import Session

        with Session(target, evidence, jobs=jobs or cores()) as session:
            yield session


def agent_start(
    task: TaskArgument,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="The workspace. [default: ./agent-TASK]", show_default=False)
    ] = None,
    kernel: KernelOption = None,
    budget: Annotated[int, typer.Option("--budget", min=1, help="Most kernels judged.")] = 10,
    anew: Annotated[bool, typer.Option("--anew", help="Start over; what was judged stays in the store.")] = False,
    target: TargetOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
) -> None:
    """Write a workspace: the kernel, the contract, the skills, the history."""
    from rich.text import Text

    with _session(choose_target(target).name, store, jobs) as session:
        from ..agent import workspace

        place = folder or Path(f"agent-{Path(task).stem}")
        state = workspace.start(session, task, place, kernel, budget, anew=anew)
        page = f"{workspace.status_text(state, session.store)}\nread {place / workspace.GUIDE}"
    from .output import show

    show(state, lambda: Text(page), as_json_text=json)


def agent_submit(
    task: TaskArgument,
    intent: Annotated[str, typer.Option("--message", "-m", help="What was changed, and why.")] = "",
    kernel: KernelOption = None,
    target: TargetOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
) -> None:
    """Judge the workspace's kernel against the best so far. Exit status 0: kept, 1: not kept."""
    from rich.text import Text

    with _session(choose_target(target).name, store, jobs) as session:
        from ..agent import text, workspace

        done = workspace.submit(session, task, intent, kernel)
        lines = [f"{'kept' if done.kept else 'not kept'}: {done.reason}"]
        if done.verdict is not None:
            lines.append(text.verdict_text(done.verdict, done.incumbent))
        lines.append(f"{done.state.left} of {done.state.budget} tries left")
    from .output import show

    data = {"kept": done.kept, "reason": done.reason, "left": done.state.left, "verdict": done.verdict}
    show(data, lambda: Text("\n".join(lines)), as_json_text=json)
    if not done.kept:
        raise typer.Exit(1)


def agent_status(
    task: TaskArgument, target: TargetOption = None, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Say how far the work on a task is."""
    from rich.text import Text

    chosen = choose_target(target)
    with opened(store) as evidence:
        from ..agent import workspace

        state = workspace.status(evidence, task, chosen.name)
        page = workspace.status_text(state, evidence)
    from .output import show

    show(state, lambda: Text(page), as_json_text=json)


def mcp(
    http: Annotated[
        int | None, typer.Option("--http", min=0, max=65535, help="Serve HTTP on this loopback port, not stdio.")
    ] = None,
    task: Annotated[
        list[Path] | None, typer.Option("--task", help="A task file of your own that agents may use.")
    ] = None,
    target: TargetOption = None,
    store: StoreOption = None,
    jobs: JobsOption = None,
    library: LibraryOption = None,
) -> None:
    """Serve the Model Context Protocol to a coding agent: on stdio, or over HTTP on loopback."""
    chosen = choose_target(target)
    with opened(store) as evidence:
        from ..mcp import serve

        serve(chosen.name, evidence, [str(t) for t in task or ()], chosen_skills(library), http, jobs or cores())


agent_app.command("start")(agent_start)
agent_app.command("submit")(agent_submit)
agent_app.command("status")(agent_status)
