"""The configurations of the two kernels in include/bolt/direct_conv.h, as data."""

from collections.abc import Iterator
from dataclasses import dataclass

from templates.types import DType, largest_alignment
from templates.workload import ConvWorkload

# Pixels a thread, (threads along channels, threads along strips of pixels).
_DEPTHWISE = [(pixels, block) for pixels in (1, 2, 4, 8) for block in ((8, 16), (16, 16), (32, 8), (4, 64))]
# Block tile (pixels, filters), accumulators a thread (pixels, filters).
_GROUPED = [
    ((64, 64), (4, 8)), ((128, 64), (8, 8)), ((128, 32), (8, 4)), ((64, 32), (4, 4)), ((32, 32), (2, 4)),
    ((64, 16), (4, 4)), ((128, 16), (4, 4)), ((256, 8), (8, 2)), ((128, 8), (4, 2)), ((256, 4), (4, 4)),
]  # fmt: skip
WINDOWS = (2, 3, 4, 5, 7)  # filter widths whose row of inputs fits in registers
_STRIDES = (1, 2)


@dataclass(frozen=True)
class Depthwise:
    """A thread owns `vec` channels of `pixels` outputs; `taps_w`, `stride_w` known to the compiler, or 0 for any."""

    vec: int
    pixels: int
    block_c: int
    block_p: int
    taps_w: int
    stride_w: int

    @property
    def stem(self) -> str:
        window = f"_w{self.taps_w}s{self.stride_w}" if self.taps_w else ""
        return f"dw{self.vec}x{self.pixels}_{self.block_c}x{self.block_p}{window}"

    @property
    def params(self) -> dict[str, int | str]:
        return {
            "method": "depthwise", "vec": self.vec, "pixels": self.pixels, "block_c": self.block_c,
            "block_p": self.block_p, "taps_w": self.taps_w, "stride_w": self.stride_w,
        }  # fmt: skip


@dataclass(frozen=True)
class Grouped:
    """A block computes `tile_p` pixels by `tile_k` filters of one group, a thread `micro_p` x `micro_k` of them."""

    vec: int
    vec_out: int
    tile_p: int
    tile_k: int
    micro_p: int
    micro_k: int

    @property
    def stem(self) -> str:
        return f"fma{self.tile_p}x{self.tile_k}_{self.micro_p}x{self.micro_k}_v{self.vec}x{self.vec_out}"

    @property
    def params(self) -> dict[str, int | str]:
        return {
            "method": "grouped", "vec": self.vec, "vec_out": self.vec_out, "tile_p": self.tile_p,
            "tile_k": self.tile_k, "micro_p": self.micro_p, "micro_k": self.micro_k,
        }  # fmt: skip


Method = Depthwise | Grouped


def method_of(params: dict[str, int | str]) -> Method:
    """The method whose `params` these are. Raises KeyError or TypeError on anything else."""
    rest = {name: int(value) for name, value in params.items() if name != "method"}
    return Depthwise(**rest) if params["method"] == "depthwise" else Grouped(**rest)


def is_depthwise(workload: ConvWorkload) -> bool:
    """One input and one output channel a group."""
    return workload.groups == workload.c == workload.k


def methods(workload: ConvWorkload) -> Iterator[Method]:
    """Every configuration for the workload's channels, widest accesses, legal or not."""
    if is_depthwise(workload):
        widest = min(channel_width(workload.c, workload.dtype), channel_width(workload.k, workload.epilogue.output))
        known = workload.s in WINDOWS and workload.stride[1] in _STRIDES and workload.dilation[1] == 1
        window = (workload.s, workload.stride[1]) if known else (0, 0)
        for vec in {widest, max(1, widest // 2)}:
            for pixels, (block_c, block_p) in _DEPTHWISE:
                yield Depthwise(vec, pixels, block_c, block_p, *window)
    vec = channel_width(workload.c // workload.groups, workload.dtype)
    for (tile_p, tile_k), (micro_p, micro_k) in _GROUPED:
        vec_out = min(micro_k, channel_width(workload.k // workload.groups, workload.epilogue.output))
        yield Grouped(vec, vec_out, tile_p, tile_k, micro_p, micro_k)


def channel_width(channels: int, dtype: DType) -> int:
    """Elements of one access: at most 16 bytes, dividing the channels."""
    return largest_alignment(channels, dtype=dtype)
