"""What the Hopper families share: the generated epilogue's form, compiler flags, hardware figures, tile arithmetic."""

from math import ceil, gcd

from templates.epilogue import Epilogue
from templates.gpu import GpuSpec
from templates.types import DType, MatrixLayout, Residence
from templates.workload import Chain, ConvWorkload, GemmWorkload, Pair, Workload

ARCH_FLAGS = ("-gencode=arch=compute_90a,code=sm_90a",)
# Programmatic dependent launch compiled in, used or not at each launch.
FLAGS = (*ARCH_FLAGS, "-DCUTLASS_ENABLE_GDC_FOR_SM90=1")
# For exact widths, whose wgmma shapes CUTLASS declares on request only. Its own collectives compile twice as long with
# them, so kernels that need them share no file with the others.
EXTENDED_FLAGS = (*FLAGS, "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED")
# The im2col mode of a 4-D TMA tensor: corner offsets are signed bytes, filter offsets unsigned ones, and a step of at
# most 8 elements (CUDA driver API, cuTensorMapEncodeIm2col; conv/collective/sm90_implicit_gemm_gmma_ss_*.hpp).
IM2COL_CORNERS, IM2COL_OFFSET, IM2COL_STRIDE = range(-128, 128), 254, 8
TMA_BYTES = 16  # a TMA stride is a multiple of 16 bytes (CUDA driver API, cuTensorMapEncodeTiled)
# Bytes of shared memory (CUDA programming guide, compute capability 9.0); the runtime reserves some of each block.
SMEM_PER_SM, RESERVED_PER_BLOCK = 228 << 10, 1 << 10
SMEM_PER_BLOCK = SMEM_PER_SM - RESERVED_PER_BLOCK
PIPELINE_BYTES = 16  # a full and an empty mbarrier for each stage
CONSUMER_REGISTERS = 240  # what setmaxnreg leaves a thread of two consumer warp groups
# Accumulators a consumer thread may hold and still run its epilogue without spilling; 208 and more get CUTLASS's
# HeavyRegisterPressure split (sm90_gemm_tma_warpspecialized_pingpong.hpp).
MAX_ACCUMULATORS = 192
SMALLEST_GPC = 14  # SMs; see cluster_slots
# Rates of an H100/H200 in bytes a clock, and times: those with which the estimates of sm90_gemm and sm90_conv come
# nearest to resources/records; used for nothing but ranking.
L2_BYTES_PER_CLOCK = 7000.0  # from L2 to all SMs together; a tile that CTAs of a cluster share counts once
SM_BYTES_PER_CLOCK = 72.0  # into one SM, shared tiles included
IM2COL_BYTES_PER_CLOCK = 38.0  # what the im2col engine of one SM delivers
MEMORY_OVERLAP_LOSS = 0.5  # of the shorter of products and memory traffic: fill and drain don't overlap
LAUNCH_US, PDL_US = 2.15, 0.8
# Of activations, see chain_weight; all others compare and multiply only.
_WEIGHTS = {"silu": 1, "sigmoid": 1, "gelu_tanh": 1, "gelu_erf": 2, "tanh": 2, "softplus": 2, "elu": 2}
_PLACES = {Residence.RF: "registers", Residence.SMEM: "shared memory"}


def chain_source(epilogue: Epilogue, name: str = "EpilogueChain") -> tuple[str, bool]:
    """(functor `name` of every step but a final ReLU, whether a final ReLU follows).

    The final ReLU is a modifier of the conversion to the 16-bit output, so it is taken out of the chain.
    """
    final_relu = bool(epilogue.ops) and epilogue.ops[-1].op == "relu"
    head = Epilogue(epilogue.ops[:-1], epilogue.output) if final_relu else epilogue
    return head.functor(name), final_relu


def memory_type(dtype: DType) -> str:
    """The C++ type of an operand in memory; tf32 kernels read float."""
    return "float" if dtype in (DType.TF32, DType.F32) else dtype.cutlass


def chain_weight(*epilogues: Epilogue) -> int:
    """How many registers the heaviest activation takes: 0 for comparisons, 1 for an exponential, 2 for a polynomial."""
    return max((_WEIGHTS.get(o.op, 0) for e in epilogues for o in e.ops), default=0)


def wgmma_refusal(workload: Workload, gpu: GpuSpec, types: tuple[DType, ...] = (DType.F16, DType.BF16)) -> str | None:
    """What all Hopper kernels refuse: other GPUs, operands of other `types`, other accumulators."""
    if gpu.sm != 90:
        return f"wgmma needs compute capability 9.0, the GPU has {gpu.sm / 10}"
    if workload.dtype not in types:
        return f"no kernel for operands of type {workload.dtype}"
    if workload.accumulator != DType.F32:
        return f"accumulates in f32, not in {workload.accumulator}"
    return None


def b2b_refusal(chain: Chain, gpu: GpuSpec, residence: Residence) -> str | None:
    """What the Hopper b2b families refuse whatever the shape. `residence`: where they keep the intermediate."""
    refused = wgmma_refusal(chain, gpu)
    if refused:
        return refused
    if chain.epilogue.output != chain.dtype:
        return f"writes its operands' type {chain.dtype}, not {chain.epilogue.output}"
    if chain.first.epilogue.has_source:
        return "the first epilogue reads a tensor of the intermediate's shape, which is never in memory"
    asked = chain.residence if isinstance(chain, Pair) else None
    if asked not in (None, residence):
        return f"keeps the intermediate in {_PLACES[residence]}, the plan asks for {_PLACES[asked]}"
    return None


def gemm_refusal(workload: GemmWorkload, gpu: GpuSpec) -> str | None:
    """What the Hopper products refuse: other GPUs, types, operands whose rows TMA can't address."""
    refused = wgmma_refusal(workload, gpu, (DType.F16, DType.BF16, DType.TF32))
    if refused:
        return refused
    if workload.dtype == DType.TF32 and (workload.layout_a, workload.layout_b) != ("row", "col"):
        return "tf32 needs a row-major A and a column-major B: wgmma reads 32-bit operands along K only"
    widest = TMA_BYTES // workload.dtype.itemsize
    rows = {
        "A": ("K", workload.k) if workload.layout_a == MatrixLayout.ROW else ("M", workload.m),
        "B": ("N", workload.n) if workload.layout_b == MatrixLayout.ROW else ("K", workload.k),
    }
    for operand, (letter, extent) in rows.items():
        if extent % widest:
            return f"{letter} = {extent} is not a multiple of {widest}: TMA reads rows of {operand} in 16-byte units"
    return None


def conv_refusal(workload: ConvWorkload, gpu: GpuSpec, any_k: bool = False) -> str | None:
    """What the Hopper convolutions refuse: other GPUs, groups, types, channels that TMA can't address.

    `any_k`: the output is not stored by TMA, so its channels may be any number.
    """
    refused = wgmma_refusal(workload, gpu)
    if refused:
        return refused
    if workload.groups != 1:
        return f"{workload.groups} groups: an implicit GEMM over all channels is wasted on them"
    for letter, channels in (("C", workload.c), ("K", workload.k)):
        if channels % 8 and not (any_k and letter == "K"):
            return f"{letter} = {channels} is not a multiple of 8: TMA moves channels in 16-byte units"
    return None


def im2col_refusal(workload: ConvWorkload) -> str | None:
    """Limits of the im2col descriptor. The far corner lies at `far padding - filter extent`."""
    axes = (
        ("vertically", workload.pad[0], workload.pad[2], workload.r, workload.dilation[0], workload.stride[0]),
        ("horizontally", workload.pad[1], workload.pad[3], workload.s, workload.dilation[1], workload.stride[1]),
    )
    for name, near, far, taps, dilation, stride in axes:
        reach = (taps - 1) * dilation
        if -near not in IM2COL_CORNERS or far - reach not in IM2COL_CORNERS:
            return f"padding {near}, {far} with a filter reaching {reach} {name} exceeds TMA's im2col corners"
        if reach > IM2COL_OFFSET:
            return f"a filter reaching {reach} pixels {name} exceeds TMA's im2col offsets of {IM2COL_OFFSET}"
        if stride > IM2COL_STRIDE:
            return f"stride {stride} {name} exceeds TMA's step of {IM2COL_STRIDE}"
    return None


def epilogue_smem(
    tile_m: int, tile_n: int, cooperative: bool, epilogue: Epilogue, bias_bytes: int, swapped: bool = False
) -> int:
    """Bytes of the TMA epilogue's shared memory (CUTLASS epilogue/collective/builders/sm90_builder.inl).

    Subtiles of 64x32 (pingpong) or 128x32 (cooperative); two stages of D, or up to four that the source and D share.
    A swapped tile is contiguous along its rows, and its bias does not pass through shared memory.
    """
    rows, columns = min(128 if cooperative else 64, tile_m), gcd(32, tile_n)
    subtiles = (tile_m // rows) * (tile_n // columns)
    stages, load_stages = min(subtiles, 2), min(subtiles, 4)
    if epilogue.has_source:
        stages = load_stages = max(load_stages, stages + 1)
    size = epilogue.output.itemsize
    # Eight lines of the swizzle; every member is rounded up to it.
    atom = min(1024, 8 * (rows if swapped else columns) * size)
    bias = tile_n * bias_bytes if epilogue.has_bias and not swapped else 1
    return round_up(round_up(stages * rows * columns * size + bias, atom) + load_stages * PIPELINE_BYTES, atom)


def mainloop_stages(capacity: int, carveout: int, tile: tuple[int, int, int], itemsize: int) -> int:
    """Stages of A and B tiles that fit beside the epilogue (compute_stage_count_or_override in CUTLASS)."""
    m, n, k = tile
    stage = round_up((m + n) * k * itemsize, 128) + PIPELINE_BYTES
    return max(0, capacity // 128 * 128 - round_up(carveout, 128)) // stage


def waves(tiles: float, slots: int) -> float:
    """Rounds a persistent grid of `slots` takes: whole ones, the last as long as the others."""
    return float(ceil(tiles / slots))


def wgmma_clocks(n: int) -> float:
    """Clocks of one wgmma m64 n k16 with both operands in shared memory.

    The tensor cores of an SM do 2048 fp16 multiply-adds a clock; shared memory delivers 128 bytes a clock, which bounds
    narrow tiles: A is 64x16, B is n x 16.
    """
    return max(64 * n * 16 / 2048, (64 * 16 + n * 16) * 2 / 128)


OVERLAP_LOSS = 0.2  # of the shorter of two overlapping times
CLUSTER_LOSS = 0.015  # for each further CTA that a cluster keeps in step
PINGPONG_STEP_CLOCKS, COOPERATIVE_STEP_CLOCKS = 12.0, 40.0  # barrier round of a k tile: one group releases it, or two


def overlapped(one: float, other: float) -> float:
    """Time of two things that run side by side: products and loads, the whole kernel and its memory traffic."""
    return max(one, other) + OVERLAP_LOSS * min(one, other)


def step_clocks(cooperative: bool) -> float:
    """Pingpong for short loops: two cooperating groups both have to finish before a stage is free."""
    return COOPERATIVE_STEP_CLOCKS if cooperative else PINGPONG_STEP_CLOCKS


def conv_bytes(workload: ConvWorkload) -> float:
    """Least traffic: a stride beyond the filter leaves pixels unread."""
    activation = workload.n * workload.h * workload.w * workload.c * workload.dtype.itemsize
    read = min(1.0, workload.r / workload.stride[0]) * min(1.0, workload.s / workload.stride[1])
    return workload.bytes - activation * (1.0 - read)


def cluster_factor(size: int) -> float:
    """Large clusters wait for their slowest member and leave SMs of odd GPCs idle (CUDA tuning guide, clusters)."""
    return 1.0 + CLUSTER_LOSS * (size - 1)


def cluster_slots(gpu: GpuSpec, size: int, blocks_per_sm: int = 1) -> int:
    """CTAs that run at once in clusters of `size`.

    A cluster lies in one GPC. Those of an H100/H200 have up to 18 SMs and differ from chip to chip, pairs being fused
    off; the rules count on SMALLEST_GPC everywhere, because one cluster too many costs a whole round: 30 clusters of
    four, of 120 CTAs on 132 SMs, took two rounds on an H200 (resources/records, 1280x3072x768 256x128x64_1x4).
    """
    slots = gpu.sm_count * blocks_per_sm
    if size > 2:  # a pair is a TPC, which is never split
        in_gpc = SMALLEST_GPC * blocks_per_sm
        slots = int(slots * (in_gpc // size * size / in_gpc))
    return max(1, slots // size) * size


def sustained_hz(gpu: GpuSpec) -> float:
    """The clock at which the tensor cores give the GPU's sustained rate: power holds it below the boost clock."""
    return gpu.tensor_tflops * 1e12 / (gpu.sm_count * 4096.0)


def round_up(value: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-value // step) * step
