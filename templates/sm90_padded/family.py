"""The padding family: where TMA can't read the operands as they lie, a padded copy of them is made in the workspace.

It stands beside the kernels of smaller alignment (sm80_gemm, sm80_conv), and measurement chooses (paper section 3.2.3,
kernel padding). The copy's cost is part of what is measured.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from templates.emit import wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import FLAGS, LAUNCH_US, MEMORY_OVERLAP_LOSS, PDL_US, TMA_BYTES
from templates.sm90_split import FAMILY as SPLIT
from templates.sm90_split import rules
from templates.sm90_split.family import kernel_body, point_of
from templates.types import largest_alignment
from templates.workload import ConvWorkload, GemmWorkload, Workload


class Sm90Padded:
    """Family; see templates/family.py for the contract. Instances, splits and ranking are those of sm90_split."""

    name = "sm90_padded"
    version = 1
    min_sm = 90
    max_sm = 90
    pitched = True

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        wide = padded(workload)
        if wide is None:
            return "the family computes single products and convolutions"
        if wide == workload:
            return f"the depth {_depth(workload)} needs no padding"
        if isinstance(workload, GemmWorkload) and (workload.layout_a, workload.layout_b) != ("row", "col"):
            return "only operands that are contiguous along K are filled up: a row-major A, a column-major B"
        return SPLIT.refuses(wide, gpu)

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        wide = padded(workload)
        if wide is None:
            return
        read = largest_alignment(_depth(workload), dtype=workload.dtype)
        for kernel in SPLIT.kernels(wide, gpu):
            yield replace(kernel, family=self.name, alignment=(read, read, kernel.alignment[2]))

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        wide = padded(workload)
        if refused or wide is None:
            return refused
        if _depth(workload) % kernel.alignment[0]:
            return f"a depth of {_depth(workload)} is not a multiple of {kernel.alignment[0]}, the width of a read"
        columns = wide.n if isinstance(wide, GemmWorkload) else wide.k
        if kernel["op"] != wide.op or columns % kernel.alignment[2]:
            return SPLIT.illegal(_inner(kernel), wide, gpu)
        return rules.objection(point_of(kernel), wide, gpu, most_filled=inf)  # nobody else takes what fills the GPU

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        wide = padded(workload)
        return [] if wide is None else SPLIT.launches(_inner(kernel), wide, gpu)

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        wide = padded(workload)
        if wide is None:
            raise ValueError(f"{self.name} scores single operators only")
        inner = SPLIT.score(replace(candidate, kernel=_inner(candidate.kernel)), wide, gpu)
        size = workload.dtype.itemsize
        moved = sum(rows * (_depth(w)) * size for w in (workload, wide) for rows in _rows(workload))
        # Another launch, and bytes that the kernel behind it finds in L2; its own copy it waits for in full.
        us = moved / (gpu.dram_gbs * 1e3) * (1 + MEMORY_OVERLAP_LOSS) + LAUNCH_US - PDL_US * candidate.launch.pdl
        return Score(inner.us + us, f"depth {_depth(workload)} filled up to {_depth(wide)}: {us:.1f} us; {inner.why}")

    def source(self, kernel: Kernel) -> str:
        return wrap(kernel, ("bolt/sm90_padded.hpp",), kernel_body(kernel, padded_from=kernel.alignment[0]))

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 30.0, 4.0


def padded(workload: Workload) -> GemmWorkload | ConvWorkload | None:
    """The workload on operands that are filled up; itself if they need not be; None for what is not filled up."""
    if isinstance(workload, GemmWorkload | ConvWorkload):
        step = TMA_BYTES // workload.dtype.itemsize
        depth = -(-_depth(workload) // step) * step
        return replace(workload, k=depth) if isinstance(workload, GemmWorkload) else replace(workload, c=depth)
    return None


def _inner(kernel: Kernel) -> Kernel:
    widest = TMA_BYTES // kernel.dtype.itemsize
    return replace(kernel, family=SPLIT.name, alignment=(widest, widest, kernel.alignment[2]))


def _depth(workload: Workload) -> int:
    if isinstance(workload, GemmWorkload):
        return workload.k
    assert isinstance(workload, ConvWorkload)
    return workload.c


def _rows(workload: Workload) -> tuple[int, int]:
    """Rows of A and of B."""
    if isinstance(workload, GemmWorkload):
        return workload.batch * workload.m, workload.n * (1 if workload.shared_b else workload.batch)
    assert isinstance(workload, ConvWorkload)
    return workload.n * workload.h * workload.w, workload.k * workload.r * workload.s
