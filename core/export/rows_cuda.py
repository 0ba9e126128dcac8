"""The CUDA kernel of a pass over rows: a few threads share a row, which memory delivers once where registers hold it.

The kernel is a sequence of loops over the row with a reduction of all its threads behind each but the last. Operands
that several loops read stay in registers as they were loaded, and so do values that are dear to compute; a row too long
for that is read again by each loop (from L2, mostly), and everything is computed anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.export.operations import ROW_INSTRUCTIONS, Instruction, Operand, Rows, Scalar
from core.export.pointwise_cuda import C_TYPES, VALUE, declared, expression_of, loaded_as
from templates.types import DType

_COMBINE = {"row_sum": "Sum", "row_max": "Largest", "row_min": "Smallest", "row_prod": "Product"}
_START = {"row_sum": "0.f", "row_max": "-INFINITY", "row_min": "INFINITY", "row_prod": "1.f"}
# Kept in a register for later loops rather than computed again.
_DEAR = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "cos", "cosh", "div", "elu", "erf", "exp", "fast_exp", "gelu_erf",
    "gelu_tanh", "log", "pow", "sigmoid", "sin", "sinh", "softplus", "sqrt", "tan", "tanh",
})  # fmt: skip
_MOST_KEPT = 32  # elements of a row that a thread may hold
_WARP, _BLOCK, _MOST_THREADS = 32, 256, 1024
_BUSY = 1 << 15  # threads in flight that keep a large GPU's memory busy: half of what 32 SMs hold
_BLOCKS = 264  # two for each SM of an H200


@dataclass(frozen=True)
class Split:
    """How threads share rows: `threads` a row, each with `vectors` vectors of `width` elements; `rows` rows a block."""

    threads: int
    vectors: int
    width: int
    rows: int

    @property
    def block(self) -> int:
        return self.threads * self.rows


def split_of(operation: Rows, reads: Sequence[DType], writes: Sequence[DType]) -> Split:
    """Lanes enough that a thread holds at most 32 elements; more of them where there are few rows."""
    width = _width(operation, reads, writes)
    vectors = operation.columns // width
    threads = min(_power(-(-vectors * width // _MOST_KEPT)), _MOST_THREADS)
    threads = max(threads, min(_power(vectors), _WARP))
    while threads < _MOST_THREADS and threads < vectors and operation.rows * threads < _BUSY:
        threads *= 2
    rows = max(_BLOCK // threads, 1) if threads <= _WARP else 1
    while rows > 1 and threads * rows > _WARP and operation.rows < _BLOCKS * rows:
        rows //= 2
    return Split(threads, -(-vectors // threads), width, rows)


def _power(n: int) -> int:
    """The least power of two that is no less than n."""
    return 1 << max(n - 1, 0).bit_length()


def _width(operation: Rows, reads: Sequence[DType], writes: Sequence[DType]) -> int:
    """Elements of one access: the most that every operand and result of elements has aligned, or as one value."""
    types = [
        d for o, d in zip((*operation.operands, *operation.writes), (*reads, *writes), strict=True) if any(o.strides)
    ]
    width = min(16 // min((d.itemsize for d in types), default=4), 32 // max((d.itemsize for d in types), default=4), 8)
    while width > 1 and not _fits(operation, width):
        width //= 2
    return width


def _fits(operation: Rows, width: int) -> bool:
    if operation.extents[-1] % width:
        return False
    for operand in (*operation.operands, *operation.writes):
        *outer, last = operand.strides
        if last not in (0, 1) or (last == 1 and any(s % width for s in (*outer, operand.offset))):
            return False
    return True


class _Kernel:
    """Writes one kernel. Values are numbered as in the operation; x is what memory holds, v a value, k a kept one."""

    def __init__(self, operation: Rows, reads: Sequence[DType], writes: Sequence[DType]) -> None:
        self.op, self.reads, self.writes = operation, reads, writes
        self.split = split_of(operation, reads, writes)
        self.count = len(operation.operands)
        self.varies = operation.varies()
        self.stage = self._stages()
        self.last = max((self.stage[r] for r in operation.results), default=0)
        self.loops = [self._needed(loop) for loop in range(self.last + 1)]
        self.kept = self._kept()
        self.resident = set(self._shared()) if self.kept else set()

    # --- what is computed where ---

    def step(self, value: int) -> Instruction:
        return self.op.body[value - self.count]

    def _stages(self) -> list[int]:
        """For every value the number of loops that must be over before it can be computed."""
        found = [0] * self.count
        for step in self.op.body:
            found.append(max((found[a] for a in step.args), default=0) + (step.op in ROW_INSTRUCTIONS))
        return found

    def _reductions(self, loop: int) -> list[int]:
        """The row instructions that loop computes."""
        return [
            self.count + i for i, s in enumerate(self.op.body)
            if s.op in ROW_INSTRUCTIONS and self.stage[self.count + i] == loop + 1 <= self.last
        ]  # fmt: skip

    def _roots(self, loop: int) -> list[int]:
        """The element values that loop must end up with."""
        found = [a for r in self._reductions(loop) for a in self.step(r).args]
        if loop == self.last:
            found += self.op.results
        return [v for v in found if self.varies[v]]

    def _needed(self, loop: int) -> set[int]:
        """Element values, operands included, that loop computes or reads."""
        found: set[int] = set()
        waiting = self._roots(loop)
        while waiting:
            value = waiting.pop()
            if value in found:
                continue
            found.add(value)
            if value >= self.count:
                waiting += [a for a in self.step(value).args if self.varies[a]]
        return found

    def _uses(self, value: int) -> list[int]:
        return [i for i, needed in enumerate(self.loops) if value in needed]

    def _shared(self) -> list[int]:
        """Operands that several loops read and dear values that several loops need."""
        return [
            v for v in range(len(self.varies))
            if len(self._uses(v)) > 1
            and (v < self.count or (self.step(v).op in _DEAR and self.step(v).type is Scalar.FLOAT))
        ]  # fmt: skip

    def _kept(self) -> bool:
        """Whether registers hold the thread's part of the row: 64 of them, half that in the largest blocks."""
        elements = self.split.vectors * self.split.width
        bytes_each = sum(4 if v >= self.count else self.reads[v].itemsize for v in self._shared())
        limit = 128 if self.split.block > _BLOCK * 2 else 256
        return elements <= _MOST_KEPT and elements * bytes_each <= limit

    # --- text ---

    def source(self) -> str:
        parameters = [f"{C_TYPES[d]} const* in{i}" for i, d in enumerate(self.reads)]
        parameters += [f"{C_TYPES[d]}* out{i}" for i, d in enumerate(self.writes)]
        split = self.split
        lines = [
            f"__global__ void __launch_bounds__({split.block}) kernel({', '.join(parameters)}) {{",
            f"  int const lane = int(threadIdx.x) % {split.threads};",
            f"  unsigned const place = blockIdx.x * {split.rows}u + threadIdx.x / {split.threads}u;",
            # Warps stay whole, for their shuffles: what is beyond the end repeats the last row and writes nothing.
            f"  bool const inside = place < {self.op.rows}u;",
            f"  unsigned rest = inside ? place : {self.op.rows - 1}u;",
            *self._row_index(),
            "  bolt::op::wait_for_producers();",
            *self._operands(),
            *self._registers(),
            *self._row_values(0),
        ]  # fmt: skip
        for loop in range(self.last + 1):
            lines += self._loop(loop)
            lines += self._row_values(loop + 1) if loop < self.last else []
        return "\n".join([*lines, *self._row_results(), "}"])

    def _row_index(self) -> list[str]:
        lines, outer = [], self.op.extents[: -self.op.row]
        for d in range(len(outer) - 1, 0, -1):
            lines += [f"  int const r{d} = int(rest % {outer[d]}u);", f"  rest /= {outer[d]}u;"]
        return [*lines, "  int const r0 = int(rest);"]

    def _operands(self) -> list[str]:
        """The value of operands of a whole row, where the others begin."""
        lines = []
        for i, operand in enumerate(self.op.operands):
            if self.varies[i]:
                lines.append(f"  auto const* const from{i} = in{i} + ({self._base(operand)});")
            else:
                lines.append(f"  auto const x{i} = in{i}[{self._base(operand)}];")
                lines.append(f"  {declared(i, self.reads[i])} = {loaded_as(f'x{i}', self.reads[i])};")
        return lines

    def _base(self, operand: Operand) -> str:
        """Where the row begins in an operand's memory."""
        terms = [f"r{d} * {s}" for d, s in enumerate(operand.strides[: -self.op.row]) if s]
        return " + ".join([str(operand.offset)] * (operand.offset != 0) + terms) or "0"

    def _inside(self, operand: Operand) -> str:
        """Where the vector at `column` lies in the row."""
        terms = [f"c{d} * {s}" if s != 1 else f"c{d}" for d, s in enumerate(operand.strides[-self.op.row :]) if s]
        return " + ".join(terms) or "0"

    def _columns(self) -> list[str]:
        """c0, c1, ...: the place of the vector along each extent of the row."""
        inner = self.op.extents[-self.op.row :]
        if len(inner) == 1:
            return ["    int const c0 = column;"]
        lines, rest = [], "column"
        for d in range(len(inner) - 1, 0, -1):
            lines.append(f"    int const c{d} = {rest} % {inner[d]};")
            rest = f"({rest} / {inner[d]})"
        return [*lines, f"    int const c0 = {rest};"]

    def _vector(self, i: int) -> bool:
        return self.op.operands[i].strides[-1] == 1 and self.split.width > 1

    def _registers(self) -> list[str]:
        lines, split = [], self.split
        for v in sorted(self.resident):
            if v >= self.count:
                lines.append(f"  float k{v}[{split.vectors * split.width}];")
                continue
            kind = (
                f"bolt::op::Vec<{C_TYPES[self.reads[v]]}, {split.width}>" if self._vector(v) else C_TYPES[self.reads[v]]
            )
            lines.append(f"  {kind} x{v}[{split.vectors}];")
        return lines

    def _loop(self, loop: int) -> list[str]:
        """One walk over the row; what it reads first, so that its loads wait for memory together."""
        reductions, split = self._reductions(loop), self.split
        first = sorted(v for v in self.resident if v < self.count and self._uses(v)[0] == loop)
        lines = self._walk([f"    x{v}[i] = {self._load(v)};" for v in first]) if first else []
        lines += [f"  float t{r} = {_START[self.step(r).op]};" for r in reductions]
        body = [f"    auto const x{v} = {self._load(v)};"
                for v in sorted(self.loops[loop]) if v < self.count and v not in self.resident]  # fmt: skip
        inner = self._elements(loop)
        inner += [f"      t{r} = {self._combine(r)}(t{r}, v{self.step(r).args[0]});" for r in reductions]
        outputs = [j for j in range(len(self.op.results)) if loop == self.last and self._full(j)]
        for j in outputs:
            kind = C_TYPES[self.writes[j]]
            body.append(f"    bolt::op::Vec<{kind}, {split.width}> y{j};")
            inner.append(f"      y{j}.v[j] = bolt::op::To<{kind}>::from(v{self.op.results[j]});")
        if inner:
            body += ["#pragma unroll", f"    for (int j = 0; j < {split.width}; ++j) {{", *inner, "    }"]
        for j in outputs:
            where = f"out{j} + ({self._base(self.op.writes[j])} + {self._inside(self.op.writes[j])})"
            store = f"bolt::op::store({where}, y{j});" if self._contiguous(j) else f"*({where}) = y{j}.v[0];"
            body.append(f"    if (inside) {store}")
        lines += self._walk(body) if inner else []
        for r in reductions:
            lines.append(f"  float const v{r} = bolt::op::reduce_threads<{split.threads}>(t{r}, {self._combine(r)});")
        return lines

    def _combine(self, reduction: int) -> str:
        return f"bolt::op::{_COMBINE[self.step(reduction).op]}()"

    def _walk(self, body: list[str]) -> list[str]:
        """The body for every vector of this thread."""
        split = self.split
        exact = split.vectors * split.threads * split.width == self.op.columns
        unroll = ["#pragma unroll"] if self.kept else ["#pragma unroll 2"]
        guard = [] if exact else [f"    if (column >= {self.op.columns}) continue;"]
        return [
            *unroll, f"  for (int i = 0; i < {split.vectors}; ++i) {{",
            f"    int const column = (i * {split.threads} + lane) * {split.width};",
            *guard, *self._columns(), *body, "  }",
        ]  # fmt: skip

    def _load(self, i: int) -> str:
        where = f"from{i} + ({self._inside(self.op.operands[i])})"
        return f"bolt::op::load<{self.split.width}>({where})" if self._vector(i) else f"*({where})"

    def _elements(self, loop: int) -> list[str]:
        """v: the element values of the loop, in order."""
        lines = []
        for v in sorted(self.loops[loop]):
            kept = v in self.resident
            if v < self.count:
                element = f"x{v}[i]" if kept else f"x{v}"
                element += ".v[j]" if self._vector(v) else ""
                lines.append(f"      {declared(v, self.reads[v])} = {loaded_as(element, self.reads[v])};")
            elif kept and self._uses(v)[0] < loop:
                lines.append(f"      float const v{v} = k{v}[i * {self.split.width} + j];")
            else:
                step = self.step(v)
                lines.append(f"      {VALUE[step.type]} const v{v} = {expression_of(step)};")
                lines += [f"      k{v}[i * {self.split.width} + j] = v{v};"] * kept
        return lines

    def _row_values(self, stage: int) -> list[str]:
        """Values of the whole row that can be computed once `stage` loops are over."""
        return [
            f"  {VALUE[s.type]} const v{self.count + i} = {expression_of(s)};"
            for i, s in enumerate(self.op.body)
            if not self.varies[self.count + i] and s.op not in ROW_INSTRUCTIONS and self.stage[self.count + i] == stage
        ]

    def _full(self, output: int) -> bool:
        return any(self.op.writes[output].strides[-self.op.row :])

    def _contiguous(self, output: int) -> bool:
        return self.op.writes[output].strides[-1] == 1

    def _row_results(self) -> list[str]:
        lines = []
        for j, result in enumerate(self.op.results):
            if not self._full(j):
                value = f"bolt::op::To<{C_TYPES[self.writes[j]]}>::from(v{result})"
                lines.append(f"  if (inside && lane == 0) out{j}[{self._base(self.op.writes[j])}] = {value};")
        return lines


def rows_source(operation: Rows, reads: Sequence[DType], writes: Sequence[DType]) -> tuple[str, str]:
    """(the kernel, the statement that launches it from `in`, `out`, `stream`, `pdl`)."""
    kernel = _Kernel(operation, reads, writes)
    arguments = [f"static_cast<{C_TYPES[d]} const*>(in[{i}])" for i, d in enumerate(reads)]
    arguments += [f"static_cast<{C_TYPES[d]}*>(out[{i}])" for i, d in enumerate(writes)]
    blocks = -(-operation.rows // kernel.split.rows)
    call = f"bolt::op::launch(kernel, {blocks}u, {kernel.split.block}u, stream, pdl, {', '.join(arguments)})"
    return kernel.source(), call
