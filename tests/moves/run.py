"""Run kernel modules in Triton's interpreter for the moves' tests: one forked process per run, floats of 16 or 32 bits.

``run(source, *inputs)`` returns what the module's ``run`` returns, as a tuple of tensors. The serving child imports
torch and triton once per test session; every run happens in a fork of it, so nothing leaks between kernels.
"""

from __future__ import annotations

import atexit
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import IO, Any


class KernelFailed(AssertionError):
    """The kernel raised in the interpreter; the message is its traceback."""


def run(source: str, *inputs: Any, config: int = 0) -> tuple[Any, ...]:
    """Outputs of ``run(*inputs)``. ``config`` picks the autotune configuration by index.

    Raises KernelFailed when the kernel raises.
    """
    child = _server()
    assert child.stdin is not None and child.stdout is not None
    _send(child.stdin, {"source": source, "inputs": inputs, "config": config})
    reply = _receive(child.stdout)
    if reply is None:
        raise KernelFailed("the interpreter process died")
    if "error" in reply:
        raise KernelFailed(reply["error"])
    return tuple(reply["outputs"])


def same(left: str, right: str, *inputs: Any, tolerance: float = 1e-5) -> None:
    """Assert that two modules give the same outputs, NaN-free, within a tolerance relative to the largest value."""
    import torch

    outputs, others = run(left, *inputs), run(right, *inputs)
    assert len(outputs) == len(others)
    for one, other in zip(outputs, others, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        wide, reference = other.double(), one.double()
        assert not torch.isnan(wide).any() and not torch.isnan(reference).any()
        scale = max(1.0, float(reference.abs().max()))
        assert float((wide - reference).abs().max()) <= tolerance * scale


@lru_cache(maxsize=1)
def _server() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_DEFAULT_FP_FUSION": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    atexit.register(child.kill)
    return child


def _send(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    head = stream.read(8)
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0])) if len(head) == 8 else None


# ---------------------------------------------------------------------- child
def _job(request: Any) -> Any:
    import importlib.util
    import traceback

    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.py"
        path.write_text(request["source"])
        try:
            _patch(request["config"])
            spec = importlib.util.spec_from_file_location("kernel", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            result = module.run(*request["inputs"])
        except BaseException:
            return {"error": traceback.format_exc()}
    return {"outputs": (result,) if isinstance(result, torch.Tensor) else tuple(result)}


def _patch(config: int) -> None:
    """Let autotuned kernels run one configuration without timing."""
    from triton.runtime import autotuner

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = self.configs[config % len(self.configs)]
        return self.fn.run(*args, **kwargs, **chosen.all_kwargs())

    autotuner.Autotuner.run = tuned


def _serve() -> None:
    """Answer runs from the parent, each in a fork; all that is slow to import is imported before the first."""
    from types import SimpleNamespace

    import torch
    from triton.runtime import autotuner, interpreter

    assert autotuner and interpreter
    torch.set_num_threads(1)
    torch.utils.deterministic.fill_uninitialized_memory = True  # fresh memory is NaN
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.cuda.get_device_properties = lambda _device=None: SimpleNamespace(multi_processor_count=4)
    channel = os.dup(1)
    os.dup2(2, 1)
    while (request := _receive(sys.stdin.buffer)) is not None:
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            with os.fdopen(writer, "wb") as stream:
                _send(stream, _job(request))
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            reply = _receive(stream)
        os.wait()
        with os.fdopen(os.dup(channel), "wb") as out:
            _send(out, reply if reply is not None else {"error": "the kernel's process died"})


if __name__ == "__main__":
    _serve()
