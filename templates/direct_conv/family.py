"""The direct_conv family: our own kernels, so that no supported convolution lacks one."""

from collections.abc import Iterator
from dataclasses import dataclass

from templates.direct_conv import rules
from templates.direct_conv.space import Depthwise, method_of, methods
from templates.emit import gencode, render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.tensorop import memory_type
from templates.types import DType
from templates.workload import ConvWorkload, Workload

_TYPES = (DType.F16, DType.BF16, DType.TF32, DType.F32)
_SHARED_LIMIT = 48 << 10  # bytes; more has to be asked for, and would leave one block an SM


@dataclass(frozen=True)
class DirectConv:
    """Depthwise and general grouped convolution in fp32 FMA, any stride, dilation, padding, groups and alignment.

    f32 and tf32 operands are float32 in memory and are multiplied at full precision.
    """

    name: str = "direct_conv"
    version: int = 1
    min_sm: int = 75
    max_sm: int = 120
    pitched: bool = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, ConvWorkload):
            return "not a convolution"
        if not self.min_sm <= gpu.sm <= self.max_sm:
            return f"needs sm{self.min_sm} to sm{self.max_sm}, this GPU is sm{gpu.sm}"
        if workload.dtype not in _TYPES or workload.epilogue.output not in _TYPES:
            return f"{workload.dtype} to {workload.epilogue.output} is not offered (f16, bf16, tf32 and f32 are)"
        if workload.accumulator != DType.F32:
            return f"accumulation in {workload.accumulator} is not offered, only f32"
        if workload.groups > 65535:
            return f"groups = {workload.groups} is more than 65535"
        if workload.n * workload.p * workload.q >= 1 << 30:
            return "2^30 output pixels or more"
        return None

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if self.refuses(workload, gpu) or not isinstance(workload, ConvWorkload):
            return
        for method in methods(workload):
            vec_out = method.vec if isinstance(method, Depthwise) else method.vec_out
            yield Kernel(
                self.name, tuple(sorted(method.params.items())), workload.epilogue, workload.dtype,
                workload.accumulator, alignment=(method.vec, method.vec, vec_out), stem=method.stem,
            )  # fmt: skip

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        reason = self.refuses(workload, gpu)
        if reason or not isinstance(workload, ConvWorkload):
            return reason
        if (kernel.dtype, kernel.accumulator, kernel.epilogue) != (
            workload.dtype, workload.accumulator, workload.epilogue,
        ):  # fmt: skip
            return "built for other types or another epilogue"
        method = method_of(dict(kernel.params))
        if isinstance(method, Depthwise):
            return _depthwise_objection(method, workload)
        if workload.c // workload.groups % method.vec:
            return f"C/groups = {workload.c // workload.groups} is not a multiple of {method.vec}, the access width"
        filters = workload.k // workload.groups
        if filters % method.vec_out:
            return f"K/groups = {filters} is not a multiple of {method.vec_out}, the store width"
        if method.tile_k > max(8, 2 * filters):
            return f"tile of {method.tile_k} filters is more than twice K/groups = {filters}"
        return None

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return [Launch(pdl=True), Launch()] if gpu.sm >= 90 else [Launch()]

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        assert isinstance(workload, ConvWorkload)
        return rules.score(method_of(dict(candidate.kernel.params)), candidate, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        body = render(
            __file__,
            "kernel.cu.j2",
            chain=kernel.epilogue.functor(),
            method=method_of(dict(kernel.params)),
            depthwise=kernel["method"] == "depthwise",
            operand=memory_type(kernel.dtype),
            output=memory_type(kernel.epilogue.output),
            align_in=kernel.alignment[0],
            align_out=kernel.alignment[2],
        )
        return wrap(kernel, ("bolt/direct_conv.h",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return gencode(gpu)

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 4.0, 0.5


def _depthwise_objection(method: Depthwise, workload: ConvWorkload) -> str | None:
    if not workload.groups == workload.c == workload.k:
        return "the depthwise kernel needs one input and one output channel a group"
    if workload.c % method.vec:
        return f"C = {workload.c} is not a multiple of {method.vec}, the access width"
    known = (workload.s, workload.stride[1], workload.dilation[1])
    if method.taps_w and known != (method.taps_w, method.stride_w, 1):
        return f"built for filters {method.taps_w} wide at stride {method.stride_w}, undilated"
    shared = workload.r * workload.s * method.block_c * method.vec * workload.dtype.itemsize
    if shared > _SHARED_LIMIT:
        return (
            f"filters of {method.block_c * method.vec} channels take {shared // 1024} KB of shared memory, 48 are there"
        )
    if method.block_c * method.vec >= 2 * max(32, workload.c):
        return f"a block of {method.block_c * method.vec} channels is twice C = {workload.c}"
    if method.pixels >= 2 * workload.q:
        return f"strips of {method.pixels} outputs are twice the row of {workload.q}"
    return None
