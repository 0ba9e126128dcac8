"""The identity of what is tuned. Two regions with equal workloads share one tuning and one kernel."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from templates.attention import AttentionWorkload, parse_attention
from templates.epilogue import Epilogue, parse_epilogue
from templates.types import DType, MatrixLayout, Residence


@dataclass(frozen=True)
class GemmWorkload:
    """D[b] = epilogue(A[b] @ B[b]); A is (M, K), B is (K, N), D and the source are (M, N) row-major.

    `shared_b`: one B serves the whole batch (its batch stride is zero). `residual` names are not part of it.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: DType = DType.F16
    accumulator: DType = DType.F32
    layout_a: MatrixLayout = MatrixLayout.ROW
    layout_b: MatrixLayout = MatrixLayout.COL
    shared_b: bool = False
    epilogue: Epilogue = field(default_factory=Epilogue)

    op = "gemm"

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """The least traffic to memory: each operand read once, the result written once."""
        size, out = self.dtype.itemsize, self.epilogue.output.itemsize
        b = self.n * self.k * (1 if self.shared_b else self.batch)
        tensors = self.batch * self.m * self.k * size + b * size + self.batch * self.m * self.n * out
        tensors += self.batch * self.m * self.n * out * self.epilogue.has_source
        return float(tensors + self.n * size * self.epilogue.has_bias)

    @property
    def key(self) -> str:
        """The whole identity in one line; `parse_workload` reads it back."""
        batch = f" b{self.batch}{'s' if self.shared_b else ''}" if self.batch > 1 or self.shared_b else ""
        return (
            f"gemm {self.m}x{self.n}x{self.k}{batch} {self.dtype}.{self.accumulator} "
            f"{self.layout_a}.{self.layout_b} {self.epilogue}"
        )


@dataclass(frozen=True)
class ConvWorkload:
    """Forward 2-D convolution, NHWC activations (N,H,W,C), KRSC weights (K,R,S,C/groups), NPQK output.

    Cross-correlation, as ONNX and CUTLASS's Mode::kCrossCorrelation. `pad` is (top, left, bottom, right).
    """

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: DType = DType.F16
    accumulator: DType = DType.F32
    epilogue: Epilogue = field(default_factory=Epilogue)

    op = "conv"

    @property
    def p(self) -> int:
        return (self.h + self.pad[0] + self.pad[2] - (self.r - 1) * self.dilation[0] - 1) // self.stride[0] + 1

    @property
    def q(self) -> int:
        return (self.w + self.pad[1] + self.pad[3] - (self.s - 1) * self.dilation[1] - 1) // self.stride[1] + 1

    @property
    def flops(self) -> float:
        return 2.0 * self.n * self.p * self.q * self.k * self.r * self.s * self.c / self.groups

    @property
    def bytes(self) -> float:
        """The least traffic to memory: each operand read once, the result written once."""
        size, out = self.dtype.itemsize, self.epilogue.output.itemsize
        activation = self.n * self.h * self.w * self.c * size
        weight = self.k * self.r * self.s * self.c // self.groups * size
        result = self.n * self.p * self.q * self.k * out
        return float(activation + weight + result * (1 + self.epilogue.has_source) + self.k * size)

    @property
    def implicit_gemm(self) -> tuple[int, int, int]:
        """(M, N, K) of the implicit GEMM of one group: M = N*P*Q, N = K/groups, K = R*S*C/groups."""
        return self.n * self.p * self.q, self.k // self.groups, self.r * self.s * self.c // self.groups

    @property
    def key(self) -> str:
        """The whole identity in one line; `parse_workload` reads it back."""
        pad, stride, dilation = (".".join(map(str, t)) for t in (self.pad, self.stride, self.dilation))
        return (
            f"conv {self.n}x{self.h}x{self.w}x{self.c} k{self.k}x{self.r}x{self.s} p{pad} s{stride} d{dilation} "
            f"g{self.groups} {self.dtype}.{self.accumulator} {self.epilogue}"
        )


@dataclass(frozen=True)
class B2bGemmWorkload:
    """Two products in one kernel (paper section 3.1.1): D = epilogue(first(A, B0) @ B1).

    `first` gives (M, N0) from K0, its epilogue included; B1 is (N0, n1), stored (n1, N0); D and the second source are
    (M, n1) row-major. The intermediate is rounded to the operands' type, as when two kernels pass it through memory.
    `residence`: only kernels that keep it there count; None: wherever it is fastest.
    """

    first: GemmWorkload
    n1: int
    epilogue: Epilogue = field(default_factory=Epilogue)
    residence: Residence | None = None

    op = "b2b_gemm"

    def __post_init__(self) -> None:
        if self.first.batch > 1:
            raise ValueError("a pair has a batch of one; constant weights fold a batch into M")
        _check_intermediate(self.first)

    @property
    def dtype(self) -> DType:
        return self.first.dtype

    @property
    def accumulator(self) -> DType:
        return self.first.accumulator

    @property
    def second(self) -> GemmWorkload:
        """The second product as it would run on its own."""
        f = self.first
        return GemmWorkload(f.m, self.n1, f.n, dtype=f.dtype, accumulator=f.accumulator, epilogue=self.epilogue)

    @property
    def parts(self) -> tuple[GemmWorkload, GemmWorkload]:
        """The two unfused workloads."""
        return self.first, self.second

    @property
    def flops(self) -> float:
        return self.first.flops + self.second.flops

    @property
    def bytes(self) -> float:
        """The least traffic to memory: the intermediate never goes there."""
        return _chain_bytes(self.parts)

    @property
    def key(self) -> str:
        """The whole identity in one line; `parse_workload` reads it back."""
        return _pair_key(self)


@dataclass(frozen=True)
class B2bConvWorkload:
    """A convolution and the 1x1 convolution after it (stride 1, no padding, one group) in one kernel.

    `first` gives N x P x Q pixels of K channels, its epilogue included; the filters of the second are (n1, K), its
    output (N, P, Q, n1). The intermediate is rounded to the operands' type. `residence`: see B2bGemmWorkload.
    """

    first: ConvWorkload
    n1: int
    epilogue: Epilogue = field(default_factory=Epilogue)
    residence: Residence | None = None

    op = "b2b_conv"

    def __post_init__(self) -> None:
        _check_intermediate(self.first)

    @property
    def dtype(self) -> DType:
        return self.first.dtype

    @property
    def accumulator(self) -> DType:
        return self.first.accumulator

    @property
    def second(self) -> GemmWorkload:
        """The second convolution as it would run on its own: a GEMM over the pixels."""
        f = self.first
        return GemmWorkload(
            f.n * f.p * f.q, self.n1, f.k, dtype=f.dtype, accumulator=f.accumulator, epilogue=self.epilogue
        )

    @property
    def parts(self) -> tuple[ConvWorkload, GemmWorkload]:
        """The two unfused workloads."""
        return self.first, self.second

    @property
    def flops(self) -> float:
        return self.first.flops + self.second.flops

    @property
    def bytes(self) -> float:
        """The least traffic to memory: the intermediate never goes there."""
        return _chain_bytes(self.parts)

    @property
    def key(self) -> str:
        """The whole identity in one line; `parse_workload` reads it back."""
        return _pair_key(self)


@dataclass(frozen=True)
class TowerWorkload:
    """Three products in one kernel, an MLP tower: D = epilogue(pair(A, B0, B1) @ B2).

    `pair` gives (M, n1), its epilogues included and the second one without a source; B2 is (n1, n2), stored (n2, n1); D
    and the source are (M, n2) row-major. Both intermediates are rounded to the operands' type; both stay in shared
    memory, so the pair asks for no residence.
    """

    pair: B2bGemmWorkload
    n2: int
    epilogue: Epilogue = field(default_factory=Epilogue)

    op = "b2b_gemm"

    def __post_init__(self) -> None:
        _check_intermediate(self.pair.second)
        if self.pair.residence is not None:
            raise ValueError("a chain of three has no choice of where its intermediates stay")
        if any(p.epilogue.has_source for p in self.pair.parts):
            raise ValueError("only the last epilogue of a chain of three reads a source")

    @property
    def first(self) -> GemmWorkload:
        return self.pair.first

    @property
    def dtype(self) -> DType:
        return self.pair.dtype

    @property
    def accumulator(self) -> DType:
        return self.pair.accumulator

    @property
    def parts(self) -> tuple[GemmWorkload, GemmWorkload, GemmWorkload]:
        """The three unfused workloads."""
        f = self.pair.first
        third = GemmWorkload(
            f.m, self.n2, self.pair.n1, dtype=f.dtype, accumulator=f.accumulator, epilogue=self.epilogue
        )  # fmt: skip
        return (*self.pair.parts, third)

    @property
    def flops(self) -> float:
        return sum(part.flops for part in self.parts)

    @property
    def bytes(self) -> float:
        """The least traffic to memory: the intermediates never go there."""
        return _chain_bytes(self.parts)

    @property
    def key(self) -> str:
        """The whole identity in one line; `parse_workload` reads it back."""
        return f"{self.pair.key}{_THEN}{self.n2} {self.epilogue}"


_THEN = " then n"
Single = GemmWorkload | ConvWorkload  # one product or convolution
Pair = B2bGemmWorkload | B2bConvWorkload  # two of them in one kernel
Chain = Pair | TowerWorkload  # two or three
Workload = Single | Chain | AttentionWorkload


def _pair_key(pair: Pair) -> str:
    kept = f" {pair.residence}" if pair.residence else ""
    return f"b2b_{pair.first.key}{_THEN}{pair.n1} {pair.epilogue}{kept}"


def _check_intermediate(first: Single) -> None:
    stored = DType.F32 if first.dtype == DType.TF32 else first.dtype
    if first.epilogue.output != stored:
        raise ValueError(f"the intermediate of a pair is {stored} like its operands, not {first.epilogue.output}")


def _chain_bytes(parts: Sequence[Single]) -> float:
    later = [part for part in parts[1:] if isinstance(part, GemmWorkload)]
    intermediates = sum(part.m * part.k * part.dtype.itemsize for part in later)
    return sum(part.bytes for part in parts) - 2.0 * intermediates


def parse_workload(key: str) -> Workload:
    """The workload whose `key` this is. Raises ValueError on anything else."""
    first, *rest = key.removeprefix("b2b_").split(_THEN)
    if key.startswith("attention "):
        return parse_attention(key)
    if not key.startswith("b2b_"):
        return _parse_single(key)
    try:
        if not 1 <= len(rest) <= 2:
            raise ValueError("it has two operators or three")
        n1, _, after = rest[0].partition(" ")
        epilogue, _, kept = after.partition(" ")
        single, second, residence = _parse_single(first), parse_epilogue(epilogue), Residence(kept) if kept else None
        found: Chain
        if isinstance(single, GemmWorkload):
            found = B2bGemmWorkload(single, int(n1), second, residence)
            if len(rest) == 2:
                n2, _, last = rest[1].partition(" ")
                found = TowerWorkload(found, int(n2), parse_epilogue(last))
        else:
            found = B2bConvWorkload(single, int(n1), second, residence)
    except ValueError as error:
        raise ValueError(f"not a workload key: {key!r} ({error})") from None
    if found.key != key:
        raise ValueError(f"not a workload key: {key!r}")
    return found


def _parse_single(key: str) -> Single:
    kind, *fields = key.split(" ")
    try:
        epilogue = parse_epilogue(fields[-1])
        if kind == "gemm":
            m, n, k = map(int, fields[0].split("x"))
            dtype, accumulator = map(DType, fields[-3].split("."))
            a, b = map(MatrixLayout, fields[-2].split("."))
            gemm = GemmWorkload(m, n, k, 1, dtype, accumulator, a, b, False, epilogue)
            if len(fields) == 5:
                shared = fields[1].endswith("s")
                gemm = replace(gemm, batch=int(fields[1].removeprefix("b").removesuffix("s")), shared_b=shared)
            found: Single = gemm
        elif kind == "conv":
            n, h, w, c = map(int, fields[0].split("x"))
            k, r, s = map(int, fields[1].removeprefix("k").split("x"))
            top, left, bottom, right = map(int, fields[2].removeprefix("p").split("."))
            stride_h, stride_w = map(int, fields[3].removeprefix("s").split("."))
            dilation_h, dilation_w = map(int, fields[4].removeprefix("d").split("."))
            dtype, accumulator = map(DType, fields[6].split("."))
            found = ConvWorkload(
                n, h, w, c, k, r, s, (top, left, bottom, right), (stride_h, stride_w), (dilation_h, dilation_w),
                int(fields[5].removeprefix("g")), dtype, accumulator, epilogue,
            )  # fmt: skip
        else:
            raise ValueError(f"kind {kind!r}")
    except (ValueError, IndexError) as error:
        raise ValueError(f"not a workload key: {key!r} ({error})") from None
    if found.key != key:
        raise ValueError(f"not a workload key: {key!r}")
    return found
