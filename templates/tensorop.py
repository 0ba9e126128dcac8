"""What the mma.sync families (sm75 and sm80 class, CUTLASS 2.x) share: tiles as data, their limits, and the time model.

Seeds are the tile lists of `cutlass_library.generator` (GenerateSM75_TensorOp_1688, GenerateSM80_TensorOp_16816 and
_1688 for tf32), widened by small and sliced-K tiles for problems that would fill only a few SMs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from templates.epilogue import Epilogue
from templates.gpu import GpuSpec
from templates.types import DType


@dataclass(frozen=True)
class Tile:
    """Threadblock tile (m, n, k) in elements, warps along each axis, pipeline stages, instruction depth in K.

    `warps_k` > 1 is sliced K: warps of one block share an output tile and are reduced in shared memory.
    """

    m: int
    n: int
    k: int
    warps_m: int
    warps_n: int
    warps_k: int
    stages: int
    inst_k: int

    @property
    def warp(self) -> tuple[int, int, int]:
        return self.m // self.warps_m, self.n // self.warps_n, self.k // self.warps_k

    @property
    def warps(self) -> int:
        return self.warps_m * self.warps_n * self.warps_k

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def accumulators(self) -> int:
        """fp32 accumulators of a thread."""
        return self.m * self.n * self.warps_k // self.threads

    def accesses(self, alignment: int) -> int:
        """Reads of A and B a thread makes for each K step; each keeps an address and a predicate in registers."""
        return (self.m + self.n) * self.k // self.threads // alignment

    @property
    def stem(self) -> str:
        slices = f"x{self.warps_k}" if self.warps_k > 1 else ""
        return f"{self.m}x{self.n}x{self.k}_{self.warps_m}x{self.warps_n}{slices}_s{self.stages}_i{self.inst_k}"

    @property
    def params(self) -> dict[str, int | str]:
        return {
            "tb_m": self.m, "tb_n": self.n, "tb_k": self.k, "warps_m": self.warps_m, "warps_n": self.warps_n,
            "warps_k": self.warps_k, "stages": self.stages, "inst_k": self.inst_k,
        }  # fmt: skip

    def smem_bytes(self, itemsize: int) -> int:
        """Shared memory of the block: the larger of the operand stages and the epilogue's staging buffer.

        Operands are stored unpadded (gemm/threadblock/mma_base.h SharedStorage); the epilogue stages up to two
        8-row strips a warp row of fp32 with 8 columns of padding (epilogue/threadblock/epilogue_base.h). The
        generated source asserts that this is no less than what the compiler sees.
        """
        operands = (self.m + self.n) * self.k * self.stages * itemsize
        epilogue = 2 * 8 * self.warps_m * self.warps_k * (self.n + 8) * 4
        return max(operands, epilogue)

    def store_width(self, widest: int, itemsize: int) -> int:
        """Elements a thread may store at a time: narrow blocks of many warps have too few columns for the widest.

        The arithmetic is that of epilogue/threadblock/output_tile_thread_map.h, RowArrangement: the warps that share
        eight rows of the block must each get whole accesses.
        """
        rows = 8 // (self.warps_n * self.warps_k)
        width = widest
        while width > 1:
            accesses, preferred = self.n // width, min(32, 256 // (width * itemsize))
            across = 32 // rows if 32 // preferred > rows else min(accesses, preferred)
            down = rows if 32 // preferred > rows else min(8, 32 // across)
            if across <= accesses and down <= rows:
                break
            width //= 2
        return width

    def registers(self) -> int:
        """Registers a thread needs, fitted to what ptxas reports: 96 for 32 accumulators, 160 for 64, 250 for 128."""
        return min(255, 50 + 31 * self.accumulators // 20)


# (m, n, k), stages, (warps_m, warps_n, warps_k) for 16-bit operands.
_SM80 = [
    ((256, 128, 32), 3, (4, 2, 1)), ((128, 256, 32), 3, (2, 4, 1)), ((256, 64, 32), 3, (4, 1, 1)),
    ((256, 64, 32), 4, (4, 1, 1)), ((64, 256, 32), 4, (1, 4, 1)), ((128, 128, 32), 3, (2, 2, 1)),
    ((128, 128, 32), 4, (2, 2, 1)), ((128, 128, 32), 5, (2, 2, 1)), ((128, 64, 32), 6, (2, 2, 1)),
    ((64, 128, 32), 6, (2, 2, 1)), ((64, 64, 32), 10, (2, 2, 1)), ((256, 128, 64), 3, (4, 2, 1)),
    ((128, 256, 64), 3, (2, 4, 1)), ((256, 64, 64), 3, (4, 1, 1)), ((256, 64, 64), 4, (4, 1, 1)),
    ((64, 256, 64), 3, (1, 4, 1)), ((64, 256, 64), 4, (1, 4, 1)), ((128, 128, 64), 3, (2, 2, 1)),
    ((128, 128, 64), 4, (2, 2, 1)), ((128, 64, 64), 3, (2, 2, 1)), ((64, 128, 64), 3, (2, 2, 1)),
    ((64, 64, 64), 5, (2, 2, 1)),
    # Ours: half the accumulators a thread, for iterators that need registers; less of the tile wasted on narrow
    # problems, and more blocks on small ones.
    ((128, 128, 32), 4, (2, 4, 1)), ((128, 128, 64), 3, (2, 4, 1)),
    ((128, 32, 32), 4, (4, 1, 1)), ((128, 32, 64), 4, (4, 1, 1)), ((32, 128, 64), 4, (1, 4, 1)),
    ((64, 32, 64), 6, (2, 1, 1)), ((32, 64, 64), 6, (1, 2, 1)), ((64, 64, 64), 4, (2, 1, 2)),
    ((32, 64, 64), 5, (1, 2, 2)), ((64, 32, 64), 5, (2, 1, 2)), ((32, 32, 64), 6, (1, 1, 2)),
]  # fmt: skip
# Two stages through registers: sm75 has no cp.async, and cp.async can't move 2 bytes, so alignment 1 needs these too.
_TWO_STAGES = [
    ((256, 128, 32), (4, 2, 1)), ((128, 256, 32), (2, 4, 1)), ((128, 128, 32), (2, 2, 1)), ((64, 256, 32), (1, 4, 1)),
    ((256, 64, 32), (4, 1, 1)), ((64, 128, 32), (2, 2, 1)), ((128, 64, 32), (2, 2, 1)), ((64, 64, 32), (2, 2, 1)),
    ((64, 128, 64), (1, 2, 2)),
    ((128, 128, 32), (2, 4, 1)), ((128, 32, 32), (4, 1, 1)),
    ((64, 32, 32), (2, 1, 1)), ((32, 64, 32), (1, 2, 1)), ((64, 64, 64), (2, 1, 2)),
]  # fmt: skip

DTYPES = (DType.F16, DType.BF16, DType.TF32, DType.F32)
# fp32 is three tf32 products of the operands' large and small parts, nearly as accurate (CUTLASS, OpMultiplyAddFastF32;
# its examples 27 and 28). Both parts of a fragment take registers: more accumulators spill, with sliced K these too.
MAX_SPLIT_ACCUMULATORS, MAX_SLICED_SPLIT_ACCUMULATORS = 64, 32
OUTPUTS = (DType.F16, DType.BF16, DType.F32, DType.TF32)


def tiles(sm: int, dtype: DType, alignment: int) -> Iterator[Tile]:
    """The tiles for an architecture, operand type and the smaller operand alignment (in elements), legal or not."""
    if sm < 80 or alignment * dtype.itemsize < 4:
        inst_k = 8 if sm < 80 else 16
        for (m, n, k), warps in _TWO_STAGES:
            yield Tile(m, n, k, *warps, stages=2, inst_k=inst_k)
        return
    for (m, n, k), stages, warps in _SM80:
        if dtype.itemsize == 4:  # the same bytes of K a stage, half the elements
            tile = Tile(m, n, k // 2, *warps, stages=stages, inst_k=8)
            most = MAX_SPLIT_ACCUMULATORS if tile.warps_k == 1 else MAX_SLICED_SPLIT_ACCUMULATORS
            if dtype == DType.TF32 or tile.accumulators <= most:
                yield tile
        else:
            yield Tile(m, n, k, *warps, stages=stages, inst_k=16)


def type_objection(dtype: DType, accumulator: DType, output: DType, gpu: GpuSpec) -> str | None:
    """Why the mma.sync families can't serve these types on the GPU, or None."""
    if dtype not in DTYPES:
        return f"no tensor core kernel for {dtype} operands (f16, bf16, tf32 and f32 have one)"
    if gpu.sm < 80 and dtype != DType.F16:
        return f"{dtype} tensor core instructions need sm80, this GPU is sm{gpu.sm}"
    if accumulator != DType.F32:
        return f"accumulation in {accumulator} is not offered, only f32"
    if output not in OUTPUTS:
        return f"output type {output} is not offered (f16, bf16 and f32 are)"
    return None


def memory_type(dtype: DType) -> str:
    """The C++ type in memory: tf32 is a float there, rounded on its way into the tensor core."""
    return "float" if dtype == DType.TF32 else dtype.cutlass


def math_operator(dtype: DType) -> str:
    """CUTLASS's tag of how operands are multiplied."""
    return "OpMultiplyAddFastF32" if dtype == DType.F32 else "OpMultiplyAdd"


def tile_objection(tile: Tile, m: int, n: int, alignment: int, itemsize: int, gpu: GpuSpec) -> str | None:
    """Shared memory of this GPU, registers, grid limits, and tile against the output's shape.

    `alignment` is the narrower of the operands', in elements.
    """
    need = tile.smem_bytes(itemsize)
    if tile.accumulators >= 128 and itemsize == 2 and alignment <= 2:
        return (
            f"accesses of {alignment * itemsize} bytes beside {tile.accumulators} accumulators a thread spill registers"
        )
    if need > gpu.smem_per_block:
        return f"needs {need // 1024} KB of shared memory, a block of {gpu.name} has {gpu.smem_per_block // 1024} KB"
    for axis, size, extent in (("M", tile.m, m), ("N", tile.n, n)):
        if size > 2 * 32 * ceil(extent / 32):
            return f"tile {axis} = {size} is more than twice the problem's {axis} = {extent}"
    if ceil(n / tile.n) > 65535:
        return f"N = {n} needs more than 65535 tiles of {tile.n}"
    return None


# Share of the fp16 tensor rate that mma.sync reaches at best. Measured on the H200: sm80-class kernels run at 60-70 %
# of wgmma ones there; elsewhere they are the native path and reach what CUTLASS's own profiler shows on an A100.
_PEAK_SHARE = {90: 0.58, 100: 0.58}
_NATIVE_SHARE = 0.86
_LATENCY_US = 0.65  # one K step that waits for DRAM or L2
_BLOCK_US = 1.5  # a block's start, its first loads and its epilogue
# Bytes of D and the source that an SM moves through its epilogues in a clock; fitted to resources/records of the H200.
_EPILOGUE_BYTES_PER_CLOCK = 11.0
LAUNCH_US = 2.1  # from one kernel's end to the next one's first block, in a CUDA graph
PDL_GAIN_US = 1.0  # measured: worth about 1 us a kernel in a chain
_REDUCE_US = 2.4  # the second kernel of split-K beyond the bytes it moves, launched without PDL
_L2_OVER_DRAM = 1.8  # L2 bandwidth against DRAM's; only their order matters here


@dataclass(frozen=True)
class Cost:
    """What the model makes of a tile on a problem, an ESTIMATE for ranking. Times in us, `fill` in 0..1."""

    us: float
    waves: int
    fill: float
    useful: float
    bound: str

    @property
    def why(self) -> str:
        return (
            f"{self.waves} wave{'s' if self.waves != 1 else ''}, {self.fill:.0%} of the SMs' time used, "
            f"{self.useful:.0%} of the tiles' area useful, {self.bound}-bound"
        )


def occupancy(tile: Tile, itemsize: int, gpu: GpuSpec) -> int:
    """Blocks of this tile on an SM (CUDA programming guide, compute capabilities; Ampere tuning guide 1.4.1)."""
    threads = {75: 1024, 86: 1536, 89: 1536, 120: 1536}.get(gpu.sm, 2048)
    by_smem = gpu.smem_per_sm // (tile.smem_bytes(itemsize) + 1024)
    by_registers = 65536 // (tile.threads * ceil(tile.registers() / 8) * 8)
    return max(1, min(by_smem, by_registers, threads // tile.threads))


def estimate(
    tile: Tile, m: int, n: int, k_steps: int, batch: int, useful_k: float, least_bytes: float, dtype: DType,
    alignment: int, gpu: GpuSpec, slowdown: float = 1.0, slices: int = 1, element_bytes: int = 2,
) -> Cost:  # fmt: skip
    """The time of `batch` GEMMs of m x n in tiles over `k_steps` K tiles each.

    `element_bytes` are what the epilogue reads and writes for each element of the output (`epilogue_bytes`).

    Rules and where they come from:
    - waves and tail: the busiest SM decides (paper section 3.2.2; CUTLASS efficient_gemm.md, wave quantization);
    - tile efficiency: padding of M, N and K is computed too (`useful_k` is the share of K that is real);
    - warp tile: larger warp tiles read less shared memory for each product (efficient_gemm.md, warp-level GEMM);
    - warps: fewer than 8 on an SM leave tensor cores idle (paper section 3.2.2: 4 or 8 warps a block);
    - stages against K depth: a step that is not covered by the stages in flight waits (Ampere tuning guide, cp.async);
    - epilogue: a block's stores and its source's loads come after its products, an SM moves them at a rate of its own
      (efficient_gemm.md, epilogue; the persistent sm90 kernels hide them);
    - bytes: least DRAM traffic, and L2 traffic of every block reading its operands (arithmetic intensity);
    - alignment: narrow accesses take more instructions (CUTLASS, alignment 8 for 16-bit types);
    - `slices` of split-K: more blocks of fewer steps, and partial sums written and read once (efficient_gemm.md).
    """
    blocks = ceil(m / tile.m) * ceil(n / tile.n) * batch * slices
    k_steps = ceil(k_steps / slices)
    resident = occupancy(tile, dtype.itemsize, gpu)
    share = _PEAK_SHARE.get(gpu.sm, _NATIVE_SHARE)
    rate = gpu.tensor_tflops * 1e6 / gpu.sm_count * share * {DType.TF32: 1 / 2, DType.F32: 1 / 6}.get(dtype, 1.0)
    warp_m, warp_n, _ = tile.warp
    rate *= min(1.0, (warp_m * warp_n / (warp_m + warp_n) / 32) ** 0.4)
    rate *= {16: 1.0, 8: 0.8, 4: 0.55, 2: 0.3}[min(16, alignment * dtype.itemsize)]
    rate /= slowdown
    step_flops = 2.0 * tile.m * tile.n * tile.k
    wait = _LATENCY_US / max(1, tile.stages - 1)

    def round_us(together: int) -> float:
        busy = min(1.0, 0.4 + 0.075 * together * tile.warps)
        return k_steps * max(together * step_flops / (rate * busy), wait) + _BLOCK_US

    load = ceil(blocks / gpu.sm_count)
    full, rest = divmod(load, resident)
    compute = full * round_us(resident) + (round_us(rest) if rest else 0.0)
    compute += load * tile.m * tile.n * element_bytes / (_EPILOGUE_BYTES_PER_CLOCK * gpu.clock_mhz)
    dram = least_bytes / (gpu.dram_gbs * 1e3)
    l2 = blocks * (tile.m + tile.n) * tile.k * k_steps * dtype.itemsize / (gpu.dram_gbs * _L2_OVER_DRAM * 1e3)
    us, bound = max((compute, "compute"), (dram + _BLOCK_US, "memory"), (l2, "L2"))
    if slices > 1:
        us += _REDUCE_US + 2.0 * slices * m * n * 4 / (gpu.dram_gbs * _L2_OVER_DRAM * 1e3)
    useful = m * n / (ceil(m / tile.m) * tile.m * ceil(n / tile.n) * tile.n) * useful_k
    return Cost(us + LAUNCH_US, full + (rest > 0), blocks / (load * gpu.sm_count), useful, bound)


def epilogue_bytes(epilogue: Epilogue) -> int:
    """Bytes the epilogue moves for each element of the output: D, and the source if it has one."""
    return epilogue.output.itemsize * (1 + epilogue.has_source)


def store_objection(tile: Tile, width: int, itemsize: int) -> str | None:
    """Why a thread can't store `width` output elements at a time: CUTLASS's thread map does not compile."""
    if tile.store_width(width, itemsize) < width:
        return f"stores of {width} elements leave warps of a {tile.m}x{tile.n} block without a row"
    return None


def split_objection(tile: Tile, m: int, n: int, batch: int, k_steps: int, gpu: GpuSpec) -> str | None:
    """When slicing K can't pay: there are blocks enough for the SMs, or too few K steps to share."""
    if batch > 1:
        return "split-K is for a batch of one"
    if ceil(m / tile.m) * ceil(n / tile.n) > gpu.sm_count:
        return "the tiles fill the GPU without splitting K"
    if k_steps < 4:
        return f"{k_steps} K steps are too few to split"
    return None


def slice_counts(tile: Tile, m: int, n: int, k_steps: int, gpu: GpuSpec) -> list[int]:
    """Split-K slices worth trying, the most promising first: about one block for each SM, then half and twice that.

    Never less than two K steps a slice; `k_steps` is 4 or more (`split_objection`).
    """
    blocks = ceil(m / tile.m) * ceil(n / tile.n)
    ideal = 1
    while ideal * 2 * blocks <= gpu.sm_count:
        ideal *= 2
    most = k_steps // 2
    return list(dict.fromkeys(min(most, max(2, s)) for s in (ideal, ideal // 2, ideal * 2)))
