"""The identity of fused attention: softmax(scale Q K^T + mask) V of every head, as one workload."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

from templates.epilogue import Epilogue
from templates.types import DType

Strides = tuple[int, int, int]  # of the batch, the head and the row, in elements; a row's elements are neighbours


class MaskKind(StrEnum):
    """What the mask does to the scores: ADD adds its values (of the workload's type) to the scaled ones, KEEP (bytes)
    leaves a score where the mask is not 0 and drops it elsewhere, DROP the other way round.

    A dropped score is -infinity; a row without any other gives zeros. The LOW ones put a finite low number there, as
    models do: such a row gives the mean of the values that causality and lengths let it see.
    """

    NONE = "none"
    ADD = "add"
    KEEP = "keep"
    DROP = "drop"
    KEEP_LOW = "keep_low"
    DROP_LOW = "drop_low"

    @property
    def keeps(self) -> bool:
        """Whether a boolean mask keeps scores where it is set."""
        return self in (MaskKind.KEEP, MaskKind.KEEP_LOW)

    @property
    def low(self) -> bool:
        """Whether dropped scores are finite."""
        return self in (MaskKind.KEEP_LOW, MaskKind.DROP_LOW)

    @property
    def code(self) -> int:
        """Its value of `Mask` in include/bolt/attention.cuh: its place here."""
        return list(MaskKind).index(self)


def heads_outside(heads: int, rows: int, width: int) -> Strides:
    """Strides of a dense (batch, head, row, element) tensor."""
    return heads * rows * width, rows * width, width


def heads_inside(heads: int, rows: int, width: int) -> Strides:
    """Strides of a dense (batch, row, head, element) tensor: a projection's output seen as heads."""
    return heads * rows * width, width, heads * width


@dataclass(frozen=True)
class AttentionWorkload:
    """O = softmax(scale Q K^T + mask) V; Q (batch, heads, q_len, head_dim), K (batch, kv_heads, kv_len, head_dim),
    V (batch, kv_heads, kv_len, value_dim), O (batch, heads, q_len, value_dim).

    Where each lies is told by its strides, so that views of a projection's output need no copy; O is dense. Heads
    h * heads / kv_heads onwards share the keys and values of h. `causal`: row i sees columns 0 to i. The mask is
    (batch, heads, q_len, kv_len), a stride of 0 where it repeats.
    """

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    value_dim: int
    scale: float
    q: Strides
    k: Strides
    v: Strides
    out: Strides
    dtype: DType = DType.F16
    accumulator: DType = DType.F32
    causal: bool = False
    mask: MaskKind = MaskKind.NONE
    mask_strides: Strides = (0, 0, 0)
    epilogue: Epilogue = field(init=False, repr=False, compare=False)

    op = "attention"

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads can't share {self.kv_heads} heads of keys evenly")
        scale = float(format(self.scale, ".9g"))  # what the key can hold, and a float32 too
        if not (isfinite(scale) and scale > 0):
            raise ValueError(f"the scale {self.scale} is not a positive number")
        if not _dense(self.out, (self.batch, self.heads, self.q_len), self.value_dim):
            raise ValueError("the output of attention has gaps or overlaps")
        if self.mask is MaskKind.NONE and any(self.mask_strides):
            raise ValueError("strides of a mask that is not there")
        for name, heads, rows in (
            ("q", self.heads, self.q_len), ("k", self.kv_heads, self.kv_len), ("v", self.kv_heads, self.kv_len),
            ("out", self.heads, self.q_len), ("mask_strides", self.heads, self.q_len),
        ):  # fmt: skip
            counts = (self.batch, heads, rows)
            kept = tuple(s if n > 1 else 0 for s, n in zip(getattr(self, name), counts, strict=True))
            object.__setattr__(self, name, kept)  # a stride that is never taken is no part of the identity
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "epilogue", Epilogue((), self.dtype))

    @property
    def seen(self) -> str:
        """Which keys queries see, as the ending of a kernel's stem: "", "_causal", "_keep", "_causal_keep"."""
        return "_causal" * self.causal + (f"_{self.mask}" if self.mask is not MaskKind.NONE else "")

    @property
    def out_elements(self) -> int:
        return self.batch * self.heads * self.q_len * self.value_dim

    @property
    def mask_itemsize(self) -> int:
        """Bytes of one element of the mask; 0 without one."""
        if self.mask is MaskKind.NONE:
            return 0
        return self.dtype.itemsize if self.mask is MaskKind.ADD else 1

    @property
    def pairs(self) -> int:
        """(query, key) pairs of one head that count."""
        if not self.causal:
            return self.q_len * self.kv_len
        full = min(self.q_len, self.kv_len)
        return full * (full + 1) // 2 + (self.q_len - full) * self.kv_len

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.heads * self.pairs * (self.head_dim + self.value_dim)

    @property
    def bytes(self) -> float:
        """The least traffic to memory: each operand read once, the result written once."""
        keys = self.batch * self.kv_heads * self.kv_len * (self.head_dim + self.value_dim)
        queries = self.batch * self.heads * self.q_len * self.head_dim
        return float((queries + keys + self.out_elements) * self.dtype.itemsize + self.mask_bytes)

    @property
    def mask_bytes(self) -> int:
        """Bytes of the mask: a dimension it repeats along counts once."""
        counts = (self.batch, self.heads, self.q_len)
        rows = 1
        for stride, count in zip(self.mask_strides, counts, strict=True):
            rows *= count if stride else 1
        return rows * self.kv_len * self.mask_itemsize

    @property
    def key(self) -> str:
        """The whole identity in one line; `parse_attention` reads it back."""
        mask = "" if self.mask is MaskKind.NONE else f" {self.mask}{_dotted(self.mask_strides)}"
        return (
            f"attention b{self.batch} h{self.heads}/{self.kv_heads} s{self.q_len}/{self.kv_len} "
            f"d{self.head_dim}/{self.value_dim} {self.dtype}.{self.accumulator} x{self.scale:.9g} "
            f"q{_dotted(self.q)} k{_dotted(self.k)} v{_dotted(self.v)} o{_dotted(self.out)}"
            f"{' causal' * self.causal}{mask}"
        )


def span(strides: Strides, counts: tuple[int, int, int], width: int) -> int:
    """Elements from the first to the last of a tensor of `width` elements a row, both included."""
    return sum((n - 1) * s for s, n in zip(strides, counts, strict=True)) + width


def _dense(strides: Strides, counts: tuple[int, int, int], width: int) -> bool:
    """Whether the rows lie without gaps or overlaps, in any order."""
    step = width
    for stride, count in sorted(zip(strides, counts, strict=True)):
        if count > 1 and stride != step:
            return False
        step *= count
    return True


def parse_attention(key: str) -> AttentionWorkload:
    """The workload whose `key` this is. Raises ValueError on anything else."""
    try:
        found = _parsed(key)
    except (ValueError, IndexError) as error:
        raise ValueError(f"not a workload key: {key!r} ({error})") from None
    if found.key != key:
        raise ValueError(f"not a workload key: {key!r}")
    return found


def _parsed(key: str) -> AttentionWorkload:
    fields = key.split(" ")
    heads, lengths, widths = (tuple(map(int, f[1:].split("/"))) for f in fields[2:5])
    dtype, accumulator = map(DType, fields[5].split("."))
    q, k, v, out = (_strides(f[1:]) for f in fields[7:11])
    rest = fields[11:]
    causal = rest[:1] == ["causal"]
    mask, strides = MaskKind.NONE, (0, 0, 0)
    if rest[causal:]:
        letters = rest[-1].rstrip("0123456789.")
        mask, strides = MaskKind(letters), _strides(rest[-1][len(letters) :])
    return AttentionWorkload(
        int(fields[1].removeprefix("b")), heads[0], heads[1], lengths[0], lengths[1], widths[0], widths[1],
        float(fields[6].removeprefix("x")), q, k, v, out, dtype, accumulator, causal, mask, strides,
    )  # fmt: skip


def _dotted(strides: Strides) -> str:
    return ".".join(map(str, strides))


def _strides(text: str) -> Strides:
    batch, head, row = map(int, text.split("."))
    return batch, head, row
