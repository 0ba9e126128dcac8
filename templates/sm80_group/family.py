"""The sm80_group family: the kernels of sm80_gemm over the groups of a pointwise convolution."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from templates.emit import gencode, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm80_gemm import FAMILY as GEMM
from templates.sm80_gemm.family import gemm_body
from templates.workload import ConvWorkload, GemmWorkload, Workload


@dataclass(frozen=True)
class Sm80Group:
    """Groups are batch entries: A is (N*H*W, C/G) with leading dimension C, B the group's filters, D within K.

    Serves stride 1 without padding. Alignment follows C/G and K/G.
    """

    name: str = "sm80_group"
    version: int = 1
    min_sm: int = 75
    max_sm: int = 120
    pitched: bool = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, ConvWorkload):
            return "not a convolution"
        if workload.groups == 1:
            return "not grouped"
        if (workload.r, workload.s) != (1, 1) or workload.stride != (1, 1) or any(workload.pad):
            return "only 1x1 filters at stride 1 without padding are a batched GEMM"
        if workload.n * workload.h * workload.w >= 1 << 30:
            return "2^30 output pixels or more"
        return GEMM.refuses(gemm_of(workload), gpu)

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if self.refuses(workload, gpu) or not isinstance(workload, ConvWorkload):
            return
        for kernel in GEMM.kernels(gemm_of(workload), gpu):
            if not kernel.int("split"):
                yield replace(kernel, family=self.name)

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        reason = self.refuses(workload, gpu)
        if reason or not isinstance(workload, ConvWorkload):
            return reason
        return GEMM.illegal(replace(kernel, family=GEMM.name), gemm_of(workload), gpu)

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        assert isinstance(workload, ConvWorkload)
        return GEMM.launches(kernel, gemm_of(workload), gpu)

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        """That of the batched GEMM: templates/sm80_gemm/rules.py."""
        assert isinstance(workload, ConvWorkload)
        return GEMM.score(candidate, gemm_of(workload), gpu)

    def source(self, kernel: Kernel) -> str:
        return wrap(kernel, ("bolt/sm80_group.h",), gemm_body(kernel, grouped=True))

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return gencode(gpu)

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return GEMM.compile_seconds(kernel)


def gemm_of(workload: ConvWorkload) -> GemmWorkload:
    """The batched GEMM that a grouped 1x1 convolution is: one entry a group."""
    m, n, k = workload.implicit_gemm
    return GemmWorkload(m, n, k, workload.groups, workload.dtype, workload.accumulator, epilogue=workload.epilogue)
