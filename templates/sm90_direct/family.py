"""The direct convolution family: stride 1, pixels and halo loaded once, filter taps by shifted descriptors."""

from collections.abc import Iterator

from templates.emit import render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import EXTENDED_FLAGS, chain_source, conv_refusal
from templates.sm90_direct import geometry, rules, space
from templates.workload import ConvWorkload, Workload


class Sm90Direct:
    """Family; see templates/family.py for the contract. `Launch.variant`: 1 patches, 2 whole rows."""

    name = "sm90_direct"
    version = 1
    min_sm = 90
    max_sm = 90
    pitched = True

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, ConvWorkload):
            return "the family computes convolutions"
        refused = conv_refusal(workload, gpu)
        if refused:
            return refused
        if workload.stride != (1, 1):
            return f"stride {workload.stride[0]}x{workload.stride[1]}: pixels are shared between taps at stride 1 only"
        if workload.epilogue.output != workload.dtype:
            return f"writes its operands' type {workload.dtype}, not {workload.epilogue.output}"
        return None

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if not isinstance(workload, ConvWorkload):
            return
        for instance in space.INSTANCES:
            yield Kernel(
                family=self.name,
                params=instance.params,
                epilogue=workload.epilogue,
                dtype=workload.dtype,
                accumulator=workload.accumulator,
                stem=instance.stem,
            )

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        if refused or not isinstance(workload, ConvWorkload):
            return refused
        reasons = []
        for variant in (geometry.PATCH, geometry.ROWS):
            found = geometry.lay(instance_of(kernel), workload, variant)
            if not isinstance(found, str):
                return None
            reasons.append(found)
        return reasons[0]

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return rules.launches(instance_of(kernel), workload, gpu) if isinstance(workload, ConvWorkload) else []

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, ConvWorkload):
            raise ValueError(f"{self.name} scores convolutions only")
        return rules.score(instance_of(candidate.kernel), candidate.launch, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        chain, final_relu = chain_source(kernel.epilogue)
        instance = instance_of(kernel)
        body = render(
            __file__,
            "kernel.cu.jinja",
            chain=chain,
            final_relu=final_relu,
            element=kernel.dtype.cutlass,
            pixels=instance.pixels,
            channel_groups=instance.channel_groups,
            pixel_groups=instance.pixel_groups,
            taps_per_stage=instance.taps_per_stage,
            blocks_per_sm=instance.blocks_per_sm,
            resident=instance.weights == "resident",
            alternate=instance.weights == "alternate",
        )
        return wrap(kernel, ("bolt/sm90_conv_direct.cuh",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return EXTENDED_FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 9.0, 1.0


def instance_of(kernel: Kernel) -> space.Instance:
    """The instance whose parameters the kernel carries. Raises TypeError on parameters that are not an instance's."""
    return space.Instance(**dict(kernel.params))  # type: ignore[arg-type]
