"""No honest expert kernel is refused by the static policy: launchers with their kernels, cut out of their packages."""

from __future__ import annotations

import pytest

from klineage.gate.honest import NOT_KERNELS_ALONE, PACKAGES, expert_slices, imports, launchers
from klineage.gate.policy import check_policy

LEAST = {"liger_kernel": 35, "fla": 12, "conch": 15, "flag_gems": 18}


def test_imports_are_found_wherever_they_stand() -> None:
    text = (
        "import a.b\nfrom c.d import e\ndef f():\n    try:\n        import g\n    except ImportError:\n        pass\n"
    )
    assert imports(text) == {"a", "c", "g"}


def test_a_package_that_is_not_there_has_no_launchers() -> None:
    assert list(launchers("no_such_package_anywhere")) == []


def test_a_sample_of_every_package_passes_the_policy() -> None:
    found = expert_slices(most=3, jobs=1)
    if not found:
        pytest.skip("no expert package is installed")
    refused = {name: str(findings[0]) for name, source in found if (findings := check_policy(source))}
    assert refused == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_launchers_of_every_package_pass_the_policy() -> None:
    """A fifth of them; `klineage gate-score` looks at all."""
    found = expert_slices(most=60)
    counts = {package: sum(name.startswith(f"{package}.") for name, _ in found) for package in PACKAGES}
    refused = {name: str(findings[0]) for name, source in found if (findings := check_policy(source))}
    assert refused == {}
    for package, least in LEAST.items():
        assert counts[package] == 0 or counts[package] >= least, counts
    assert not set(NOT_KERNELS_ALONE) & {name for name, _ in found}
