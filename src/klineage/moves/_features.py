"""Facts about a launch that do not depend on a task's own words, and predicates that bound them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import LaunchReport, Site, SiteKind
from ..surface import Module, sites
from .base import Context, predicate

FEATURES = ("programs", "tile_elements", "registers", "smem_bytes", "resident_warps")


def features(report: LaunchReport) -> dict[str, float]:
    """Programs launched, largest tile constant, registers, shared memory (bytes) and resident warps per SM."""
    tiles = [int(v) for v in report.constexprs.values() if v.isdigit()]
    return {
        "programs": float(report.blocks),
        "tile_elements": float(max(tiles, default=1)),
        "registers": float(report.registers),
        "smem_bytes": float(report.smem_bytes),
        "resident_warps": float(report.occupancy.blocks_per_sm * report.num_warps),
    }


def report_of(site: Site | None, reports: Sequence[LaunchReport]) -> LaunchReport | None:
    """The launch a site belongs to: by kernel name, else the one with most programs."""
    for report in reports:
        if site is not None and report.kernel in (site.function, site.detail.get("kernel")):
            return report
    return max(reports, key=lambda r: r.blocks, default=None)


def family(module: Module, function: str) -> str:
    """What kind of kernel a function is: "dot" (tensor products), "row" (reductions) or "elementwise"."""
    kinds = {s.kind for s in sites(module) if s.function == function}
    if function not in module.jit_functions:
        launched = {launch.kernel for launch in module.launches if launch.function == function}
        kinds = {s.kind for s in sites(module) if s.function in launched}
    if SiteKind.DOT in kinds:
        return "dot"
    return "row" if kinds & {SiteKind.REDUCTION, SiteKind.SCAN} else "elementwise"


def kernel_of(module: Module, site: Site) -> str:
    """The kernel a site belongs to: its function, or the kernel that the site's launch starts."""
    if site.function in module.jit_functions:
        return site.function
    named = site.detail.get("kernel")
    if named:
        return named
    launched = [launch.kernel for launch in module.launches if launch.function == site.function]
    return launched[0] if launched else site.function


@predicate
def kernel_family_is(context: Context, args: Mapping[str, str]) -> bool | None:
    """The kernel around the site is of family ``family``."""
    if context.site is None:
        return None
    return family(context.module, kernel_of(context.module, context.site)) == args["family"]


def _feature(context: Context, args: Mapping[str, str]) -> float | None:
    report = report_of(context.site, context.reports)
    return None if report is None else features(report)[args["feature"]]


@predicate
def feature_at_least(context: Context, args: Mapping[str, str]) -> bool | None:
    """A launch feature (see FEATURES) is at least ``bound``."""
    value = _feature(context, args)
    return None if value is None else value >= float(args["bound"])


@predicate
def feature_at_most(context: Context, args: Mapping[str, str]) -> bool | None:
    """A launch feature (see FEATURES) is at most ``bound``."""
    value = _feature(context, args)
    return None if value is None else value <= float(args["bound"])
