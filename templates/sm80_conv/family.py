"""The sm80_conv family: space, legality, launches and source. Rules of ranking are in rules.py."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from templates.emit import gencode, render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm80_conv import iterators, rules
from templates.sm80_gemm.family import split_launches, swizzle_launches, tile_of
from templates.tensorop import (
    math_operator,
    memory_type,
    split_objection,
    store_objection,
    tile_objection,
    tiles,
    type_objection,
)
from templates.types import largest_alignment
from templates.workload import ConvWorkload, Workload


@dataclass(frozen=True)
class Sm80Conv:
    """kernel::ImplicitGemmConvolutionWithFusedEpilogue over tiles and iterators.

    Any stride, dilation and padding, symmetric or not: the iterators predicate every read outside the input, so the
    bottom and right pads matter only to P and Q, which the problem size carries (include/bolt/sm80_conv.h). Alignment
    of activations and filters follows C, of the output K. Groups are left to direct_conv. Kernels with split = 1 share
    C among slices and write fp32 partial sums to the workspace; a second kernel adds them and applies the chain
    (include/bolt/split_k.h).
    """

    name: str = "sm80_conv"
    version: int = 1
    min_sm: int = 75
    max_sm: int = 120
    pitched: bool = True

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, ConvWorkload):
            return "not a convolution"
        if not self.min_sm <= gpu.sm <= self.max_sm:
            return f"needs sm{self.min_sm} to sm{self.max_sm}, this GPU is sm{gpu.sm}"
        if workload.groups != 1:
            return f"groups = {workload.groups}; this family has no grouped convolution"
        size, out = workload.dtype.itemsize, workload.epilogue.output.itemsize
        activation = workload.n * workload.h * workload.w * workload.c * size
        output = workload.n * workload.p * workload.q * workload.k * out
        if max(activation, output, workload.k * workload.r * workload.s * workload.c * size) >= 1 << 31:
            return "a tensor of 2 GB or more: the iterators count bytes in 32 bits"
        return type_objection(workload.dtype, workload.accumulator, workload.epilogue.output, gpu)

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if self.refuses(workload, gpu) or not isinstance(workload, ConvWorkload):
            return
        channels = largest_alignment(workload.c, dtype=workload.dtype)
        output = workload.epilogue.output
        widest = largest_alignment(workload.k, dtype=output)
        for walk, tile, split in product(iterators.ALL, tiles(gpu.sm, workload.dtype, channels), (0, 1)):
            if split and walk != iterators.OPTIMIZED:
                continue
            params = tuple(sorted((tile.params | {"iterator": walk.name, "split": split}).items()))
            width = widest if split else tile.store_width(widest, output.itemsize)
            yield Kernel(
                self.name, params, workload.epilogue, workload.dtype, workload.accumulator,
                alignment=(channels, channels, width), stem=f"{tile.stem}_{walk.name}" + "_split" * split,
            )  # fmt: skip

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        reason = self.refuses(workload, gpu)
        if reason or not isinstance(workload, ConvWorkload):
            return reason
        if (kernel.dtype, kernel.accumulator, kernel.epilogue) != (
            workload.dtype, workload.accumulator, workload.epilogue,
        ):  # fmt: skip
            return "built for other types or another epilogue"
        for axis, width, extent in (("C", kernel.alignment[0], workload.c), ("K", kernel.alignment[2], workload.k)):
            if extent % width:
                return f"{axis} = {extent} is not a multiple of {width}, the access width"
        tile = tile_of(kernel)
        if tile.inst_k == 16 and gpu.sm < 80:
            return f"instruction 16x8x16 needs sm80, this GPU is sm{gpu.sm}"
        walk = iterators.BY_NAME[str(kernel["iterator"])]
        m, n, _ = workload.implicit_gemm
        if why := walk.objection(workload, tile, kernel.alignment[0]):
            return why
        if kernel.int("split"):
            why = split_objection(tile, m, n, 1, ceil(workload.c / tile.k), gpu)
        else:
            why = store_objection(tile, kernel.alignment[2], kernel.epilogue.output.itemsize)
        if why:
            return why
        return tile_objection(tile, m, n, kernel.alignment[0], kernel.dtype.itemsize, gpu)

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        assert isinstance(workload, ConvWorkload)
        m, n, _ = workload.implicit_gemm
        tile = tile_of(kernel)
        if kernel.int("split"):  # slices share the channels, whatever the taps
            return split_launches(tile, m, n, 2 * ceil(workload.c / tile.k), gpu)
        return swizzle_launches(tile, m, n, 1, gpu)

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        assert isinstance(workload, ConvWorkload)
        return rules.score(tile_of(candidate.kernel), candidate, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        channels, _, d = kernel.alignment
        tile = tile_of(kernel)
        body = render(
            __file__,
            "kernel.cu.j2",
            chain=kernel.epilogue.functor(),
            tile=tile,
            split=bool(kernel.int("split")),
            arch=75 if tile.inst_k == 8 and kernel.dtype.itemsize == 2 else 80,
            operand=memory_type(kernel.dtype),
            math=math_operator(kernel.dtype),
            output=memory_type(kernel.epilogue.output),
            align_c=channels,
            align_d=d,
            align_part=tile.store_width(min(d, 4), 4),
            iterator=iterators.BY_NAME[str(kernel["iterator"])].cutlass,
            smem_bytes=tile.smem_bytes(kernel.dtype.itemsize),
        )
        return wrap(kernel, ("bolt/sm80_conv.h",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return gencode(gpu)

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 8.0, 3.0
