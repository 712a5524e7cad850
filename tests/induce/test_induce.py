"""Steps turned round: merging, carriers, effects with their sign, and conditions that probing earns."""

import pytest
from fakes import SOURCE, FakeJudge, cost, option

from klineage.errors import KLineageError
from klineage.induce import ProbePlan, induce
from klineage.induce.probe import variants
from klineage.model import Case, CaseRole, Kernel, Standing
from klineage.store import open_store
from klineage.walk import walk

PLAN = ProbePlan(scales=(0.25, 2.0), dtypes=("bf16",), targets=("sm_80",))


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


def test_no_lineage_is_an_error_that_says_what_to_do(store):
    with pytest.raises(KLineageError, match="klineage walk"):
        induce([], lambda _: FakeJudge(cost), store)


def test_skill_carries_values_effects_and_evidence(store):
    judge = FakeJudge(cost)
    skills = induce([walk(judge, store, Kernel(source=SOURCE))], lambda _: judge, store, PLAN)
    by_move = {s.move: s for s in skills}
    stages = by_move["software_pipelining"]
    assert "3" in stages.carriers["num_stages"]
    assert stages.expected_speedup == pytest.approx(2.0)
    assert stages.evidence and stages.sources == ("fake",)
    assert stages.status == "hypothesis"
    assert {s.name for s in store.skills()} == {s.name for s in skills}


def test_sweep_covers_shapes_dtypes_and_targets(store):
    judge = FakeJudge(cost)
    skills = induce([walk(judge, store, Kernel(source=SOURCE))], lambda _: judge, store, PLAN)
    scope = " ".join(next(s.scope for s in skills if s.move == "warps"))
    assert "n=1024" in scope and "dtype=bf16" in scope and "sm_80/" in scope


def test_harm_in_the_sweep_becomes_negative_evidence_and_a_bound(store):
    from fakes import launch_report

    class Shaped(FakeJudge):
        """Pipelining pays at the task's size and harms small grids."""

        def profile(self, kernel, cases, target=None):
            found = []
            for case, (timed, _, why) in zip(cases, super().profile(kernel, cases, target), strict=True):
                n = case.params["n"]
                slow = 2.0 if (option(kernel.source, "num_stages", 3) == 1) == (n >= 4096) else 1.0
                latency = timed.latency.model_copy(update={"value": 50.0 * slow})
                reports = (launch_report(kernel="copy", grid=(n, 1, 1)),)
                found.append((timed.model_copy(update={"latency": latency}), reports, why))
            return found

    judge = Shaped(cost)
    skills = induce([walk(judge, store, Kernel(source=SOURCE))], lambda _: judge, store, PLAN)
    stages = next(s for s in skills if s.move == "software_pipelining")
    assert [e.context for e in stages.negative] == ["sm_90/fake/big[n=1024]"]
    bound = [p for p in stages.preconditions if p.standing is Standing.BOUNDED]
    assert bound and bound[0].args["feature"] == "programs" and bound[0].predicate == "feature_at_least"


@pytest.mark.parametrize(
    ("params", "names"),
    [
        pytest.param({"n": 4096}, {"big[n=1024]", "big[n=8192]"}, id="one dimension"),
        pytest.param({"n": 4096, "causal": True}, {"big[n=1024]", "big[n=8192]"}, id="flags stay"),
        pytest.param({"n": 2**16, "m": 2**13}, {"big[n=16384]", "big[m=2048]"}, id="too big is left out"),
    ],
)
def test_variants_scale_one_dimension_at_a_time(params, names):
    case = Case(name="big", params=params, role=CaseRole.BENCH)
    plan = ProbePlan(scales=(0.25, 2.0), dtypes=(), max_elements=2**29 + 1 if len(params) < 2 else 2**29)
    assert {c.name for c in variants(case, plan)} == names
