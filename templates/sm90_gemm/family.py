"""The sm90 GEMM family: TMA loads, wgmma, persistent warp-specialised kernels, epilogue visitor tree, TMA stores."""

from collections.abc import Iterator
from dataclasses import asdict

from templates.emit import render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import ARCH_FLAGS, FLAGS, TMA_BYTES, chain_source, gemm_refusal, memory_type
from templates.sm90_gemm import rules, space
from templates.types import DType, MatrixLayout
from templates.workload import GemmWorkload, Workload

MIN_STAGES = 2  # CUTLASS sm90_mma_tma_gmma_ss_warpspecialized.hpp


class Sm90Gemm:
    """Family; see templates/family.py for the contract."""

    name = "sm90_gemm"
    version = 1
    min_sm = 90
    max_sm = 90
    pitched = True

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, GemmWorkload):
            return "the family computes matrix products"
        refused = gemm_refusal(workload, gpu)
        if refused:
            return refused
        if workload.epilogue.output not in (DType.F16, DType.BF16, DType.F32):
            return f"no kernel writes {workload.epilogue.output}"
        widest_d = TMA_BYTES // workload.epilogue.output.itemsize
        if workload.n % widest_d:
            return f"N = {workload.n} is not a multiple of {widest_d}: TMA writes rows of D in 16-byte units"
        return None

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if not isinstance(workload, GemmWorkload):
            return
        widest, widest_d = TMA_BYTES // workload.dtype.itemsize, TMA_BYTES // workload.epilogue.output.itemsize
        for point in space.points():
            yield Kernel(
                family=self.name,
                params=point.params,
                epilogue=workload.epilogue,
                dtype=workload.dtype,
                accumulator=workload.accumulator,
                layout_a=workload.layout_a,
                layout_b=workload.layout_b,
                alignment=(widest, widest, widest_d),
                stem=point.stem,
            )

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        if refused or not isinstance(workload, GemmWorkload):
            return refused
        depth = rules.stages(kernel, gpu)
        if depth < MIN_STAGES:
            return f"shared memory holds {depth} stages of the tile, {MIN_STAGES} are needed"
        shape, point = rules.lay(kernel, workload, gpu), space.point_of(kernel)
        if point.cluster_m > shape.tiles_m or point.cluster_n > shape.tiles_n:
            return (
                f"a cluster of {point.cluster_m}x{point.cluster_n} over {shape.tiles_m}x{shape.tiles_n} tiles "
                "leaves CTAs without work"
            )
        if kernel.dtype == DType.TF32 and point.tile_k > 64:
            return "a tf32 tile of 128 along K is twice the bytes for the same products"
        if point.tile_k == 32 and not 0 < workload.k % 64 <= 32:
            return f"steps of 32 along K only pay where 64 would waste half: K = {workload.k}"
        return multicast_objection(point, workload)

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return rules.launches(kernel, workload, gpu) if isinstance(workload, GemmWorkload) else []

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, GemmWorkload):
            raise ValueError(f"{self.name} scores matrix products only")
        return rules.score(candidate, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        chain, final_relu = chain_source(kernel.epilogue)
        layouts = {MatrixLayout.ROW: "cutlass::layout::RowMajor", MatrixLayout.COL: "cutlass::layout::ColumnMajor"}
        point = space.point_of(kernel)
        body = render(
            __file__,
            "kernel.cu.jinja",
            chain=chain,
            final_relu=final_relu,
            element=memory_type(kernel.dtype),
            element_d=memory_type(kernel.epilogue.output),
            layout_a=layouts[kernel.layout_a],
            layout_b=layouts[kernel.layout_b],
            cooperative=point.schedule != "pingpong",
            stream_k=point.schedule == "stream_k",
            **asdict(point),
        )
        return wrap(kernel, ("bolt/sm90_gemm.hpp",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        # CUTLASS 4.2's stream-K scheduler does not compile with programmatic dependent launch.
        return ARCH_FLAGS if kernel["schedule"] == "stream_k" else FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 55.0, 14.0


def multicast_objection(point: space.Point, workload: GemmWorkload) -> str | None:
    """CTAs of a cluster each fetch a part of a shared tile: parts hold whole atoms of the shared-memory layout.

    An atom is 8 rows of an operand that is contiguous along K, and 64, 32 or 16 elements across one that is not
    (cutlass/gemm/collective/builders/sm90_common.inl, ss_smem_selector).
    """
    along_k = [workload.layout_a == MatrixLayout.ROW, workload.layout_b == MatrixLayout.COL]
    if point.swap:
        along_k.reverse()
    for extent, parts, contiguous in zip(
        (point.tile_m, point.tile_n), (point.cluster_n, point.cluster_m), along_k, strict=True
    ):
        atom = 8 if contiguous else next(a for a in (64, 32, 16) if extent % a == 0)
        if extent // parts % atom:
            return f"a {parts}th of {extent} rows is no whole number of layout atoms of {atom}"
    return None
