"""What the operator kernels of an exported library compute, in terms of memory only.

Every operation here speaks of flat buffers, extents and strides (all in elements); the logical shapes are gone. The
CUDA of each is in templates/operators/, the launch in core.export.kernels; tests execute them in numpy.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import prod

from core.export.operations_indexed import (
    CumSum,
    GatherElements,
    GatherNd,
    Resize,
    ScatterElements,
    ScatterNd,
    TopK,
)
from templates.epilogue import Epilogue


class Scalar(StrEnum):
    """The type a pointwise value is computed in: float is fp32, int 64-bit."""

    FLOAT = "float"
    INT = "int"
    BOOL = "bool"


@dataclass(frozen=True)
class Operand:
    """Where a pointwise kernel reads: element sum(index[i] * strides[i]) + offset. A stride of 0 broadcasts.

    With `widths` the operand is several inputs, one (rows, widths[i]) each, read as if Concat had joined them.
    """

    strides: tuple[int, ...]
    offset: int = 0
    widths: tuple[int, ...] = ()

    @property
    def inputs(self) -> int:
        """How many of the step's inputs it reads."""
        return len(self.widths) or 1


@dataclass(frozen=True)
class Instruction:
    """One value of a pointwise kernel. `args` number earlier values: operands first, then instructions."""

    op: str
    args: tuple[int, ...]
    type: Scalar
    params: tuple[float | int, ...] = ()


@dataclass(frozen=True)
class Pointwise:
    """results[j] of `body`, written row-major over `extents` to output j.

    A body of no instruction whose result is operand 0 is a copy: with other strides a transposition, with other
    types a conversion.
    """

    extents: tuple[int, ...]
    operands: tuple[Operand, ...]
    body: tuple[Instruction, ...]
    results: tuple[int, ...]


# Instructions that take one value of every element of a row and make one value of the row.
ROW_INSTRUCTIONS = frozenset({"row_sum", "row_max", "row_min", "row_prod"})


@dataclass(frozen=True)
class Rows:
    """`body` over rows: the last `row` of `extents` are the elements of a row, those before them count the rows.

    A value is of an element, or of a whole row: what a row instruction makes, and what is made of such values and of
    operands without a stride inside the row. results[j] is written to output j at writes[j]; the strides of a row's
    value are 0 inside the row, where nothing else is written.
    """

    extents: tuple[int, ...]
    row: int
    operands: tuple[Operand, ...]
    body: tuple[Instruction, ...]
    results: tuple[int, ...]
    writes: tuple[Operand, ...]

    @property
    def rows(self) -> int:
        return prod(self.extents[: -self.row])

    @property
    def columns(self) -> int:
        return prod(self.extents[-self.row :])

    def varies(self) -> list[bool]:
        """For every value (operands first), whether it is an element's."""
        found = [any(o.strides[-self.row :]) for o in self.operands]
        for step in self.body:
            found.append(step.op not in ROW_INSTRUCTIONS and any(found[a] for a in step.args))
        return found


@dataclass(frozen=True)
class Axis:
    """An extent with its stride in the source and in the destination."""

    extent: int
    source: int
    destination: int


@dataclass(frozen=True)
class TiledTranspose:
    """destination <- source, through shared memory: `read` is contiguous in the source, `write` in the destination."""

    batch: tuple[Axis, ...]
    read: Axis
    write: Axis


@dataclass(frozen=True)
class PackChannels:
    """(n, pixels, padded) row-major <- (n, pixels, channels) at the given strides; the padding is zero."""

    n: int
    pixels: int
    channels: int
    padded: int
    strides: tuple[int, int, int]


class PoolKind(StrEnum):
    MAX = "max"
    AVERAGE = "average"  # divided by the elements inside the input
    AVERAGE_PADDED = "average_padded"  # divided by the elements inside the input and its padding


@dataclass(frozen=True)
class Pool:
    """(n, o, p, q, c) <- (n, d, h, w, c), both row-major. A window may run past the padded input (ceil_mode).

    `before` and `after` are the padding; fewer spatial dimensions than three have leading extents of 1.
    """

    kind: PoolKind
    n: int
    c: int
    size: tuple[int, int, int]  # d, h, w
    result: tuple[int, int, int]  # o, p, q
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    dilation: tuple[int, int, int]
    before: tuple[int, int, int]
    after: tuple[int, int, int]


@dataclass(frozen=True)
class Lrn:
    """y = x / (bias + alpha / size * sum of squares over `size` neighbours along the innermost c) ** beta."""

    pixels: int
    c: int
    size: int
    alpha: float
    beta: float
    bias: float


class ReduceKind(StrEnum):
    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    PROD = "prod"
    L1 = "l1"
    L2 = "l2"
    SUM_SQUARE = "sum_square"


@dataclass(frozen=True)
class Reduce:
    """(outer, inner) <- (outer, axis, inner), inner > 1. Along contiguous rows a reduction is a Rows."""

    kind: ReduceKind
    outer: int
    axis: int
    inner: int


@dataclass(frozen=True)
class ArgReduce:
    """(outer, inner) int64 <- (outer, axis, inner): the position of the largest (or least) element."""

    largest: bool
    last: bool  # of equal ones the last instead of the first
    outer: int
    axis: int
    inner: int


@dataclass(frozen=True)
class Softmax:
    """Along the middle of (outer, axis, inner), inner > 1, of `scale` times the input."""

    log: bool
    outer: int
    axis: int
    inner: int
    scale: float = 1.0


@dataclass(frozen=True)
class Concat:
    """(outer, sum(widths)) <- one (outer, widths[i]) for each input."""

    outer: int
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Gather:
    """(outer, count, inner) <- data (outer, axis, inner) at indices (count,); a negative index counts from the end."""

    outer: int
    axis: int
    inner: int
    count: int


class PadMode(StrEnum):
    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"


@dataclass(frozen=True)
class Pad:
    """Row-major over `extents` grown by `before` and `after` (negative ones crop)."""

    mode: PadMode
    extents: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class DirectConv:
    """(n, p, q, k) <- activation (n, h, w, c), weight (k, r, s, c / groups), then bias and source as the epilogue asks.

    Runs what no template serves; fp32 accumulation.
    """

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    p: int
    q: int
    pad: tuple[int, int]  # top, left
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    epilogue: Epilogue


Operation = (
    Pointwise
    | Rows
    | TiledTranspose
    | PackChannels
    | Pool
    | Lrn
    | Reduce
    | ArgReduce
    | Softmax
    | Concat
    | Gather
    | GatherElements
    | GatherNd
    | ScatterElements
    | ScatterNd
    | CumSum
    | TopK
    | Resize
    | Pad
    | DirectConv
)


def moves_only(operation: Operation) -> bool:
    """True for kernels that convert layout, type or padding and compute nothing: the cost of layout changes."""
    if isinstance(operation, Pointwise):
        copied = operation.operands[0] if not operation.body and len(operation.operands) == 1 else None
        return copied is not None and all(copied.strides) and not copied.widths
    return isinstance(operation, TiledTranspose | PackChannels)


def result_elements(operation: Operation, output: int = 0) -> int:
    """Elements that an output of the operation has."""
    match operation:
        case Rows():
            strides = operation.writes[output].strides
            return operation.rows * (operation.columns if any(strides[-operation.row :]) else 1)
        case Pointwise():
            return prod(operation.extents)
        case TiledTranspose():
            return prod(a.extent for a in (*operation.batch, operation.read, operation.write))
        case PackChannels():
            return operation.n * operation.pixels * operation.padded
        case Pool():
            return operation.n * prod(operation.result) * operation.c
        case Lrn():
            return operation.pixels * operation.c
        case Reduce() | ArgReduce():
            return operation.outer * operation.inner
        case Softmax() | CumSum():
            return operation.outer * operation.axis * operation.inner
        case Concat():
            return operation.outer * sum(operation.widths)
        case GatherElements() | Resize():
            return prod(operation.extents)
        case GatherNd():
            return operation.batch * operation.tuples * operation.inner
        case ScatterElements():
            return prod(operation.sizes)
        case ScatterNd():
            return prod(operation.sizes) * operation.inner
        case TopK():
            return operation.rows * operation.k
        case Gather():
            return operation.outer * operation.count * operation.inner
        case Pad():
            return prod(e + b + a for e, b, a in zip(operation.extents, operation.before, operation.after, strict=True))
        case DirectConv():
            return operation.n * operation.p * operation.q * operation.k
