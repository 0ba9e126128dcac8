"""Ranking of sm80_attention candidates. The estimate orders candidates; it is never shown as a measurement.

Sources: [1] the kernel's own structure (include/bolt/sm80_attention.cuh). [2] FlashAttention-2, arXiv 2307.08691,
section 3: few non-product operations, parallel over queries, heads and batch entries. [3] CUDA programming guide,
arithmetic throughput: ex2 runs on 16 units an SM. [4] Own measurements on an H200: mma.sync reaches 60-70 % of the rate
of wgmma.
"""

from math import ceil

from templates.attention import AttentionWorkload, MaskKind
from templates.family import Candidate, Score
from templates.gpu import GpuSpec
from templates.sm80_attention.space import Tile, padded, resident_blocks

MMA_SHARE = {90: 0.6}  # of the GPU's rate that mma.sync reaches on it [4]
EX2_PER_CLOCK = 16  # of an SM [3]
SCORE_OPERATIONS = 4  # of the fp32 units for each score: maximum, scale, sum, conversion [1]
MASK_OPERATIONS = 6  # address, load, conversion, comparison
FP32_PER_CLOCK = 128
L2_BYTES_PER_CLOCK = 80.0  # of an SM
SMEM_BYTES_PER_CLOCK = 128.0
STEP_CLOCKS = 350.0  # two barriers and the latencies of a tile's chain of products, softmax, products [1]
ISSUE_CLOCKS = 40.0  # of a step that no other block hides: addresses, copies, factors
FILL_CLOCKS = 1600.0  # launch of a block until its first product, and its results' way out
LAUNCH_US, PDL_US = 2.2, 1.0


def block_clocks(tile: Tile, work: AttentionWorkload, gpu: GpuSpec) -> tuple[float, int]:
    """(clocks an SM spends on one block, tiles of keys): products, softmax and both ways of the keys overlap in part.

    A causal block of queries sees half of the keys on average. Keys and values come from L2 once for each block and
    from shared memory once for each warp [1].
    """
    seen = work.pairs / (work.q_len * work.kv_len)
    steps = ceil(work.kv_len / tile.columns * seen) if work.causal else ceil(work.kv_len / tile.columns)
    scores = tile.rows * tile.columns * steps
    rate = gpu.tensor_tflops * 1e12 * MMA_SHARE.get(gpu.sm, 1.0) / (gpu.sm_count * gpu.clock_mhz * 1e6)
    widths = padded(work.head_dim) + padded(work.value_dim)
    products = 2.0 * scores * widths / rate
    loaded = 2.0 * tile.columns * widths * steps
    per_score = SCORE_OPERATIONS + (MASK_OPERATIONS if work.mask is not MaskKind.NONE else 0)
    softmax = scores * (per_score / FP32_PER_CLOCK + 1.0 / EX2_PER_CLOCK)
    parts = sorted((products, softmax, loaded / L2_BYTES_PER_CLOCK, loaded * tile.warps / SMEM_BYTES_PER_CLOCK))
    return parts[-1] + 0.4 * sum(parts[:-1]) + steps * ISSUE_CLOCKS, steps


def score(tile: Tile, candidate: Candidate, work: AttentionWorkload, gpu: GpuSpec) -> Score:
    """Rounds of blocks, against the time of the bytes alone; blocks that share an SM hide each other's waits [2]."""
    head, value = padded(work.head_dim), padded(work.value_dim)
    blocks = work.batch * work.heads * ceil(work.q_len / tile.rows)
    resident = resident_blocks(tile, head, value, gpu.smem_per_sm)
    sharing = min(resident, ceil(blocks / gpu.sm_count))
    rounds = ceil(blocks / (gpu.sm_count * sharing))
    one, steps = block_clocks(tile, work, gpu)
    busy = one * sharing
    latency = (FILL_CLOCKS + steps * STEP_CLOCKS) * (0.7 if tile.stages == 2 and steps > 1 else 1.0)
    clocks = rounds * max(busy, latency) + 0.3 * min(busy, latency)
    compute_us, memory_us = clocks / gpu.clock_mhz, work.bytes / (gpu.dram_gbs * 1e3)
    narrow = {8: 1.0, 4: 1.1, 2: 1.3}.get(candidate.kernel.alignment[0], 1.8)
    us = max(compute_us, memory_us) * narrow + 0.2 * min(compute_us, memory_us)
    us += LAUNCH_US - PDL_US * candidate.launch.pdl
    used = work.q_len * work.kv_len / (ceil(work.q_len / tile.rows) * tile.rows * _covered(work, tile))
    why = (
        f"{blocks} blocks of {tile.rows} queries, {sharing} on an SM, {rounds} round{'s' * (rounds > 1)}, "
        f"{steps} tile{'s' * (steps > 1)} of {tile.columns} keys, {used:.0%} of the scores needed, "
        f"bound by {'memory' if memory_us > compute_us else 'latency' if latency > busy else 'arithmetic'}"
    )
    return Score(us, why)


def _covered(work: AttentionWorkload, tile: Tile) -> int:
    return ceil(work.kv_len / tile.columns) * tile.columns
