"""The persistent convolution family: any stride, padding, dilation and filter; channels a multiple of 8."""

from collections.abc import Iterator

from templates.emit import render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import FLAGS, TMA_BYTES, chain_source, conv_refusal, im2col_refusal, memory_type
from templates.sm90_conv import rules, space
from templates.types import DType
from templates.workload import ConvWorkload, Workload

MIN_STAGES = 2


class Sm90Conv:
    """Family; see templates/family.py for the contract."""

    name = "sm90_conv"
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
        if workload.epilogue.output not in (DType.F16, DType.BF16, DType.F32):
            return f"no kernel writes {workload.epilogue.output}"
        return im2col_refusal(workload)

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if not isinstance(workload, ConvWorkload):
            return
        for point in space.points():
            yield Kernel(
                family=self.name,
                params=tuple(sorted(point.items())),
                epilogue=workload.epilogue,
                dtype=workload.dtype,
                accumulator=workload.accumulator,
                alignment=(8, 8, TMA_BYTES // workload.epilogue.output.itemsize),
                stem=space.stem(point),
            )

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        if refused or not isinstance(workload, ConvWorkload):
            return refused
        depth = rules.stages(kernel, gpu)
        if depth < MIN_STAGES:
            return f"shared memory holds {depth} stages of the tile, {MIN_STAGES} are needed"
        shape = rules.lay(kernel, workload, gpu)
        if shape.cluster_m > shape.tiles_m or shape.cluster_n > shape.tiles_n:
            return (
                f"a cluster of {shape.cluster_m}x{shape.cluster_n} over {shape.tiles_m}x{shape.tiles_n} tiles "
                "leaves CTAs without work"
            )
        if shape.tile_k == 32 and not 0 < workload.c % 64 <= 32:
            return f"steps of 32 channels only pay where 64 would waste half: C = {workload.c}"
        return None

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return rules.launches()

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, ConvWorkload):
            raise ValueError(f"{self.name} scores convolutions only")
        return rules.score(candidate, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        chain, final_relu = chain_source(kernel.epilogue)
        body = render(
            __file__,
            "kernel.cu.jinja",
            chain=chain,
            final_relu=final_relu,
            element=kernel.dtype.cutlass,
            element_d=memory_type(kernel.epilogue.output),
            cooperative=kernel["schedule"] == "cooperative",
            **{name: value for name, value in kernel.params if name != "schedule"},
        )
        return wrap(kernel, ("bolt/sm90_conv.hpp",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 50.0, 14.0
