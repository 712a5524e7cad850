"""A model proposes and the gate decides: walks and searches with a model, bad answers first, free moves, replay."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

from fakes import SOURCE, FakeJudge, cost, option
from model_server import NOTHING, ModelServer, fail, prompt_of, propose, say
from values import skill

from klineage.errors import KLineageError
from klineage.induce import ProbePlan, induce
from klineage.llm import LlmBudget, UnseenPromptError
from klineage.model import Kernel, Precondition, Status, WalkEnd
from klineage.optimize import optimize
from klineage.propose.free import alike, free_name, simpler
from klineage.propose.make import ProposerChoice, make_proposer
from klineage.store import open_store
from klineage.walk import WalkBudget, walk

KEY = "sk-very-secret-0123456789"
NAIVE = SOURCE.replace(", num_warps=8, num_stages=3", ", num_stages=1")
STAGES_OUT = {"move": "software_pipelining", "intent": "one stage", "site": "launch@run:16",
              "edits": [{"find": "num_stages=3", "replace": "num_stages=1"}]}  # fmt: skip
DOUBLED = SOURCE.replace("        x = tl.load", "        cols = cols + 0\n        x = tl.load")  # an "optimisation"
UNDOUBLE = {"intent": "add an offset to every column", "site": "loop@copy:8",
            "edits": [{"find": "        cols = cols + 0\n", "replace": ""}]}  # fmt: skip
WRONG_VALUES = "row 0: error 0.51 > allowed 0.01 (3 of 3 rows)"
LOAD = "        x = tl.load"
REDOUBLE = {"intent": "add the offset", "edits": [{"find": LOAD, "replace": "        cols = cols + 0\n" + LOAD}]}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


def proposer_of(server: ModelServer | None, store, **options):
    address = server.address if server else None
    return make_proposer(ProposerChoice("anthropic:some-model", address, **options), store)


def walked(script, store, judge=None, source=SOURCE, steps=40, **options):
    with ModelServer(script) as server:
        proposer = proposer_of(server, store, **options)
        lineage = walk(judge or FakeJudge(cost), store, Kernel(source=source), WalkBudget(steps), None, proposer)
        proposer.close()
    return lineage, server


def searched(script, store, judge, skills=(), budget=10, **options):
    with ModelServer(script) as server:
        proposer = proposer_of(server, store, **options)
        report = optimize(judge, store, Kernel(source=NAIVE), list(skills), budget, None, proposer)
        proposer.close()
    return report, server


# -------------------------------------------------------------------------------------------- bad answers, backward

RUBBISH = [
    pytest.param(say("I'm sorry, I can't."), "refused", id="refusal"),
    pytest.param(say("```python\nimport", finish="length"), "truncated", id="truncated"),
    pytest.param(say("```python\na=1\n```\n```python\nb=2\n```"), "several_code_blocks", id="two code blocks"),
    pytest.param(propose(intent="x", edits=[{"find": "nowhere", "replace": ""}]), "edit_does_not_apply", id="edit"),
    pytest.param(propose(intent="x", source=SOURCE), "unchanged", id="unchanged"),
    pytest.param(propose(intent="x", source="def run(:"), "syntax_error", id="syntax"),
    pytest.param(say("Looks fine."), "no_code", id="words"),
    pytest.param(fail("400"), "request_refused", id="bad request"),
]


@pytest.mark.parametrize(("turn", "outcome"), RUBBISH)
def test_bad_answers_cost_no_gate_run_and_end_the_walk_in_order(store, turn, outcome):
    judge = FakeJudge(cost)
    lineage, _ = walked([turn], store, judge)
    assert len(judge.judged) == 1  # the expert alone
    assert lineage.end is WalkEnd.PROPOSER and "3 answers in a row" in lineage.note
    assert [s.outcome for s in lineage.spent] == [outcome] * 3
    assert {r.kind for r in lineage.refusals} == {"unusable"}


def test_bad_answers_cost_no_gate_run_and_end_the_search_in_order(store):
    judge = FakeJudge(cost)
    report, _ = searched([say("I can't."), propose(intent="x", source=NAIVE), say("")], store, judge)
    assert len(judge.judged) == 1
    assert report.best_kernel == report.start_kernel
    assert [t.reason.split(":")[0] for t in report.tries] == ["refused", "unchanged", "empty"]


def test_kernel_that_the_gate_turns_down_is_told_to_the_model(store):
    judge = FakeJudge(cost, wrong=lambda s: WRONG_VALUES if "num_stages=1" in s else "")
    lineage, server = walked([propose(**STAGES_OUT), NOTHING], store, judge)
    assert not lineage.steps
    told = prompt_of(server.requests[1])
    assert "error far above what is allowed" in told and "0.51" not in told
    assert "one stage" in told


def test_what_is_not_simpler_is_not_judged(store):
    judge = FakeJudge(cost)
    longer = SOURCE.replace("num_stages=3", "num_stages=4")
    lineage, _ = walked([propose(intent="more stages", source=longer), NOTHING], store, judge)
    assert len(judge.judged) == 1
    assert [r.kind for r in lineage.refusals] == ["not_simpler"]


# ---------------------------------------------------------------------------------------------------- the walk


def test_walk_with_a_model_gives_the_steps_that_the_moves_give(store):
    script = [propose(**STAGES_OUT), propose(move="warps", intent="default warps"), NOTHING]
    lineage, _ = walked(script, store)
    by_moves = walk(FakeJudge(cost), store, Kernel(source=SOURCE))
    assert {s.move: s.speedup for s in lineage.steps} == pytest.approx(
        {s.move: s.speedup for s in by_moves.steps if s.move in ("software_pipelining", "warps")}
    )
    assert all(s.is_skill and s.proposer == "llm:anthropic:some-model" for s in lineage.steps)
    assert lineage.steps[0].params["num_stages"] == "3"


def test_wrong_name_of_a_move_is_put_right(store):
    lineage, _ = walked([propose(**{**STAGES_OUT, "move": "split_k"}), NOTHING], store)
    assert [s.move for s in lineage.steps] == ["software_pipelining"]


def test_prompt_holds_kernel_sites_vocabulary_refusals_and_contract(store):
    _, server = walked([propose(**STAGES_OUT), NOTHING], store)
    first, second = prompt_of(server.requests[0]), prompt_of(server.requests[1])
    for part in (
        "tl.store(y_ptr + cols, x, mask=cols < n)",
        "loop@copy",
        "`tile_size`",
        "In this kernel at launch@run:16",
        "contract of a simplif",
    ):
        assert part in first
    assert "Taken out so far" not in first
    assert "software_pipelining: " in second and "2.00x slower without it" in second


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        pytest.param({"budget": LlmBudget(exchanges=1)}, WalkEnd.PROPOSER_BUDGET, id="exchanges"),
        pytest.param({"budget": LlmBudget(tokens=1500)}, WalkEnd.PROPOSER_BUDGET, id="tokens"),
    ],
)
def test_spent_budget_names_the_end_and_keeps_the_steps(store, limits, end):
    lineage, _ = walked([propose(**STAGES_OUT)], store, **limits)
    assert lineage.end is end and "budget" in lineage.note
    assert len(lineage.steps) == 1 and len(lineage.spent) == 1


def test_budget_of_steps_is_the_walks_own(store):
    lineage, _ = walked([propose(**STAGES_OUT)], store, steps=1)
    assert lineage.end is WalkEnd.STEP_BUDGET


# ---------------------------------------------------------------------------------------------------- free moves


def free_cost(source: str) -> float:
    return cost(source) * (1.0 if "cols + 0" in source else 1.3)


def walked_free(store, expert=DOUBLED, intent=UNDOUBLE["intent"]):
    script = [propose(**{**UNDOUBLE, "intent": intent}), propose(**REDOUBLE), NOTHING]
    return walked(script, store, FakeJudge(free_cost), expert)


def test_free_move_is_a_step_that_the_model_inverts_without_seeing_the_expert(store):
    lineage, server = walked_free(store)
    (step,) = lineage.steps
    assert step.move == "free:offset-column"
    assert step.is_skill and step.speedup == pytest.approx(1.3)
    asked = prompt_of(server.requests[1])
    assert UNDOUBLE["intent"] in asked and "cols + 0" not in asked


def test_free_move_whose_inverse_fails_stays_a_step(store):
    lineage, _ = walked([propose(**UNDOUBLE), say("I can't."), NOTHING], store, FakeJudge(free_cost), DOUBLED)
    (step,) = lineage.steps
    assert not step.is_skill and "can't" in step.skill_refused
    assert lineage.end is WalkEnd.PROPOSER


def test_free_steps_become_one_skill_that_a_model_applies(store):
    first, _ = walked_free(store)
    renamed = DOUBLED.replace("def copy", "def copy_all").replace("copy[(1,)]", "copy_all[(1,)]")
    second, _ = walked_free(store, renamed, "adding the offset to each of the columns")
    second = second.model_copy(update={"task": "other"})
    judge = FakeJudge(free_cost)
    skills = induce([first, second], lambda _: judge, store, ProbePlan.light())
    (free,) = [s for s in skills if s.move.startswith("free:")]
    assert free.sources == ("fake", "other") and free.intent == UNDOUBLE["intent"]
    assert free.expected_speedup == pytest.approx(1.3)
    # the moves cannot apply it, and say so
    report = optimize(FakeJudge(free_cost), store, Kernel(source=NAIVE), [free])
    assert "a model must" in report.tries[0].reason
    # a model is told of it, anchored here, and applies it
    report, server = searched([propose(skill=free.name, **REDOUBLE), NOTHING], store, FakeJudge(free_cost), [free])
    told = prompt_of(server.requests[0])
    assert free.name in told and "kernel@copy" in told and "give the code" in told
    assert [(t.skill, t.decision) for t in report.tries] == [(free.name, "kept")]


def test_intents_that_differ_are_not_merged():
    assert alike("unroll the inner loop by four", "unrolled inner loops, four times")
    assert not alike("unroll the inner loop by four", "keep the row in shared memory")
    assert free_name("Unroll the inner loop by four") == "free:unroll-inner-loop-four"


def test_a_free_move_must_shrink_the_kernel_and_may_not_raise_what_moves_find():
    assert simpler(SOURCE, DOUBLED, free=True) and not simpler(DOUBLED, SOURCE, free=True)
    assert not simpler(SOURCE, DOUBLED, free=False)
    fewer_lines_more_stages = SOURCE.replace("num_warps=8, num_stages=3", "num_stages=5, num_warps=8")
    assert not simpler(fewer_lines_more_stages, SOURCE, free=True)


# ---------------------------------------------------------------------------------------------------- the search


def make(move: str, carriers, **changes):
    return skill(**{"name": move, "move": move, "carriers": carriers, "preconditions": (), "requires": (), **changes})


STAGES = make("software_pipelining", {"num_stages": ("3",)})
WARPS = make("warps", {"num_warps": ("8",)})


def test_search_is_told_three_skills_that_hold_and_what_the_others_lack(store):
    rule = Precondition(
        predicate="kernel_family_is", args={"family": "dot"}, statement="the kernel is of the dot family"
    )
    lacking = make("warps", {"num_warps": ("16",)}, name="warps-dot", preconditions=(rule,))
    report, server = searched([NOTHING], store, FakeJudge(cost), [STAGES, WARPS, lacking])
    told = prompt_of(server.requests[0])
    held, nearly = told.split("## Skills that nearly hold")
    assert "### software_pipelining" in held and "num_stages = 3" in held and "`launch@run:16`" in held
    assert "Effect seen: " in held and "did harm in 1" in held and "Risk: spills" in held
    assert "warps-dot" in nearly.split("## Moves")[0] and "the kernel is of the dot family" in nearly
    assert "modelled" in told and "decided by" not in told.split("## Its verdict")[0]
    assert report.end == "the model has nothing more to propose"


def test_skill_named_without_code_is_applied_by_its_move(store):
    script = [propose(skill="software_pipelining"), propose(skill="warps"), NOTHING]
    report, _ = searched(script, store, FakeJudge(cost), [STAGES, WARPS])
    assert report.speedup == pytest.approx(3.0)
    assert [t.decision for t in report.tries] == ["kept", "kept"]


def test_code_of_the_models_own_is_judged_like_any(store):
    faster = propose(intent="three stages", edits=[{"find": "num_stages=1", "replace": "num_stages=3"}])
    worse = propose(intent="fewer columns", edits=[{"find": "BLOCK=256", "replace": "BLOCK=128"}])
    report, _ = searched([faster, worse, NOTHING], store, FakeJudge(cost))
    assert [t.decision for t in report.tries] == ["kept", "refused"]
    assert report.speedup == pytest.approx(2.0)
    assert report.proposer == "llm:anthropic:some-model" and len(report.spent) == 3


def test_kernel_judged_before_is_not_judged_again(store):
    judge = FakeJudge(cost)
    worse = propose(intent="fewer columns", edits=[{"find": "BLOCK=256", "replace": "BLOCK=128"}])
    report, _ = searched([worse], store, judge)
    assert len(judge.judged) == 2
    assert report.tries[1].reason.startswith("unchanged")


def test_budget_of_tries_bounds_the_gate_runs(store):
    judge = FakeJudge(lambda _: 100.0)
    turns = [propose(intent=f"{n}", edits=[{"find": "BLOCK=256", "replace": f"BLOCK={n}"}]) for n in (32, 64, 128, 512)]
    report, _ = searched(turns, store, judge, budget=2)
    assert len(judge.judged) == 3 and "budget of 2" in report.end


# ---------------------------------------------------------------------------------------------- evidence and replay


def test_walk_is_replayed_offline_and_a_strange_prompt_fails(store, tmp_path, monkeypatch):
    lineage, _ = walked([propose(**STAGES_OUT), NOTHING], store, record=tmp_path / "record")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    other = open_store(str(tmp_path / "other.db"))
    again = make_proposer(ProposerChoice(replay=tmp_path / "record"), other)
    repeated = walk(FakeJudge(cost), other, Kernel(source=SOURCE), None, None, again)
    assert [s.simpler for s in repeated.steps] == [s.simpler for s in lineage.steps]
    assert sum(s.requests for s in repeated.spent) == 0
    strange = make_proposer(ProposerChoice(replay=tmp_path / "record"), other)
    with pytest.raises(UnseenPromptError, match="replay"):
        walk(FakeJudge(cost), other, Kernel(source=NAIVE.replace("256", "512")), None, None, strange)
    other.close()


def test_walking_again_asks_nothing_anew(store):
    walked([propose(**STAGES_OUT), NOTHING], store)
    again, server = walked([say("never")], store)
    assert server.requests == [] and len(again.steps) == 1


def test_exchanges_are_evidence_and_hold_no_key(store, tmp_path):
    walked([fail("500", retry_after="0"), propose(**STAGES_OUT), NOTHING], store)
    kept = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert any("one stage" in f.read_text(errors="replace") for f in kept if "artifacts" in f.parts)
    assert not [f for f in kept if KEY.encode() in f.read_bytes()]


def test_record_of_no_model_cannot_be_replayed(store, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(KLineageError, match="holds no model"):
        make_proposer(ProposerChoice(replay=tmp_path / "empty"), store)


def test_no_choice_is_the_moves(store):
    assert make_proposer(None, store).name == "moves"
    assert (
        Status.ACCEPTED is FakeJudge(cost).judge(Kernel(source=SOURCE)).status and option(SOURCE, "num_stages", 0) == 3
    )
