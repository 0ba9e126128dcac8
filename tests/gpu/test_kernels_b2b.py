"""Numerics of the pair kernels on a GPU, against fp32 products in torch whose intermediates are rounded once.

Inputs lie between NaN guards, so a read outside them that reaches the result shows; outputs are filled with NaN and lie
between guards that must not change. Every kernel runs on every shape of its case, with and without PDL, with as few
stages as it can have.
"""

import ctypes

import pytest

from core.measure.args import args_of, output_shape
from templates import families
from templates.family import Kernel, Launch
from templates.gpu import GpuSpec
from templates.types import DType
from templates.workload import Chain, GemmWorkload
from tests.gpu.b2b_cases import (
    CASES,
    DIRECT,
    HOPPER_CONVS,
    HOPPER_GEMMS,
    TOWERS,
    TRIPLES,
    Case,
    conv,
    gemm,
    random_runs,
)

torch = pytest.importorskip("torch", reason="torch computes the reference of these kernels")
from tests.gpu.kernels import Kernels, check_chained, selected  # noqa: E402
from tests.gpu.test_kernels_sm80 import (  # noqa: E402  it needs torch
    SENTINEL,
    Guarded,
    apply_chain,
    reference_conv,
)
from tests.gpu.test_kernels_sm90 import spec  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no Hopper GPU"
    ),
    pytest.mark.timeout(400, method="thread"),  # a kernel that hangs is beyond the reach of signals
]


@pytest.fixture(scope="module")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return Kernels([case.kernel(spec()) for case in selected(request)], spec())


def operands(pair: Chain) -> dict[str, Guarded]:
    """Every operand but the output; weights are scaled so that sums stay near one."""
    nan, dtype, first = float("nan"), pair.dtype, pair.first
    _, *later = pair.parts
    made = {"source1": Guarded((later[-1].m, later[-1].n), dtype, nan)}
    made["bias"] = Guarded((later[0].k,), dtype, nan)
    for number, part in enumerate(later, 1):
        made[f"b{number}"] = Guarded((part.n, part.k), dtype, nan, scale=(3.0 / part.k) ** 0.5)
        made[f"bias{number}"] = Guarded((part.n,), dtype, nan)
    if isinstance(first, GemmWorkload):
        made["a"] = Guarded((first.m, first.k), dtype, nan)
        made["b"] = Guarded((first.n, first.k), dtype, nan, scale=(3.0 / first.k) ** 0.5)
    else:
        made["a"] = Guarded((first.n, first.h, first.w, first.c), dtype, nan)
        depth = first.r * first.s * first.c
        made["b"] = Guarded((first.k, first.r, first.s, first.c), dtype, nan, scale=(3.0 / depth) ** 0.5)
    return made


def reference(pair: Chain, tensors: dict[str, Guarded]) -> "torch.Tensor":
    a, b = tensors["a"].tensor, tensors["b"].tensor
    _, *later = pair.parts
    if isinstance(pair.first, GemmWorkload):
        plain = a.float() @ b.float().t()
    else:
        plain = reference_conv(pair.first, a, b).reshape(later[0].m, later[0].k)
    nothing = torch.zeros((), device="cuda")
    value = apply_chain(pair.first.epilogue, plain, tensors["bias"].tensor.float(), nothing)
    for number, part in enumerate(later, 1):
        product = value.to(a.dtype).float() @ tensors[f"b{number}"].tensor.float().t()
        source = tensors["source1"].tensor.float() if part is later[-1] else nothing
        value = apply_chain(part.epilogue, product, tensors[f"bias{number}"].tensor.float(), source)
    return value


def run(kernels: Kernels, case: Case, pair: Chain, launch: Launch, tensors: dict[str, Guarded], gpu: GpuSpec) -> None:
    launch_kernel(kernels, case.kernel(gpu), pair, launch, tensors, gpu)


def launch_kernel(
    kernels: Kernels, kernel: Kernel, pair: Chain, launch: Launch, tensors: dict[str, Guarded], gpu: GpuSpec
) -> None:
    args = args_of(pair, launch, gpu.sm_count)
    for name, tensor in tensors.items():
        setattr(args, name, tensor.tensor.data_ptr())
    what = f"{kernel.name} {launch.name} on {pair.key}"
    assert kernels.entry("check", kernel)(ctypes.byref(args)) == 0, f"{what}: its own check refuses"
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert kernels.entry("run", kernel)(ctypes.byref(args), stream) == 0, f"{what}: launch failed"
    torch.cuda.synchronize()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_pair_matches_two_fp32_products(case: Case, kernels: Kernels) -> None:
    gpu = spec()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    limit = 8e-3 if case.dtype == DType.BF16 else 1.5e-3
    for pair in case.pairs:
        torch.manual_seed(0)
        tensors = operands(pair)
        wanted = reference(pair, tensors)
        for launch in case.launches_for(pair, gpu):
            d = Guarded(output_shape(pair), pair.dtype, SENTINEL, fill=float("nan"))
            run(kernels, case, pair, launch, tensors | {"d": d}, gpu)
            what = f"{case.name} {launch.name} on {pair.key}"
            got = d.tensor.float()
            assert not got.isnan().any(), f"{what}: {int(got.isnan().sum())} outputs are NaN or were never written"
            assert d.guards_hold(SENTINEL), f"{what}: wrote outside its output"
            relative = ((got - wanted).norm() / wanted.norm()).item()
            worst = ((got - wanted).abs() / (1 + wanted.abs())).max().item()
            assert relative < limit, f"{what}: relative L2 {relative:.2e}"
            assert worst < 8 * limit, f"{what}: worst element off by {worst:.2e}"


RANDOM_SEED, RANDOM_PAIRS = 5, 200


@pytest.fixture(scope="module")
def random_kernels() -> Kernels:
    gpu = spec()
    wanted = {k.name: k for k, _ in random_runs(gpu, RANDOM_SEED, RANDOM_PAIRS)}
    return Kernels(wanted.values(), gpu)


@pytest.mark.timeout(900, method="thread")
def test_random_pairs_match_two_fp32_products(random_kernels: Kernels) -> None:
    """200 shapes, each by a kernel of every family that serves it, by its first launch and its last."""
    gpu, wrong, runs = spec(), [], random_runs(spec(), RANDOM_SEED, RANDOM_PAIRS)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    assert len({pair.key for _, pair in runs}) > 0.9 * RANDOM_PAIRS
    for number, (kernel, pair) in enumerate(runs):
        torch.manual_seed(number)
        tensors = operands(pair)
        wanted = reference(pair, tensors)
        launches = families()[kernel.family].launches(kernel, pair, gpu)
        for launch in {launches[0].name: launches[0], launches[-1].name: launches[-1]}.values():
            d = Guarded(output_shape(pair), pair.dtype, SENTINEL, fill=float("nan"))
            launch_kernel(random_kernels, kernel, pair, launch, tensors | {"d": d}, gpu)
            relative = ((d.tensor.float() - wanted).norm() / wanted.norm().clamp_min(1e-6)).item()
            if not relative < 2e-3 or not d.guards_hold(SENTINEL):
                wrong.append(f"{kernel.name} {launch.name} on {pair.key}: relative L2 {relative:.2e}")
    assert not wrong, f"{len(wrong)} of {len(runs)}: " + "; ".join(wrong[:10])


def test_the_same_inputs_give_the_same_bits_every_time(kernels: Kernels) -> None:
    """A ring that is handed over too early shows as a rare difference."""
    gpu = spec()
    for case in (
        HOPPER_GEMMS[1],
        HOPPER_GEMMS[3],
        HOPPER_GEMMS[7],
        HOPPER_CONVS[0],
        DIRECT[0],
        DIRECT[2],
        TOWERS[6],
        TRIPLES[2],
    ):
        pair = case.pairs[2]
        tensors = operands(pair)
        results = []
        for _ in range(12):
            d = Guarded(output_shape(pair), pair.dtype, SENTINEL, fill=float("nan"))
            run(kernels, case, pair, Launch(pdl=True), tensors | {"d": d}, gpu)
            results.append(d.tensor.clone())
        assert all(torch.equal(results[0], r) for r in results[1:]), case.name


CHAINED = ("64x64x64g4r_m1d2", "64x64x64g1s_m1d1_o2", "64x64x64g2r_m1d2_conv", "64_1x4_resident", "128x128_g2")


@pytest.mark.parametrize("stem", CHAINED)
def test_dependent_launches_wait_for_their_input(stem: str, kernels: Kernels) -> None:
    """Six pairs, each reading the one before, in a CUDA graph with PDL, equal bit by bit to plain launches."""
    gpu, layers = spec(), 6
    case = next(c for c in CASES if c.stem == stem and (c.inner, c.outer) == ("bias+relu", "bias+relu"))
    image = case in (*HOPPER_CONVS, *DIRECT)
    shape = case.specialise(conv((32, 56, 56, 64), 64, 64) if image else gemm(40001, 64, 64, 64))
    kernel = case.kernel(gpu)
    weights = [operands(shape) for _ in range(layers)]
    size = weights[0]["a"].tensor.shape
    tensors = [torch.empty(size, dtype=torch.float16, device="cuda") for _ in range(layers + 1)]

    def go(pdl: bool) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for i in range(layers):
            args = args_of(shape, Launch(pdl=pdl), gpu.sm_count)
            for name in ("b", "bias", "b1", "bias1"):
                setattr(args, name, weights[i][name].tensor.data_ptr())
            args.a, args.d = tensors[i].data_ptr(), tensors[i + 1].data_ptr()
            assert kernels.entry("run", kernel)(ctypes.byref(args), stream) == 0

    check_chained(tensors, go)


def test_a_pair_kernel_refuses_what_it_cannot_run(kernels: Kernels) -> None:
    gpu = spec()
    for case in (HOPPER_GEMMS[0], HOPPER_CONVS[0]):
        pair, kernel = case.pairs[1], case.kernel(gpu)
        check = kernels.entry("check", kernel)
        tensors = operands(pair)
        args = args_of(pair, Launch(), gpu.sm_count)
        for name, tensor in tensors.items():
            setattr(args, name, tensor.tensor.data_ptr())
        args.d = tensors["source1"].tensor.data_ptr()
        assert check(ctypes.byref(args)) == 0
        for field, value in (("n1", args.n1 + 8), ("b1", args.b1 + 2), ("bias", None), ("ldd", args.ldd + 1)):
            kept = getattr(args, field)
            setattr(args, field, value)
            assert check(ctypes.byref(args)) == -1, field
            setattr(args, field, kept)
