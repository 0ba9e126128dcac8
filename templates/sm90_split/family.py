"""The cluster split-K family: one warp group a CTA, K cut over the CTAs of a cluster, the epilogue after their sum."""

from collections.abc import Iterator
from math import inf

from templates.emit import render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import FLAGS, TMA_BYTES, conv_refusal, gemm_refusal, im2col_refusal, memory_type
from templates.sm90_split import rules, space
from templates.types import DType, MatrixLayout, largest_alignment
from templates.workload import ConvWorkload, GemmWorkload, Single, Workload

_LAYOUTS = {MatrixLayout.ROW: "cutlass::layout::RowMajor", MatrixLayout.COL: "cutlass::layout::ColumnMajor"}


class Sm90Split:
    """Family; see templates/family.py for the contract. `Launch.splits` is the size of the cluster.

    Unlike the other Hopper families it stores D itself, without TMA, so N (or K of a convolution) may be anything.
    """

    name = "sm90_split"
    version = 1
    min_sm = 90
    max_sm = 90
    pitched = True

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if isinstance(workload, GemmWorkload):
            refused = gemm_refusal(workload, gpu)
        elif isinstance(workload, ConvWorkload):
            refused = conv_refusal(workload, gpu, any_k=True) or im2col_refusal(workload)
        else:
            return "the family computes single products and convolutions"
        if not refused and workload.epilogue.output not in (DType.F16, DType.BF16, DType.F32):
            refused = f"no kernel writes {workload.epilogue.output}"
        return refused

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if not isinstance(workload, Single):
            return
        widest = TMA_BYTES // workload.dtype.itemsize
        vec = largest_alignment(columns_of(workload), dtype=workload.epilogue.output)
        layouts = (MatrixLayout.ROW, MatrixLayout.COL)
        if isinstance(workload, GemmWorkload):
            layouts = (workload.layout_a, workload.layout_b)
        for point in space.points(workload.op, workload.dtype):
            yield Kernel(
                family=self.name,
                params=tuple(sorted(point.params(workload.op, workload.dtype.itemsize).items())),
                epilogue=workload.epilogue,
                dtype=workload.dtype,
                accumulator=workload.accumulator,
                layout_a=layouts[0],
                layout_b=layouts[1],
                alignment=(widest, widest, vec),
                stem=point.stem(workload.op),
            )

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        if refused or not isinstance(workload, Single):
            return refused
        if kernel["op"] != workload.op:
            return f"built for a {kernel['op']}"
        if columns_of(workload) % kernel.alignment[2]:
            return f"{columns_of(workload)} columns are not a multiple of {kernel.alignment[2]}, the width of a store"
        # Nobody else on Hopper stores rows that TMA can't: those products are taken however many tiles they have.
        others = columns_of(workload) * workload.epilogue.output.itemsize % TMA_BYTES == 0
        return rules.objection(point_of(kernel), workload, gpu, rules.MOST_FILLED if others else inf)

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return rules.launches(kernel, point_of(kernel), workload, gpu) if isinstance(workload, Single) else []

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, Single):
            raise ValueError(f"{self.name} scores single operators only")
        return rules.score(candidate.kernel, point_of(candidate.kernel), candidate.launch, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        return wrap(kernel, ("bolt/sm90_split.hpp",), kernel_body(kernel))

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 30.0, 4.0


def kernel_body(kernel: Kernel, padded_from: int = 0) -> str:
    """The C++ of a kernel inside its namespace; `padded_from` runs it on operands that are read so many elements at a
    time and filled up first (sm90_padded)."""
    names = ("tile_m", "tile_n", "tile_k", "stages", "blocks_per_sm")
    return render(
        __file__,
        "kernel.cu.jinja",
        chain=kernel.epilogue.functor("EpilogueChain"),
        conv=kernel["op"] == "conv",
        element=memory_type(kernel.dtype),
        element_d=memory_type(kernel.epilogue.output),
        layout_a=_LAYOUTS[kernel.layout_a],
        layout_b=_LAYOUTS[kernel.layout_b],
        swap=bool(kernel.int("swap")),
        vec=kernel.alignment[2],
        padded_from=padded_from,
        **{name: kernel.int(name) for name in names},
    )


def point_of(kernel: Kernel) -> space.Point:
    return space.Point(kernel.int("tile_m"), kernel.int("tile_n"), kernel.int("tile_k"), bool(kernel.int("swap")))


def columns_of(workload: Single) -> int:
    return workload.n if isinstance(workload, GemmWorkload) else workload.k
