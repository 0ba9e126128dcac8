"""Times the Hopper pair kernels beside the vendor's two kernels through torch, and prints one table.

Run by hand on a Hopper GPU with torch: ``python -m tests.gpu.bench_b2b``. For each pair: the instance that won before,
the best-ranked of each family. CUDA-graph timed, inputs rotated over more than twice the L2, median of the replays; the
peer is cuBLASLt with fused bias and ReLU twice, or cuDNN's fused convolution and cuBLASLt. `before` are figures of
2026-11-29 on an H200 (0: none).
"""

import ctypes
import time
from dataclasses import dataclass

import torch

from core.measure.args import args_of, operand_bytes
from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Candidate, Kernel
from templates.gpu import GpuSpec
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, Pair
from tests.gpu.bench_kernels_sm90 import graph_us
from tests.gpu.kernels import Kernels
from tests.gpu.test_kernels_sm90 import spec

BIAS_RELU = parse_epilogue("bias+relu")
FAMILIES = ("sm90_b2b", "sm90_direct_b2b", "sm90_tower_b2b", "sm80_b2b")


@dataclass(frozen=True)
class Row:
    """A pair, the stem of the instance that won before, and the microseconds measured then: peer's and ours."""

    pair: Pair
    stem: str = ""
    peer_before: float = 0.0
    ours_before: float = 0.0


def gemm(m: int, k: int, n0: int, n1: int, stem: str = "", peer: float = 0.0, ours: float = 0.0) -> Row:
    return Row(B2bGemmWorkload(GemmWorkload(m, n0, k, epilogue=BIAS_RELU), n1, BIAS_RELU), stem, peer, ours)


def conv(hw: int, c: int, n0: int, n1: int, stride: int, stem: str = "", peer: float = 0.0, ours: float = 0.0) -> Row:
    first = ConvWorkload(32, hw, hw, c, n0, 3, 3, (1, 1, 1, 1), (stride, stride), epilogue=BIAS_RELU)
    return Row(B2bConvWorkload(first, n1, BIAS_RELU), stem, peer, ours)


# The paper's four and six pairs (one and three channels filled up to eight), and those measured before.
ROWS = [
    gemm(2464, 8, 8, 8),
    gemm(16384, 256, 64, 16, "64x16x64g2r_m1d2", 10.09, 4.00),
    gemm(32768, 576, 128, 64, "128x64x64g2s_m2d1", 25.97, 14.66),
    gemm(128320, 96, 32, 96, "32x96x96g3r_m1d1", 40.04, 14.27),
    gemm(16384, 256, 512, 64, "128c4x64x64g2s_m1d1", 19.91, 11.18),
    gemm(32768, 512, 256, 64, "256x64x64g2s_m1d2_x2", 29.24, 17.70),
    conv(224, 8, 48, 48, 2),
    conv(112, 48, 48, 48, 2),
    conv(56, 48, 48, 48, 1),
    conv(224, 8, 64, 64, 2),
    conv(112, 64, 64, 64, 2),
    conv(56, 64, 64, 64, 1, "64x64x64g2r_m1d2_conv", 33.83, 18.19),
    conv(56, 64, 64, 256, 1, "64x256x64g2r_m1d1_conv", 58.29, 29.23),
    # DLRM's other pairs, a result as wide as the middle, and the further blocks of RepVGG-A0-Aug.
    gemm(16384, 512, 256, 64),
    gemm(16384, 512, 256, 256),
    gemm(2048, 512, 256, 64),
    conv(28, 96, 96, 96, 1),
    conv(14, 192, 192, 192, 1),
]


def kernels_of(row: Row, gpu: GpuSpec) -> list[Kernel]:
    """The winner of before, and the best-ranked kernel of each family that has any."""
    found: dict[str, Kernel] = {}
    for family in (families()[name] for name in FAMILIES):
        if family.refuses(row.pair, gpu):
            continue
        space = list(family.kernels(row.pair, gpu))
        legal = [k for k in space if family.illegal(k, row.pair, gpu) is None]

        def estimate(kernel: Kernel, family=family) -> float:
            return family.score(Candidate(kernel, family.launches(kernel, row.pair, gpu)[0]), row.pair, gpu).us

        before = f"{row.stem}_{BIAS_RELU.ident}"
        chosen = [k for k in space if k.stem == before] + ([min(legal, key=estimate)] if legal else [])
        found |= {k.name: k for k in chosen}
    return list(found.values())


def inputs(pair: Pair) -> dict[str, "torch.Tensor"]:
    """Every operand, dense in the layouts of bolt/abi.h; weights scaled so that sums stay near one."""

    def random(shape: tuple[int, ...], scale: float = 1.0) -> "torch.Tensor":
        return torch.rand(shape, device="cuda").mul_(2 * scale).sub_(scale).half()

    first, n0 = pair.first, pair.second.k
    if isinstance(first, GemmWorkload):
        a, b, depth = (first.m, first.k), (n0, first.k), first.k
    else:
        a, b = (first.n, first.h, first.w, first.c), (n0, first.r, first.s, first.c)
        depth = first.r * first.s * first.c
    return {
        "a": random(a), "b": random(b, (3.0 / depth) ** 0.5), "bias": random((n0,)),
        "b1": random((pair.n1, n0), (3.0 / n0) ** 0.5), "bias1": random((pair.n1,)),
        "d": torch.full((pair.second.m, pair.n1), float("nan"), device="cuda", dtype=torch.float16),
    }  # fmt: skip


def peer(pair: Pair, t: dict[str, "torch.Tensor"]) -> "torch.Tensor":
    """The vendor's two kernels, each with its fused bias and ReLU; the output in our layout."""
    first = pair.first
    if isinstance(first, GemmWorkload):
        middle = torch._addmm_activation(t["bias"], t["a"], t["b"].t(), use_gelu=False)
    else:
        x, weight = t["a"].permute(0, 3, 1, 2), t["b"].permute(0, 3, 1, 2)  # NHWC memory: channels_last
        y = torch.cudnn_convolution_relu(x, weight, t["bias"], first.stride, first.pad[:2], (1, 1), 1)
        middle = y.permute(0, 2, 3, 1).reshape(pair.second.m, pair.second.k)
    return torch._addmm_activation(t["bias1"], middle, t["b1"].t(), use_gelu=False)


def measure(row: Row, gpu: GpuSpec, kernels: Kernels) -> tuple[float, list[str]]:
    """The peer's time over the best of ours, and the row's lines, the fastest kernel first."""
    pair = row.pair
    copies = min(40, max(3, int(2.2 * gpu.l2_bytes / operand_bytes(pair).total) + 1))
    sets = [inputs(pair) for _ in range(copies)]
    peer_us = graph_us([lambda t=t: peer(pair, t) for t in sets])
    wanted = peer(pair, sets[0]).float()
    lines = []
    for kernel in kernels_of(row, gpu):
        family, entry = families()[kernel.family], kernels.entry("run", kernel)
        for launch in family.launches(kernel, pair, gpu):
            calls = []
            for tensors in sets:
                args = args_of(pair, launch, gpu.sm_count)
                for name, tensor in tensors.items():
                    setattr(args, name, tensor.data_ptr())

                def call(args=args, entry=entry) -> None:
                    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                    if entry(ctypes.byref(args), stream):
                        raise RuntimeError("the kernel refused or failed to launch")

                calls.append(call)
            sets[0]["d"].fill_(float("nan"))
            us = graph_us(calls)
            error = ((sets[0]["d"].float() - wanted).norm() / wanted.norm()).item()
            mark = "" if error < 2e-3 else f"  WRONG {error:.1e}"
            lines.append((us, f"{kernel.family:9} {kernel.stem.removesuffix('_bias_relu'):32} {launch.name:8}{mark}"))
    lines.sort()
    best = min((us for us, text in lines if "WRONG" not in text), default=float("nan"))
    head = (
        f"{pair.key.replace(' f16.f32', '').replace(' bias+relu', '')}\n    peer {peer_us:7.2f} (before "
        f"{row.peer_before:6.2f})   best {best:7.2f} (before {row.ours_before:6.2f})   {peer_us / best:.2f}x"
    )
    return peer_us / best, [head, *(f"    {us:7.2f}  {text}" for us, text in lines[:6])]


def main() -> None:
    started = time.time()
    gpu = spec()
    torch.backends.cudnn.benchmark = True
    wanted = {k.name: k for row in ROWS for k in kernels_of(row, gpu)}
    kernels = Kernels(wanted.values(), gpu)
    print(f"{len(wanted)} kernels after {time.time() - started:.0f} s", flush=True)
    product = 1.0
    for row in ROWS:
        ratio, lines = measure(row, gpu, kernels)
        product *= ratio
        print("\n".join(lines), flush=True)
    print(f"geometric mean over the vendor pair {product ** (1 / len(ROWS)):.2f}x, {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
