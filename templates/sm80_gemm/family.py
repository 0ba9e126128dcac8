"""The sm80_gemm family: space, legality, launches and source. Rules of ranking are in rules.py."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from templates.emit import gencode, render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm80_gemm import rules
from templates.tensorop import (
    Tile,
    math_operator,
    memory_type,
    slice_counts,
    split_objection,
    store_objection,
    tile_objection,
    tiles,
    type_objection,
)
from templates.types import MatrixLayout, largest_alignment
from templates.workload import GemmWorkload, Workload


@dataclass(frozen=True)
class Sm80Gemm:
    """kernel::GemmWithFusedEpilogue over the tiles of templates/tensorop.py.

    D[b] = chain(A[b] @ B[b]) with any row/column-major A and B, row-major D. Alignment of A follows K (row-major) or M,
    of B follows K (column-major) or N, of D follows N. Kernels with split = 1 write fp32 partial sums of slices of K to
    the workspace, and a second kernel adds them and applies the chain once (include/bolt/split_k.h); CUTLASS's serial
    split-K would round partial sums to the output's type and apply the chain in every slice.
    """

    name: str = "sm80_gemm"
    version: int = 1
    min_sm: int = 75
    max_sm: int = 120
    pitched: bool = True

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, GemmWorkload):
            return "not a GEMM"
        if not self.min_sm <= gpu.sm <= self.max_sm:
            return f"needs sm{self.min_sm} to sm{self.max_sm}, this GPU is sm{gpu.sm}"
        if workload.batch > 65535:
            return f"batch {workload.batch} is more than 65535"
        return type_objection(workload.dtype, workload.accumulator, workload.epilogue.output, gpu)

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if self.refuses(workload, gpu) or not isinstance(workload, GemmWorkload):
            return
        a, b, d = alignments(workload)
        for tile, split in product(tiles(gpu.sm, workload.dtype, min(a, b)), (0, 1)):
            width = d if split else tile.store_width(d, workload.epilogue.output.itemsize)
            yield Kernel(
                self.name, tuple(sorted((tile.params | {"split": split}).items())), workload.epilogue, workload.dtype,
                workload.accumulator, workload.layout_a, workload.layout_b, (a, b, width),
                tile.stem + "_split" * split,
            )  # fmt: skip

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        reason = self.refuses(workload, gpu)
        if reason or not isinstance(workload, GemmWorkload):
            return reason
        if (kernel.dtype, kernel.accumulator, kernel.epilogue) != (
            workload.dtype, workload.accumulator, workload.epilogue,
        ):  # fmt: skip
            return "built for other types or another epilogue"
        if (kernel.layout_a, kernel.layout_b) != (workload.layout_a, workload.layout_b):
            return "built for other operand layouts"
        for operand, axis, width, extent in zip(
            "ABD", _axes(workload), kernel.alignment, _extents(workload), strict=True
        ):
            if extent % width:
                return f"{axis} = {extent} is not a multiple of {width}, the access width of {operand}"
        tile = tile_of(kernel)
        if tile.inst_k == 16 and gpu.sm < 80:
            return f"instruction 16x8x16 needs sm80, this GPU is sm{gpu.sm}"
        if tile.k > 2 * max(32, workload.k):
            return f"tile K = {tile.k} is more than twice the problem's K = {workload.k}"
        if kernel.int("split"):
            steps = ceil(workload.k / tile.k)
            if why := split_objection(tile, workload.m, workload.n, workload.batch, steps, gpu):
                return why
        elif why := store_objection(tile, kernel.alignment[2], kernel.epilogue.output.itemsize):
            return why
        return tile_objection(tile, workload.m, workload.n, min(kernel.alignment[:2]), kernel.dtype.itemsize, gpu)

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        assert isinstance(workload, GemmWorkload)
        tile = tile_of(kernel)
        if kernel.int("split"):
            return split_launches(tile, workload.m, workload.n, ceil(workload.k / tile.k), gpu)
        return swizzle_launches(tile, workload.m, workload.n, workload.batch, gpu)

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        assert isinstance(workload, GemmWorkload)
        return rules.score(tile_of(candidate.kernel), candidate, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        return wrap(kernel, ("bolt/sm80_gemm.h",), gemm_body(kernel, grouped=False))

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return gencode(gpu)

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 12.0, 4.0


def gemm_body(kernel: Kernel, grouped: bool) -> str:
    """The C++ of a kernel inside its namespace; `grouped` runs it as the 1x1 grouped convolution of sm80_group."""
    a, b, d = kernel.alignment
    tile, split = tile_of(kernel), bool(kernel.int("split"))
    return render(
        __file__,
        "kernel.cu.j2",
        chain=kernel.epilogue.functor(),
        tile=tile,
        split=split,
        grouped=grouped,
        arch=75 if kernel.int("inst_k") == 8 and kernel.dtype.itemsize == 2 else 80,
        operand=memory_type(kernel.dtype),
        math=math_operator(kernel.dtype),
        output=memory_type(kernel.epilogue.output),
        row_a=kernel.layout_a == MatrixLayout.ROW,
        row_b=kernel.layout_b == MatrixLayout.ROW,
        align_a=a,
        align_b=b,
        align_d=d,
        align_part=tile.store_width(min(d, 4), 4),
        smem_bytes=tile.smem_bytes(kernel.dtype.itemsize),
    )


def alignments(workload: GemmWorkload) -> tuple[int, int, int]:
    """The widest accesses of A, B and D that the contiguous extents allow, in elements."""
    a, b, d = _extents(workload)
    return (
        largest_alignment(a, dtype=workload.dtype),
        largest_alignment(b, dtype=workload.dtype),
        largest_alignment(d, dtype=workload.epilogue.output),
    )


def _axes(workload: GemmWorkload) -> tuple[str, str, str]:
    """Which axis of the problem is contiguous in A, B and D."""
    return (
        "K" if workload.layout_a == MatrixLayout.ROW else "M",
        "N" if workload.layout_b == MatrixLayout.ROW else "K",
        "N",
    )


def _extents(workload: GemmWorkload) -> tuple[int, int, int]:
    extent = {"M": workload.m, "N": workload.n, "K": workload.k}
    a, b, d = _axes(workload)
    return extent[a], extent[b], extent[d]


def tile_of(kernel: Kernel) -> Tile:
    names = ("tb_m", "tb_n", "tb_k", "warps_m", "warps_n", "warps_k", "stages", "inst_k")
    return Tile(*(kernel.int(n) for n in names))


def swizzle_launches(tile: Tile, m: int, n: int, batch: int, gpu: GpuSpec) -> list[Launch]:
    """Swizzles worth trying: wider ones reuse L2 when the grid takes more than a wave and is more than a tile wide.

    CUTLASS efficient_gemm.md, threadblock rasterization. On sm90 each is offered with and without PDL.
    """
    tiles_m, tiles_n = ceil(m / tile.m), ceil(n / tile.n)
    widths = [1]
    if tiles_n > 1 and tiles_m > 1 and tiles_m * tiles_n * batch > gpu.sm_count:
        widths = [8, 1] if tiles_n >= 6 else [4, 1] if tiles_n >= 3 else [2, 1]
    return [Launch(swizzle=width, pdl=pdl) for width in widths for pdl in _pdls(gpu)]


def split_launches(tile: Tile, m: int, n: int, k_steps: int, gpu: GpuSpec) -> list[Launch]:
    """Slice counts worth trying; on sm90 each with and without PDL."""
    return [Launch(splits=s, pdl=pdl) for s in slice_counts(tile, m, n, k_steps, gpu) for pdl in _pdls(gpu)]


def _pdls(gpu: GpuSpec) -> tuple[bool, ...]:
    return (True, False) if gpu.sm >= 90 else (False,)
