"""The MCP server: six tools over one session. Results are compact text; a tool that takes long reports progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from .. import __version__
from ..agent import Desk, text
from ..api import Session
from ..errors import KLineageError
from ..model import Skill, Verdict
from ..store.base import Store
from .service import Service

T = TypeVar("T")
INSTRUCTIONS = (
    "KLineage judges and improves Triton kernels. describe_task first; then gate candidates. A kernel is its module "
    "text, the id of one judged here, or a .py file below the server's folder. match_skills tells what is known to pay "
    "in a kernel; apply_skill writes the edit. Times are labelled modelled or measured."
)

TaskName = Annotated[str, Field(description="A shipped task's name, or a task file the server was started with")]
KernelText = Annotated[str, Field(description="Module text, a kernel's id, or a .py file below the server's folder")]


def make_server(service: Service) -> MCPServer:
    """The server of a service."""
    server = MCPServer("klineage", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")

    async def describe_task(task: TaskName, ctx: Context) -> str:
        """What a task asks for: inputs, shapes, the contract of a kernel, and the kernel to start from."""
        return await _ask(service, ctx, "describe", lambda desk: desk.describe(service.task(task)))

    async def match_skills(task: TaskName, kernel: KernelText, ctx: Context) -> str:
        """The skills that hold in a kernel, anchored in its code, with effects and risks; and what others lack."""

        def work(desk: Desk) -> str:
            return text.matches_text(*desk.matches(service.task(task), desk.kernel(kernel)))

        return await _ask(service, ctx, "match", work)

    async def explain_skill(skill: Annotated[str, Field(description="A skill's name")], ctx: Context) -> str:
        """When a skill is sound, what carries it, what it brought and where it did harm."""
        return await _ask(service, ctx, "explain", lambda desk: text.skill_text(desk.skill(skill)))

    async def gate(
        task: TaskName,
        kernel: KernelText,
        ctx: Context,
        incumbent: Annotated[str, Field(description="Id of a kernel judged here that it must beat")] = "",
    ) -> str:
        """Judge a kernel: policy, compile, correctness on every shape, time with its terms. Takes seconds."""

        def work(desk: Desk) -> str:
            name = service.task(task)
            best: Verdict | None = desk.judge(name, desk.kernel(incumbent)) if incumbent else None
            return text.verdict_text(desk.judge(name, desk.kernel(kernel), best), best)

        return await _ask(service, ctx, "judge", work)

    async def apply_skill(
        task: TaskName,
        kernel: KernelText,
        skill: Annotated[str, Field(description="A skill's name")],
        ctx: Context,
        site: Annotated[str, Field(description="A site's label; the best one when empty")] = "",
    ) -> str:
        """Put a skill into a kernel: the new kernel's id and what changed. Gate it next."""

        def work(desk: Desk) -> str:
            before = desk.kernel(kernel)
            candidate, made = desk.apply(service.task(task), before, skill, site)
            params = ", ".join(f"{k}={v}" for k, v in candidate.proposal.params.items())
            head = f"kernel {made.id}: {skill} at {candidate.proposal.site.label} {params}".rstrip()
            return f"{head}\n{text.diff_text(before.source, made.source)}"

        return await _ask(service, ctx, "apply", work)

    async def show_lineage(task: TaskName, ctx: Context) -> str:
        """How an expert kernel of a task was taken apart, step by step, and what each optimisation was worth."""

        def work(desk: Desk) -> str:
            name = desk.session.judge(service.task(task)).info.name
            line = desk.session.store.latest_lineage(name, desk.session.target.name)
            if line is None:
                raise KLineageError(f"no walk of {name} on {desk.session.target.name}", f"klineage walk {name}")
            return text.lineage_text(line)

        return await _ask(service, ctx, "lineage", work)

    for tool in (describe_task, match_skills, explain_skill, gate, apply_skill, show_lineage):
        server.add_tool(tool, structured_output=False)
    return server


def run(
    target: str, store: Store, tasks: Sequence[str], skills: Sequence[Skill] | None, port: int | None, jobs: int
) -> None:
    """Serve until the client goes away (stdio) or the process is stopped (HTTP, on loopback alone)."""
    service = Service(lambda: Session(target, store, jobs=jobs), tasks, skills)
    server = make_server(service)
    try:
        if port is None:
            server.run("stdio")
        else:
            server.run("streamable-http", host="127.0.0.1", port=port)
    finally:
        service.close()


async def _ask(service: Service, ctx: Context, what: str, work: Callable[[Desk], T]) -> T:
    """Ask the service; progress goes to the client, and a known error is a tool's error of one line."""

    async def tell(seconds: float, words: str) -> None:
        await ctx.report_progress(seconds, None, words)

    try:
        return await service.ask(tell, what, work)
    except KLineageError as error:
        raise ToolError(str(error)) from None
