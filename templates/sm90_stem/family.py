"""The stem convolution family: first layers with few channels, whose input rows are wgmma operands as they are."""

from collections.abc import Iterator

from templates.emit import render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import FLAGS, chain_source, wgmma_refusal
from templates.sm90_stem import geometry, rules, space
from templates.workload import ConvWorkload, Workload


class Sm90Stem:
    """Family; see templates/family.py for the contract. `Launch.variant`: output rows of a block."""

    name = "sm90_stem"
    version = 3
    min_sm = 90
    max_sm = 90
    pitched = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, ConvWorkload):
            return "the family computes convolutions"
        w = workload
        refused = wgmma_refusal(w, gpu)
        if refused:
            return refused
        if w.epilogue.output != w.dtype:
            return f"writes its operands' type {w.dtype}, not {w.epilogue.output}"
        if w.epilogue.has_source:
            return "a first layer has no residual: the epilogue takes no source tensor"
        return _shape_refusal(w)

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
        found = geometry.lay(instance_of(kernel), workload, 1)  # higher blocks take more memory, never less
        return found if isinstance(found, str) else None

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
            ptx_type=str(kernel.dtype),
            columns=instance.columns,
            registers=instance.columns // 2,
            phases=instance.phases,
            groups=instance.groups,
            buffers=instance.buffers,
        )
        return wrap(kernel, ("bolt/sm90_conv_stem.cuh",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 3.0, 0.5


def _shape_refusal(w: ConvWorkload) -> str | None:
    if w.groups != 1:
        return f"{w.groups} groups: a first layer with few channels has one"
    if w.dilation != (1, 1):
        return f"dilation {w.dilation[0]}x{w.dilation[1]}: a filter row's window has to be contiguous"
    if not geometry.phases_of(w):
        return (
            f"{w.c} channels at stride {w.stride[1]}: serves 4 channels at stride 1 or 2 and 8 at stride 1, where "
            "windows start 8 or 16 bytes apart"
        )
    if w.w * w.c % geometry.UNIT_ELEMENTS:
        return f"rows of {w.w} pixels x {w.c} channels are not a multiple of 16 bytes: TMA can't step over them"
    if w.k % 8:
        return f"K = {w.k} is not a multiple of 8: TMA moves channels in 16-byte units"
    return None


def instance_of(kernel: Kernel) -> space.Instance:
    """The instance whose parameters the kernel carries. Raises TypeError on parameters that are not an instance's."""
    return space.Instance(**dict(kernel.params))  # type: ignore[arg-type]
