"""A local HTTP server of the wire formats of OpenAI, Anthropic and Google; it answers, or fails, as a script says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Turn:
    """One answer of the server. ``fault``: "429", "500", "401", "404", "slow", "cut", "bad_json" or ""."""

    text: str = ""
    arguments: dict[str, Any] | str | None = None  # of a call of the tool "propose"
    finish: str = "stop"  # "length", "content_filter"
    fault: str = ""
    retry_after: str | None = None
    tokens: tuple[int, int] = (1000, 200)


def say(text: str, **fields: Any) -> Turn:
    """An answer in words."""
    return Turn(text=text, **fields)


def propose(**arguments: Any) -> Turn:
    """A call of the tool."""
    return Turn(arguments=arguments, finish="tool_calls")


def fail(fault: str, **fields: Any) -> Turn:
    """A fault."""
    return Turn(fault=fault, **fields)


NOTHING = say("nothing: yes")
Script = Iterable[Turn] | Callable[[dict[str, Any]], Turn]


@dataclass
class ModelServer:
    """Serves turns in order (the last one again when they run out), or whatever a function makes of the request."""

    script: Script
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    slow_s: float = 5.0

    def __enter__(self) -> ModelServer:
        turns = None if callable(self.script) else list(self.script)
        owner = self
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    owner.requests.append(body)
                    owner.headers.append({k.lower(): v for k, v in self.headers.items()})
                    index = len(owner.requests) - 1
                turn = owner.script(body) if turns is None else turns[min(index, len(turns) - 1)]  # type: ignore[operator]
                owner.answer(self, turn, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """Root of the server; OpenAI clients want "/v1" after it."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, handler: BaseHTTPRequestHandler, turn: Turn, body: dict[str, Any]) -> None:
        if turn.fault == "slow":
            time.sleep(self.slow_s)
        if turn.fault.isdigit():
            error = {"error": {"message": f"fault {turn.fault}; key {handler.headers.get('Authorization')}",
                               "type": "server_error"}}  # fmt: skip
            extra = {"Retry-After": turn.retry_after} if turn.retry_after is not None else {}
            return _send(handler, json.dumps(error).encode(), int(turn.fault), extra)
        data = _FORMATS.get(handler.path.rpartition("/")[2].rpartition(":")[2], _openai)(turn, body)
        text = json.dumps(data).encode()
        if turn.fault == "bad_json":
            text = text[: len(text) // 2]
        if turn.fault == "cut":
            handler.send_response(200)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text[: len(text) // 2])
            handler.wfile.flush()
            handler.close_connection = True
            return None
        return _send(handler, text, 200, {})


def prompt_of(body: dict[str, Any]) -> str:
    """All text of a request, of either format."""
    parts = [body.get("system") or ""]
    parts += [m.get("content") or "" for m in body["messages"]]
    return "\n".join(p if isinstance(p, str) else json.dumps(p) for p in parts)


def _send(handler: BaseHTTPRequestHandler, text: bytes, status: int, extra: dict[str, str]) -> None:
    try:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(text)))
        for name, value in extra.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text)
    except OSError:  # a client that had waited long enough
        handler.close_connection = True


def _arguments(turn: Turn) -> str:
    return turn.arguments if isinstance(turn.arguments, str) else json.dumps(turn.arguments)


def _openai(turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.arguments is not None:
        call = {"id": "c1", "type": "function", "function": {"name": "propose", "arguments": _arguments(turn)}}
        message["tool_calls"] = [call]
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": turn.finish}],
        "usage": {"prompt_tokens": turn.tokens[0], "completion_tokens": turn.tokens[1],
                  "total_tokens": sum(turn.tokens)},
    }  # fmt: skip


def _anthropic(turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
    if turn.arguments is not None:
        content.append({"type": "tool_use", "id": "t1", "name": "propose", "input": json.loads(_arguments(turn))})
    stop = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
    return {
        "id": "m", "type": "message", "role": "assistant", "model": body["model"], "content": content,
        "stop_reason": stop[turn.finish], "stop_sequence": None,
        "usage": {"input_tokens": turn.tokens[0], "output_tokens": turn.tokens[1]},
    }  # fmt: skip


def _google(turn: Turn, _body: dict[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
    if turn.arguments is not None:
        parts.append({"functionCall": {"name": "propose", "args": json.loads(_arguments(turn))}})
    reason = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}.get(turn.finish, "STOP")
    usage = {"promptTokenCount": turn.tokens[0], "candidatesTokenCount": turn.tokens[1],
             "totalTokenCount": sum(turn.tokens)}  # fmt: skip
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reason, "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


_FORMATS = {"messages": _anthropic, "generateContent": _google}
