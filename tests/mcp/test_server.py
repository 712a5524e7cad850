"""The MCP server: errors of one line first; then every tool, in memory, over a real stdio pipe and over HTTP."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

pytest.importorskip("mcp", reason="the mcp extra is not installed")

from fake_session import NAIVE, FakeSession
from fakes import FakeJudge, cost
from mcp import Client, StdioServerParameters
from values import lineage

from klineage.errors import EnvironmentLackError
from klineage.mcp import serve
from klineage.mcp.server import make_server
from klineage.mcp.service import Service
from klineage.model import Kernel

TOOLS = {"describe_task", "match_skills", "explain_skill", "gate", "apply_skill", "show_lineage"}


@pytest.fixture
def judge():
    return FakeJudge(cost, wrong=lambda s: "case small: error 1 > allowed 0.1" if "BLOCK=7" in s else "")


@pytest.fixture
def session(tmp_path, judge):
    return FakeSession(tmp_path, judge)


@pytest.fixture
def call(session):
    """Call a tool of a server in memory: (text, whether it is an error)."""
    service = Service(lambda: session, ["fake.py"], None)

    def do(tool: str, progress=None, **arguments):
        async def once():
            async with Client(make_server(service)) as client:
                return await client.call_tool(tool, arguments, progress_callback=progress)

        result = asyncio.run(once())
        return result.content[0].text, bool(result.is_error)

    return do


WRONG = [
    pytest.param("describe_task", {"task": "nonsense"}, "no task 'nonsense'", id="unknown task"),
    pytest.param("describe_task", {"task": "/tmp/evil.py"}, "no task", id="task file that the user did not name"),
    pytest.param("gate", {"task": "fake", "kernel": "/etc/passwd"}, "is no kernel", id="a file from elsewhere"),
    pytest.param("gate", {"task": "fake", "kernel": "def run(:\n"}, "syntax error", id="not Python"),
    pytest.param("explain_skill", {"skill": "nonsense"}, "no skill 'nonsense'", id="unknown skill"),
    pytest.param("apply_skill", {"task": "fake", "kernel": "f" * 16, "skill": "x"}, "is no kernel", id="unknown id"),
    pytest.param("show_lineage", {"task": "fake"}, "no walk of fake", id="never walked"),
]


@pytest.mark.parametrize(("tool", "arguments", "words"), WRONG)
def test_bad_input_is_an_error_of_one_line(call, tool, arguments, words):
    text, failed = call(tool, **arguments)
    assert failed and words in text
    assert "Traceback" not in text and "\n" not in text.strip()


def test_missing_extra_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "klineage.mcp.server", None)
    with pytest.raises(EnvironmentLackError, match=r"pip install 'klineage\[mcp\]'"):
        serve("sm_90", None, [], None, None, 1)


def test_tools_are_described_with_their_arguments(session):
    async def listed():
        async with Client(make_server(Service(lambda: session, [], None))) as client:
            return (await client.list_tools()).tools

    tools = {t.name: t for t in asyncio.run(listed())}
    assert set(tools) == TOOLS
    assert all(t.description and t.input_schema["properties"] for t in tools.values())
    assert "ctx" not in tools["gate"].input_schema["properties"]


def test_work_on_a_task_from_description_to_a_faster_kernel(call, session):
    described, _ = call("describe_task", task="fake")
    assert "n=4096" in described and "no torch operator" in described and "tl.store" in described
    matched, _ = call("match_skills", task="fake", kernel=NAIVE)
    assert matched.startswith("software_pipelining: ") and "`launch@run" in matched
    explained, _ = call("explain_skill", skill="software_pipelining")
    assert "did harm in 1" in explained and "risk: spills" in explained
    applied, _ = call("apply_skill", task="fake", kernel=NAIVE, skill="software_pipelining")
    made = applied.split()[1].rstrip(":")
    assert "\n+" in applied
    judged, failed = call("gate", task="fake", kernel=made, incumbent=Kernel(source=NAIVE).id)
    assert not failed and judged.startswith("accepted, ") and "x the best so far" in judged


def test_wrong_kernel_is_a_verdict_and_no_error(call):
    text, failed = call("gate", task="fake", kernel=NAIVE.replace("BLOCK=256", "BLOCK=7"))
    assert not failed and text.startswith("rejected_numeric")


def test_lineage_is_compact(call, session):
    session.store.put_lineage(lineage().model_copy(update={"task": "fake"}))
    text, failed = call("show_lineage", task="fake")
    assert not failed and len(text.splitlines()) == 5 and "2. after 1 warps" in text


def test_long_tool_reports_progress(call, judge, monkeypatch):
    monkeypatch.setattr("klineage.mcp.service.BEAT_S", 0.05)
    plain = judge.judge

    def slow(kernel, incumbent=None):
        time.sleep(0.4)
        return plain(kernel, incumbent)

    judge.judge = slow
    told: list[tuple[float, str]] = []

    async def progress(value, _total, message):
        told.append((value, message))

    call("gate", progress, task="fake", kernel=NAIVE)
    assert len(told) >= 3 and told[-1][0] > told[0][0] and told[-1][1].startswith("judge: ")


def test_real_client_over_stdio(tmp_path):
    """The command itself, as an agent starts it; what a skill page needs starts no gate."""
    command = ["-c", "from klineage.cli.app import main; main()", "mcp", "--store", str(tmp_path / "s.db")]

    async def talk():
        server = StdioServerParameters(command=sys.executable, args=command, cwd=str(tmp_path))
        async with Client(server, read_timeout_seconds=60) as client:
            names = {t.name for t in (await client.list_tools()).tools}
            wrong = await client.call_tool("explain_skill", {"skill": "nonsense"})
            return names, wrong

    names, wrong = asyncio.run(talk())
    assert names == TOOLS
    assert wrong.is_error and "no skill" in wrong.content[0].text


@pytest.mark.parametrize(("host", "statuses"), [("evil.example", (403, 421)), ("127.0.0.1:80", (200,))])
def test_http_answers_on_loopback_alone(session, host, statuses):
    """Streamable HTTP through the server's own application: a page that rebinds its name to loopback is refused."""
    import httpx2

    app = make_server(Service(lambda: session, ["fake.py"], None)).streamable_http_app(host="127.0.0.1")
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}  # fmt: skip
    headers = {"Accept": "application/json, text/event-stream", "Host": host}

    async def talk():
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://x") as web,
        ):
            return (await web.post("/mcp", json=start, headers=headers)).status_code

    assert asyncio.run(talk()) in statuses
