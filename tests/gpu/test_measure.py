"""The reference kernels against float64 arithmetic in numpy, and our candidates through the whole measuring process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from core.build.artifact import BuiltKernel
from core.device import GpuIdentity
from core.measure.measurement import Measurement
from core.measure.process import ProcessMeasurer
from core.measure.reference import Reference
from core.measure.runtime import Runtime, open_runtime
from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Candidate
from templates.types import DType
from templates.workload import ConvWorkload, GemmWorkload, parse_workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
RNG = np.random.default_rng(11)


class Device:
    """A runtime, the measuring library and a few arrays on it."""

    def __init__(self, runtime: Runtime, library: Path) -> None:
        self.runtime, self.stream = runtime, runtime.stream()
        self.reference = Reference(library, runtime)
        self._taken: list[int] = []

    def put(self, array: np.ndarray | None) -> int:
        if array is None:
            return 0
        contiguous = np.ascontiguousarray(array)
        pointer = self.empty(contiguous.nbytes)
        self.runtime.to_device(pointer, contiguous)
        return pointer

    def empty(self, nbytes: int) -> int:
        self._taken.append(self.runtime.alloc(nbytes))
        return self._taken[-1]

    def get(self, pointer: int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        out: np.ndarray = np.empty(shape, dtype)
        self.runtime.to_host(out, pointer)
        return out

    def free(self) -> None:
        for pointer in self._taken:
            self.runtime.free(pointer)
        self._taken.clear()


@pytest.fixture(scope="module")
def opened(reference_library: Path) -> Iterator[Device]:
    runtime = open_runtime("cuda-bindings")
    yield Device(runtime, reference_library)
    runtime.close()


@pytest.fixture
def device(opened: Device) -> Iterator[Device]:
    yield opened
    opened.free()


def half(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float16)


def error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize(
    "key",
    [
        "gemm 128x64x64 f16.f32 row.col identity",
        "gemm 333x201x105 f16.f32 row.col bias+relu",
        "gemm 65x130x33 f16.f32 row.row bias",
        "gemm 65x130x33 f16.f32 col.col mul",
        "gemm 17x9x700 b5 f16.f32 row.row bias+add+relu",
        "gemm 17x9x70 b5s f16.f32 col.row add",
    ],
)
def test_reference_gemm(device: Device, key: str) -> None:
    work = parse_workload(key)
    assert isinstance(work, GemmWorkload)
    a, b = half(work.batch, work.m, work.k), half(1 if work.shared_b else work.batch, work.k, work.n)
    bias, source = half(work.n), half(work.batch, work.m, work.n)
    stored_a = a if work.layout_a == "row" else a.transpose(0, 2, 1)
    stored_b = b if work.layout_b == "row" else b.transpose(0, 2, 1)
    out = device.empty(4 * source.size)
    at = [device.put(x) for x in (stored_a, stored_b, bias, source)]
    device.reference.run(work, at[0], at[1], at[2], at[3], out, device.stream)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for step in work.epilogue.ops:
        exact = {
            "bias": lambda x: x + bias.astype(np.float64),
            "add": lambda x: x + source.astype(np.float64),
            "mul": lambda x: x * source.astype(np.float64),
            "relu": lambda x: np.maximum(x, 0),
        }[step.op](exact)
    assert error(device.get(out, source.shape, np.float32), exact) < 2e-6


def convolution(x: np.ndarray, w: np.ndarray, work: ConvWorkload) -> np.ndarray:
    """NHWC convolution in float64, tap by tap."""
    top, left, bottom, right = work.pad
    x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    out = np.zeros((work.n, work.p, work.q, work.k))
    per_in, per_out = work.c // work.groups, work.k // work.groups
    for r in range(work.r):
        for s in range(work.s):
            y0, x0 = r * work.dilation[0], s * work.dilation[1]
            tap = x[:, y0 :: work.stride[0], x0 :: work.stride[1]][:, : work.p, : work.q]
            for g in range(work.groups):
                filters = w[g * per_out : (g + 1) * per_out, r, s].astype(np.float64)
                out[..., g * per_out : (g + 1) * per_out] += tap[..., g * per_in : (g + 1) * per_in] @ filters.T
    return out


@pytest.mark.parametrize(
    "key",
    [
        "conv 2x9x11x16 k24x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 identity",
        "conv 2x17x19x24 k16x3x5 p1.0.1.2 s2.1 d1.2 g4 f16.f32 identity",
        "conv 3x14x14x96 k96x3x3 p1.1.1.1 s2.2 d1.1 g96 f16.f32 identity",
        "conv 1x224x224x4 k64x7x7 p3.3.3.3 s2.2 d1.1 g1 f16.f32 identity",
    ],
)
def test_reference_conv(device: Device, key: str) -> None:
    work = parse_workload(key)
    assert isinstance(work, ConvWorkload)
    x, w = half(work.n, work.h, work.w, work.c), half(work.k, work.r, work.s, work.c // work.groups)
    out = device.empty(4 * work.n * work.p * work.q * work.k)
    device.reference.run(work, device.put(x), device.put(w), 0, 0, out, device.stream)
    found = device.get(out, (work.n, work.p, work.q, work.k), np.float32)
    assert error(found, convolution(x, w, work)) < 2e-6


@pytest.mark.parametrize("columns", [64, 12, 7])
@pytest.mark.parametrize("output", [DType.F16, DType.F32])
def test_elementwise(device: Device, columns: int, output: DType) -> None:
    kind = np.float16 if output == DType.F16 else np.float32
    d, source = (RNG.uniform(-1, 1, (37, columns)).astype(kind) for _ in range(2))
    bias = half(columns)
    pointers = [device.put(x) for x in (d, bias, source)]
    steps = parse_epilogue("bias+mul+leaky_relu(0.1)+shift(0.5)").ops
    device.reference.elementwise(
        pointers[0], output, pointers[1], DType.F16, pointers[2], 37, columns, steps, device.stream
    )
    y = (d.astype(np.float64) + bias) * source
    exact = np.where(y < 0, 0.1 * y, y) + 0.5
    assert error(device.get(pointers[0], d.shape, kind), exact) < (1e-3 if output == DType.F16 else 1e-6)


def test_fill_is_uniform_repeatable_and_seeded(device: Device) -> None:
    n = 1 << 20
    drawn = []
    for seed in (1, 1, 2):
        pointer = device.empty(4 * n)
        device.reference.fill(pointer, DType.F32, n, seed, 1.0, device.stream)
        drawn.append(device.get(pointer, (n,), np.float32))
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])
    assert abs(drawn[0].mean()) < 5e-3 and drawn[0].std() == pytest.approx(3**-0.5, rel=0.01)
    assert (
        abs(np.corrcoef(drawn[0], drawn[2])[0, 1]) < 0.01 and abs(np.corrcoef(drawn[0][1:], drawn[0][:-1])[0, 1]) < 0.01
    )
    tf32 = device.empty(4 * n)
    device.reference.fill(tf32, DType.TF32, n, 1, 1.0, device.stream)
    assert not (device.get(tf32, (n,), np.float32).view(np.uint32) & 0x1FFF).any()


def test_comparison_and_guards(device: Device) -> None:
    n = 100_003
    exact = RNG.standard_normal(n).astype(np.float32)
    rounded = exact.astype(np.float16)
    rounded[[3, 77, n - 1]] = np.nan, np.inf, -np.inf
    found = device.reference.compare(device.put(rounded), DType.F16, device.put(exact), n, device.stream)
    finite = np.isfinite(rounded)
    difference = rounded[finite].astype(np.float64) - exact[finite]
    assert found.non_finite == 3 and found.max_abs == pytest.approx(np.abs(difference).max(), rel=1e-6)
    assert found.relative_l2 == pytest.approx(np.linalg.norm(difference) / np.linalg.norm(exact), rel=1e-5)
    blocks = np.full((5, 64), 0xA5, np.uint8)
    blocks[:, 16:40] = 1
    pointer = device.put(blocks)
    assert device.reference.changed(pointer, 5, 64, 16, 40, 0xA5, device.stream) == 0
    assert device.reference.changed(pointer, 5, 64, 17, 39, 0xA5, device.stream) == 10


def candidate(family: str, key: str, gpu: GpuIdentity) -> tuple[Candidate, BuiltKernel]:
    """The family's best-ranked candidate, compiled."""
    from core.build.builder import Builder
    from core.build.toolchain import find_toolchain

    chosen, workload = families()[family], parse_workload(key)
    refused = chosen.refuses(workload, gpu.spec)
    if refused:
        pytest.skip(refused)
    candidates = [
        Candidate(kernel, launch)
        for kernel in chosen.kernels(workload, gpu.spec)
        if chosen.illegal(kernel, workload, gpu.spec) is None
        for launch in chosen.launches(kernel, workload, gpu.spec)[:1]
    ]
    best = min(candidates, key=lambda c: chosen.score(c, workload, gpu.spec).us)
    [(_, built)] = Builder(find_toolchain(), gpu.spec).build([best.kernel])
    assert isinstance(built, BuiltKernel), built
    return best, built


@pytest.fixture
def measurer(runtime_name: str, reference_library: Path) -> Iterator[Callable[[], ProcessMeasurer]]:
    made = ProcessMeasurer(runtime_name, reference=reference_library)
    yield lambda: made
    made.close()


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("sm80_gemm", "gemm 1280x768x768 f16.f32 row.col bias+relu"),
        ("sm80_gemm", "gemm 512x64x64 b12 f16.f32 row.row scale(0.125)"),
        ("sm80_gemm", "gemm 1280x768x768 f16.f32 row.col bias+add+gelu_erf"),
        ("sm80_conv", "conv 32x28x28x128 k128x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 bias+add+relu"),
        ("sm90_gemm", "gemm 1280x768x768 f16.f32 row.col bias+relu"),
        ("sm90_split", "gemm 1568x512x2048 f16.f32 row.col bias+relu"),
        ("sm90_split", "gemm 1x50257x768 f16.f32 row.col bias"),
        ("sm90_split", "conv 32x7x7x512 k512x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 bias+add+relu"),
        ("sm90_padded", "gemm 2048x512x479 f16.f32 row.col bias+relu"),
        ("sm90_padded", "conv 32x20x26x46 k32x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 bias+relu"),
        ("sm80_b2b", "b2b_gemm 32768x128x576 f16.f32 row.col bias+relu then n64 bias+relu"),
        ("sm90_b2b", "b2b_gemm 32768x128x576 f16.f32 row.col bias+gelu_erf then n64 bias+add"),
        (
            "sm90_b2b",
            "b2b_conv 32x56x56x64 k64x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 bias+relu then n64 bias+relu",
        ),
    ],
)
def test_our_candidates(measurer: Callable[[], ProcessMeasurer], gpu: GpuIdentity, family: str, key: str) -> None:
    """Screens, then finals with the vendor: right values, and times a GPU could have taken."""
    pair, work = candidate(family, key, gpu), parse_workload(key)
    [screened] = measurer().screen(work, [pair])
    assert isinstance(screened, Measurement), screened
    # No kernel is faster than twice the datasheet's rate of products, nor slower than a thousandth of it.
    floor = work.flops / (gpu.spec.tensor_tflops * 2e6)
    assert floor < screened.us < max(1000 * floor, 1000)
    finals = measurer().final(work, [pair], vendor=True)
    ours = [o for o in finals if isinstance(o, Measurement) and o.source == "template"]
    assert len(ours) == 1 and len(ours[0].samples_us) >= 7
    theirs = [o for o in finals if o not in ours]
    assert theirs or any("not compared" in note for note in measurer().notes)
    for outcome in theirs:
        assert isinstance(outcome, Measurement) and floor < outcome.us < max(1000 * floor, 1000) and outcome.detail


def test_a_kernel_of_the_first_steps_is_finished_by_a_pointwise_one(
    measurer: Callable[[], ProcessMeasurer], gpu: GpuIdentity
) -> None:
    """What `bench epilogue` sets a fused activation against."""
    key = "gemm 1280x3072x768 f16.f32 row.col bias"
    first, built = candidate("sm80_gemm", key, gpu)
    [found] = measurer().final(parse_workload(f"{key}+gelu_erf"), [(first, built)], vendor=False)
    [alone] = measurer().final(parse_workload(key), [(first, built)], vendor=False)
    assert isinstance(found, Measurement) and isinstance(alone, Measurement), (found, alone)
    assert found.us > alone.us
