"""What tests/gpu/test_kernels_attention.py runs: kernels and, for each, workloads. Needs no GPU and no torch."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from templates import families
from templates.attention import AttentionWorkload, MaskKind
from templates.family import Kernel
from templates.gpu import GpuSpec
from templates.types import DType
from tests.templates.attention_cases import attention

MMA, HOPPER = "sm80_attention", "sm90_attention"
LENGTHS = (
    (1, 1), (1, 500), (7, 13), (40, 40), (63, 65), (64, 64), (65, 129), (128, 128), (197, 197), (200, 1000),
    (513, 511), (1024, 1024), (2048, 2048),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """The kernel of a family whose stem begins with `tile`, on every one of LENGTHS."""

    family: str
    tile: str
    width: int
    value: int = 0
    mask: MaskKind = MaskKind.NONE
    causal: bool = False
    dtype: DType = DType.F16
    more: dict[str, object] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        seen = "_causal" * self.causal + (f"_{self.mask}" if self.mask is not MaskKind.NONE else "")
        return f"{self.family}-{self.tile}-d{self.width}x{self.value or self.width}-{self.dtype}{seen}"

    @property
    def workloads(self) -> Iterator[AttentionWorkload]:
        for number, (q_len, kv_len) in enumerate(LENGTHS):
            heads = 2 if q_len * kv_len > 1 << 20 else 6
            shared = {"kv_heads": heads // 2} if number % 2 else {}
            masked: dict[str, object] = {"mask": self.mask}
            if self.mask is not MaskKind.NONE:  # over the keys alone, over everything, over heads and rows
                strides = (
                    (kv_len, 0, 0),
                    (heads * q_len * kv_len, q_len * kv_len, kv_len),
                    (0, q_len * kv_len, kv_len),
                )
                masked["mask_strides"] = strides[number % 3]
            yield attention(
                3, heads, q_len, kv_len, self.width, self.value, inside=number % 2 == 0, causal=self.causal,
                dtype=self.dtype, **shared, **masked, **self.more,  # type: ignore[arg-type]
            )  # fmt: skip

    def kernel(self, gpu: GpuSpec) -> Kernel:
        work = next(self.workloads)
        found = families()[self.family].kernels(work, gpu)
        return next(k for k in found if k.stem.startswith(f"{self.tile}_d"))


ADD, KEEP, DROP = MaskKind.ADD, MaskKind.KEEP, MaskKind.DROP
MMA_CASES = [
    Case(MMA, "48x48_s1", 64, mask=ADD),
    Case(MMA, "64x64_s2", 64),
    Case(MMA, "64x64_s2", 64, causal=True),
    Case(MMA, "64x32_s2", 128, mask=KEEP, causal=True),
    Case(MMA, "128x64_s2", 128, dtype=DType.BF16),
    Case(MMA, "32x128_s1", 80, mask=DROP),
    Case(MMA, "64x64_s1", 96, 64),
    Case(MMA, "64x32_s2", 256),
    Case(MMA, "64x64_s2", 36, mask=MaskKind.DROP_LOW),
    Case(MMA, "64x64_s2", 33, 31, causal=True),
]
HOPPER_CASES = [
    Case(HOPPER, "64x64_s2", 64),
    Case(HOPPER, "64x128_s2", 64, mask=ADD),
    Case(HOPPER, "128x64_s3", 64, causal=True),
    Case(HOPPER, "128x128_s2", 64),
    Case(HOPPER, "128x128_s2_turns", 64, causal=True),
    Case(HOPPER, "128x192_s2_turns", 64),
    Case(HOPPER, "192x96_s2", 64),
    Case(HOPPER, "128x128_s2", 128, mask=KEEP),
    Case(HOPPER, "128x128_s2_turns", 128, causal=True),
    Case(HOPPER, "128x128_s2_turns", 128, dtype=DType.BF16),
    Case(HOPPER, "128x96_s3", 128, mask=ADD, causal=True),
    Case(HOPPER, "128x96_s2", 80, mask=DROP),
    Case(HOPPER, "128x64_s2_turns", 96),
    Case(HOPPER, "128x64_s2", 32, 40, mask=MaskKind.KEEP_LOW),
    Case(HOPPER, "64x64_s2", 256),
]
# Queries, keys and values of all heads interleaved in the rows of one tensor, as a joint projection leaves them.
PACKED = [
    (case, replace(work, q=packed, k=packed, v=packed))
    for case in (MMA_CASES[1], HOPPER_CASES[3])
    for work in [attention(2, 4, 300, 300, 64)]
    for packed in [(300 * 3 * 256, 64, 3 * 256)]
]
