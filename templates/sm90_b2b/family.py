"""The Hopper pair family: GEMM -> GEMM and conv -> 1x1 conv, both epilogues generated chains, weights constant."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from templates.emit import render, wrap
from templates.epilogue import Epilogue, parse_epilogue
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_b2b import geometry, rules, space
from templates.sm90_common import EXTENDED_FLAGS, FLAGS, b2b_refusal, chain_source, im2col_refusal
from templates.types import MatrixLayout, Residence
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, Pair, Workload


@dataclass(frozen=True)
class Part:
    """One epilogue as the kernel takes it: a bias at the front becomes the accumulators' start, a final ReLU a modifier
    of the conversion, `chain` (a functor) is what is left."""

    chain: str
    bias_first: bool
    bias: bool
    final_relu: bool


class Sm90B2b:
    """Family; see templates/family.py for the contract. The first epilogue is the kernel parameter `inner`.
    `Launch.variant`: most stages of a ring, 0 for as many as fit.
    """

    name = "sm90_b2b"
    version = 1
    min_sm = 90
    max_sm = 90
    pitched = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, Pair):
            return "the family computes two products in one kernel"
        return b2b_refusal(workload, gpu, Residence.RF) or _shape_refusal(workload, gpu)

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if not isinstance(workload, Pair):
            return
        inner = workload.first.epilogue
        for instance in space.instances(workload.second.k, workload.n1, isinstance(workload, B2bConvWorkload)):
            yield Kernel(
                family=self.name,
                params=tuple(sorted((instance.params | {"inner": str(inner)}).items())),
                epilogue=workload.epilogue,
                dtype=workload.dtype,
                accumulator=workload.accumulator,
                stem=f"{instance.stem}_{inner.ident}",
            )

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        if refused or not isinstance(workload, Pair):
            return refused
        i = instance_of(kernel)
        if bool(i.conv) != isinstance(workload, B2bConvWorkload):
            return "built for a convolution" if i.conv else "built for a matrix product"
        if (inner_of(kernel), kernel.epilogue, kernel.dtype) != (
            workload.first.epilogue, workload.epilogue, workload.dtype,
        ):  # fmt: skip
            return "built for other types or another epilogue"
        layout = geometry.lay(i, workload)
        if isinstance(layout, str):
            return layout
        objection = geometry.register_objection(i, base_registers(kernel))
        return objection or _waste(i, layout, workload, gpu)

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return rules.launches(instance_of(kernel), workload) if isinstance(workload, Pair) else []

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, Pair):
            raise ValueError(f"{self.name} scores pairs only")
        return rules.score(instance_of(candidate.kernel), candidate.launch, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        i = instance_of(kernel)
        body = render(
            __file__,
            "kernel.cu.jinja",
            inner=part_of(inner_of(kernel), "InnerChain"),
            outer=part_of(kernel.epilogue, "OuterChain"),
            element=kernel.dtype.cutlass,
            base_registers=base_registers(kernel),
            **(i.params | {"stream": bool(i.stream), "conv": bool(i.conv)}),
        )
        return wrap(kernel, ("bolt/sm90_b2b.hpp",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return FLAGS if instance_of(kernel).native else EXTENDED_FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return (16.0, 3.0) if instance_of(kernel).native else (40.0, 4.0)


def instance_of(kernel: Kernel) -> space.Instance:
    """The instance whose parameters the kernel carries. Raises TypeError on parameters that are not an instance's."""
    return space.Instance(**{n: v for n, v in kernel.params if n != "inner"})  # type: ignore[arg-type]


def inner_of(kernel: Kernel) -> Epilogue:
    """The first product's epilogue."""
    return parse_epilogue(str(kernel["inner"]))


def base_registers(kernel: Kernel) -> int:
    return geometry.base_registers(inner_of(kernel), kernel.epilogue)


def part_of(epilogue: Epilogue, name: str) -> Part:
    """The parts of a pair's epilogue; `name` is that of the functor."""
    bias_first = bool(epilogue.ops) and epilogue.ops[0].op == "bias"
    chain, final_relu = chain_source(Epilogue(epilogue.ops[bias_first:], epilogue.output), name)
    return Part(chain, bias_first, epilogue.has_bias, final_relu)


def _shape_refusal(pair: Pair, gpu: GpuSpec) -> str | None:
    """Widths that TMA can't address, that no block covers, and convolutions beyond an im2col descriptor."""
    first, n0 = pair.first, pair.second.k
    widths = {"N0": n0, "N1": pair.n1} | ({"K" if isinstance(first, GemmWorkload) else "C": _depth(first)})
    for letter, extent in widths.items():
        if extent % 8:
            return f"{letter} = {extent} is not a multiple of 8: TMA moves rows in 16-byte units"
    if pair.n1 > space.MAX_WIDTH:
        return f"residence: a block covers N1 up to {space.MAX_WIDTH}, N1 = {pair.n1}"
    if isinstance(pair, B2bGemmWorkload):
        if (pair.first.layout_a, pair.first.layout_b) != (MatrixLayout.ROW, MatrixLayout.COL):
            return "reads a row-major A and a column-major B"
        limit = space.MAX_MIDDLE
    else:
        if pair.first.groups != 1:
            return f"{pair.first.groups} groups: an implicit GEMM over all channels is wasted on them"
        refused = im2col_refusal(pair.first)
        if refused:
            return refused
        limit = space.MAX_WIDTH
    if n0 > limit:
        return f"residence: a block covers N0 up to {limit}, N0 = {n0}"
    fixed = geometry.least_fixed_bytes(n0, pair.n1)
    if fixed > gpu.smem_per_block:
        return f"residence: B1 and a result tile take {fixed // 1024} KB, a block has {gpu.smem_per_block // 1024} KB"
    return None


def _depth(first: GemmWorkload | ConvWorkload) -> int:
    return first.k if isinstance(first, GemmWorkload) else first.c


def _waste(i: space.Instance, layout: geometry.Layout, pair: Pair, gpu: GpuSpec) -> str | None:
    """Instances that are legal and can't be the fastest, because they idle or load what another one need not."""
    depth = _depth(pair.first)
    if i.block_k * ceil(depth / i.block_k) >= depth + max(32, i.block_k // 2) and i.block_k > 16:
        return f"blocks of {i.block_k} along K load mostly zeros for {depth}"
    if layout.tiles <= gpu.sm_count and (i.subtiles > 1 or i.blocks_per_sm > 1):
        return f"{layout.tiles} tiles don't give every SM one; larger steps leave more of them idle"
    if not i.stream and i.groups > 1 and layout.tiles <= gpu.sm_count * (i.groups - 1):
        return f"{layout.tiles} tiles leave warp groups without any"
    return None
