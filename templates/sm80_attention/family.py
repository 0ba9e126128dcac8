"""The sm80_attention family: our own kernel, so that no attention of 16-bit types lacks one."""

from collections.abc import Iterator
from dataclasses import dataclass

from templates.attention import AttentionWorkload, MaskKind
from templates.emit import gencode, render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm80_attention import rules
from templates.sm80_attention.space import MAX_WIDTH, TILES, Tile, access, padded
from templates.types import DType
from templates.workload import Workload

_MAX_ACCUMULATORS = 176  # beside queries, addresses and the softmax's state, of 255 registers
_MOST_BLOCKS = 2**31 - 1


@dataclass(frozen=True)
class Sm80Attention:
    """include/bolt/sm80_attention.cuh over `space.TILES`; widths are padded to 16 inside the kernel.

    Alignment: the same access width for all operands; the widest that every stride and width allows.
    """

    name: str = "sm80_attention"
    version: int = 1
    min_sm: int = 75
    max_sm: int = 120
    pitched: bool = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, AttentionWorkload):
            return "not attention"
        if not self.min_sm <= gpu.sm <= self.max_sm:
            return f"needs sm{self.min_sm} to sm{self.max_sm}, this GPU is sm{gpu.sm}"
        if workload.dtype not in (DType.F16, DType.BF16) or (workload.dtype == DType.BF16 and gpu.sm < 80):
            return f"attention in {workload.dtype} is not offered on sm{gpu.sm} (f16 is, and bf16 from sm80 on)"
        if workload.accumulator != DType.F32:
            return f"accumulation in {workload.accumulator} is not offered, only f32"
        for what, width in (("head", workload.head_dim), ("value", workload.value_dim)):
            if width > MAX_WIDTH:
                return f"a {what} width of {width} is more than {MAX_WIDTH}: its rows do not fit in registers"
        return None

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if self.refuses(workload, gpu) or not isinstance(workload, AttentionWorkload):
            return
        head, value, width = padded(workload.head_dim), padded(workload.value_dim), access(workload)
        for tile in TILES:
            params: dict[str, int | str] = {
                "warps": tile.warps, "keys": tile.columns, "stages": tile.stages, "head": head, "value": value,
                "mask": str(workload.mask), "causal": int(workload.causal),
            }  # fmt: skip
            widths = f"d{head}" if head == value else f"d{head}x{value}"
            yield Kernel(
                self.name, tuple(sorted(params.items())), workload.epilogue, workload.dtype, workload.accumulator,
                alignment=(width, width, width), stem=f"{tile.stem}_{widths}{workload.seen}",
            )  # fmt: skip

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        reason = self.refuses(workload, gpu)
        if reason or not isinstance(workload, AttentionWorkload):
            return reason
        tile, head, value = tile_of(kernel), kernel.int("head"), kernel.int("value")
        if (kernel.dtype, kernel["mask"], kernel.int("causal")) != (
            workload.dtype, str(workload.mask), int(workload.causal),
        ):  # fmt: skip
            return "built for another type or mask"
        if (head, value) != (padded(workload.head_dim), padded(workload.value_dim)):
            return f"built for widths of {head} and {value}"
        if access(workload) % kernel.alignment[0]:
            return f"rows do not lie at whole accesses of {kernel.alignment[0]} elements"
        if tile.smem_bytes(head, value) > gpu.smem_per_block:
            return f"{tile.smem_bytes(head, value)} bytes of shared memory, a block has {gpu.smem_per_block}"
        if tile.accumulators(value) > _MAX_ACCUMULATORS:
            return f"{tile.accumulators(value)} accumulators a thread leave no registers for the rest"
        if tile.rows >= 2 * max(16, workload.q_len):
            return f"half of a block's {tile.rows} queries or more would be none: the length is {workload.q_len}"
        if tile.columns >= 2 * max(16, workload.kv_len):
            return f"half of a tile's {tile.columns} keys or more would be none: the length is {workload.kv_len}"
        if tile.stages == 2 and workload.kv_len <= tile.columns:
            return "one tile holds all keys, a second stage would stay empty"
        if workload.batch * workload.heads * -(-workload.q_len // tile.rows) > _MOST_BLOCKS:
            return "more blocks than a grid has"
        return None

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return [Launch(pdl=pdl) for pdl in ((True, False) if gpu.sm >= 90 else (False,))]

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, AttentionWorkload):
            raise ValueError(f"{self.name} scores attention only")
        return rules.score(tile_of(candidate.kernel), candidate, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        tile, head, value = tile_of(kernel), kernel.int("head"), kernel.int("value")
        body = render(
            __file__, "kernel.cu.j2", element=kernel.dtype.cutlass, head=head, value=value, tile=tile,
            access=kernel.alignment[0], causal=bool(kernel.int("causal")), mask=MaskKind(str(kernel["mask"])).code,
            smem_bytes=tile.smem_bytes(head, value),
        )  # fmt: skip
        return wrap(kernel, ("bolt/sm80_attention.cuh",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return gencode(gpu)

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 9.0, 1.5


def tile_of(kernel: Kernel) -> Tile:
    return Tile(kernel.int("warps"), kernel.int("keys"), kernel.int("stages"))
