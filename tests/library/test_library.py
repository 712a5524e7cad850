"""Skills round-trip through their files; a bad file is one error that names file and field."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import values
from hypothesis import given, settings
from hypothesis import strategies as st

from klineage.library import LibraryError, file_stem, load_library, load_skill, save_skill, skill_to_text
from klineage.model import Effect, Precondition, Provenance, Risk, Skill, SkillStatus, Standing

BAD = [
    ("name = ", "is not TOML"),
    ('name = "a"\nstatus = "hypothesis"\n', "move: Field required"),
    ("TEXT_WITH status = 'sure'", "status: Input should be"),
    ("TEXT_WITH colour = 'red'", "colour: Extra inputs"),
    ("TEXT_WITH evidence = []", "evidence"),
    ("TEXT_WITH effects = [{ context = 'c' }]", "effects.0.optimised_us: Field required"),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[says for _, says in BAD])
def test_bad_file_names_file_and_field(tmp_path, text, says):
    path = tmp_path / "bad.toml"
    path.write_text(changed_sample(text.removeprefix("TEXT_WITH ")) if text.startswith("TEXT_WITH") else text)
    with pytest.raises(LibraryError, match=says) as caught:
        load_skill(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def changed_sample(assignment: str) -> str:
    """The sample skill's text with one top-level key set otherwise."""
    key = assignment.split(" = ", maxsplit=1)[0]
    data = tomllib.loads(skill_to_text(values.skill(effects=(), preconditions=(), negative=(), risks=())))
    lines = [f"{k} = {v!r}" for k, v in data.items() if k not in (key, "carriers")]
    return "\n".join([*lines, assignment, "[carriers]"])


def test_verified_without_a_measured_effect_is_refused(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(skill_to_text(values.skill()).replace('status = "hypothesis"', 'status = "verified"'))
    with pytest.raises(LibraryError, match="only by a measured effect"):
        load_skill(path)


def test_binary_file_is_one_clear_error(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LibraryError, match="is not TOML"):
        load_skill(path)


def test_missing_path_is_one_clear_error(tmp_path):
    with pytest.raises(LibraryError, match="no skills at"):
        load_library([tmp_path / "nowhere"])


def test_one_name_in_two_files_is_refused(tmp_path):
    save_skill(values.skill("a"), tmp_path)
    (tmp_path / "copy.toml").write_text((tmp_path / "a.toml").read_text())
    with pytest.raises(LibraryError, match=r"skill a stands in both .*a\.toml and .*copy\.toml"):
        load_library([tmp_path])


def test_another_skill_is_not_overwritten(tmp_path):
    save_skill(values.skill("Split K"), tmp_path)
    with pytest.raises(LibraryError, match="already holds another skill"):
        save_skill(values.skill("split-k"), tmp_path)


def test_unwritable_folder_is_one_clear_error():
    with pytest.raises(LibraryError, match="cannot write skill"):
        save_skill(values.skill(), Path("/proc/klineage"))


def test_saved_skills_load_by_name(tmp_path):
    skills = [values.skill("b"), values.skill("a"), values.skill("c", preconditions=(), carriers={}, effects=())]
    for skill in skills:
        save_skill(skill, tmp_path)
    assert load_library([tmp_path]) == sorted(skills, key=lambda s: s.name)
    assert load_library([tmp_path / "a.toml"]) == [skills[1]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.toml", "b.toml", "c.toml"]


def test_shipped_library_loads():
    assert all(isinstance(skill, Skill) for skill in load_library())


def test_text_is_for_review():
    text = skill_to_text(values.skill(evidence=tuple(f"{i:016x}" for i in range(40))))
    assert max(len(line) for line in text.splitlines()) <= 160
    assert '  { context = "sm_90/fp16/16384x8192", optimised_us = 135.0, simpler_us = 153.0,' in text
    assert len(text.splitlines()) < 60
    assert text.index("[carriers]") < text.index("[[preconditions]]")


@pytest.mark.parametrize(
    ("name", "stem"), [("one-pass-row", "one-pass-row"), ("Split K/../x", "split-k-..-x"), ("../..", "skill")]
)
def test_file_name_stays_in_the_folder(name, stem):
    assert file_stem(name) == stem


text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
number = st.floats(min_value=1e-9, max_value=1e12) | st.just(float("inf"))
effects = st.builds(
    Effect,
    context=text,
    optimised_us=number,
    simpler_us=number,
    provenance=st.sampled_from([Provenance.MEASURED, Provenance.MODELLED]),
    interval=st.none() | st.tuples(number, number),
)
preconditions = st.builds(
    Precondition,
    predicate=text,
    args=st.dictionaries(text, text, max_size=3),
    statement=text,
    standing=st.just(Standing.BOUNDED),
    sweep=st.lists(st.tuples(text, number), min_size=1, max_size=4).map(tuple),
) | st.builds(
    Precondition,
    predicate=text,
    statement=text,
    standing=st.sampled_from([Standing.PROVEN, Standing.ASSUMED]),
    counterexample=text.filter(bool),
)
words = st.lists(text, max_size=4).map(tuple)
skills = st.builds(
    Skill,
    name=text,
    move=text,
    intent=text,
    anchors=words,
    carriers=st.dictionaries(text, words, max_size=3),
    preconditions=st.lists(preconditions, max_size=3).map(tuple),
    effects=st.lists(effects, max_size=3).map(tuple),
    risks=st.lists(st.builds(Risk, what=text, case=text, verdict=text, kind=text), max_size=2).map(tuple),
    negative=st.lists(effects, max_size=2).map(tuple),
    evidence=st.lists(text, min_size=1, max_size=30).map(tuple),
    sources=words,
    requires=words,
    scope=words,
    status=st.sampled_from([SkillStatus.HYPOTHESIS, SkillStatus.DEMOTED]),
    status_reason=text,
)


@settings(max_examples=150, deadline=None)
@given(skills)
def test_any_skill_comes_back_from_its_text(skill):
    assert Skill.model_validate(tomllib.loads(skill_to_text(skill))) == skill
