"""Tasks: an operator's contract, loaded from one Python file; oracle, comparison and refusals."""

from .core import FRESH, Definition, Inputs, Task
from .inputs import bench_case, check_cases, matmul_cases, row_cases
from .loader import find_task, load_task, shipped_tasks
from .refuse import degenerate
from .specs import InputSpec
from .tolerance import allowed_error, compare, floor_error, row_errors

__all__ = [
    "FRESH", "Definition", "InputSpec", "Inputs", "Task", "allowed_error", "bench_case", "check_cases", "compare",
    "degenerate", "find_task", "floor_error", "load_task", "matmul_cases", "row_cases", "row_errors", "shipped_tasks",
]  # fmt: skip
