"""Numerics of the attention kernels on a GPU, against fp32 arithmetic in torch: masks, causality, widths, lengths.

Inputs lie between NaN guards, so a read outside them that reaches the result shows; outputs are filled with NaN and lie
between guards that must not change. Every kernel runs on every length, with every launch. The reference kernel of the
measuring library is checked against the definition in float64.
"""

import ctypes

import numpy as np
import pytest

from core.measure.args import args_of, operand_bytes
from templates import families
from templates.attention import AttentionWorkload, MaskKind, Strides
from templates.family import Kernel, Launch
from templates.gpu import GpuSpec
from templates.types import DType
from tests.gpu.attention_cases import HOPPER, HOPPER_CASES, MMA, MMA_CASES, PACKED, Case
from tests.gpu.test_measure import Device, device, opened  # noqa: F401  fixtures
from tests.templates.attention_cases import attention, defined, operands

torch = pytest.importorskip("torch", reason="torch computes the reference of these kernels")
from tests.gpu.kernels import Kernels, check_chained, selected  # noqa: E402
from tests.gpu.test_kernels_sm80 import SENTINEL, Guarded, torch_type  # noqa: E402  it needs torch
from tests.gpu.test_kernels_sm90 import spec  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0), reason="no GPU of sm80 or later"
    ),
    pytest.mark.timeout(400, method="thread"),  # a kernel that hangs is beyond the reach of signals
]


def cases(gpu: GpuSpec) -> list[Case]:
    return [*MMA_CASES, *(HOPPER_CASES if gpu.sm == 90 else [])]


@pytest.fixture(scope="module")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    gpu = spec()
    return Kernels([case.kernel(gpu) for case in selected(request) if case in cases(gpu)], gpu)


def memory(work: AttentionWorkload) -> dict[str, Guarded]:
    """Flat operands: a queries, b keys, b1 values, source the mask (one in ten of an added one is -infinity)."""
    sizes, nan, item = operand_bytes(work), float("nan"), work.dtype.itemsize
    made = {
        "a": Guarded((sizes.a // item,), work.dtype, nan, scale=4.0),
        "b": Guarded((sizes.b // item,), work.dtype, nan),
        "b1": Guarded((sizes.b1 // item,), work.dtype, nan),
    }
    if work.mask is MaskKind.ADD:
        made["source"] = Guarded((sizes.source // item,), work.dtype, nan)
        made["source"].tensor[torch.rand(made["source"].tensor.shape, device="cuda") < 0.1] = float("-inf")
    return made


def view(flat: "torch.Tensor", strides: Strides, counts: tuple[int, int, int], width: int) -> "torch.Tensor":
    return torch.as_strided(flat, (*counts, width), (*strides, 1), flat.storage_offset())


def reference(work: AttentionWorkload, tensors: dict[str, "torch.Tensor"]) -> "torch.Tensor":
    """(batch, heads, q_len, value_dim), float32."""
    queries, keys = (work.batch, work.heads, work.q_len), (work.batch, work.kv_heads, work.kv_len)
    group = work.heads // work.kv_heads
    q = view(tensors["a"], work.q, queries, work.head_dim).float()
    k = view(tensors["b"], work.k, keys, work.head_dim).float().repeat_interleave(group, 1)
    v = view(tensors["b1"], work.v, keys, work.value_dim).float().repeat_interleave(group, 1)
    scores = work.scale * (q @ k.transpose(-1, -2))
    if work.mask is not MaskKind.NONE:
        mask = view(tensors["source"], work.mask_strides, queries, work.kv_len)
        if work.mask is MaskKind.ADD:
            scores = scores + mask.float()
        else:
            dropped = -1e30 if work.mask.low else float("-inf")
            scores = scores.masked_fill((mask != 0) != work.mask.keeps, dropped)
    if work.causal:
        kept = torch.ones(work.q_len, work.kv_len, dtype=torch.bool, device="cuda").tril()
        scores = scores.masked_fill(~kept, float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v


def launch_kernel(
    kernels: Kernels, kernel: Kernel, work: AttentionWorkload, launch: Launch, pointers: dict[str, int]
) -> None:
    args = args_of(work, launch, spec().sm_count)
    for name, pointer in pointers.items():
        setattr(args, name, pointer)
    what = f"{kernel.name} {launch.name} on {work.key}"
    assert kernels.entry("check", kernel)(ctypes.byref(args)) == 0, f"{what}: its own check refuses"
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert kernels.entry("run", kernel)(ctypes.byref(args), stream) == 0, f"{what}: launch failed"


def check(kernels: Kernels, kernel: Kernel, work: AttentionWorkload, gpu: GpuSpec) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    guarded = memory(work)
    tensors = {name: one.tensor for name, one in guarded.items()}
    if work.mask not in (MaskKind.NONE, MaskKind.ADD):
        tensors["source"] = (torch.rand(operand_bytes(work).source, device="cuda") < 0.7).to(torch.uint8)
    wanted = reference(work, tensors)
    limit = 1e-2 if work.dtype == DType.BF16 else 1.5e-3
    for launch in families()[kernel.family].launches(kernel, work, gpu):
        d = Guarded((work.out_elements,), work.dtype, SENTINEL, fill=float("nan"))
        pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()} | {"d": d.tensor.data_ptr()}
        launch_kernel(kernels, kernel, work, launch, pointers)
        torch.cuda.synchronize()
        what = f"{kernel.name} {launch.name} on {work.key}"
        got = view(d.tensor, work.out, (work.batch, work.heads, work.q_len), work.value_dim).float()
        assert not got.isnan().any(), f"{what}: {int(got.isnan().sum())} outputs are NaN or were never written"
        assert d.guards_hold(SENTINEL), f"{what}: wrote outside its output"
        relative = ((got - wanted).norm() / wanted.norm().clamp_min(1e-6)).item()
        worst = ((got - wanted).abs() / (1 + wanted.abs())).max().item()
        assert relative < limit, f"{what}: relative L2 {relative:.2e}"
        assert worst < 4 * limit, f"{what}: worst element off by {worst:.2e}"


@pytest.mark.parametrize("case", [*MMA_CASES, *HOPPER_CASES], ids=lambda c: c.name)
def test_the_kernel_computes_its_definition(case: Case, kernels: Kernels) -> None:
    gpu = spec()
    if case.family == HOPPER and gpu.sm != 90:
        pytest.skip("the Hopper kernel needs compute capability 9.0")
    for work in case.workloads:
        check(kernels, case.kernel(gpu), work, gpu)


@pytest.mark.parametrize(("case", "work"), PACKED, ids=[MMA, HOPPER])
def test_operands_are_read_where_a_joint_projection_left_them(
    case: Case, work: AttentionWorkload, kernels: Kernels
) -> None:
    if case.family == HOPPER and spec().sm != 90:
        pytest.skip("the Hopper kernel needs compute capability 9.0")
    check(kernels, case.kernel(spec()), work, spec())


@pytest.mark.parametrize("case", [MMA_CASES[1], HOPPER_CASES[3], HOPPER_CASES[4]], ids=lambda c: c.name)
def test_dependent_launches_wait_for_their_input(case: Case, kernels: Kernels) -> None:
    """Six layers, each reading the one before thrice, in a CUDA graph with PDL, equal bit by bit to plain launches."""
    gpu, layers = spec(), 6
    if gpu.sm != 90:
        pytest.skip("programmatic dependent launch needs compute capability 9.0")
    work, kernel = attention(2, 12, 600, 600, 64, causal=case.causal, scale=1.0), case.kernel(gpu)
    tensors = [torch.empty(work.out_elements, dtype=torch_type(work.dtype), device="cuda") for _ in range(layers + 1)]

    def go(pdl: bool) -> None:
        for i in range(layers):
            pointer = tensors[i].data_ptr()
            pointers = {"a": pointer, "b": pointer, "b1": pointer, "d": tensors[i + 1].data_ptr()}
            launch_kernel(kernels, kernel, work, Launch(pdl=pdl), pointers)

    check_chained(tensors, go)


@pytest.mark.parametrize("mask", MaskKind)
def test_the_reference_kernel_computes_the_definition(mask: MaskKind, device: Device) -> None:  # noqa: F811
    work = attention(2, 6, 150, 333, 40, 150, kv_heads=3, mask=mask, causal=mask is MaskKind.KEEP)
    arrays = operands(work)
    q, k, v, source = (device.put(arrays.get(name)) for name in ("q", "k", "v", "mask"))
    out = device.empty(4 * work.out_elements)
    device.reference.attend(work, q, k, v, source, out, device.stream)
    found = device.get(out, (work.out_elements,), np.float32)
    np.testing.assert_allclose(found, defined(work, arrays), atol=2e-5)
