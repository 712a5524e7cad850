"""The command line: bad input is one clear line and the right exit status; results are pages or JSON alone."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import values

import klineage
from klineage.cli.app import INTERNAL_ERROR, STOPPED, run
from klineage.errors import KernelError, PackageError, TaskError
from klineage.library import save_skill
from klineage.model import Provenance, Status
from klineage.model.optimize import HeldOut, OptimizeReport, QuickstartReport, RecoverReport, Try, VerifyReport
from klineage.store import open_store


class FakeApi(types.ModuleType):
    """Stands for klineage.api: answers from ``answers`` (raising what is an exception) and records the calls."""

    def __init__(self) -> None:
        super().__init__("klineage.api")
        self.calls: list[tuple[str, dict[str, object]]] = []
        self.answers: dict[str, object] = {}
        for name in ("walk", "induce", "optimize", "recover", "verify", "gate", "quickstart"):
            setattr(self, name, self._function(name))

    def _function(self, name):
        def call(*arguments, **named):
            self.calls.append((name, {**dict(enumerate(arguments)), **named}))
            named["progress"].start("work", 2)
            named["progress"].step("half")
            named["progress"].done()
            answer = self.answers[name]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call


@pytest.fixture
def api(monkeypatch, tmp_path):
    fake = FakeApi()
    monkeypatch.setitem(sys.modules, "klineage.api", fake)
    monkeypatch.setattr(klineage, "api", fake, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # the test runner sets it for its workers
    return fake


def tries():
    kept = Try(index=0, skill="one-pass-row", move="one_pass_row", site="loop@k:3", decision="kept",
               reason="13% faster", before_us=150, after_us=130)  # fmt: skip
    return (kept, kept.model_copy(update={"index": 1, "decision": "refused", "reason": "[slower]", "after_us": None}))


def optimize_report(**changes):
    report = OptimizeReport(task="layer_norm", target="sm_90", mode=Provenance.MODELLED, start_kernel="a",
                            best_kernel="b", start_us=150, best_us=130, tries=tries())  # fmt: skip
    return report.model_copy(update=changes)


def recover_report():
    return RecoverReport(task="rms_norm", target="sm_90", mode=Provenance.MODELLED, expert_us=130, naive_us=150,
                         recovered_us=132, tries=tries())  # fmt: skip


def hostile_directory(path):
    path.mkdir()
    return str(path)


def hostile_text(path):
    path.write_text("not a database, surely")
    return str(path)


BAD_INPUT = [
    ("unknown-target", ["walk", "rms_norm", "--target", "sm_13"], 2, "unknown target 'sm_13' — choose one of sm_80"),
    ("missing-argument", ["walk"], 2, "Missing argument"),
    ("unknown-option", ["walk", "rms_norm", "--fast"], 2, "--fast"),
    ("unknown-command", ["run", "rms_norm"], 2, "run"),
    ("budget-not-a-number", ["optimize", "rms_norm", "--budget", "many"], 2, "'--budget'"),
    ("budget-zero", ["optimize", "rms_norm", "--budget", "0"], 2, "'--budget'"),
    ("jobs-negative", ["walk", "rms_norm", "--jobs", "-1"], 2, "'--jobs'"),
    ("store-url", ["skills", "list", "--store", "mysql://h/db"], 3, "store URL names 'mysql'"),
    ("store-under-proc", ["skills", "list", "--store", "/proc/none/store.db"], 3, "cannot make the store's folder"),
    ("no-such-skill", ["skills", "explain", "speed"], 2, "no skill 'speed'"),
    ("no-such-move", ["moves", "show", "speed"], 2, "unknown move 'speed'"),
    ("no-walk-yet", ["lineage", "show", "rms_norm"], 2, "no walk of task rms_norm on sm_90"),
    ("no-such-library", ["skills", "list", "--library", "nowhere"], 2, "no skills at nowhere"),
]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize(("arguments", "status", "says"), [c[1:] for c in BAD_INPUT], ids=[c[0] for c in BAD_INPUT])
def test_bad_input_is_one_line_and_its_status(api, capsys, arguments, status, says, as_json):
    assert run([*arguments, *(["--json"] if as_json else [])]) == status
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert says in err
    assert api.calls == []
    if as_json:
        assert json.loads(out)["error"]["exit_status"] == status
    else:
        assert out == ""


@pytest.mark.parametrize("make", [hostile_directory, hostile_text], ids=["directory", "text-file"])
def test_hostile_store_stops_before_any_work(api, capsys, tmp_path, make):
    assert run(["walk", "rms_norm", "--store", make(tmp_path / "s")]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert api.calls == []


RAISED = [
    (TaskError("no task 'x'", "see tasks/"), 2, "error: no task 'x' — see tasks/"),
    (PackageError("liger_kernel is not installed", "pip install liger-kernel"), 2, "pip install liger-kernel"),
    (KernelError("k.py line 3: invalid\n  syntax"), 2, "error: k.py line 3: invalid syntax"),
    (KeyboardInterrupt(), 130, STOPPED),
    (ZeroDivisionError("a\nb [/red]"), INTERNAL_ERROR, "internal error: ZeroDivisionError: a b [/red]; rerun with"),
]


@pytest.mark.parametrize(("error", "status", "says"), RAISED, ids=[type(e).__name__ for e, _, _ in RAISED])
def test_what_work_raises_is_one_line_and_its_status(api, capsys, error, status, says):
    api.answers["gate"] = error
    assert run(["gate", "rms_norm", "k.py", "--json"]) == status
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line and not line.startswith("work")]
    assert len(lines) == 1
    assert says in lines[0]
    assert json.loads(out)["error"]["exit_status"] == status


@pytest.mark.parametrize("place", [0, 1, 3], ids=["before", "after-command", "last"])
def test_debug_shows_the_traceback_wherever_it_stands(api, place):
    api.answers["gate"] = ZeroDivisionError("x")
    arguments = ["gate", "rms_norm", "k.py"]
    with pytest.raises(ZeroDivisionError):
        run([*arguments[:place], "--debug", *arguments[place:]])


def test_gate_of_a_rejected_kernel_exits_1_and_shows_why(api, capsys):
    api.answers["gate"] = values.verdict(Status.REJECTED_NUMERIC, reason="wrong at [n=257]")
    assert run(["gate", "rms_norm", "k.py"]) == 1
    out = capsys.readouterr().out
    assert "rejected_numeric" in out
    assert "wrong at [n=257]" in out


def test_gate_of_an_accepted_kernel_exits_0_and_shows_the_arithmetic(api, capsys):
    api.answers["gate"] = values.verdict()
    assert run(["gate", "rms_norm", "k.py", "--target", "90"]) == 0
    out = capsys.readouterr().out
    for expected in ("accepted", "135 us (modelled)", "537 MB / (4800 GB/s x 0.83)", "decided by dram", "FFMA 32"):
        assert expected in out
    assert api.calls[0][1]["target"] == "sm_90"


def test_walk_shows_the_tree_with_each_effect(api, capsys):
    api.answers["walk"] = values.lineage()
    assert run(["walk", "rms_norm", "--steps", "3", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count("×1.13 slower without it (modelled)") == 3
    assert "the naive end" in out
    assert "split-k" not in out
    assert api.calls[0][1]["budget"].steps == 3
    assert api.calls[0][1]["jobs"] == 1


def test_walk_shows_refusals_when_asked(api, capsys):
    api.answers["walk"] = values.lineage()
    assert run(["walk", "rms_norm", "--refused"]) == 0
    assert "refused split-k at dot@_mm:3: no K loop (unsupported)" in capsys.readouterr().out


def test_induce_writes_files_for_review(api, tmp_path):
    api.answers["induce"] = [values.skill("a"), values.skill("b")]
    assert run(["induce", "rms_norm", "softmax", "--out", "skills"]) == 0
    assert sorted(p.name for p in (tmp_path / "skills").iterdir()) == ["a.toml", "b.toml"]
    assert api.calls[0][1]["tasks"] == ["rms_norm", "softmax"]


def test_optimize_writes_the_best_kernel(api, capsys, tmp_path):
    kernel = values.kernel("def run(x): return x # best\n")
    with_kernel = open_store(".klineage/store.db")
    with_kernel.put_kernel(kernel)
    with_kernel.close()
    api.answers["optimize"] = optimize_report(best_kernel=kernel.id)
    assert run(["optimize", "layer_norm", "--kernel", "k.py", "--budget", "7", "--out", "best.py"]) == 0
    assert (tmp_path / "best.py").read_text() == kernel.source
    assert "×1.15 (modelled); 1 of 2 tries kept" in capsys.readouterr().out
    assert (api.calls[0][1]["kernel_path"], api.calls[0][1]["budget"]) == ("k.py", 7)


def test_optimize_to_an_unwritable_file_is_one_line(api, capsys):
    kernel = values.kernel()
    with_kernel = open_store(".klineage/store.db")
    with_kernel.put_kernel(kernel)
    with_kernel.close()
    api.answers["optimize"] = optimize_report(best_kernel=kernel.id)
    assert run(["optimize", "layer_norm", "--out", "/proc/none"]) == 2
    assert "error: cannot write /proc/none" in capsys.readouterr().err


def test_recover_prints_the_fraction(api, capsys):
    api.answers["recover"] = recover_report()
    assert run(["recover", "rms_norm"]) == 0
    assert "98.5% of the expert's speed (modelled)" in capsys.readouterr().out


def verify_report() -> VerifyReport:
    better = optimize_report().model_copy(update={"vendor_us": 260.0})
    operators = (HeldOut(task="layer_norm", report=better), HeldOut(task="odd", reason="no kernel to start from"))
    return VerifyReport(
        target="sm_90", mode=Provenance.MODELLED, operators=operators, skills=(values.skill(),), wall_s=7.0
    )


def test_verify_shows_operators_and_how_skills_stand(api, capsys, tmp_path):
    api.answers["verify"] = verify_report()
    assert run(["verify", "--out", str(tmp_path / "lib")]) == 0
    out = capsys.readouterr().out
    for expected in ("layer_norm", "×1.15", "0.50", "no kernel to start from", "hypothesis", "geometric mean ×1.15"):
        assert expected in out
    assert (tmp_path / "lib" / "one-pass-row.toml").exists()


def test_evidence_travels_between_stores(api, capsys):
    store = open_store(".klineage/store.db")
    store.put_verdict(values.verdict())
    store.close()
    assert run(["evidence", "export", "--out", "kept"]) == 0
    assert "1" in capsys.readouterr().out
    assert run(["evidence", "import", "kept", "--store", "other.db", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert (file["verdicts"], file["lineage"]) == (1, False)
    assert run(["evidence", "import", "nowhere.json.gz"]) == 2
    assert "cannot read evidence" in capsys.readouterr().err


def test_quickstart_shows_the_whole_loop(api, capsys):
    api.answers["quickstart"] = QuickstartReport(
        target="sm_90", mode=Provenance.MODELLED, lineages=(values.lineage(),), skills=(values.skill(),),
        optimized=(optimize_report(),), recovered=(recover_report(),), wall_s=99.0,
    )  # fmt: skip
    assert run(["quickstart"]) == 0
    out = capsys.readouterr().out
    for expected in ("the naive end", "one-pass-row", "98.5%", "150 us → 130 us", "[slower]", "every time above is"):
        assert expected in out


JSON_RESULTS = [
    ("walk", ["rms_norm"], values.lineage(), ("steps", 0, "is_skill"), True),
    ("gate", ["rms_norm", "k.py"], values.verdict(), ("latency_us",), pytest.approx(135.0)),
    ("induce", [], [values.skill()], ("skills", 0, "name"), "one-pass-row"),
    ("optimize", ["layer_norm"], optimize_report(), ("speedup",), pytest.approx(150 / 130)),
    ("recover", ["rms_norm"], recover_report(), ("fraction",), pytest.approx(130 / 132)),
]


@pytest.mark.parametrize(
    ("command", "arguments", "answer", "path", "expected"), JSON_RESULTS, ids=[c[0] for c in JSON_RESULTS]
)
def test_json_is_alone_on_stdout(api, capsys, command, arguments, answer, path, expected):
    api.answers[command] = answer
    assert run([command, *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for key in path:
        found = found[key]
    assert found == expected


def test_calls_fit_the_real_api(api):
    """The fake takes anything; the functions it stands for must take the same."""
    answers = {"walk": values.lineage(), "gate": values.verdict(), "induce": [], "optimize": optimize_report(),
               "recover": recover_report(), "quickstart": TaskError("stop here"),
               "verify": verify_report()}  # fmt: skip
    api.answers.update(answers)
    for arguments in (
        ["walk", "t"],
        ["gate", "t", "k"],
        ["induce"],
        ["optimize", "t"],
        ["recover", "t"],
        ["quickstart"],
        ["verify"],
    ):
        run(arguments)
    code = "import klineage.api as a, inspect, json, sys; print(json.dumps({n: list(inspect.signature(getattr(a, n))" \
           ".parameters) for n in sys.argv[1:]}))"  # fmt: skip
    asked = subprocess.run([sys.executable, "-c", code, *answers], capture_output=True, text=True, check=True)
    real = json.loads(asked.stdout)
    for name, given in api.calls:
        positional = [key for key in given if isinstance(key, int)]
        assert {key for key in given if isinstance(key, str)} <= set(real[name][len(positional) :]), name
    assert {name for name, _ in api.calls} == set(answers)


def test_skills_of_a_library_are_listed_shown_and_explained(api, capsys, tmp_path):
    save_skill(values.skill(), tmp_path / "lib")
    for command in (["list"], ["show", "one-pass-row"], ["explain", "one-pass-row"]):
        assert run(["skills", *command, "--library", "lib"]) == 0
        assert "one-pass-row" in capsys.readouterr().out
    run(["skills", "explain", "one-pass-row", "--library", "lib"])
    page = capsys.readouterr().out
    for expected in ("counter-example: verdict c0ffee", "256 ×0.98, 512 ×1.20", "a floating type [dtype_in()]: assumed",
                     "BLOCK: 4096, 8192", "spills when the row is long", "rms_norm", "modelled"):  # fmt: skip
        assert expected in page


def test_store_skill_stands_for_a_shipped_one_of_its_name(api, capsys):
    store = open_store(".klineage/store.db")
    store.put_skills([values.skill("mine")])
    store.close()
    assert run(["skills", "show", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "mine"
    assert run(["skills", "show", "mime"]) == 2
    assert "did you mean mine?" in capsys.readouterr().err


def test_lineage_show_takes_the_latest_of_each_task(api, capsys):
    store = open_store(".klineage/store.db")
    for lineage in (values.lineage(naive_us=999.0), values.lineage(naive_us=200.0), values.lineage(task="softmax")):
        store.put_lineage(lineage)
    store.close()
    assert run(["lineage", "show"]) == 0
    out = capsys.readouterr().out
    assert "softmax" in out
    assert "200 us" in out
    assert "999" not in out


def test_moves_are_listed_with_their_conditions(api, capsys):
    assert run(["moves", "list", "--json"]) == 0
    moves = json.loads(capsys.readouterr().out)["moves"]
    assert len({m["name"] for m in moves}) == len(moves) > 0
    assert all(m["doc"] for m in moves)
    assert run(["moves", "show", moves[0]["name"]]) == 0


@pytest.mark.parametrize(
    "arguments", [["--help"], ["walk", "--help"], ["skills", "--help"], ["--version"]], ids=" ".join
)
def test_help_and_version_exit_0(api, capsys, arguments):
    assert run(arguments) == 0
    assert capsys.readouterr().out


def child(code: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_help_loads_nothing_heavy(tmp_path):
    code = (
        "import sys; from klineage.cli.app import run; s = run(['--help']); "
        "print([m for m in ('torch', 'triton', 'sqlalchemy', 'libcst', 'pydantic') if m in sys.modules]); sys.exit(s)"
    )
    out, err = child(code, cwd=tmp_path).communicate(timeout=60)
    assert out.endswith("[]\n"), out + err


NOISY = """
import os, sys, types
fake = types.ModuleType("klineage.api")
def gate(*a, **k):
    print("a library says hello")
    os.write(1, b"a child says hello\\n")
    os.system("echo a shell says hello")
    sys.path.insert(0, sys.argv[1])
    import values
    return values.verdict()
fake.gate = gate
sys.modules["klineage.api"] = fake
import klineage; klineage.api = fake
from klineage.cli.app import main
main(["gate", "rms_norm", "k.py", "--json"])
"""


def test_json_stays_alone_when_libraries_and_children_print(tmp_path):
    process = child(NOISY, str(Path(__file__).parents[1]), cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["status"] == "accepted"
    assert err.count("says hello") == 3


SLOW = """
import sys, time, types
fake = types.ModuleType("klineage.api")
def walk(*a, progress, **k):
    progress.start("walking", 3)
    print("begun", flush=True)
    time.sleep(60)
fake.walk = walk
sys.modules["klineage.api"] = fake
import klineage; klineage.api = fake
from klineage.cli.app import main
main(["walk", "rms_norm"])
"""


def test_ctrl_c_says_that_finished_work_is_kept(tmp_path):
    process = child(SLOW, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-1] == STOPPED
    assert "Traceback" not in err
    assert time.monotonic() - began < 10


def test_reader_that_goes_away_is_no_error(tmp_path):
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "klineage", "moves", "list", "--json"],
        cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(write)
    assert "Traceback" not in process.stderr
    assert "internal error" not in process.stderr


def test_every_command_shares_the_common_options():
    from klineage.cli import look, work

    for command in (work.walk, work.induce, work.optimize, work.recover, work.gate, work.quickstart):
        assert {"target", "store", "json", "jobs"} <= set(inspect.signature(command).parameters), command
    for command in (look.skills_list, look.skills_show, look.skills_explain, look.lineage_show, look.doctor):
        assert {"store", "json"} <= set(inspect.signature(command).parameters), command
