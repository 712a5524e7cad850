"""Elementwise work on a matrix product in the kernel that computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from ..model import Site, SiteKind
from ..surface import Launch, Module, make_site
from ._epilogue_fuse import fuse
from ._epilogue_join import Fusion, fusions, plain_allocations
from ._epilogue_split import epilogues, split
from ._nodes import calls
from ._stages import NotAStageError
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, predicate


def _fusion_at(context: Context) -> Fusion | None:
    """The fusion that a context's site names, its soundness not yet tested."""
    for launch, found in fusions(plain_allocations(context.module), checked=False):
        if context.site is not None and launch.kernel == context.site.function and isinstance(found, Fusion):
            return found
    return None


@predicate
def product_read_by_one_kernel(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Nothing but the elementwise kernel reads the product's intermediate result."""
    found = _fusion_at(context)
    return None if found is None else found.in_place or not found.readers


@predicate
def result_is_no_operand(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The launcher allocates the result itself, so the product cannot read what other programs store."""
    found = _fusion_at(context)
    return None if found is None else found.own_result


class FusedEpilogue(Move):
    """Elementwise work on a matrix product in the kernel that computes it.

    A bias, an activation, a residual or a scale is applied to the accumulator while it is in registers. Otherwise the
    product goes to memory as an fp32 intermediate, and a second launch reads it back: eight bytes of traffic for each
    element of the result, and a launch.

    ```python
    tl.store(acc_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=c_mask)
    ...
    matmul_kernel[grid](a, b, c_acc, M, N, K, ...)
    epilogue_kernel[(triton.cdiv(M * N, 256),)](c_acc, bias, c, N, M * N, BLOCK=256)
    -->
    acc = acc + tl.load(bias_ptr + offs_n[None, :], mask=offs_n[None, :] < N)
    tl.store(c_ptr + (offs_m[:, None] * N + offs_n[None, :]), acc.to(c_ptr.dtype.element_ty), mask=c_mask)
    ...
    matmul_kernel[grid](a, b, bias, c, M, N, K, ...)
    ```

    Must hold:
    - nothing but the elementwise kernel reads the intermediate;
    - the launcher allocates the result itself: in the place of an operand, one program would store what another reads.

    Kept: an intermediate narrower than the accumulator goes on rounding, by a cast.

    Refused:
    - an elementwise kernel that reads the product at other elements than it computes, reduces, loops or stores twice;
    - grids, bounds or strides that are not seen to be those of the intermediate's rows and columns;
    - products with several accumulators, atomics, descriptors, or values from the loop in the epilogue;
    - other work of the launcher between the two launches.
    """

    rank = 25
    anchors: ClassVar = (SiteKind.STORE, SiteKind.LAUNCH, SiteKind.KERNEL)
    carriers: ClassVar = ("intermediate",)
    conditions: ClassVar = (
        Condition("product_read_by_one_kernel", "nothing but the elementwise kernel reads the product's intermediate"),
        Condition("result_is_no_operand", "the launcher allocates the result itself"),
    )

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for launch, found in epilogues(module):
            site = _site(module, launch)
            try:
                if isinstance(found, NotAStageError):
                    raise found
                carried = {"intermediate": found.product.dtype}
                yield Proposal(self.name, "simplify", site, split(module, found), carried)
            except NotAStageError as reason:
                yield Unsupported(self.name, "simplify", site, str(reason))

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        del hints  # there is nothing to choose
        module = plain_allocations(module)
        for launch, found in fusions(module, checked):
            site = _site(module, launch)
            try:
                if isinstance(found, NotAStageError):
                    raise found
                carried = {"intermediate": found.product.dtype}
                yield Proposal(self.name, "materialize", site, fuse(module, found, checked), carried)
            except NotAStageError as reason:
                yield Unsupported(self.name, "materialize", site, str(reason))


def _site(module: Module, launch: Launch) -> Site:
    """The store of a product kernel (the kernel itself when it has none of its own)."""
    function = module.functions[launch.kernel]
    stores = calls(function.node.body, "store")
    return make_site(module, SiteKind.STORE if stores else SiteKind.KERNEL, stores[-1] if stores else function.node)
