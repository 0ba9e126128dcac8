"""Ranking of direct_conv candidates. The estimate orders candidates; it is never shown as a measurement."""

from math import ceil

from templates.direct_conv.space import Depthwise, Grouped, Method
from templates.family import Candidate, Score
from templates.gpu import GpuSpec
from templates.tensorop import LAUNCH_US, PDL_GAIN_US
from templates.workload import ConvWorkload

# fp32 FMA lanes of an SM (CUDA programming guide, arithmetic instructions).
_LANES = {75: 64, 80: 64}
_FMA_SHARE = 0.45  # conversions and shared memory reads beside every FMA
_BLOCK_US = 1.0


def score(method: Method, candidate: Candidate, workload: ConvWorkload, gpu: GpuSpec) -> Score:
    """The slower of memory and arithmetic, on the SMs that have work.

    - bytes: depthwise layers do a few FMAs a byte, so the least traffic bounds them (arithmetic intensity);
    - threads: an SM needs about 512 to hide latency (Ampere tuning guide 1.4.1), more outputs a thread leave fewer;
    - reuse: outputs of one thread share the inputs of their windows and the filters in shared memory.
    """
    if isinstance(method, Depthwise):
        us, why = _depthwise(method, workload, gpu)
    else:
        us, why = _grouped(method, workload, gpu)
    return Score(us + LAUNCH_US + _BLOCK_US - (PDL_GAIN_US if candidate.launch.pdl else 0.0), why)


def _fma_rate(gpu: GpuSpec) -> float:
    """FLOP per microsecond of one SM."""
    return _LANES.get(gpu.sm, 128) * 2.0 * gpu.clock_mhz * _FMA_SHARE


def _depthwise(method: Depthwise, workload: ConvWorkload, gpu: GpuSpec) -> tuple[float, str]:
    strips = workload.n * workload.p * ceil(workload.q / method.pixels)
    channel_blocks = ceil(workload.c / (method.block_c * method.vec))
    threads = strips * channel_blocks * method.block_c
    busy = min(1.0, threads / (gpu.sm_count * 512))
    useful = workload.q / (ceil(workload.q / method.pixels) * method.pixels)
    useful *= workload.c / (channel_blocks * method.block_c * method.vec)
    inputs = ((method.pixels - 1) * method.stride_w + method.taps_w) if method.taps_w else method.pixels * workload.s
    # Loads of inputs and filters in 16-byte units, against the FMAs they feed.
    loads = (inputs + workload.s) * 8.0 / max(1, method.vec) / (method.pixels * workload.s)
    fma = workload.flops * (1 + loads) / (_fma_rate(gpu) * gpu.sm_count * busy * useful)
    memory = workload.bytes / (gpu.dram_gbs * 1e3 * busy)
    bound = "memory" if memory > fma else "arithmetic"
    return max(fma, memory), f"{threads} threads, {useful:.0%} of their outputs useful, {bound}-bound"


def _grouped(method: Grouped, workload: ConvWorkload, gpu: GpuSpec) -> tuple[float, str]:
    pixels, filters, depth = workload.implicit_gemm
    blocks = ceil(pixels / method.tile_p) * ceil(filters / method.tile_k) * workload.groups
    threads = (method.tile_p // method.micro_p) * (method.tile_k // method.micro_k)
    together = max(1, min(blocks / gpu.sm_count, 1024 / threads))
    rounds = ceil(blocks / (gpu.sm_count * together))
    # A micro tile of p x k reads p + k floats of shared memory for p * k FMAs.
    reads = (method.micro_p + method.micro_k) / (method.micro_p * method.micro_k)
    flops = 2.0 * method.tile_p * method.tile_k * ceil(depth / 16) * 16 * (1 + 1.5 * reads) * (1 + 0.5 / method.vec)
    busy = min(1.0, together * threads / 512)
    us = rounds * together * flops / (_fma_rate(gpu) * busy)
    memory = workload.bytes / (gpu.dram_gbs * 1e3)
    useful = pixels * filters * workload.groups / (blocks * method.tile_p * method.tile_k)
    bound = "memory" if memory > us else "arithmetic"
    return max(us, memory), f"{blocks} blocks on FMA units, {useful:.0%} of their area useful, {bound}-bound"
