"""Numerics of the stem convolution on a Hopper GPU, against fp32 arithmetic in torch.

Every instance runs on every shape it is legal for, with every launch; inputs lie between NaN guards, outputs are filled
with NaN and lie between guards that must not change.
"""

import ctypes
from dataclasses import dataclass, replace

import pytest

from core.measure.args import args_of
from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Kernel, Launch
from templates.gpu import GpuSpec
from templates.sm90_stem.space import INSTANCES
from templates.types import DType
from templates.workload import ConvWorkload

torch = pytest.importorskip("torch", reason="torch computes the reference of these kernels")
from tests.gpu.kernels import Kernels, check_chained, selected  # noqa: E402  it needs torch
from tests.gpu.test_kernels_sm90 import check_against_fp32, spec  # noqa: E402  it needs torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no Hopper GPU"
    ),
    pytest.mark.timeout(200, method="thread"),  # a kernel that hangs is beyond the reach of signals
]
STEM = families()["sm90_stem"]
CHAINS = ("identity", "bias", "bias+gelu_erf", "bias+clip(0,6)")


def conv(
    n: int, h: int, w: int, c: int, k: int, r: int, s: int, pad: int | tuple[int, int, int, int], stride: int
) -> ConvWorkload:
    pads = (pad,) * 4 if isinstance(pad, int) else pad
    return ConvWorkload(n, h, w, c, k, r, s, pads, (stride, stride))


SHAPES = [
    conv(32, 224, 224, 4, 64, 7, 7, 3, 2),
    conv(1, 224, 224, 4, 64, 7, 7, 3, 2),
    conv(3, 113, 150, 4, 96, 7, 7, 3, 2),
    conv(3, 224, 224, 4, 32, 3, 3, (0, 0, 1, 1), 2),
    conv(1, 75, 46, 4, 48, 3, 3, 1, 2),
    conv(2, 33, 258, 4, 24, 5, 5, 2, 2),
    conv(2, 31, 70, 4, 136, 5, 4, (3, 0, 1, 2), 2),
    conv(3, 224, 224, 4, 64, 3, 3, 1, 1),
    conv(32, 32, 32, 4, 64, 3, 3, 1, 1),
    conv(2, 45, 118, 4, 96, 5, 5, 2, 1),
    conv(1, 17, 30, 4, 48, 7, 7, 3, 1),
    conv(3, 61, 77, 8, 64, 3, 3, 1, 1),
    conv(1, 40, 113, 8, 32, 5, 5, (2, 1, 0, 3), 1),
    conv(2, 20, 19, 8, 48, 1, 3, 0, 1),
]


@dataclass(frozen=True)
class Case:
    """One kernel by its stem; the interface of tests/gpu/sm90_cases.py."""

    stem: str
    epilogue: str = "bias+relu"
    dtype: DType = DType.F16

    def specialise(self, workload: ConvWorkload) -> ConvWorkload:
        return replace(workload, epilogue=parse_epilogue(self.epilogue), dtype=self.dtype)

    def kernel(self, gpu: GpuSpec) -> Kernel:
        return next(k for k in STEM.kernels(self.specialise(SHAPES[0]), gpu) if k.stem == self.stem)

    def workloads(self, gpu: GpuSpec) -> list[ConvWorkload]:
        found = [self.specialise(shape) for shape in SHAPES]
        return [w for w in found if STEM.illegal(self.kernel(gpu), w, gpu) is None]

    def launches(self, workload: ConvWorkload, gpu: GpuSpec) -> list[Launch]:
        return [*STEM.launches(self.kernel(gpu), workload, gpu), Launch(), Launch(variant=1, pdl=True)]


CASES = [
    *(Case(i.stem) for i in INSTANCES),
    *(Case(stem, chain) for stem in ("112x1_4g_1b", "56x2_4g_2b") for chain in CHAINS),
    *(Case(stem, "bias+relu->bf16", DType.BF16) for stem in ("112x1_4g_2b", "112x2_2g_2b")),
]


@pytest.fixture(scope="module")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return Kernels([case.kernel(spec()) for case in selected(request)], spec())


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.stem}-{c.epilogue}-{c.dtype}")
def test_kernel_matches_fp32_reference(case: Case, kernels: Kernels) -> None:
    workloads = case.workloads(spec())
    assert workloads
    check_against_fp32(case, workloads, kernels)  # type: ignore[arg-type]


def test_dependent_launches_wait_for_their_input(kernels: Kernels) -> None:
    """Six layers of 8 channels, each reading the one before, in a CUDA graph with PDL, equal to plain launches."""
    gpu, layers = spec(), 6
    case = Case("112x1_4g_1b")
    w = case.specialise(conv(32, 112, 112, 8, 8, 3, 3, 1, 1))
    entry = kernels.entry("run", case.kernel(gpu))
    tensors = [torch.empty((w.n, w.h, w.w, w.c), dtype=torch.float16, device="cuda") for _ in range(layers + 1)]
    weights = [torch.randn(w.k, 3, 3, w.c, device="cuda").mul_(0.15).half() for _ in range(layers)]
    bias = torch.randn(w.k, device="cuda").half()

    def go(pdl: bool) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for i in range(layers):
            args = args_of(w, Launch(variant=4, pdl=pdl), gpu.sm_count)
            args.a, args.b, args.bias = tensors[i].data_ptr(), weights[i].data_ptr(), bias.data_ptr()
            args.d = tensors[i + 1].data_ptr()
            assert entry(ctypes.byref(args), stream) == 0

    check_chained(tensors, go)
