"""Numerics of the Hopper kernels on a GPU, against fp32 arithmetic in torch.

Inputs lie between NaN guards, so a read outside them that reaches the result shows; outputs are filled with NaN and lie
between guards that must not change. Every kernel runs on every shape it is legal for, with every launch.
"""

import ctypes

import pytest

from core.measure.args import args_of
from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Kernel, Launch
from templates.gpu import KNOWN_GPUS, GpuSpec, known_gpu
from templates.types import DType
from templates.workload import ConvWorkload, GemmWorkload, Workload
from tests.gpu.kernels import Kernels, check_chained, selected
from tests.gpu.sm90_cases import CASES, CONVS, DIRECTS, GEMMS, SHARED_B, SPLIT_GEMMS, Case

torch = pytest.importorskip("torch", reason="torch computes the reference of these kernels")
from tests.gpu.test_kernels_sm80 import (  # noqa: E402  it needs torch
    SENTINEL,
    Guarded,
    apply_chain,
    operands,
    reference_conv,
    reference_gemm,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no Hopper GPU"
    ),
    pytest.mark.timeout(400, method="thread"),  # a kernel that hangs is beyond the reach of signals
]


def spec() -> GpuSpec:
    return known_gpu(torch.cuda.get_device_name()) or KNOWN_GPUS["h100"]


@pytest.fixture(scope="module")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return Kernels([case.kernel(spec()) for case in selected(request)], spec())


def tolerance(workload: Workload) -> float:
    """Relative L2: rounding of the output, and of the operands where tf32 cuts them."""
    if DType.BF16 in (workload.dtype, workload.epilogue.output):
        return 5e-3
    return 2e-3 if workload.dtype == DType.TF32 else 1e-3


def run(kernels: Kernels, kernel: Kernel, w: Workload, launch: Launch, tensors: dict[str, Guarded]) -> None:
    args = args_of(w, launch, spec().sm_count)
    for name, tensor in tensors.items():
        setattr(args, name, tensor.tensor.data_ptr())
    needed = kernels.entry("workspace", kernel)(ctypes.byref(args))
    workspace = torch.full((needed + 16,), 0xAB, dtype=torch.uint8, device="cuda")
    args.workspace, args.workspace_bytes = workspace.data_ptr(), needed
    what = f"{kernel.name} {launch.name} on {w.key}"
    assert kernels.entry("check", kernel)(ctypes.byref(args)) == 0, f"{what}: its own check refuses"
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert kernels.entry("run", kernel)(ctypes.byref(args), stream) == 0, f"{what}: launch failed"
    torch.cuda.synchronize()
    assert bool((workspace[needed:] == 0xAB).all()), f"{what}: wrote past its workspace"


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.family}-{c.stem}-{c.epilogue}-{c.dtype}")
def test_kernel_matches_fp32_reference(case: Case, kernels: Kernels) -> None:
    workloads = list(case.workloads(spec()))
    assert workloads
    check_against_fp32(case, workloads, kernels)


def check_against_fp32(case: Case, workloads: list[Workload], kernels: Kernels) -> None:
    gpu, kernel = spec(), case.kernel(spec())
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for w in workloads:
        torch.manual_seed(0)
        a, b, shape = operands(w)
        bias, source = Guarded(shape[-1:], w.dtype, float("nan")), Guarded(shape, w.epilogue.output, float("nan"))
        gemm = isinstance(w, GemmWorkload)
        plain = reference_gemm(w, a.tensor, b.tensor) if gemm else reference_conv(w, a.tensor, b.tensor)
        wanted = apply_chain(w.epilogue, plain, bias.tensor.float(), source.tensor.float())
        for launch in case.launches(w, gpu):
            d = Guarded(shape, w.epilogue.output, SENTINEL, fill=float("nan"))
            run(kernels, kernel, w, launch, {"a": a, "b": b, "bias": bias, "source": source, "d": d})
            what = f"{kernel.name} {launch.name} on {w.key}"
            got = d.tensor.float()
            assert not got.isnan().any(), f"{what}: {int(got.isnan().sum())} outputs are NaN or were never written"
            assert d.guards_hold(SENTINEL), f"{what}: wrote outside its output"
            relative = ((got - wanted).norm() / wanted.norm()).item()
            assert relative < tolerance(w), f"{what}: relative L2 {relative:.2e}"


CHAINED = [
    ("sm90_conv-128x64x64_1x1_pingpong", "sm90_conv-128x64x64_1x1_pingpong"),
    ("sm90_direct-112_1x2_resident", "sm90_direct-112_1x2_resident"),
    ("sm90_direct-208_2x1_alternate", "sm90_direct-64_1x1_resident_o2"),
    ("sm90_conv-256x64x64_1x1_pingpong", "sm90_direct-112_1x1_streamed_o2"),
    ("sm90_split-192x64x64_conv", "sm90_split-192x64x64_conv"),
    ("sm90_split-192x64x64_conv", "sm90_direct-112_1x2_resident"),
]


@pytest.mark.parametrize("pair", CHAINED, ids="+".join)
def test_dependent_launches_wait_for_their_input(pair: tuple[str, str], kernels: Kernels) -> None:
    """Six layers, each reading the one before, in a CUDA graph with PDL, equal bit by bit to plain launches."""
    gpu, layers = spec(), 6
    chosen = [next(c for c in CASES if f"{c.family}-{c.stem}" == name and c.epilogue == "bias+relu") for name in pair]
    w = ConvWorkload(32, 56, 56, 64, 64, 3, 3, (1, 1, 1, 1), epilogue=parse_epilogue("bias+relu"))
    shape = (w.n, w.h, w.w, w.c)
    tensors = [torch.empty(shape, dtype=torch.float16, device="cuda") for _ in range(layers + 1)]
    weights = [torch.randn(w.k, 3, 3, w.c, device="cuda").mul_(0.06).half() for _ in range(layers)]
    bias = torch.randn(w.k, device="cuda").half()

    def go(pdl: bool) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for i in range(layers):
            case = chosen[i % 2]
            kernel = case.kernel(gpu)
            first = families()[case.family].launches(kernel, w, gpu)[0]
            args = args_of(w, Launch(variant=first.variant, pdl=pdl), gpu.sm_count)
            args.a, args.b, args.bias = tensors[i].data_ptr(), weights[i].data_ptr(), bias.data_ptr()
            args.d = tensors[i + 1].data_ptr()
            assert kernels.entry("run", kernel)(ctypes.byref(args), stream) == 0

    check_chained(tensors, go)


def test_a_kernel_refuses_what_it_cannot_run(kernels: Kernels) -> None:
    gpu = spec()
    for case in (GEMMS[0], CONVS[0], DIRECTS[-3], SPLIT_GEMMS[0]):
        w, kernel = next(case.workloads(gpu)), case.kernel(gpu)
        check = kernels.entry("check", kernel)
        args = args_of(w, families()[case.family].launches(kernel, w, gpu)[0], gpu.sm_count)
        args.a = args.b = args.bias = args.source = args.d = torch.empty(64, device="cuda").data_ptr()
        assert check(ctypes.byref(args)) == 0
        if isinstance(w, GemmWorkload):
            args.lda += 1
        else:
            args.c += 1
        assert check(ctypes.byref(args)) == -1


@pytest.mark.parametrize("case", GEMMS + SPLIT_GEMMS, ids=lambda c: f"{c.stem}-{c.epilogue}-{c.dtype}")
def test_one_b_serves_the_whole_batch(case: Case, kernels: Kernels) -> None:
    workload = case.specialise(SHARED_B)
    if reason := families()[case.family].illegal(case.kernel(spec()), workload, spec()):
        pytest.skip(reason)
    check_against_fp32(case, [workload], kernels)
