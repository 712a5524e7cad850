"""How long the library takes to load, and 10,000 skills to be matched to a kernel.

Usage: python benchmarks/match.py [--skills 10000] [--rounds 5]

The skills are the shipped ones under other names, so that as many hold in the kernel as would in a library that large
of the same make. Needs no GPU.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

from klineage.library import load_library, shipped_library
from klineage.model import CaseRole, Skill, target
from klineage.optimize.match import Situation, match
from klineage.surface import Module
from klineage.task import load_task

TASKS = ("softmax", "matmul", "gelu")


def many(skills: list[Skill], count: int) -> list[Skill]:
    """So many skills: the given ones again and again, renamed."""
    numbered = zip(itertools.cycle(skills), range(count))
    return [skill.model_copy(update={"name": f"{skill.name}-{number}"}) for skill, number in numbered]


def main() -> None:
    """Print milliseconds: median, and the first time (with nothing cached of the kernel)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    began = time.perf_counter()
    shipped = load_library([shipped_library()])
    print(f"load {len(shipped)} shipped skills: {1e3 * (time.perf_counter() - began):.1f} ms")
    skills = many(shipped, arguments.skills)
    for name in TASKS:
        task = load_task(name, check=False)
        kernel = task.naive()
        assert kernel is not None
        Module.parse(kernel.source)  # the surface
        bench = task.info.with_role(CaseRole.BENCH)
        situation = Situation(source=kernel.source, target=target("sm_90"), cases=bench, reports={})
        spent: list[float] = []
        for _ in range(arguments.rounds + 1):
            began = time.perf_counter()
            candidates, _ = match(skills, situation)
            spent.append(1e3 * (time.perf_counter() - began))
        print(
            f"match {len(skills)} skills to {name}: {statistics.median(spent[1:]):.1f} ms "
            f"(first {spent[0]:.1f} ms), {len(candidates)} candidates"
        )


if __name__ == "__main__":
    main()
