"""Times the stem convolution on first layers, beside cuDNN through torch with 4 and with 3 channels.

Run by hand on a Hopper GPU with torch: ``python -m tests.gpu.bench_stem``. CUDA-graph timed, inputs rotated over more
than twice the L2, median of the replays.
"""

import argparse
import ctypes
import time
from pathlib import Path

import torch

from core.bench.table import Row, result, store, text
from core.measure.args import args_of
from templates import families
from templates.family import Kernel
from templates.gpu import GpuSpec
from templates.workload import ConvWorkload
from tests.gpu.bench_kernels_sm90 import BIAS_RELU, graph_us, inputs, peer
from tests.gpu.kernels import Kernels
from tests.gpu.test_kernels_sm90 import spec

STEM = families()["sm90_stem"]
SHOWN = 8
LARGEST_ERROR = 2e-3  # relative L2 against cuDNN, both rounded to fp16


def conv(n: int, size: int, c: int, k: int, taps: int, pad: int, stride: int) -> ConvWorkload:
    return ConvWorkload(n, size, size, c, k, taps, taps, (pad,) * 4, (stride, stride), epilogue=BIAS_RELU)


ROWS = [
    conv(32, 224, 4, 64, 7, 3, 2),  # ResNet, DenseNet, GoogLeNet
    conv(1, 224, 4, 64, 7, 3, 2),
    conv(32, 224, 4, 64, 3, 1, 1),  # VGG
    conv(1, 224, 4, 64, 3, 1, 1),
    conv(32, 224, 4, 32, 3, 1, 2),  # MobileNet, EfficientNet
    conv(32, 224, 8, 64, 3, 1, 1),
    conv(8, 640, 4, 48, 3, 1, 2),  # YOLO
]


def legal_kernels(w: ConvWorkload, gpu: GpuSpec) -> list[Kernel]:
    return [k for k in STEM.kernels(w, gpu) if STEM.illegal(k, w, gpu) is None]


def peer_us(sets: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], w: ConvWorkload, bias: torch.Tensor) -> float:
    return graph_us([lambda a=a, b=b: peer(w, a, b, bias) for a, b, _ in sets])


def measure(w: ConvWorkload, gpu: GpuSpec, kernels: Kernels) -> tuple[list[Row], list[str]]:
    """A row for each peer, and the lines of the fastest configurations."""
    copies = min(40, max(3, int(2.2 * gpu.l2_bytes / w.bytes) + 1))
    sets = [inputs(w) for _ in range(copies)]
    bias = torch.rand(w.k, device="cuda").half()
    peers = {f"cuDNN, {w.c} channels": peer_us(sets, w, bias)}
    if w.c == 4:  # dense memory of three channels: what a framework gives cuDNN
        three = [(a[..., :3].contiguous(), b[..., :3].contiguous(), d) for a, b, d in sets]
        peers["cuDNN, 3 channels"] = peer_us(three, w, bias)
    wanted = peer(w, sets[0][0], sets[0][1], bias).float()
    found = []
    for kernel in legal_kernels(w, gpu):
        entry = kernels.entry("run", kernel)
        for launch in STEM.launches(kernel, w, gpu):
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
            found.append((us, error, f"{kernel.stem}@{launch.name}"))
    found.sort()
    us, error, name = next(f for f in found if f[1] < LARGEST_ERROR)
    label = w.key.rsplit(" ", 2)[0]
    rows = [Row(label, us, which, theirs, error, name) for which, theirs in peers.items()]
    lines = [f"    {us:7.2f}  {name}{'' if e < LARGEST_ERROR else f'  WRONG {e:.1e}'}" for us, e, name in found]
    memory = w.bytes / (gpu.dram_gbs * 1e3)
    head = f"{label}: bytes alone {memory:.1f} us, {len(found)} configurations"
    return rows, [head, *lines[:SHOWN], "    ...", lines[-1]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, metavar="DIR", help="folder of the result file")
    args, started, gpu, rows = parser.parse_args(), time.time(), spec(), []
    torch.backends.cudnn.benchmark = True
    wanted = {k.name: k for w in ROWS for k in legal_kernels(w, gpu)}
    kernels = Kernels(wanted.values(), gpu)
    print(f"{len(wanted)} kernels after {time.time() - started:.0f} s", flush=True)
    for w in ROWS:
        made, lines = measure(w, gpu, kernels)
        rows += made
        print("\n".join(lines), flush=True)
    data = result("stem", torch.cuda.get_device_name(), rows)
    print(f"{text(data)}\nstored as {store(data, args.store)}")


if __name__ == "__main__":
    main()
