"""Numerics of the sm75/sm80-class kernels and of the direct convolution on a GPU, against fp32 arithmetic in torch.

Inputs lie between NaN guards, so a read outside them that reaches the result shows; outputs are filled with NaN and lie
between guards that must not change. Every launch variant of every kernel runs.
"""

import ctypes
import os
from pathlib import Path

import pytest

from core.build.nvcc import compile_library
from core.build.toolchain import find_toolchain
from core.measure.args import args_of
from templates import families
from templates.epilogue import Epilogue, EpilogueOp
from templates.gpu import GpuSpec, known_gpu
from templates.types import DType
from templates.workload import ConvWorkload, GemmWorkload, Workload
from tests.gpu.sm80_cases import CASES, GEMMS, ROW, Case, kernels_of

torch = pytest.importorskip("torch", reason="torch computes the reference of these kernels")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
    pytest.mark.timeout(600),
]

GUARD = 512  # elements before and after every tensor; keeps 16-byte alignment
SENTINEL = 1234.0


@pytest.fixture(scope="module")
def gpu() -> GpuSpec:
    properties = torch.cuda.get_device_properties(0)
    sm = properties.major * 10 + properties.minor
    found = known_gpu(properties.name)
    optin = getattr(properties, "shared_memory_per_block_optin", 48 << 10)
    return found or GpuSpec(
        properties.name, sm, properties.multi_processor_count, optin, properties.shared_memory_per_multiprocessor,
        properties.L2_cache_size, 1000, 100, 1500,
    )  # fmt: skip


@pytest.fixture(scope="module")
def library(gpu: GpuSpec, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All kernels of all cases in one library, compiled in as many files as there are cores."""
    folder = tmp_path_factory.mktemp("sm80")
    unique = {}
    for case in CASES:
        if families()[case.family].refuses(case.workload, gpu) is None:
            unique |= {k.name: (families()[k.family].source(k), k) for k in kernels_of(case, gpu)}
    files: list[Path] = []
    cores = len(os.sched_getaffinity(0))
    for index in range(cores):
        part = [source for source, _ in list(unique.values())[index::cores]]
        if part:
            files.append(folder / f"part{index}.cu")
            files[-1].write_text("".join(part))
    compile_library(files, folder / "kernels.so", gpu.nvcc_arch, find_toolchain(), jobs=cores)
    return ctypes.CDLL(str(folder / "kernels.so"))


def torch_type(dtype: DType) -> "torch.dtype":
    return {DType.F16: torch.float16, DType.BF16: torch.bfloat16}.get(dtype, torch.float32)


class Guarded:
    """A tensor between two guards in one allocation."""

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, guard: float, fill: float | None = None, scale: float = 1.0
    ):
        count = 1
        for extent in shape:
            count *= extent
        self.whole = torch.full((count + 2 * GUARD,), guard, dtype=torch_type(dtype), device="cuda")
        self.tensor = self.whole[GUARD : GUARD + count].view(shape)
        if fill is None:
            self.tensor.copy_((torch.rand(shape, device="cuda") * 2 - 1) * scale)
        else:
            self.tensor.fill_(fill)

    def guards_hold(self, value: float) -> bool:
        return bool((self.whole[:GUARD] == value).all() and (self.whole[-GUARD:] == value).all())


def activation(step: EpilogueOp, x: "torch.Tensor") -> "torch.Tensor":
    f, p = torch.nn.functional, step.params
    return {
        "relu": lambda: f.relu(x),
        "leaky_relu": lambda: f.leaky_relu(x, p[0]),
        "clip": lambda: x.clamp(p[0], p[1]),
        "gelu_erf": lambda: f.gelu(x),
        "gelu_tanh": lambda: f.gelu(x, approximate="tanh"),
        "silu": lambda: f.silu(x),
        "sigmoid": x.sigmoid,
        "hard_swish": lambda: f.hardswish(x),
        "hard_sigmoid": lambda: (p[0] * x + p[1]).clamp(0, 1),
        "softplus": lambda: f.softplus(x),
        "tanh": x.tanh,
        "elu": lambda: f.elu(x, p[0]),
    }[step.op]()


def apply_chain(epilogue: Epilogue, x: "torch.Tensor", bias: "torch.Tensor", source: "torch.Tensor") -> "torch.Tensor":
    for step in epilogue.ops:
        if step.op == "bias":
            x = x + bias
        elif step.op in ("add", "mul"):
            x = x + source if step.op == "add" else x * source
        elif step.op in ("scale", "shift"):
            x = x * step.params[0] if step.op == "scale" else x + step.params[0]
        else:
            x = activation(step, x)
    return x


def reference_gemm(w: GemmWorkload, a: "torch.Tensor", b: "torch.Tensor") -> "torch.Tensor":
    a, b = a.float(), b.float()
    left = a if w.layout_a == ROW else a.transpose(1, 2)
    right = b if w.layout_b == ROW else b.transpose(1, 2)
    return left @ right


def reference_conv(w: ConvWorkload, a: "torch.Tensor", b: "torch.Tensor") -> "torch.Tensor":
    top, left, bottom, right = w.pad
    x = torch.nn.functional.pad(a.float().permute(0, 3, 1, 2), (left, right, top, bottom))
    y = torch.nn.functional.conv2d(
        x, b.float().permute(0, 3, 1, 2), stride=w.stride, dilation=w.dilation, groups=w.groups
    )
    return y.permute(0, 2, 3, 1)


def operands(w: Workload) -> tuple[Guarded, Guarded, tuple[int, ...]]:
    """A, B and the output's shape. B is scaled so that sums stay near one."""
    nan = float("nan")
    if isinstance(w, GemmWorkload):
        shape_a = (w.batch, w.m, w.k) if w.layout_a == ROW else (w.batch, w.k, w.m)
        batch_b = 1 if w.shared_b else w.batch
        shape_b = (batch_b, w.k, w.n) if w.layout_b == ROW else (batch_b, w.n, w.k)
        scale = (3.0 / w.k) ** 0.5
        return Guarded(shape_a, w.dtype, nan), Guarded(shape_b, w.dtype, nan, scale=scale), (w.batch, w.m, w.n)
    a = Guarded((w.n, w.h, w.w, w.c), w.dtype, nan)
    depth = w.c // w.groups
    b = Guarded((w.k, w.r, w.s, depth), w.dtype, nan, scale=(3.0 / (w.r * w.s * depth)) ** 0.5)
    return a, b, (w.n, w.p, w.q, w.k)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.family}-{c.workload.key.replace(' ', '-')}")
def test_kernel_matches_fp32_reference(case: Case, gpu: GpuSpec, library: ctypes.CDLL) -> None:
    family, w = families()[case.family], case.workload
    if refusal := family.refuses(w, gpu):
        pytest.skip(refusal)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    a, b, shape = operands(w)
    bias = Guarded(shape[-1:], w.dtype, float("nan"))
    source = Guarded(shape, w.epilogue.output, float("nan"))
    plain = (
        reference_gemm(w, a.tensor, b.tensor) if isinstance(w, GemmWorkload) else reference_conv(w, a.tensor, b.tensor)
    )
    wanted = apply_chain(w.epilogue, plain, bias.tensor.float(), source.tensor.float())
    loose = DType.BF16 in (w.epilogue.output, w.dtype)
    for kernel in kernels_of(case, gpu):
        for launch in family.launches(kernel, w, gpu):
            d = Guarded(shape, w.epilogue.output, SENTINEL, fill=float("nan"))
            args = args_of(w, launch, gpu.sm_count)
            for name, tensor in (("a", a), ("b", b), ("bias", bias), ("source", source), ("d", d)):
                setattr(args, name, tensor.tensor.data_ptr())
            workspace_bytes = getattr(library, f"bolt_workspace_{kernel.name}")
            workspace_bytes.restype = ctypes.c_size_t
            needed = workspace_bytes(ctypes.byref(args))
            workspace = Guarded((max(1, needed),), DType.F16, SENTINEL, fill=float("nan"))
            args.workspace, args.workspace_bytes = workspace.tensor.data_ptr(), needed
            what = f"{kernel.name} {launch.name}"
            assert getattr(library, f"bolt_check_{kernel.name}")(ctypes.byref(args)) == 0, what
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            assert getattr(library, f"bolt_run_{kernel.name}")(ctypes.byref(args), stream) == 0, what
            torch.cuda.synchronize()
            got = d.tensor.float()
            assert not got.isnan().any(), f"{what}: {int(got.isnan().sum())} outputs are NaN or were never written"
            assert d.guards_hold(SENTINEL) and workspace.guards_hold(SENTINEL), f"{what}: wrote outside its output"
            relative = ((got - wanted).norm() / wanted.norm()).item()
            worst = ((got - wanted).abs() / (1 + wanted.abs())).max().item()
            exact = w.dtype == DType.F32  # also by three tf32 products
            assert relative < (8e-3 if loose else 2e-5 if exact else 1.5e-3), f"{what}: relative L2 {relative:.2e}"
            assert worst < (4e-2 if loose else 2e-4 if exact else 8e-3), f"{what}: worst element off by {worst:.2e}"


def test_a_kernel_refuses_what_it_cannot_run(gpu: GpuSpec, library: ctypes.CDLL) -> None:
    case = GEMMS[0]
    kernel = kernels_of(case, gpu)[0]
    check = getattr(library, f"bolt_check_{kernel.name}")
    args = args_of(case.workload, families()[case.family].launches(kernel, case.workload, gpu)[0], gpu.sm_count)
    assert check(ctypes.byref(args)) == 0
    args.k -= 1
    assert check(ctypes.byref(args)) == -1, "K that is not a multiple of the alignment"
    args.k += 1
    args.a = 8
    assert check(ctypes.byref(args)) == -1, "A that is not 16-byte aligned"
