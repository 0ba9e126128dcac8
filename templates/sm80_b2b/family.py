"""The mma.sync pair family: space, legality, launches and source. Rules of ranking are in rules.py."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from templates.emit import gencode, render, wrap
from templates.epilogue import Epilogue, parse_epilogue
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm80_b2b import rules, space
from templates.types import DType, MatrixLayout
from templates.workload import B2bConvWorkload, B2bGemmWorkload, GemmWorkload, Pair, Workload

_LIMIT_BYTES = 1 << 31


@dataclass(frozen=True)
class Sm80B2b:
    """CUTLASS's example 13 with the intermediate in registers or in shared memory (include/bolt/sm80_b2b.h).

    The first epilogue is the kernel parameter `inner`. Both widths fill their tiles: a tile is made for each pair.
    """

    name: str = "sm80_b2b"
    version: int = 2
    min_sm: int = 75
    max_sm: int = 120
    pitched: bool = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, Pair):
            return "the family computes two products in one kernel"
        if not self.min_sm <= gpu.sm <= self.max_sm:
            return f"needs sm{self.min_sm} to sm{self.max_sm}, this GPU is sm{gpu.sm}"
        if workload.dtype != DType.F16 and not (workload.dtype == DType.BF16 and gpu.sm >= 80):
            return f"no kernel for operands of type {workload.dtype} on sm{gpu.sm}"
        if workload.accumulator not in ((DType.F32, DType.F16) if workload.dtype == DType.F16 else (DType.F32,)):
            return f"accumulation in {workload.accumulator} is not offered"
        if workload.epilogue.output != workload.dtype:
            return f"writes its operands' type {workload.dtype}, not {workload.epilogue.output}"
        if workload.first.epilogue.has_source:
            return "the first epilogue reads a tensor of the intermediate's shape, which is never in memory"
        if workload.epilogue.has_bias and workload.epilogue.has_source:
            return "the second epilogue has a bias and a source; the kernel reads one of them beside the accumulators"
        return _shape_refusal(workload)

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if not isinstance(workload, Pair):
            return
        inner, conv = workload.first.epilogue, isinstance(workload, B2bConvWorkload)
        for instance in space.instances(workload.second.k, workload.n1, conv, gpu.sm):
            if workload.residence not in (None, instance.residence):
                continue
            params = tuple(sorted((instance.params | {"inner": str(inner)}).items()))
            yield Kernel(
                self.name, params, workload.epilogue, workload.dtype, workload.accumulator,
                stem=f"{instance.stem}_{inner.ident}",
            )  # fmt: skip

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        reason = self.refuses(workload, gpu)
        if reason or not isinstance(workload, Pair):
            return reason
        i = instance_of(kernel)
        if bool(i.conv) != isinstance(workload, B2bConvWorkload):
            return "built for a convolution" if i.conv else "built for a matrix product"
        if (inner_of(kernel), kernel.epilogue, kernel.dtype, kernel.accumulator) != (
            workload.first.epilogue, workload.epilogue, workload.dtype, workload.accumulator,
        ):  # fmt: skip
            return "built for other types or another epilogue"
        if workload.residence not in (None, i.residence):
            return f"keeps the intermediate in {i.residence}, the plan asks for {workload.residence}"
        if (i.n0, i.n1) != (workload.second.k, workload.n1):
            return (
                f"residence: N0 and N1 must fill the tile, {i.n0} and {i.n1} columns; the pair has "
                f"{workload.second.k} and {workload.n1}"
            )
        if i.inst_k == 16 and gpu.sm < 80:
            return f"instruction 16x8x16 needs sm80, this GPU is sm{gpu.sm}"
        why = space.tile_objection(i, kernel.dtype.itemsize)
        if why:
            return why
        need = i.smem_bytes(kernel.dtype.itemsize)
        if need > gpu.smem_per_block:
            return (
                f"needs {need // 1024} KB of shared memory, a block of {gpu.name} has {gpu.smem_per_block // 1024} KB"
            )
        if i.m > 64 and ceil(workload.second.m / 64) <= gpu.sm_count:
            return f"M = {workload.second.m} gives every SM at most one block of 64 rows; larger ones leave some idle"
        return None

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return [Launch(pdl=True), Launch()] if gpu.sm >= 90 else [Launch()]

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, Pair):
            raise ValueError(f"{self.name} scores pairs only")
        return rules.score(instance_of(candidate.kernel), candidate, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        i = instance_of(kernel)
        body = render(
            __file__,
            "kernel.cu.j2",
            inner=inner_of(kernel).functor("InnerChain"),
            outer=kernel.epilogue.functor("OuterChain"),
            element=kernel.dtype.cutlass,
            accumulator=kernel.accumulator.cutlass,
            arch=75 if i.inst_k == 8 else 80,
            i=i,
            shared=i.residence == "smem",
            conv=bool(i.conv),
            smem_bytes=i.smem_bytes(kernel.dtype.itemsize),
        )
        return wrap(kernel, ("bolt/sm80_b2b.h",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return gencode(gpu)

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 9.0, 2.0


def instance_of(kernel: Kernel) -> space.Instance:
    """The instance whose parameters the kernel carries. Raises TypeError on parameters that are not an instance's."""
    return space.Instance(**{n: v for n, v in kernel.params if n != "inner"})  # type: ignore[arg-type]


def inner_of(kernel: Kernel) -> Epilogue:
    """The first product's epilogue."""
    return parse_epilogue(str(kernel["inner"]))


def _shape_refusal(pair: Pair) -> str | None:
    first, n0 = pair.first, pair.second.k
    for letter, extent in (("N0", n0), ("N1", pair.n1)):
        if extent > space.MAX_WIDTH:
            return f"residence: a block covers {letter} up to {space.MAX_WIDTH}, {letter} = {extent}"
        if extent % 32:
            return f"{letter} = {extent} is not a multiple of 32, the least columns of a warp that compile"
    if isinstance(pair, B2bGemmWorkload):
        if (pair.first.layout_a, pair.first.layout_b) != (MatrixLayout.ROW, MatrixLayout.COL):
            return "reads a row-major A and a column-major B"
    elif pair.first.groups != 1:
        return f"groups = {pair.first.groups}; this family has no grouped convolution"
    elif max(pair.first.r, pair.first.s) > 32:
        return f"the iterators keep a bit for each tap, 32 at most; the filter is {pair.first.r}x{pair.first.s}"
    elif max(first.bytes, pair.second.bytes) >= _LIMIT_BYTES:
        return "a tensor of 2 GB or more: the iterators count bytes in 32 bits"
    depth, letter = (first.k, "K") if isinstance(first, GemmWorkload) else (first.c, "C")
    return f"{letter} = {depth} is not a multiple of 8, the access width" if depth % 8 else None
