"""Workspaces: what is refused, what costs no try, the budget, and the files an agent reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_session import NAIVE, FakeSession, make
from fakes import FakeJudge, cost

from klineage.agent import Desk, start, status, submit, text
from klineage.agent.workspace import status_text
from klineage.errors import KernelError, KLineageError
from klineage.model import Kernel, Precondition


@pytest.fixture
def judge():
    return FakeJudge(cost, wrong=lambda s: "case small: error 1 > allowed 0.1" if "BLOCK=7" in s else "")


@pytest.fixture
def session(tmp_path, judge):
    return FakeSession(tmp_path, judge)


@pytest.fixture
def folder(tmp_path, session):
    place = tmp_path / "work"
    start(session, "fake", place, budget=3)
    return place


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "kernel.py"
    path.write_text((folder / "best.py").read_text().replace(old, new))


def test_status_without_a_start_says_how_to_start(session):
    with pytest.raises(KLineageError, match="klineage agent start fake"):
        status(session.store, "fake", "sm_90")


def test_second_start_is_refused_unless_anew(folder, session):
    with pytest.raises(KLineageError, match="under way"):
        start(session, "fake", folder)
    assert start(session, "fake", folder, anew=True).left == 10


def test_folder_of_something_else_is_left_alone(tmp_path, session):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kernel.py").write_text("precious")
    with pytest.raises(KLineageError, match="holds something else"):
        start(session, "fake", tmp_path / "mine")
    assert (tmp_path / "mine" / "kernel.py").read_text() == "precious"


def test_start_that_is_wrong_is_refused(tmp_path):
    session = FakeSession(tmp_path, FakeJudge(cost, wrong=lambda _: "wrong"))
    with pytest.raises(KLineageError, match="not accepted"):
        start(session, "fake", tmp_path / "work")


@pytest.mark.parametrize("new", [NAIVE, NAIVE.replace("def run", "# better\ndef run")], ids=["same", "comment"])
def test_unchanged_kernel_costs_no_try(folder, session, judge, new):
    (folder / "kernel.py").write_text(new)
    done = submit(session, "fake")
    assert not done.kept and "unchanged" in done.reason and done.state.left == 3
    assert len(judge.judged) == 1


def test_kernel_judged_before_costs_no_try(folder, session, judge):
    edit(folder, "BLOCK=256", "BLOCK=128")
    assert submit(session, "fake").state.left == 2
    again = submit(session, "fake")
    assert "judged before as try 1" in again.reason and again.state.left == 2
    assert len(judge.judged) == 2


def test_wrong_kernel_costs_a_try_and_says_why(folder, session):
    edit(folder, "BLOCK=256", "BLOCK=7")
    done = submit(session, "fake", "odd block")
    assert not done.kept and "rejected_numeric" in done.reason and done.state.left == 2
    assert "odd block" in (folder / "HISTORY.md").read_text()
    assert "BLOCK=7" in (folder / "kernel.py").read_text(), "the agent's file was overwritten"


def test_faster_kernel_is_kept_and_becomes_the_one_to_beat(folder, session):
    edit(folder, "num_stages=1", "num_stages=3")
    done = submit(session, "fake", "three stages")
    assert done.kept and "2.00x faster" in done.reason
    assert (folder / "best.py").read_text() == (folder / "kernel.py").read_text()
    edit(folder, "num_stages=3", "num_stages=1, num_warps=8")
    assert not submit(session, "fake").kept
    assert "2.00x the start" in status_text(status(session.store, "fake", "sm_90"), session.store)


def test_budget_is_kept_in_the_store_not_in_the_folder(folder, session):
    for block in (32, 64, 128):
        edit(folder, "BLOCK=256", f"BLOCK={block}")
        submit(session, "fake")
    for file in folder.iterdir():
        file.write_text(file.read_text().replace("0 of 3", "3 of 3"))
    edit(folder, "BLOCK=256", "BLOCK=512")
    with pytest.raises(KLineageError, match="budget of 3 tries is spent"):
        submit(session, "fake")


def test_guide_names_the_contract_the_store_and_the_commands(folder, session):
    guide = (folder / "AGENTS.md").read_text()
    for part in ("run(x)", "n=4096", "no torch operator", "klineage agent submit fake --target sm_90 --store "):
        assert part in guide
    assert session.store.location in guide


def test_skills_are_those_of_the_best_kernel(folder, session):
    assert "`launch@run" in (folder / "SKILLS.md").read_text()
    edit(folder, "num_stages=1", "num_stages=3")
    submit(session, "fake")
    assert "`launch@run" not in (folder / "SKILLS.md").read_text()


# ------------------------------------------------------------------------------------------------------ the desk


@pytest.mark.parametrize("given", ["0123456789abcdef", "/etc/passwd", "../outside.py", "missing.py"])
def test_what_is_no_kernel_is_refused(session, tmp_path, given):
    (tmp_path.parent / "outside.py").write_text("secret = 1\n")
    with pytest.raises(KernelError, match="is no kernel"):
        Desk(session).kernel(given, tmp_path)


def test_kernel_is_found_by_text_id_and_file(session, tmp_path):
    desk = Desk(session)
    (tmp_path / "k.py").write_text(NAIVE)
    session.store.put_kernel(Kernel(source=NAIVE))
    ids = {desk.kernel(g, tmp_path).id for g in (NAIVE, Kernel(source=NAIVE).id, "k.py")}
    assert ids == {Kernel(source=NAIVE).id}


def test_skill_that_does_not_hold_is_refused_with_what_is_missing(session):
    rule = Precondition(predicate="kernel_family_is", args={"family": "dot"}, statement="it is of the dot family")
    desk = Desk(session, [make("software_pipelining", {}, preconditions=(rule,))])
    with pytest.raises(KLineageError, match=r"does not apply: .*it is of the dot family"):
        desk.apply("fake", Kernel(source=NAIVE), "software_pipelining")
    with pytest.raises(KLineageError, match=r"no skill 'nothing'.*software_pipelining"):
        desk.apply("fake", Kernel(source=NAIVE), "nothing")


def test_skill_is_applied_and_shown_as_a_short_diff(session):
    before = Kernel(source=NAIVE)
    candidate, made = Desk(session).apply("fake", before, "software_pipelining")
    diff = text.diff_text(before.source, made.source)
    assert "+" in diff and len(diff) < len(NAIVE)
    assert session.store.get_kernel(made.id) is not None and candidate.skill.name == "software_pipelining"


def test_submissions_at_once_share_the_budget(folder, session, judge):
    kernels = []
    for block in (32, 64, 128, 512, 1024):
        kernels.append(folder / f"mine{block}.py")
        kernels[-1].write_text((folder / "best.py").read_text().replace("BLOCK=256", f"BLOCK={block}"))

    def attempt(kernel: Path) -> str:
        try:
            submit(session, "fake", kernel=kernel)
        except KLineageError as error:
            return error.message
        return ""

    with ThreadPoolExecutor(len(kernels)) as pool:
        answers = list(pool.map(attempt, kernels))
    assert sorted(bool(a) for a in answers) == [False, False, False, True, True]
    assert all("budget of 3" in a for a in answers if a)
    state = status(session.store, "fake", "sm_90")
    assert (state.spent, len(state.tries), len(judge.judged)) == (3, 3, 4)
