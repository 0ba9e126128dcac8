"""A Program executed in numpy over the very arena its memory plan describes, poisoned before the run."""

from math import prod

import numpy as np

from core.export import operations as ops
from core.export.memory import MemoryPlan, lifetimes, plan_memory
from core.export.operations_indexed import Combine
from core.export.program import Program, Space, TemplateStep
from core.measure.args import output_shape
from templates.attention import AttentionWorkload
from templates.types import DType, MatrixLayout
from templates.workload import Chain, GemmWorkload
from tests.templates.attention_cases import defined

NUMPY = {
    DType.F16: np.float16, DType.F32: np.float32, DType.F64: np.float64, DType.I32: np.int32, DType.I64: np.int64,
    DType.BOOL: np.bool_, DType.U8: np.uint8, DType.I8: np.int8,
}  # fmt: skip


def execute(program: Program, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Outputs in the model's shapes and types."""
    plan = plan_memory(lifetimes(program))
    memory = Memory(program, plan)
    for port, value in zip(program.inputs, inputs, strict=True):
        memory.view(port.buffer)[:] = np.asarray(value, NUMPY[port.type.dtype]).reshape(-1)
    for step in program.steps:
        _run(step, memory)
    return [memory.view(p.buffer).reshape(p.type.shape).copy() for p in program.outputs]


class Memory:
    def __init__(self, program: Program, plan: MemoryPlan) -> None:
        self.program, self.plan = program, plan
        self.arena = np.full(plan.nbytes, 0xFF, np.uint8)  # NaN in every float type
        self.outside = {
            b.index: np.full(b.nbytes, 0xFF, np.uint8)
            for b in program.buffers
            if b.space in (Space.INPUT, Space.OUTPUT)
        }

    def view(self, index: int) -> np.ndarray:
        buffer = self.program.buffers[index]
        if buffer.space is Space.CONSTANT:
            return self.program.constants[index]
        if buffer.space is Space.ARENA:
            start = self.plan.offsets[index]
            return self.arena[start : start + buffer.nbytes].view(NUMPY[buffer.dtype])
        return self.outside[index].view(NUMPY[buffer.dtype])


def _run(step, memory: Memory) -> None:
    with np.errstate(all="ignore"):
        if isinstance(step, TemplateStep):
            results = [_template(step, memory)]
        else:
            reads = [memory.view(i).copy() for i in step.inputs]
            results = _OPERATIONS[type(step.operation)](step.operation, reads)
        for index, value in zip(step.writes, results, strict=True):
            if isinstance(step, TemplateStep) and step.pitch:
                rows, columns = output_shape(step.workload)
                apart = memory.view(index).reshape(rows, step.pitch)
                apart[:, step.first : step.first + columns] = np.asarray(value).reshape(rows, columns)
                continue
            memory.view(index)[:] = np.asarray(value).reshape(-1)


def _template(step: TemplateStep, memory: Memory) -> np.ndarray:
    parts = dict(step.slices)

    def read(name):
        index = getattr(step, name)
        if index is None:
            return None
        value, part = memory.view(index).astype(np.float32), parts.get(name)
        if part is None:
            return value
        return value.reshape(-1, part.pitch)[:, part.first : part.first + part.width].reshape(-1)

    work = step.workload
    if isinstance(work, AttentionWorkload):
        memory_of = {"q": read("a"), "k": read("b"), "v": read("b1")}
        if step.source is not None:
            memory_of["mask"] = read("source")
        return defined(work, memory_of)
    if isinstance(work, Chain):
        value = read("a")
        if isinstance(work.first, GemmWorkload):
            assert value.size == work.first.m * work.first.k
        for number, part in enumerate(work.parts):
            end = str(number) if number else ""
            source = read("source1") if part.epilogue.has_source else None
            value = _single(part, value, read(f"b{end}"), read(f"bias{end}"), source)
        return value
    return _single(work, read("a"), read("b"), read("bias"), read("source"))


def _single(work, a, b, bias, source) -> np.ndarray:
    if isinstance(work, GemmWorkload):
        a = (
            a.reshape(work.batch, work.m, work.k)
            if work.layout_a == MatrixLayout.ROW
            else a.reshape(work.batch, work.k, work.m).swapaxes(1, 2)
        )
        b = (
            b.reshape(-1, work.k, work.n)
            if work.layout_b == MatrixLayout.ROW
            else b.reshape(-1, work.n, work.k).swapaxes(1, 2)
        )
        x = a @ b
    else:
        x = conv(
            a.reshape(work.n, work.h, work.w, work.c),
            b.reshape(work.k, work.r, work.s, -1),
            work.pad[:2],
            work.stride,
            work.dilation,
            work.groups,
            work.p,
            work.q,
        )
    return _epilogue(work.epilogue, x, bias, None if source is None else source.reshape(x.shape))


def conv(x, w, pad, stride, dilation, groups, p, q):
    """NHWC by KRSC."""
    n, h, width, c = x.shape
    k, r, s, per_group = w.shape
    reach_h, reach_w = (p - 1) * stride[0] + (r - 1) * dilation[0] + 1, (q - 1) * stride[1] + (s - 1) * dilation[1] + 1
    wide = np.zeros((n, max(reach_h, pad[0] + h), max(reach_w, pad[1] + width), c), np.float32)
    wide[:, pad[0] : pad[0] + h, pad[1] : pad[1] + width] = x
    out = np.zeros((n, p, q, k), np.float32)
    for i in range(r):
        for j in range(s):
            top, left = i * dilation[0], j * dilation[1]
            part = wide[
                :, top : top + (p - 1) * stride[0] + 1 : stride[0], left : left + (q - 1) * stride[1] + 1 : stride[1]
            ]
            for g in range(groups):
                channels = slice(g * per_group, (g + 1) * per_group)
                filters = slice(g * k // groups, (g + 1) * k // groups)
                out[..., filters] += part[..., channels] @ w[filters, i, j].T
    return out


def _erf(x):
    from math import erf

    return np.vectorize(erf, otypes=[float])(x) if x.size else x


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0), "leaky_relu": lambda x, a: np.where(x < 0, a * x, x),
    "clip": lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi), "sigmoid": _sigmoid, "silu": lambda x: x * _sigmoid(x),
    "gelu_erf": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))), "tanh": np.tanh,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1), "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "elu": lambda x, a: np.where(x < 0, a * np.expm1(x), x),
}  # fmt: skip


def _epilogue(epilogue, x, bias, source):
    for op in epilogue.ops:
        match op.op:
            case "bias":
                x = x + bias
            case "add":
                x = x + source
            case "mul":
                x = x * source
            case "scale":
                x = x * op.params[0]
            case "shift":
                x = x + op.params[0]
            case name:
                x = ACTIVATIONS[name](x, *op.params)
    return x


_INSTRUCTIONS = {
    **ACTIVATIONS, "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "asin": np.arcsin,
    "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh, "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh,
    "erf": _erf, "exp": np.exp, "fast_exp": np.exp,
    "floor": np.floor, "fmod": np.fmod, "log": np.log, "max": np.maximum,
    "min": np.minimum, "mod": np.mod, "mul": np.multiply, "neg": np.negative, "pow": np.power,
    "prelu": lambda x, a: np.where(x < 0, a * x, x), "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sign": np.sign, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "sub": np.subtract, "tan": np.tan, "where": np.where,
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not, "eq": np.equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "is_nan": np.isnan,
    "is_inf": lambda x, neg, pos: (np.isposinf(x) & bool(pos)) | (np.isneginf(x) & bool(neg)),
}  # fmt: skip
_TYPES = {ops.Scalar.FLOAT: np.float32, ops.Scalar.INT: np.int64, ops.Scalar.BOOL: np.bool_}


def _operands(op: ops.Pointwise | ops.Rows, reads) -> list[np.ndarray]:
    """The operands over the operation's extents, in the type they are computed in."""
    grid = np.indices(op.extents)
    values, waiting = [], list(reads)
    for operand in op.operands:
        parts = [waiting.pop(0) for _ in range(operand.inputs)]
        memory = parts[0]
        if operand.widths:
            memory = np.concatenate([p.reshape(-1, w) for p, w in zip(parts, operand.widths, strict=True)], 1).reshape(
                -1
            )
        place = operand.offset + sum(i * s for i, s in zip(grid, operand.strides, strict=True))
        assert place.min() >= 0
        value = memory[place]
        values.append(
            value.astype(np.float32)
            if value.dtype.kind == "f"
            else value
            if value.dtype.kind == "b"
            else value.astype(np.int64)
        )
    return values


def _instruction(step: ops.Instruction, args: list[np.ndarray], extents) -> np.ndarray:
    if step.op == "literal":
        result = np.full(extents, step.params[0])
    elif step.op == "cast":
        result = args[0] != 0 if step.type is ops.Scalar.BOOL else args[0].astype(_TYPES[step.type])
    elif step.op == "div":
        result = args[0] / args[1] if step.type is ops.Scalar.FLOAT else np.trunc(args[0] / args[1])
    else:
        result = _INSTRUCTIONS[step.op](*args, *step.params)
    return np.asarray(result).astype(_TYPES[step.type])


def _pointwise(op: ops.Pointwise, reads):
    values = _operands(op, reads)
    for step in op.body:
        values.append(_instruction(step, [values[i] for i in step.args], op.extents))
    return [values[i] for i in op.results]


_ROW = {"row_sum": np.sum, "row_max": np.max, "row_min": np.min, "row_prod": np.prod}


def _rows(op: ops.Rows, reads):
    values = _operands(op, reads)
    inside = tuple(range(len(op.extents) - op.row, len(op.extents)))
    for step in op.body:
        args = [values[i] for i in step.args]
        if step.op in _ROW:
            total = _ROW[step.op](args[0].astype(np.float64), axis=inside, keepdims=True)
            values.append(np.broadcast_to(total, op.extents).astype(np.float32))
        else:
            values.append(_instruction(step, args, op.extents))
    found = []
    for number, (result, write) in enumerate(zip(op.results, op.writes, strict=True)):
        grid = np.indices(op.extents)
        place = write.offset + sum(i * s for i, s in zip(grid, write.strides, strict=True))
        out = np.empty(ops.result_elements(op, number), values[result].dtype)
        assert set(place.reshape(-1)) == set(range(out.size))
        out[place] = values[result]
        found.append(out)
    return found


def _tiled(op: ops.TiledTranspose, reads):
    axes = [*op.batch, op.read, op.write]
    grid = np.indices([a.extent for a in axes])
    out = np.empty(prod(a.extent for a in axes), reads[0].dtype)
    source = sum(i * a.source for i, a in zip(grid, axes, strict=True))
    out[sum(i * a.destination for i, a in zip(grid, axes, strict=True))] = reads[0][source]
    assert op.read.source == 1 and op.write.destination == 1
    return [out]


def _pack(op: ops.PackChannels, reads):
    n, pixel, channel = np.indices((op.n, op.pixels, op.channels))
    out = np.zeros((op.n, op.pixels, op.padded), reads[0].dtype)
    out[..., : op.channels] = reads[0][n * op.strides[0] + pixel * op.strides[1] + channel * op.strides[2]]
    return [out]


def _pool(op: ops.Pool, reads):
    x = reads[0].astype(np.float32).reshape(op.n, *op.size, op.c)
    out = np.empty((op.n, *op.result, op.c), np.float32)
    for pixel in np.ndindex(*op.result):
        walks = [
            [p * stride - before + i * dilation for i in range(kernel)]
            for p, stride, before, dilation, kernel in zip(
                pixel, op.stride, op.before, op.dilation, op.kernel, strict=True
            )
        ]
        inside = [[i for i in walk if 0 <= i < size] for walk, size in zip(walks, op.size, strict=True)]
        window = x[:, inside[0]][:, :, inside[1]][:, :, :, inside[2]].reshape(op.n, -1, op.c)
        if op.kind is ops.PoolKind.MAX:
            out[(slice(None), *pixel)] = window.max(1)
            continue
        count = window.shape[1]
        if op.kind is ops.PoolKind.AVERAGE_PADDED:
            ends = zip(walks, op.size, op.after, strict=True)
            count = prod(sum(i < size + after for i in walk) for walk, size, after in ends)
        out[(slice(None), *pixel)] = window.sum(1) / count
    return [out]


def _lrn(op: ops.Lrn, reads):
    x = reads[0].astype(np.float32).reshape(op.pixels, op.c)
    total = np.zeros_like(x)
    for c in range(op.c):
        low, high = max(0, c - (op.size - 1) // 2), min(op.c - 1, c + op.size // 2)
        total[:, c] = (x[:, low : high + 1] ** 2).sum(1)
    return [x / (op.bias + op.alpha / op.size * total) ** op.beta]


_REDUCTIONS = {
    ops.ReduceKind.SUM: lambda x: x.sum(1), ops.ReduceKind.MEAN: lambda x: x.mean(1),
    ops.ReduceKind.MAX: lambda x: x.max(1), ops.ReduceKind.MIN: lambda x: x.min(1),
    ops.ReduceKind.PROD: lambda x: x.prod(1), ops.ReduceKind.L1: lambda x: np.abs(x).sum(1),
    ops.ReduceKind.L2: lambda x: np.sqrt((x**2).sum(1)), ops.ReduceKind.SUM_SQUARE: lambda x: (x**2).sum(1),
}  # fmt: skip


def _cube(op, memory):
    x = memory.reshape(op.outer, op.axis, op.inner)
    return x.astype(np.float32) if x.dtype.kind == "f" else x


def _arg(op: ops.ArgReduce, reads):
    x = _cube(op, reads[0])
    x = x if op.largest else -x
    return [x.shape[1] - 1 - x[:, ::-1].argmax(1) if op.last else x.argmax(1)]


def _softmax(op: ops.Softmax, reads):
    x = _cube(op, reads[0])
    x = (x - x.max(1, keepdims=True)) * np.float32(op.scale)
    total = np.exp(x).sum(1, keepdims=True)
    return [x - np.log(total) if op.log else np.exp(x) / total]


def _concat(op: ops.Concat, reads):
    return [np.concatenate([r.reshape(op.outer, w) for r, w in zip(reads, op.widths, strict=True)], 1)]


def _gather(op: ops.Gather, reads):
    return [reads[0].reshape(op.outer, op.axis, op.inner)[:, reads[1]]]


_COMBINE = {
    Combine.NONE: lambda old, new: new, Combine.ADD: np.add, Combine.MUL: np.multiply, Combine.MAX: np.maximum,
    Combine.MIN: np.minimum,
}  # fmt: skip


def _gather_elements(op: ops.GatherElements, reads):
    data, indices = reads[0].reshape(op.sizes), reads[1].reshape(op.extents)
    cut = data[tuple(slice(e) if i != op.axis else slice(None) for i, e in enumerate(op.extents))]
    return [np.take_along_axis(cut, indices % op.sizes[op.axis], op.axis)]


def _gather_nd(op: ops.GatherNd, reads):
    data = reads[0].reshape(op.batch, *op.sizes, op.inner)
    indices = reads[1].reshape(op.batch, op.tuples, len(op.sizes))
    return [np.stack([data[(b, *t)] for b in range(op.batch) for t in indices[b]])]


def _scatter_elements(op: ops.ScatterElements, reads):
    out, indices, updates = reads[0].reshape(op.sizes).copy(), reads[1].reshape(op.extents), reads[2]
    for place, update in zip(np.ndindex(*op.extents), updates, strict=True):
        target = tuple(indices[place] if d == op.axis else i for d, i in enumerate(place))
        out[target] = _COMBINE[op.combine](out[target], update)
    return [out]


def _scatter_nd(op: ops.ScatterNd, reads):
    out, updates = reads[0].reshape(*op.sizes, op.inner).copy(), reads[2].reshape(op.tuples, op.inner)
    for target, update in zip(reads[1].reshape(op.tuples, -1), updates, strict=True):
        out[tuple(target)] = _COMBINE[op.combine](out[tuple(target)], update)
    return [out]


def _cum_sum(op: ops.CumSum, reads):
    x = _cube(op, reads[0])
    x = x[:, ::-1] if op.reverse else x
    total = np.cumsum(x, 1) - (x if op.exclusive else 0)
    return [total[:, ::-1] if op.reverse else total]


def _top_k(op: ops.TopK, reads):
    x = reads[0].reshape(op.rows, op.columns)
    order = np.argsort(-x.astype(np.float64) if op.largest else x, axis=1, kind="stable")[:, : op.k]
    return [np.take_along_axis(x, order, 1), order]


def _resize(op: ops.Resize, reads):
    x = reads[0].reshape(op.sizes)
    for d, (taps, start) in enumerate(zip(op.taps, op.starts, strict=True)):
        if start < 0:
            continue
        count = op.extents[d] * taps
        places, weights = (t[start : start + count].reshape(op.extents[d], taps) for t in reads[1:])
        picked = np.moveaxis(np.take(x, places, axis=d), d + 1, -1)
        shape = [op.extents[d] if i == d else 1 for i in range(x.ndim)]
        x = picked[..., 0] if prod(op.taps) == 1 else (picked * weights.reshape(*shape, taps)).sum(-1)
    return [x]


def _pad(op: ops.Pad, reads):
    crop = tuple(slice(max(0, -b), e - max(0, -a)) for e, b, a in zip(op.extents, op.before, op.after, strict=True))
    x = reads[0].reshape(op.extents)[crop]
    widths = [(max(0, b), max(0, a)) for b, a in zip(op.before, op.after, strict=True)]
    if op.mode is ops.PadMode.CONSTANT:
        return [np.pad(x, widths, constant_values=op.value)]
    return [np.pad(x, widths, mode=op.mode.value)]


def _direct(op: ops.DirectConv, reads):
    x = conv(
        reads[0].astype(np.float32).reshape(op.n, op.h, op.w, op.c),
        reads[1].astype(np.float32).reshape(op.k, op.r, op.s, -1),
        op.pad,
        op.stride,
        op.dilation,
        op.groups,
        op.p,
        op.q,
    )
    rest = [r.astype(np.float32) for r in reads[2:]]
    bias = rest.pop(0) if op.epilogue.has_bias else None
    return [_epilogue(op.epilogue, x, bias, rest.pop(0).reshape(x.shape) if op.epilogue.has_source else None)]


_OPERATIONS = {
    ops.Pointwise: _pointwise, ops.TiledTranspose: _tiled, ops.PackChannels: _pack, ops.Pool: _pool, ops.Lrn: _lrn,
    ops.Reduce: lambda op, reads: [_REDUCTIONS[op.kind](_cube(op, reads[0]))], ops.ArgReduce: _arg,
    ops.Softmax: _softmax, ops.Rows: _rows, ops.Concat: _concat, ops.Gather: _gather, ops.Pad: _pad,
    ops.GatherElements: _gather_elements, ops.GatherNd: _gather_nd, ops.ScatterElements: _scatter_elements,
    ops.ScatterNd: _scatter_nd, ops.CumSum: _cum_sum, ops.TopK: _top_k, ops.Resize: _resize,
    ops.DirectConv: _direct,
}  # fmt: skip
