"""The CUDA of operator steps: for each distinct operation one namespace with its constants and a `run` function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import gcd, prod
from typing import Any

from core.export import operations as ops
from core.export.c_text import c_float
from core.export.operations_indexed import Combine
from core.export.pointwise_cuda import C_TYPES, pointwise_source
from core.export.program import OperatorStep, Program
from core.export.rows_cuda import rows_source
from templates.types import DType

Constants = Mapping[str, int | bool | str]


@dataclass(frozen=True)
class OperatorKernel:
    """`source` is complete but for the includes; it defines ``int run(void const* const* in, void* const* out,
    cudaStream_t stream, bool pdl)`` in the namespace `name`, returning a cudaError_t. `header`: of templates/operators.
    """

    name: str
    header: str
    source: str


def operator_kernels(program: Program) -> tuple[list[OperatorKernel], dict[int, str]]:
    """Every distinct kernel once, and the kernel's name for each operator step (by its position)."""
    kernels: dict[tuple[str, str], OperatorKernel] = {}
    names = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, OperatorStep):
            header, body = operator_source(
                step.operation,
                [program.buffers[i].dtype for i in step.inputs],
                [program.buffers[i].dtype for i in step.outputs],
            )
            if (header, body) not in kernels:
                name = f"op{len(kernels)}_{_kind(step.operation)}"
                kernels[header, body] = OperatorKernel(name, header, f"namespace {name} {{\n{body}}}  // {name}\n")
            names[position] = kernels[header, body].name
    return list(kernels.values()), names


def operator_source(operation: ops.Operation, reads: Sequence[DType], writes: Sequence[DType]) -> tuple[str, str]:
    """(header, body) of one operation on these element types."""
    if isinstance(operation, ops.Pointwise):
        kernel, call = pointwise_source(operation, reads, writes)
        return "common.cuh", f"{kernel}\n{_run(call)}"
    if isinstance(operation, ops.Rows):
        kernel, call = rows_source(operation, reads, writes)
        return "common.cuh", f"{kernel}\n{_run(call)}"
    header, function, constants = _HEADERS[type(operation)](operation)
    types = [C_TYPES[d] for d in reads], [C_TYPES[d] for d in writes]
    call = _call(operation, function, *types)
    return header, f"{_struct(constants)}{_run(call)}"


def _run(call: str) -> str:
    return f"int run(void const* const* in, void* const* out, cudaStream_t stream, bool pdl) {{\n  return {call};\n}}\n"


def _struct(constants: Constants) -> str:
    lines = []
    for name, value in constants.items():
        if name == "Chain":
            lines.append(str(value))
        elif isinstance(value, bool):
            lines.append(f"static constexpr bool {name} = {str(value).lower()};")
        elif isinstance(value, int):
            lines.append(f"static constexpr int {name} = {value};")
        else:
            lines.append(str(value))
    return "struct Shape {\n" + "".join(f"  {line}\n" for line in lines) + "};\n"


def _kind(operation: ops.Operation) -> str:
    name = type(operation).__name__
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).strip("_")


def _enum(kind: str, member: StrEnum) -> str:
    return f"bolt::op::{kind}::k{''.join(part.capitalize() for part in member.split('_'))}"


def _constant(kind: str, name: str, value: str) -> str:
    return f"static constexpr {kind} {name} = {value};"


def _real(name: str, value: float) -> str:
    return f"__host__ __device__ static constexpr float {name}() {{ return {c_float(value)}; }}"


def _table(name: str, values: Sequence[int]) -> str:
    """A constexpr function of an index: arrays of constants are not at hand in device code."""
    chosen = "".join(f"i == {i} ? {v} : " for i, v in enumerate(values[:-1]))
    return f"__host__ __device__ static constexpr int {name}(int i) {{ return {chosen}{values[-1]}; }}"


def _call(operation: ops.Operation, function: str, reads: Sequence[str], writes: Sequence[str]) -> str:
    out = f"static_cast<{writes[0]}*>(out[0])"
    given = [f"static_cast<{t} const*>(in[{i}])" for i, t in enumerate(reads)]
    match operation:
        case ops.Concat():
            sources = f"bolt::op::Sources<{reads[0]}, {len(reads)}>{{{{{', '.join(given)}}}}}"
            return f"bolt::op::concat<Shape, {reads[0]}>({sources}, {out}, stream, pdl)"
        case ops.DirectConv():
            rest = iter(given[2:])
            bias = next(rest) if operation.epilogue.has_bias else "nullptr"
            source = next(rest) if operation.epilogue.has_source else "nullptr"
            arguments = [*given[:2], bias, source, out]
        case ops.TopK():
            arguments = [*given, out, f"static_cast<{writes[1]}*>(out[1])"]
        case _:
            arguments = [*given, out]
    indexed = (ops.Gather, ops.GatherElements, ops.GatherNd, ops.ScatterElements, ops.ScatterNd)
    types = reads[:2] if isinstance(operation, indexed) else [reads[0], writes[0]]
    types = reads[:1] if isinstance(operation, ops.ArgReduce) else types
    return f"bolt::op::{function}<{', '.join(['Shape', *types])}>({', '.join(arguments)}, stream, pdl)"


# --- (header, function, constants) of each operation ---------------------------------------------------------------


def _pool(o: ops.Pool) -> tuple[str, str, Constants]:
    kind = _constant("bolt::op::PoolKind", "kind", _enum("PoolKind", o.kind))
    tables = {"size": o.size, "result": o.result, "kernel": o.kernel, "stride": o.stride, "dilation": o.dilation,
              "before": o.before, "after": o.after}  # fmt: skip
    return "pool.cuh", "pool", {"kind": kind, "n": o.n, "c": o.c, **{k: _table(k, v) for k, v in tables.items()}}


def _lrn(o: ops.Lrn) -> tuple[str, str, Constants]:
    reals = {n: _real(n, v) for n, v in (("alpha", o.alpha), ("beta", o.beta), ("bias", o.bias))}
    return "lrn.cuh", "lrn", {"pixels": o.pixels, "c": o.c, "size": o.size, **reals}


def _reduce(o: ops.Reduce) -> tuple[str, str, Constants]:
    kind = _constant("bolt::op::ReduceKind", "kind", _enum("ReduceKind", o.kind))
    return "reduce.cuh", "reduce", {"kind": kind, "outer": o.outer, "axis": o.axis, "inner": o.inner}


def _arg_reduce(o: ops.ArgReduce) -> tuple[str, str, Constants]:
    return "reduce.cuh", "arg_reduce", {
        "largest": o.largest, "last": o.last, "outer": o.outer, "axis": o.axis, "inner": o.inner,
    }  # fmt: skip


def _softmax(o: ops.Softmax) -> tuple[str, str, Constants]:
    return "softmax.cuh", "softmax", {
        "log": o.log, "outer": o.outer, "axis": o.axis, "inner": o.inner, "scale": _real("scale", o.scale),
    }  # fmt: skip


def _transpose(o: ops.TiledTranspose) -> tuple[str, str, Constants]:
    def offset(name: str, strides: Sequence[int]) -> str:
        terms, rest = [], "b"
        for axis, stride in reversed(list(zip(o.batch, strides, strict=True))):
            terms.append(f"size_t({rest} % {axis.extent}) * {stride}")
            rest = f"({rest} / {axis.extent})"
        total = " + ".join(terms) or "0"
        return f"__host__ __device__ static constexpr size_t {name}(int b) {{ return {total}; }}"

    return "transpose.cuh", "transpose", {
        "read_extent": o.read.extent, "read_step": o.read.destination, "write_extent": o.write.extent,
        "write_step": o.write.source, "batch": prod(a.extent for a in o.batch),
        "source": offset("source", [a.source for a in o.batch]),
        "destination": offset("destination", [a.destination for a in o.batch]),
    }  # fmt: skip


def _pack(o: ops.PackChannels) -> tuple[str, str, Constants]:
    return "transpose.cuh", "pack_channels", {
        "n": o.n, "pixels": o.pixels, "channels": o.channels, "padded": o.padded, "stride_n": o.strides[0],
        "stride_pixel": o.strides[1], "stride_channel": o.strides[2],
        "common": gcd(o.pixels, o.strides[0], o.strides[2]),
    }  # fmt: skip


def _concat(o: ops.Concat) -> tuple[str, str, Constants]:
    starts = list(accumulate(o.widths, initial=0))[:-1]
    return "move.cuh", "concat", {
        "outer": o.outer, "count": len(o.widths), "common": gcd(*o.widths), "total": sum(o.widths),
        "width": _table("width", o.widths), "start": _table("start", starts),
    }  # fmt: skip


def _gather(o: ops.Gather) -> tuple[str, str, Constants]:
    return "move.cuh", "gather", {"outer": o.outer, "axis": o.axis, "inner": o.inner, "count": o.count}


def _gather_elements(o: ops.GatherElements) -> tuple[str, str, Constants]:
    return "index.cuh", "gather_elements", {
        "rank": len(o.extents), "axis": o.axis, "elements": prod(o.extents), "extent": _table("extent", o.extents),
        "size": _table("size", o.sizes),
    }  # fmt: skip


def _gather_nd(o: ops.GatherNd) -> tuple[str, str, Constants]:
    return "index.cuh", "gather_nd", {
        "batch": o.batch, "tuples": o.tuples, "depth": len(o.sizes), "inner": o.inner, "slices": prod(o.sizes),
        "size": _table("size", o.sizes),
    }  # fmt: skip


def _combine(combine: Combine) -> str:
    return _constant("bolt::op::Combine", "combine", _enum("Combine", combine))


def _scatter_elements(o: ops.ScatterElements) -> tuple[str, str, Constants]:
    return "index.cuh", "scatter_elements", {
        "rank": len(o.sizes), "axis": o.axis, "elements": prod(o.sizes),
        "columns": prod(o.extents) // o.extents[o.axis], "extent": _table("extent", o.extents),
        "size": _table("size", o.sizes), "combine": _combine(o.combine),
    }  # fmt: skip


def _scatter_nd(o: ops.ScatterNd) -> tuple[str, str, Constants]:
    return "index.cuh", "scatter_nd", {
        "elements": prod(o.sizes) * o.inner, "tuples": o.tuples, "depth": len(o.sizes), "inner": o.inner,
        "size": _table("size", o.sizes), "combine": _combine(o.combine),
    }  # fmt: skip


def _cum_sum(o: ops.CumSum) -> tuple[str, str, Constants]:
    return "scan.cuh", "cum_sum", {
        "outer": o.outer, "axis": o.axis, "inner": o.inner, "exclusive": o.exclusive, "reverse": o.reverse,
    }  # fmt: skip


def _top_k(o: ops.TopK) -> tuple[str, str, Constants]:
    return "topk.cuh", "top_k", {"rows": o.rows, "columns": o.columns, "k": o.k, "largest": o.largest}


def _resize(o: ops.Resize) -> tuple[str, str, Constants]:
    together = next((w for w in (8, 4, 2) if o.starts[-1] < 0 and o.extents[-1] % w == 0), 1)
    return "resize.cuh", "resize", {
        "rank": len(o.extents), "elements": prod(o.extents), "width": together, "all_taps": prod(o.taps),
        "extent": _table("extent", o.extents), "size": _table("size", o.sizes), "taps": _table("taps", o.taps),
        "start": _table("start", o.starts),
    }  # fmt: skip


def _pad(o: ops.Pad) -> tuple[str, str, Constants]:
    mode = _constant("bolt::op::PadMode", "mode", _enum("PadMode", o.mode))
    return "move.cuh", "pad", {
        "mode": mode, "rank": len(o.extents), "elements": ops.result_elements(o),
        "extent": _table("extent", o.extents), "before": _table("before", o.before), "after": _table("after", o.after),
        "value": _real("value", o.value),
    }  # fmt: skip


def _conv(o: ops.DirectConv) -> tuple[str, str, Constants]:
    return "conv.cuh", "conv", {
        "n": o.n, "h": o.h, "w": o.w, "c": o.c, "k": o.k, "r": o.r, "s": o.s, "p": o.p, "q": o.q, "top": o.pad[0],
        "left": o.pad[1], "stride_h": o.stride[0], "stride_w": o.stride[1], "dilation_h": o.dilation[0],
        "dilation_w": o.dilation[1], "groups": o.groups, "Chain": o.epilogue.functor(),
    }  # fmt: skip


_HEADERS: dict[type, Callable[[Any], tuple[str, str, Constants]]] = {
    ops.Pool: _pool, ops.Lrn: _lrn, ops.Reduce: _reduce, ops.ArgReduce: _arg_reduce, ops.Softmax: _softmax,
    ops.TiledTranspose: _transpose, ops.PackChannels: _pack, ops.Concat: _concat,
    ops.Gather: _gather, ops.GatherElements: _gather_elements, ops.GatherNd: _gather_nd,
    ops.ScatterElements: _scatter_elements, ops.ScatterNd: _scatter_nd, ops.CumSum: _cum_sum, ops.TopK: _top_k,
    ops.Resize: _resize, ops.Pad: _pad, ops.DirectConv: _conv,
}  # fmt: skip
