"""A session whose judge is fake: stands for klineage.api.Session where nothing is to be compiled."""

from __future__ import annotations

import types
from pathlib import Path

from fakes import SOURCE, FakeJudge
from values import skill

from klineage.model import Kernel
from klineage.store import open_store

NAIVE = SOURCE.replace(", num_warps=8, num_stages=3", ", num_stages=1")


def make(move: str, carriers, **changes):
    """A skill of one move without preconditions."""
    return skill(**{"name": move, "move": move, "carriers": carriers, "preconditions": (), "requires": (), **changes})


STAGES = make("software_pipelining", {"num_stages": ("3",)})


class FakeTask:
    name = "fake"

    def __init__(self, info) -> None:
        self.id = info.id
        self.definition = types.SimpleNamespace(reference=lambda x: x)

    def naive(self):
        return Kernel(source=NAIVE)


class FakeSession:
    """A session whose judge is fake; stands for klineage.api.Session."""

    def __init__(self, folder: Path, judge: FakeJudge) -> None:
        self.store = open_store(str(folder / "store.db"))
        self.target = judge.target
        self._judge = judge
        judge.task = FakeTask(judge.info)
        plain = judge.judge

        def kept(kernel, incumbent=None):
            verdict = plain(kernel, incumbent)
            self.store.put_verdict(verdict)
            return verdict

        judge.judge = kept

    def judge(self, _name):
        return self._judge

    def skills(self):
        return [STAGES]

    def close(self):
        self.store.close()
