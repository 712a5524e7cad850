"""The command line. ``main`` turns every outcome into one clear line and the right exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ..errors import Exit, KLineageError
from . import agent, export, look, score, work

INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
STOPPED = "stopped; finished work is kept: run the same command again to resume"

app = typer.Typer(
    name="klineage",
    help="Learns when a GPU-kernel optimisation is sound and worth it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"klineage {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (may stand anywhere).")
    ] = False,
) -> None:
    del version, debug  # --version acts in its callback; main takes --debug out wherever it stands


for _command in (
    work.quickstart,
    work.walk,
    work.induce,
    work.optimize,
    work.recover,
    work.verify,
    work.gate,
    look.doctor,
):
    app.command()(_command)
app.command()(score.gate_score)
app.command()(agent.mcp)
app.add_typer(agent.agent_app, name="agent")
app.add_typer(export.export_app, name="export")
app.add_typer(export.evidence_app, name="evidence")
look.skills_app.command("export")(export.skills_export)
app.add_typer(look.skills_app, name="skills")
app.add_typer(look.lineage_app, name="lineage")
app.add_typer(look.moves_app, name="moves")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run one command and exit."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status. Only --debug lets an exception out."""
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    as_json = "--json" in arguments
    try:
        if not as_json:
            return _invoke(arguments)
        from .output import json_alone

        with json_alone():
            return _invoke(arguments)
    except KLineageError as error:
        return _fail(f"error: {error}", error, error.exit_status, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(STOPPED, None, Exit.INTERRUPTED, as_json)
    except BrokenPipeError:  # the reader went away: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        if debug:
            raise
        if (usage := _usage_line(error)) is not None:
            return _fail(usage, KLineageError(usage.removeprefix("error: ")), Exit.USAGE, as_json)
        what = " ".join(f"{type(error).__name__}: {error}".split())
        line = f"internal error: {what[:300]}; rerun with --debug for the traceback"
        return _fail(line, None, INTERNAL_ERROR, as_json)


def _invoke(arguments: list[str]) -> int:
    status = typer.main.get_command(app).main(args=arguments, prog_name="klineage", standalone_mode=False)
    if status == Exit.INTERRUPTED:  # typer caught Ctrl-C
        raise KeyboardInterrupt
    return status if isinstance(status, int) else Exit.OK


def _fail(line: str, error: KLineageError | None, status: int, as_json: bool) -> int:
    from .output import print_error

    print_error(line, error, status, as_json_text=as_json)
    return int(status)


def _usage_line(error: Exception) -> str | None:
    """One line for wrong usage. Click's own classes cannot be named: typer carries a copy of click or depends on it."""
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "klineage"
    return f"error: {' '.join(str(message()).split())} — {command} --help"
