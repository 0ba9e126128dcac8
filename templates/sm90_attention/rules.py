"""Ranking rules of the Hopper attention; times are estimates for ranking only.

Sources: [1] the kernel's own structure (include/bolt/sm90_attention_kernel.cuh). [2] FlashAttention-3, arXiv
2407.08608, sections 3.1 and 3.2: the softmax runs behind the products of the other warp group, or of the group's own
next step. [3] CUDA programming guide, arithmetic throughput: ex2 runs on 16 units an SM.

Numerics run on an H200 (2026-11-29); speed not yet measured: none of the constants is fitted.
"""

from math import ceil

from templates.attention import AttentionWorkload, MaskKind
from templates.family import Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_attention.space import GROUP_ROWS, Instance, boxed, stepped
from templates.sm90_common import sustained_hz, wgmma_clocks

L2_BYTES_PER_CLOCK = 80.0  # of an SM
EX2_PER_CLOCK, FP32_PER_CLOCK = 16, 128  # of an SM [3]
SCORE_OPERATIONS = 4  # of the fp32 units for each score: maximum, scale, sum, conversion [1]
MASK_OPERATIONS = 6
STEP_CLOCKS = 120.0  # barrier rounds and the drain of a group's products [1]
# Of the shorter of products and softmax, how much stays exposed: one group hides its softmax behind its own next step
# only; several hide more, those that take turns most [2].
EXPOSED = {1: 0.7, 2: 0.4, 3: 0.35}
EXPOSED_IN_TURNS = 0.25
FILL_CLOCKS = 2500.0  # first queries and keys until the first product, last result's way out
TILE_CLOCKS = 700.0  # of each further tile: first scores alone, results to memory
LAUNCH_US, PDL_US = 2.2, 1.0


def step_clocks(instance: Instance, work: AttentionWorkload) -> float:
    """One tile of keys for all queries of a block."""
    head, value, columns = stepped(work.head_dim), boxed(work.value_dim), instance.columns
    first = head / 16 * wgmma_clocks(columns)
    second = columns / 16 * max(64 * value * 16 / 2048, value * 16 * 2 / 128)  # operand A comes from registers
    products = instance.groups * (first + second)
    operations = SCORE_OPERATIONS + (MASK_OPERATIONS if work.mask is not MaskKind.NONE else 0)
    softmax = instance.groups * GROUP_ROWS * columns * (operations / FP32_PER_CLOCK + 1.0 / EX2_PER_CLOCK)
    loaded = 2.0 * columns * (boxed(work.head_dim) + value) / L2_BYTES_PER_CLOCK
    exposed = EXPOSED_IN_TURNS if instance.turns else EXPOSED[instance.groups]
    return max(max(products, softmax) + exposed * min(products, softmax), loaded) + STEP_CLOCKS


def score(instance: Instance, launch: Launch, work: AttentionWorkload, gpu: GpuSpec) -> Score:
    """Rounds of a persistent grid, against the time of the bytes alone."""
    tiles = work.batch * work.heads * ceil(work.q_len / instance.rows)
    seen = work.pairs / (work.q_len * work.kv_len)
    whole = ceil(work.kv_len / instance.columns)
    steps = min(whole, seen * whole + 0.5) if work.causal else whole  # the diagonal tile is computed whole
    rounds = ceil(tiles / gpu.sm_count)
    per_tile = steps * step_clocks(instance, work) + TILE_CLOCKS
    # Causal tiles of many lengths even out over rounds; the longest one bounds them.
    clocks = FILL_CLOCKS + max(rounds * per_tile, whole * step_clocks(instance, work) if work.causal else 0.0)
    compute_us, memory_us = clocks / sustained_hz(gpu) * 1e6, work.bytes / (gpu.dram_gbs * 1e3)
    us = max(compute_us, memory_us) + 0.2 * min(compute_us, memory_us) + LAUNCH_US - PDL_US * launch.pdl
    covered = ceil(work.q_len / instance.rows) * instance.rows * whole * instance.columns
    why = (
        f"{tiles} tiles of {instance.rows} queries in {rounds} round{'s' * (rounds > 1)}, {steps:.3g} "
        f"step{'s' * (steps > 1)} of {instance.columns} keys each, {work.q_len * work.kv_len / covered:.0%} of the "
        f"scores needed, bound by {'memory' if memory_us > compute_us else 'arithmetic'}"
    )
    return Score(us, why)
