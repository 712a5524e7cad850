"""Write which layer of the gate catches each entry of the gallery, with and without the policy.

Usage: klineage gate-score --json --no-corpus > score.json; python scripts/record_gallery.py score.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__).parents[1] / "tests" / "hostile" / "caught_by.json"


def main() -> int:
    """Merge a score into the record; status 1 when the score has problems."""
    score = json.loads(Path(sys.argv[1]).read_text())
    known = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    known.update({t["name"]: [t["layer"], t["unpoliced_layer"]] for t in score["tricks"]})
    lines = [f"  {json.dumps(name)}: {json.dumps(layers)}" for name, layers in sorted(known.items())]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    for problem in score["problems"]:
        print(problem)
    return 1 if score["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
