"""What agents ask for, over one session: describe, match, apply, judge. Used by workspaces and by the MCP server."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from ..api import Session
from ..errors import KernelError, KLineageError
from ..gate.judge import TaskGate
from ..model import CaseRole, Kernel, Skill, Verdict
from ..optimize import Situation, match
from ..propose import Candidate, Rejected
from ..surface import Module
from . import text


class Desk:
    """Answers an agent's questions about one session's tasks, kernels and skills."""

    def __init__(self, session: Session, skills: Sequence[Skill] | None = None) -> None:
        self.session = session
        self._skills = skills

    @property
    def skills(self) -> list[Skill]:
        """The skills chosen, else all that are known."""
        return list(self._skills) if self._skills is not None else self.session.skills()

    def skill(self, name: str) -> Skill:
        """The skill of a name. Raises KLineageError."""
        known = {s.name: s for s in self.skills}
        if name not in known:
            close = get_close_matches(name, known, n=3) or sorted(known)[:8]
            raise KLineageError(
                f"no skill {name!r}", f"known: {', '.join(close) or 'none; klineage induce makes some'}"
            )
        return known[name]

    def kernel(self, given: str, folder: Path | None = None) -> Kernel:
        """A kernel given as module text, as the id of one in the store, or as a Python file under ``folder``.

        Raises KernelError when it is none of these.
        """
        if "\n" in given:
            Module.parse(given)  # says where it is no Python
            return Kernel(source=given, origin="agent")
        known = self.session.store.get_kernel(given)
        if known is not None:
            return known
        path = ((folder or Path.cwd()) / given).resolve()
        inside = path.is_relative_to((folder or Path.cwd()).resolve())
        if inside and path.suffix == ".py" and path.is_file():
            return Kernel(source=path.read_text(encoding="utf-8"), origin=path.name)
        raise KernelError(
            f"{given[:80]!r} is no kernel", "give the module's text, a kernel's id, or a .py file below here"
        )

    def start_kernel(self, judge: TaskGate) -> Kernel:
        """The kernel that work on a task starts from: its naive one, else its expert.

        Raises KLineageError when it names neither.
        """
        start = judge.task.naive() or judge.task.expert(self.session.target)
        if start is None:
            raise KLineageError(f"task {judge.task.name} has no kernel to start from", "give one")
        return start

    def describe(self, task: str, *, with_kernel: bool = True) -> str:
        """A task, the contract, and the kernel to start from."""
        judge = self.session.judge(task)
        names = list(inspect.signature(judge.task.definition.reference).parameters)
        parts = [text.task_text(judge.info, judge.target.name, judge.mode, names), text.CONTRACT]
        if with_kernel:
            start = self.start_kernel(judge)
            self.session.store.put_kernel(start)
            parts.append(f"start: kernel {start.id}\n```python\n{start.source.strip()}\n```")
        return "\n\n".join(parts)

    def judge(self, task: str, kernel: Kernel, incumbent: Verdict | None = None) -> Verdict:
        """The verdict of a kernel."""
        self.session.store.put_kernel(kernel)
        return self.session.judge(task).judge(kernel, incumbent)

    def matches(self, task: str, kernel: Kernel) -> tuple[list[Candidate], list[Rejected]]:
        """Skills that hold in a kernel, best first, and those that do not.

        Compiled launches are looked at when the kernel was judged before; judging is not begun for this.
        """
        judge = self.session.judge(task)
        verdicts = self.session.store.verdicts(task_id=judge.task.id, kernel_id=kernel.id)
        launches = verdicts[-1].launches if verdicts else ()
        bench = judge.info.with_role(CaseRole.BENCH)
        situation = Situation(kernel.source, judge.target, bench, {c.name: launches for c in bench})
        return match(self.skills, situation)

    def apply(self, task: str, kernel: Kernel, skill: str, site: str = "") -> tuple[Candidate, Kernel]:
        """The kernel with a skill's own edit, at the site named, else at its best one. Not judged yet.

        Raises KLineageError when the skill does not hold here, with what is missing.
        """
        self.skill(skill)
        candidates, rejected = self.matches(task, kernel)
        mine = [c for c in candidates if c.skill.name == skill]
        mine = [c for c in mine if not site or c.proposal.site.label == site] or mine
        if not mine:
            reasons = [f"{r.site}: {r.reason}" for r in rejected if r.skill.name == skill]
            raise KLineageError(f"{skill} does not apply: {'; '.join(reasons[:3]) or 'it finds no site'}")
        chosen = mine[0]
        made = kernel.derive(chosen.proposal.source, f"skill {skill}")
        self.session.store.put_kernel(made)
        return chosen, made
