"""Write the pages of docs/moves from the moves' docstrings; with --check only say which are stale.

Usage: python scripts/docs.py [--check]
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

from klineage.moves.base import Move
from klineage.moves.registry import all_moves

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "moves"
NOTICE = "<!-- Written by scripts/docs.py from the docstring of {source}: edit there. -->"


def page(move: Move) -> str:
    """One move's page."""
    doc = inspect.getdoc(type(move)) or ""
    body = doc.split("\n", 1)[1].strip() if "\n" in doc else ""
    conditions = [f"- {c.statement} (`{c.predicate}`)" for c in move.conditions] or ["- none"]
    return "\n".join(
        [
            NOTICE.format(source=f"src/klineage/moves/{move.name}.py"),
            f"# {move.name}",
            "",
            f"{move.title}.",
            "",
            body,
            "",
            f"**Sites:** {', '.join(str(anchor) for anchor in move.anchors)}. "
            f"**Carriers:** {', '.join(f'`{carrier}`' for carrier in move.carriers) or 'none'}.",
            "",
            "**Soundness conditions checked by machine:**",
            "",
            *conditions,
            "",
        ]
    )


def index(moves: tuple[Move, ...]) -> str:
    """The list of all moves, structural ones first."""
    lines = [f"- [{m.name}]({m.name}.md): {m.title}" for m in moves]
    return "\n".join([NOTICE.format(source="each move"), "# Moves", "", *lines, ""])


def main() -> int:
    """Write or check; the exit status is 1 when a page is stale, missing or left over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a page is stale")
    check = parser.parse_args().check
    moves = all_moves()
    wanted = {f"{m.name}.md": page(m) for m in moves} | {"README.md": index(moves)}
    present = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    stale = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
    if check:
        for name in stale:
            print(f"docs/moves/{name} is stale: run python scripts/docs.py", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name])
        else:
            (FOLDER / name).unlink()
        print(f"docs/moves/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
