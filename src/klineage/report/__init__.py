"""Rows from values, then rendering with rich. Every figure states its provenance."""

from .forward import optimize_page, quickstart_page, recover_page, tries_table, verify_page
from .lineage import StepRow, lineage_page, lineage_tree, step_rows
from .skills import SkillRow, skill_page, skill_rows, skills_table
from .spent import spent_table
from .verdict import verdict_line, verdict_page

__all__ = [
    "SkillRow",
    "StepRow",
    "lineage_page",
    "lineage_tree",
    "optimize_page",
    "quickstart_page",
    "recover_page",
    "skill_page",
    "skill_rows",
    "skills_table",
    "spent_table",
    "step_rows",
    "tries_table",
    "verdict_line",
    "verdict_page",
    "verify_page",
]
