"""The direct pair family: a stride-1 convolution and the 1x1 convolution behind it, intermediate in shared memory."""

from collections.abc import Iterator
from dataclasses import asdict

from templates.emit import render, wrap
from templates.epilogue import Epilogue, parse_epilogue
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import EXTENDED_FLAGS, b2b_refusal, chain_source, conv_refusal
from templates.sm90_direct.geometry import PATCH, ROWS
from templates.sm90_direct_b2b import geometry, rules, space
from templates.types import Residence
from templates.workload import B2bConvWorkload, Workload


class Sm90DirectB2b:
    """Family; see templates/family.py for the contract. The first epilogue is the kernel parameter `inner`.
    `Launch.variant`: 1 patches, 2 whole rows.
    """

    name = "sm90_direct_b2b"
    version = 1
    min_sm = 90
    max_sm = 90
    pitched = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, B2bConvWorkload):
            return "the family computes a convolution and the 1x1 convolution behind it"
        first = workload.first
        refused = conv_refusal(first, gpu) or b2b_refusal(workload, gpu, Residence.SMEM)
        if refused:
            return refused
        if first.stride != (1, 1):
            return f"stride {first.stride[0]}x{first.stride[1]}: pixels are shared between taps at stride 1 only"
        if workload.n1 % 8:
            return f"N1 = {workload.n1} is not a multiple of 8: TMA moves channels in 16-byte units"
        if first.k > space.MAX_MIDDLE:
            return f"residence: a block covers N0 up to {space.MAX_MIDDLE}, N0 = {first.k}"
        return None

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if not isinstance(workload, B2bConvWorkload):
            return
        inner = workload.first.epilogue
        for instance in space.instances(workload.first.k):
            yield Kernel(
                family=self.name,
                params=tuple(sorted((asdict(instance) | {"inner": str(inner)}).items())),
                epilogue=workload.epilogue,
                dtype=workload.dtype,
                accumulator=workload.accumulator,
                stem=f"{instance.stem}_{inner.ident}",
            )

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        if refused or not isinstance(workload, B2bConvWorkload):
            return refused
        inner = inner_of(kernel)
        if (inner, kernel.epilogue, kernel.dtype) != (workload.first.epilogue, workload.epilogue, workload.dtype):
            return "built for other types or another epilogue"
        i = instance_of(kernel)
        reasons = [found for v in (PATCH, ROWS) if isinstance(found := geometry.lay(i, workload, v), str)]
        if len(reasons) == 2:
            return reasons[0]
        return geometry.register_objection(i, inner, kernel.epilogue)

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return rules.launches(instance_of(kernel), workload, gpu) if isinstance(workload, B2bConvWorkload) else []

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, B2bConvWorkload):
            raise ValueError(f"{self.name} scores pairs of convolutions only")
        return rules.score(instance_of(candidate.kernel), candidate.launch, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        i = instance_of(kernel)
        inner_chain, inner_relu = chain_source(inner_of(kernel), "InnerChain")
        outer_chain, outer_relu = chain_source(kernel.epilogue, "OuterChain")
        body = render(
            __file__,
            "kernel.cu.jinja",
            inner_chain=inner_chain,
            inner_relu=inner_relu,
            outer_chain=outer_chain,
            outer_relu=outer_relu,
            element=kernel.dtype.cutlass,
            **(asdict(i) | {"resident": bool(i.resident), "reuse": bool(i.reuse)}),
        )
        return wrap(kernel, ("bolt/sm90_direct_b2b.cuh",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return EXTENDED_FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 9.0, 1.0


def instance_of(kernel: Kernel) -> space.Instance:
    """The instance whose parameters the kernel carries. Raises TypeError on parameters that are not an instance's."""
    return space.Instance(**{n: v for n, v in kernel.params if n != "inner"})  # type: ignore[arg-type]


def inner_of(kernel: Kernel) -> Epilogue:
    """The first convolution's epilogue."""
    return parse_epilogue(str(kernel["inner"]))
