"""Times the Hopper kernels on shapes measured before, beside cuBLASLt and cuDNN through torch, and prints one table.

Run by hand on a Hopper GPU with torch: ``python -m tests.gpu.bench_kernels_sm90``. Kernels are those that won before
and, for each shape, the best-ranked one. CUDA-graph timed, inputs rotated over more than twice the L2, median of the
replays; `before` are the figures of 2026-11-29 (H200).
"""

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from core.measure.args import args_of
from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Candidate, Kernel
from templates.gpu import GpuSpec
from templates.workload import ConvWorkload, GemmWorkload, Workload
from tests.gpu.kernels import Kernels
from tests.gpu.test_kernels_sm90 import spec

REPLAYS, WARM_UPS = 12, 3
BIAS_RELU = parse_epilogue("bias+relu")


@dataclass(frozen=True)
class Row:
    """A shape, the stems that won there by family, and the microseconds measured before: peer's and ours."""

    workload: Workload
    stems: dict[str, tuple[str, ...]]
    peer_before: float
    ours_before: float


def gemm(m: int, n: int, k: int, stem: str, peer: float, ours: float) -> Row:
    return Row(GemmWorkload(m, n, k, epilogue=BIAS_RELU), {"sm90_gemm": (stem,)}, peer, ours)


def conv(shape: tuple[int, ...], pad: int, stride: int, im2col: str, direct: str, peer: float, ours: float) -> Row:
    n, h, c, k, r = shape
    workload = ConvWorkload(n, h, h, c, k, r, r, (pad,) * 4, (stride, stride), epilogue=BIAS_RELU)
    return Row(workload, {"sm90_conv": (im2col,), "sm90_direct": (direct,) if direct else ()}, peer, ours)


ROWS = [
    gemm(1280, 3072, 768, "128x128x64_2x1_pingpong", 14.19, 12.86),
    gemm(1280, 768, 3072, "64x128x64_1x2_pingpong", 12.91, 12.66),
    gemm(1024, 1024, 1024, "64x128x64_1x2_pingpong", 6.95, 6.65),
    gemm(32, 1000, 2048, "64x64x128_1x1_pingpong", 8.04, 6.14),
    gemm(4096, 4096, 4096, "256x128x64_2x1_cooperative", 189.5, 199.5),
    conv((32, 56, 64, 64, 3), 1, 1, "256x64x64_1x1_pingpong", "112_1x2_resident", 25.4, 15.8),
    conv((32, 28, 128, 128, 3), 1, 1, "192x128x64_1x1_pingpong", "208_2x1_alternate", 18.7, 14.1),
    conv((32, 14, 256, 256, 3), 1, 1, "192x64x64_1x1_pingpong", "112_1x2_streamed", 18.9, 14.3),
    conv((32, 7, 512, 512, 3), 1, 1, "64x128x64_1x1_pingpong", "", 19.1, 15.5),
    conv((32, 224, 64, 64, 3), 1, 1, "256x64x64_1x1_pingpong", "112_1x3_resident", 282.0, 195.0),
    conv((32, 112, 128, 128, 3), 1, 1, "192x128x64_1x1_pingpong", "224_2x1_alternate", 186.0, 183.0),
    conv((32, 56, 128, 128, 3), 1, 2, "128x64x64_1x1_pingpong", "", 19.4, 16.4),
    conv((32, 56, 256, 512, 1), 0, 2, "192x128x64_1x1_pingpong", "", 22.2, 17.8),
]


def kernels_of(row: Row, gpu: GpuSpec) -> list[Kernel]:
    """The winners of before, and the best-ranked kernel of each family that has any."""
    found: dict[str, Kernel] = {}
    for name, stems in row.stems.items():
        family = families()[name]
        if family.refuses(row.workload, gpu):
            continue
        legal = [k for k in family.kernels(row.workload, gpu) if not family.illegal(k, row.workload, gpu)]

        def estimate(kernel: Kernel, family=family) -> float:
            launches = family.launches(kernel, row.workload, gpu)
            return min(family.score(Candidate(kernel, c), row.workload, gpu).us for c in launches)

        best = min(legal, key=estimate)
        found |= {k.name: k for k in (*(k for k in legal if k.stem in stems), best)}
    return list(found.values())


def graph_us(calls: list[Callable[[], None]]) -> float:
    """Microseconds a call of a CUDA graph of them all, the median of REPLAYS."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    samples = []
    for replay in range(WARM_UPS + REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if replay >= WARM_UPS:
            samples.append(start.elapsed_time(end) * 1e3 / len(calls))
    return statistics.median(samples)


def inputs(w: Workload) -> tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]:
    """A, B and an output to fill, dense in the layouts of bolt/abi.h."""
    if isinstance(w, GemmWorkload):
        shapes = ((w.m, w.k), (w.n, w.k), (w.m, w.n))
    else:
        shapes = ((w.n, w.h, w.w, w.c), (w.k, w.r, w.s, w.c), (w.n, w.p, w.q, w.k))
    depth = shapes[1][-1] * (1 if isinstance(w, GemmWorkload) else w.r * w.s)
    a, b = (torch.rand(s, device="cuda").mul_(2).sub_(1).half() for s in shapes[:2])
    return a, b.mul_((3.0 / depth) ** 0.5), torch.full(shapes[2], float("nan"), device="cuda", dtype=torch.float16)


def peer(w: Workload, a: "torch.Tensor", b: "torch.Tensor", bias: "torch.Tensor") -> "torch.Tensor":
    """cuBLASLt's or cuDNN's fused kernel, output in our layout."""
    if isinstance(w, GemmWorkload):
        return torch._addmm_activation(bias, a, b.t(), use_gelu=False)
    x, weight = a.permute(0, 3, 1, 2), b.permute(0, 3, 1, 2)  # NHWC memory: channels_last
    y = torch.cudnn_convolution_relu(x, weight, bias, w.stride, w.pad[:2], (1, 1), 1)
    return y.permute(0, 2, 3, 1)


def measure(row: Row, gpu: GpuSpec, kernels: Kernels) -> list[str]:
    """The row's line for each kernel, the fastest first."""
    w = row.workload
    copies = min(40, max(3, int(2.2 * gpu.l2_bytes / w.bytes) + 1))
    sets = [inputs(w) for _ in range(copies)]
    bias = torch.rand(w.n if isinstance(w, GemmWorkload) else w.k, device="cuda").half()
    peer_us = graph_us([lambda a=a, b=b: peer(w, a, b, bias) for a, b, _ in sets])
    wanted = peer(w, sets[0][0], sets[0][1], bias).float()
    lines = []
    for kernel in kernels_of(row, gpu):
        family, entry = families()[kernel.family], kernels.entry("run", kernel)
        for launch in family.launches(kernel, w, gpu):
            calls = []
            for a, b, d in sets:
                args = args_of(w, launch, gpu.sm_count)
                args.a, args.b, args.bias, args.d = a.data_ptr(), b.data_ptr(), bias.data_ptr(), d.data_ptr()

                def call(args=args, entry=entry) -> None:
                    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                    if entry(ctypes.byref(args), stream):
                        raise RuntimeError("the kernel refused or failed to launch")

                calls.append(call)
            us = graph_us(calls)
            error = ((sets[0][2].float() - wanted).norm() / wanted.norm()).item()
            mark = "" if error < 2e-3 else f"  WRONG {error:.1e}"
            lines.append((us, f"{kernel.family[5:]:6} {kernel.stem:28} {launch.name:10}{mark}"))
    lines.sort()
    shape = w.key.rsplit(" ", 2)[0]
    best = lines[0][0]
    head = (
        f"{shape}\n    peer {peer_us:7.2f} (before {row.peer_before:7.2f})   best {best:7.2f} "
        f"(before {row.ours_before:7.2f})   {peer_us / best:.2f}x"
    )
    return [head, *(f"    {us:7.2f}  {text}" for us, text in lines[:5])]


def main() -> None:
    started = time.time()
    gpu = spec()
    torch.backends.cudnn.benchmark = True
    wanted = {k.name: k for row in ROWS for k in kernels_of(row, gpu)}
    kernels = Kernels(wanted.values(), gpu)
    print(f"{len(wanted)} kernels after {time.time() - started:.0f} s", flush=True)
    for row in ROWS:
        print("\n".join(measure(row, gpu, kernels)), flush=True)
    print(f"{time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
