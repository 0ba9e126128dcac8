"""The identity of what is tuned. Two regions with equal workloads share one tuning and one kernel."""

from dataclasses import dataclass, field, replace

from templates.epilogue import Epilogue, parse_epilogue
from templates.types import DType, MatrixLayout


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


Workload = GemmWorkload | ConvWorkload


def parse_workload(key: str) -> Workload:
    """The workload whose `key` this is. Raises ValueError on anything else."""
    kind, *fields = key.split(" ")
    epilogue = parse_epilogue(fields[-1])
    try:
        if kind == "gemm":
            m, n, k = map(int, fields[0].split("x"))
            dtype, accumulator = map(DType, fields[-3].split("."))
            a, b = map(MatrixLayout, fields[-2].split("."))
            gemm = GemmWorkload(m, n, k, 1, dtype, accumulator, a, b, False, epilogue)
            if len(fields) == 5:
                shared = fields[1].endswith("s")
                gemm = replace(gemm, batch=int(fields[1].removeprefix("b").removesuffix("s")), shared_b=shared)
            found: Workload = gemm
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
