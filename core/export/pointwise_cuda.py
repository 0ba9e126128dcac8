"""The CUDA kernel of a pointwise operation: index arithmetic and the chain of instructions, all with constants."""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from core.export.c_text import c_float, c_int
from core.export.expressions import C_OF
from core.export.operations import Instruction, Operand, Pointwise, Scalar
from templates.types import DType

C_TYPES = {
    DType.F16: "bolt::op::half", DType.BF16: "bolt::op::bfloat16", DType.F32: "float", DType.TF32: "float",
    DType.F64: "double", DType.I8: "int8_t", DType.U8: "uint8_t", DType.I32: "int32_t", DType.I64: "int64_t",
    DType.BOOL: "bool",
}  # fmt: skip
VALUE = {Scalar.FLOAT: "float", Scalar.INT: "long long", Scalar.BOOL: "bool"}
_MOST_BYTES = 32  # of one vector of the widest type: two 16-byte accesses


def vector_width(operation: Pointwise, reads: Sequence[DType], writes: Sequence[DType]) -> int:
    """Elements a thread makes: the most every operand delivers in aligned vectors or as one value."""
    narrowest = min(d.itemsize for d in (*reads, *writes))
    widest = max(d.itemsize for d in (*reads, *writes))
    width = min(16 // narrowest, _MOST_BYTES // widest, 8)
    while width > 1 and not _fits(operation, width):
        width //= 2
    return width


def _fits(operation: Pointwise, width: int) -> bool:
    if operation.extents[-1] % width:
        return False
    for operand in operation.operands:
        *outer, last = operand.strides
        if last not in (0, 1):
            return False
        if last == 1 and any(s % width for s in (*outer, operand.offset, *operand.widths)):
            return False
    return True


def pointwise_source(operation: Pointwise, reads: Sequence[DType], writes: Sequence[DType]) -> tuple[str, str]:
    """(the kernel, the statement that launches it from `in`, `out`, `stream`, `pdl`)."""
    width = vector_width(operation, reads, writes)
    threads = prod(operation.extents) // width
    parameters = [f"{C_TYPES[d]} const* in{i}" for i, d in enumerate(reads)]
    parameters += [f"{C_TYPES[d]}* out{i}" for i, d in enumerate(writes)]
    body = [
        "  unsigned const thread = blockIdx.x * 256u + threadIdx.x;",
        "  bolt::op::wait_for_producers();",
        f"  if (thread >= {threads}u) return;",
        *_indices(operation, width),
        *_loads(operation, reads, width),
        *(f"  bolt::op::Vec<{C_TYPES[d]}, {width}> y{i};" for i, d in enumerate(writes)),
        "#pragma unroll",
        f"  for (int j = 0; j < {width}; ++j) {{",
        *_chain(operation, reads, writes),
        "  }",
        *(f"  bolt::op::store(out{i} + size_t(thread) * {width}, y{i});" for i in range(len(writes))),
    ]
    kernel = "\n".join([f"__global__ void __launch_bounds__(256) kernel({', '.join(parameters)}) {{", *body, "}"])
    arguments = [f"static_cast<{C_TYPES[d]} const*>(in[{i}])" for i, d in enumerate(reads)]
    arguments += [f"static_cast<{C_TYPES[d]}*>(out[{i}])" for i, d in enumerate(writes)]
    call = f"bolt::op::launch(kernel, {-(-threads // 256)}u, 256u, stream, pdl, {', '.join(arguments)})"
    return kernel, call


def _indices(operation: Pointwise, width: int) -> list[str]:
    """i0, i1, ...: the thread's place along each extent; only those that an operand needs."""
    if len(operation.extents) == 1 or not operation.operands:
        return [f"  int const i{len(operation.extents) - 1} = int(thread) * {width};"]
    lines = ["  unsigned rest = thread;"]
    last = len(operation.extents) - 1
    for d in range(last, 0, -1):
        extent = operation.extents[d] // (width if d == last else 1)
        scale = f" * {width}" if d == last and width > 1 else ""
        lines.append(f"  int const i{d} = int(rest % {extent}u){scale};")
        lines.append(f"  rest /= {extent}u;")
    return [*lines, "  int const i0 = int(rest);"]


def _loads(operation: Pointwise, reads: Sequence[DType], width: int) -> list[str]:
    """x0, x1, ...: what each operand reads."""
    lines, first = [], 0
    for i, operand in enumerate(operation.operands):
        if operand.widths:
            lines += _joined(i, first, operand.widths, C_TYPES[reads[first]], width)
        else:
            lines.append(_load(i, first, operand, width))
        first += operand.inputs
    return lines


def _joined(i: int, first: int, widths: Sequence[int], c_type: str, width: int) -> list[str]:
    """The part of a concatenation that holds the thread's place."""
    total = sum(widths)
    lines = [
        f"  unsigned const column{i} = thread * {width}u % {total}u, row{i} = thread * {width}u / {total}u;",
        f"  {c_type} const* from{i} = in{first} + size_t(row{i}) * {widths[0]} + column{i};",
    ]
    for part, start in list(enumerate(accumulate(widths)))[:-1]:
        place = f"in{first + part + 1} + size_t(row{i}) * {widths[part + 1]} + (column{i} - {start}u)"
        lines.append(f"  if (column{i} >= {start}u) from{i} = {place};")
    load = f"bolt::op::load<{width}>(from{i})" if width > 1 else f"*from{i}"
    return [*lines, f"  auto const x{i} = {load};"]


def _load(i: int, first: int, operand: Operand, width: int) -> str:
    terms = [f"i{d} * {s}" if s != 1 else f"i{d}" for d, s in enumerate(operand.strides) if s]
    place = " + ".join([str(operand.offset)] * (operand.offset != 0) + terms) or "0"
    if operand.strides[-1] == 1 and width > 1:
        return f"  auto const x{i} = bolt::op::load<{width}>(in{first} + ({place}));"
    return f"  auto const x{i} = in{first}[{place}];"


def _chain(operation: Pointwise, reads: Sequence[DType], writes: Sequence[DType]) -> list[str]:
    width = vector_width(operation, reads, writes)
    if not operation.body:  # a copy keeps integers exact
        lines = []
        for j, (result, dtype) in enumerate(zip(operation.results, writes, strict=True)):
            vector = ".v[j]" if operation.operands[result].strides[-1] == 1 and width > 1 else ""
            lines.append(f"    y{j}.v[j] = bolt::op::convert<{C_TYPES[dtype]}>(x{result}{vector});")
        return lines
    lines = []
    place = 0
    for i, operand in enumerate(operation.operands):
        dtype = reads[place]
        place += operand.inputs
        element = f"x{i}.v[j]" if operand.strides[-1] == 1 and width > 1 else f"x{i}"
        lines.append(f"    {declared(i, dtype)} = {loaded_as(element, dtype)};")
    first = len(operation.operands)
    lines += [
        f"    {VALUE[step.type]} const v{first + k} = {expression_of(step)};" for k, step in enumerate(operation.body)
    ]
    lines += [
        f"    y{j}.v[j] = bolt::op::To<{C_TYPES[d]}>::from(v{r});"
        for j, (r, d) in enumerate(zip(operation.results, writes, strict=True))
    ]
    return lines


def declared(i: int, dtype: DType) -> str:
    """The declaration of operand i's value."""
    kind = "float" if dtype.is_float else "bool" if dtype == DType.BOOL else "long long"
    return f"{kind} const v{i}"


def loaded_as(element: str, dtype: DType) -> str:
    """A stored element in the type that it is computed in."""
    if dtype.is_float:
        return f"bolt::op::to_float({element})"
    return element if dtype == DType.BOOL else f"(long long)({element})"


def expression_of(step: Instruction) -> str:
    """The C of an instruction over the values v0, v1, ..."""
    if step.op == "literal":
        return _literal(step.params[0], step.type)
    parameters = {f"p{i}": _literal(p, step.type) for i, p in enumerate(step.params)}
    if step.op == "is_inf":
        parameters = {f"p{i}": str(int(p)) for i, p in enumerate(step.params)}
    return C_OF[step.type][step.op].format(*(f"v{a}" for a in step.args), **parameters)


def _literal(value: float, kind: Scalar) -> str:
    if kind is Scalar.BOOL:
        return str(bool(value)).lower()
    return c_int(int(value)) if kind is Scalar.INT else c_float(float(value))
