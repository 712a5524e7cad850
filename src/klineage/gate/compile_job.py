# pyright: reportPrivateUsage=false, reportMissingTypeStubs=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The worker's side of compiling: run the entry on inputs without values and collect the launches."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from triton import knobs
from triton.compiler.errors import CompilationError
from triton.runtime.errors import AutotunerError, OutOfResources, PTXASError

from ..model import Target
from . import binary, capture, capture_driver, isolate, pretend_cuda
from .compile import make_input
from .measured import record
from .wire import Payload

warm_up = capture_driver.warm_up  # called by the server before it forks

_UNITS = {"shared memory": " bytes", "tensor memory": " columns"}


def compile_job(payload: Payload) -> Payload:
    """Compile every launch of every case of ``payload`` (see klineage.gate.compile.compile_kernel).

    Returns {"failure": None or {"kind", "reason", "case"}, "cases", "cubins", "trials"}.
    """
    _own_cache(payload["name"])
    target = Target(**payload["target"])
    module, _, name = payload["score"].partition(":")
    recorder = capture.Capture(target, getattr(importlib.import_module(module), name), payload["max_configs"])
    pretend_cuda.install(target)
    capture_driver.install(recorder)
    job = _Job(payload, recorder)
    failure = job.run()
    return {"failure": failure, "cases": job.cases, "cubins": job.cubins, "trials": job.trials}


def _own_cache(name: str) -> None:
    """A part of the compile cache for this text alone, and no writing outside it: no candidate can plant a binary for
    another, or spoil one."""
    cache = Path(os.environ["TRITON_CACHE_DIR"], name)
    cache.mkdir(exist_ok=True)
    knobs.cache.dir = str(cache)
    isolate.forbid_writes_outside([str(Path.cwd()), str(cache), "/dev/null"])


class _Job:
    def __init__(self, payload: Payload, recorder: capture.Capture) -> None:
        self._payload = payload
        self._recorder = recorder
        self._path = Path(f"{payload['name']}.py").absolute()
        self.cases: list[dict[str, Any]] = []
        self.cubins: dict[str, bytes] = {}
        self.trials = 0

    def run(self) -> dict[str, str] | None:
        """Compile all cases; the failure, or None."""
        case = ""
        try:
            with pretend_cuda.PretendCuda("meta"):
                entry = self._load()
            for item in self._payload["cases"]:
                case = item["name"]
                self._run_case(entry, item)
        except Exception as error:
            return self._explain(error, case)
        return None

    def _load(self) -> Callable[..., Any]:
        self._path.write_text(self._payload["source"])
        spec = importlib.util.spec_from_file_location(self._payload["name"], self._path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        entry = getattr(module, self._payload["entry"], None)
        if not callable(entry):
            raise capture.LaunchError(f"the module has no function {self._payload['entry']!r}")
        return entry

    def _run_case(self, entry: Callable[..., Any], item: dict[str, Any]) -> None:
        try:
            self._call(entry, item["inputs"], "meta")
        except (OutOfResources, PTXASError, CompilationError, AutotunerError, capture.LaunchError):
            raise
        except Exception:
            # it may be that host code reads values, which meta tensors lack
            self._call(entry, item["inputs"], "cpu")
        recorder = self._recorder
        final = [x for x in recorder.launches if not x.trial]
        self.trials += len(recorder.launches) - len(final)
        program = recorder.recorder.program() if recorder.recorder is not None else None
        self.cases.append({"name": item["name"], "launches": [self._plain(x) for x in final], "program": program})

    def _call(self, entry: Callable[..., Any], specs: list[Any], backing: pretend_cuda.Backing) -> None:
        inputs = [make_input(tuple(spec), backing) for spec in specs]
        self._recorder.launches.clear()
        self._recorder.inputs = {
            x.untyped_storage()._cdata: i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)
        }
        with pretend_cuda.PretendCuda(backing):
            if not self._payload.get("record"):
                entry(*inputs)
                return
            self._recorder.recorder = recorder = record.Recorder(inputs)
            if backing != "meta":
                recorder.impossible = "its launcher reads values of tensors"
            with recorder:
                recorder.finish(entry(*inputs))

    def _plain(self, launch: capture.Launch) -> dict[str, Any]:
        key = hashlib.sha256(launch.cubin).hexdigest()[:32]
        self.cubins[key] = launch.cubin
        fields = {f.name: getattr(launch, f.name) for f in dataclasses.fields(launch) if f.name != "cubin"}
        return {**fields, "grid": list(launch.grid), "args": [dataclasses.asdict(a) for a in launch.args], "cubin": key}

    def _explain(self, error: BaseException, case: str) -> dict[str, str]:
        kind, reason = self._reason(error)
        where = f", case {case}" if case else ""
        return {"kind": kind, "reason": " ".join(f"{reason}{where}".split()), "case": case}

    def _reason(self, error: BaseException) -> tuple[str, str]:
        kernel, target = self._recorder.current, self._recorder.target.name
        if isinstance(error, OutOfResources):
            unit = _UNITS.get(error.name, "")
            return (
                "resources",
                f"{error.name} {error.required}{unit} exceeds {error.limit} of {target} in {kernel}",
            )
        if isinstance(error, PTXASError):
            return "compile", f"ptxas for {target}: {binary.first_error(error.error_message or '')} in {kernel}"
        if isinstance(error, CompilationError):
            return "compile", self._compilation(error, kernel)
        if isinstance(error, capture.LaunchError):
            return "resources" if "exceeds" in str(error) else "host", str(error)
        if isinstance(error, SyntaxError):
            return "host", f"SyntaxError: {error.msg} (line {error.lineno})"
        return "host", f"{type(error).__name__}: {_first_line(error)}{self._line_of(error)}"

    def _compilation(self, error: CompilationError, kernel: str) -> str:
        """The innermost cause: Triton wraps one error per function the compiler was in."""
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        innermost = cause if isinstance(cause, CompilationError) else error
        message = innermost.error_message if isinstance(cause, CompilationError) else _first_line(cause)
        line = getattr(innermost.node, "lineno", None)
        source = (innermost.src or "").splitlines()
        text = f": {source[line - 1].strip()[:120]}" if line and line <= len(source) else ""
        name = re.match(r"def (\w+)", innermost.src or "")  # it may be a function that the kernel calls
        kernel = name.group(1) if name else kernel
        return f"{(message or 'compilation failed')[:300]} (line {line} of {kernel}{text})"

    def _line_of(self, error: BaseException) -> str:
        """Where in the module's own text a Python error came from."""
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self._path)]
        return f" (line {own[-1].lineno}: {(own[-1].line or '')[:120]})" if own else ""


def _first_line(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if lines:
            return lines[0][:300]
    return "no message"
