"""One form for every operator: that of opset 21, whatever opset the model was written in.

What the rest of the workbench may rely on after import:
- what older opsets gave as attributes are inputs where opset 21 has inputs (Clip, Squeeze, Unsqueeze, Reduce*, Slice,
  Pad, Split, TopK, Resize for Upsample);
- Conv, ConvTranspose and pools carry explicit `kernel_shape`, `strides`, `dilations`, `pads` (no `auto_pad`), `group`;
- axes in attributes are not negative; Softmax, LogSoftmax and Hardmax work along one axis;
- Flatten, Squeeze, Unsqueeze and Reshape are Reshape with a constant shape free of 0 and -1 where the shape is known;
- Sum, Max, Min of several inputs are chains of Add, Max, Min of two; Mean is such a chain and a Mul;
- Dropout of inference and BatchNormalization's training outputs are gone.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from core.errors import ModelError
from core.graph.ir import Node
from core.graph.proto import numpy_dtype
from core.graph.walk import Walker
from core.importer.windows import explicit_window

Rule = Callable[[Node, int, Walker], Sequence[Node]]


def normalise(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    """The node of the given opset as one or more nodes of opset 21. Raises ModelError if it makes no sense.

    New constants are added to the walker; the last node keeps the outputs, the first or only one the name.
    """
    rule = RULES.get(node.op) if not node.domain else None
    if rule is None or any(t not in walker.types for t in node.inputs if t):
        return [node]
    try:
        return rule(node, opset, walker)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"node {node.name!r} ({node.op}) is not formed as ONNX wants it: {error}") from None


def with_attrs(node: Node, drop: Sequence[str] = (), **attrs: Any) -> Node:
    kept = {k: v for k, v in node.attrs.items() if k not in drop}
    return replace(node, attrs={**kept, **attrs})


def _ints(node: Node, walker: Walker, suffix: str, values: Sequence[int]) -> str:
    return walker.new_constant(f"{node.name}/{suffix}", np.array(values, np.int64))


def _rank(node: Node, walker: Walker, index: int = 0) -> int:
    return len(walker.types[node.inputs[index]].shape)


def _input(node: Node, index: int) -> str:
    return node.inputs[index] if index < len(node.inputs) else ""


def _positive(axis: int, rank: int, node: Node) -> int:
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"node {node.name!r} ({node.op}) has axis {axis}, its input has {rank} dimensions")
    return axis + rank if axis < 0 else axis


def _axis(default: int | None = None, index: int = 0, extra: int = 0) -> Rule:
    """Makes the attribute `axis` present and not negative; `extra` for operators that add a dimension."""

    def rule(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
        axis = node.attrs.get("axis", default)
        if axis is None:
            raise ModelError(f"node {node.name!r} ({node.op}) has no axis")
        return [with_attrs(node, axis=_positive(axis, _rank(node, walker, index) + extra, node))]

    return rule


def _clip(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if opset >= 11:
        return [node]
    dtype = walker.types[node.inputs[0]].dtype
    bounds = [
        walker.new_constant(f"{node.name}/{key}", np.array(node.attrs[key], numpy_dtype(dtype)))
        if key in node.attrs
        else ""
        for key in ("min", "max")
    ]
    while bounds and not bounds[-1]:
        bounds.pop()
    return [replace(with_attrs(node, ("min", "max")), inputs=(node.inputs[0], *bounds))]


def _axes_to_input(until: int) -> Rule:
    """Reduce operators: `axes` became an input in opset `until`."""

    def rule(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
        rank = _rank(node, walker)
        keep = node.attrs.get("keepdims", 1)
        if opset < until:
            given = node.attrs.get("axes")
            axes = None if given is None else [int(a) for a in given]
        else:
            name = _input(node, 1)
            if name and name not in walker.constants:
                return [node]
            axes = [int(a) for a in walker.constants[name].reshape(-1)] if name else None
        if not axes:
            if node.attrs.get("noop_with_empty_axes", 0):
                return [Node(node.name, "Identity", node.inputs[:1], node.outputs)]
            axes = list(range(rank))
        axes = sorted({_positive(a, rank, node) for a in axes})
        attrs = {"keepdims": int(keep)}
        return [Node(node.name, node.op, (node.inputs[0], _ints(node, walker, "axes", axes)), node.outputs, attrs)]

    return rule


def _reshape_to(node: Node, walker: Walker, shape: Sequence[int]) -> Sequence[Node]:
    return [Node(node.name, "Reshape", (node.inputs[0], _ints(node, walker, "shape", shape)), node.outputs)]


def _axes_of(node: Node, opset: int, walker: Walker) -> list[int] | None:
    """Squeeze's and Unsqueeze's axes; None if not given. Raises KeyError if they are not constant."""
    if opset < 13:
        given = node.attrs.get("axes")
        return None if given is None else [int(a) for a in given]
    name = _input(node, 1)
    return [int(a) for a in walker.constants[name].reshape(-1)] if name else None


def _squeeze(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if opset >= 13 and _input(node, 1) and node.inputs[1] not in walker.constants:
        return [node]
    shape = walker.types[node.inputs[0]].shape
    axes = _axes_of(node, opset, walker)
    if axes is None:
        axes = [i for i, extent in enumerate(shape) if extent == 1]
    axes = [_positive(a, len(shape), node) for a in axes]
    for axis in axes:
        if shape[axis] != 1:
            raise ModelError(
                f"node {node.name!r} (Squeeze) squeezes dimension {axis} of shape {list(shape)}: it is not 1"
            )
    return _reshape_to(node, walker, [d for i, d in enumerate(shape) if i not in axes])


def _unsqueeze(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if opset >= 13 and node.inputs[1] not in walker.constants:
        return [node]
    shape = list(walker.types[node.inputs[0]].shape)
    axes = _axes_of(node, opset, walker) or []
    rank = len(shape) + len(axes)
    for axis in sorted(_positive(a, rank, node) for a in axes):
        shape.insert(axis, 1)
    return _reshape_to(node, walker, shape)


def _flatten(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    shape = walker.types[node.inputs[0]].shape
    axis = node.attrs.get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    if not 0 <= axis <= len(shape):
        raise ModelError(f"node {node.name!r} (Flatten) has axis {axis}, its input has {len(shape)} dimensions")
    return _reshape_to(node, walker, [prod(shape[:axis]), prod(shape[axis:])])


def _softmax(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    shape = walker.types[node.inputs[0]].shape
    axis = _positive(node.attrs.get("axis", -1 if opset >= 13 else 1), len(shape), node)
    if opset >= 13 or all(d == 1 for d in shape[axis + 1 :]):
        return [with_attrs(node, axis=axis)]
    # Before opset 13 all dimensions from `axis` on were one: flatten, work along the last, restore.
    flat, done = walker.names.take(f"{node.output}/flat"), walker.names.take(f"{node.output}/rows")
    rows = _ints(node, walker, "rows", [prod(shape[:axis]), prod(shape[axis:])])
    whole = _ints(node, walker, "shape", shape)
    return [
        Node(walker.names.take(f"{node.name}/flatten"), "Reshape", (node.inputs[0], rows), (flat,)),
        Node(node.name, node.op, (flat,), (done,), {"axis": 1}),
        Node(walker.names.take(f"{node.name}/restore"), "Reshape", (done, whole), node.outputs),
    ]


def _dropout(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    training = walker.constants.get(_input(node, 2)) if _input(node, 2) else None
    if _input(node, 2) and (training is None or bool(training.reshape(-1)[0])):
        return [node]
    kept = [Node(node.name, "Identity", node.inputs[:1], node.outputs[:1])]
    if len(node.outputs) > 1 and node.outputs[1]:
        mask = np.broadcast_to(np.array(True), walker.types[node.inputs[0]].shape)
        walker.add_constant(node.outputs[1], mask)
    return kept


def _batch_norm(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if node.attrs.get("training_mode", 0):
        return [node]
    if opset < 9 and not node.attrs.get("spatial", 1):
        raise ModelError(
            f"node {node.name!r} (BatchNormalization) has statistics per element (spatial=0)", "export again"
        )
    channels = walker.types[node.inputs[0]].shape[1]
    for name in node.inputs[1:5]:
        if walker.types[name].shape != (channels,):
            raise ModelError(
                f"node {node.name!r} (BatchNormalization) has {name!r} of another length than its channels"
            )
    attrs = {"epsilon": float(node.attrs.get("epsilon", 1e-5))}
    return [replace(node, attrs=attrs, outputs=node.outputs[:1])]


def _slice(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if opset >= 10:
        return [node]
    starts, ends = node.attrs["starts"], node.attrs["ends"]
    axes = node.attrs.get("axes", tuple(range(len(starts))))
    inputs = [_ints(node, walker, key, v) for key, v in (("starts", starts), ("ends", ends), ("axes", axes))]
    return [Node(node.name, "Slice", (node.inputs[0], *inputs), node.outputs)]


def _pad(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if opset >= 11:
        return [with_attrs(node, mode=node.attrs.get("mode", "constant"))]
    dtype = numpy_dtype(walker.types[node.inputs[0]].dtype)
    value = walker.new_constant(f"{node.name}/value", np.array(node.attrs.get("value", 0.0), dtype))
    pads = _ints(node, walker, "pads", node.attrs["pads"])
    attrs = {"mode": node.attrs.get("mode", "constant")}
    return [Node(node.name, "Pad", (node.inputs[0], pads, value), node.outputs, attrs)]


def _split(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    shape = walker.types[node.inputs[0]].shape
    axis = _positive(node.attrs.get("axis", 0), len(shape), node)
    if opset >= 13 and _input(node, 1):
        return [with_attrs(node, axis=axis)]
    sizes = node.attrs.get("split") if opset < 13 else None
    if sizes is None:
        parts = len(node.outputs)
        each = -(-shape[axis] // parts)
        sizes = [each] * (parts - 1) + [shape[axis] - each * (parts - 1)]
    return [
        Node(node.name, "Split", (node.inputs[0], _ints(node, walker, "split", sizes)), node.outputs, {"axis": axis})
    ]


def _topk(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    axis = _positive(node.attrs.get("axis", -1), _rank(node, walker), node)
    if opset >= 10:
        return [with_attrs(node, axis=axis)]
    k = _ints(node, walker, "k", [node.attrs["k"]])
    return [Node(node.name, "TopK", (node.inputs[0], k), node.outputs, {"axis": axis})]


def _resize(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if node.op == "Resize" and opset >= 11:
        inputs = [t if t and walker.types[t].size else "" for t in node.inputs]
        return [replace(node, inputs=tuple(inputs))]
    if len(node.inputs) > 1:
        scales = node.inputs[1]
    else:
        scales = walker.new_constant(f"{node.name}/scales", np.array(node.attrs["scales"], np.float32))
    attrs = {
        "mode": node.attrs.get("mode", "nearest"),
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return [Node(node.name, "Resize", (node.inputs[0], "", scales), node.outputs, attrs)]


def _chain(op: str) -> Rule:
    """Sum, Max, Min, Mean of any number of inputs, as operators of two, added from the left."""

    def rule(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
        if len(node.inputs) == 1:
            return [Node(node.name, "Identity", node.inputs, node.outputs)]
        made: list[Node] = []
        so_far = node.inputs[0]
        mean = node.op == "Mean"
        for i, other in enumerate(node.inputs[1:], 1):
            last = i == len(node.inputs) - 1 and not mean
            target = node.output if last else walker.names.take(f"{node.output}/part{i}")
            name = node.name if i == 1 else walker.names.take(f"{node.name}/{i}")
            made.append(Node(name, op, (so_far, other), (target,)))
            so_far = target
        if mean:
            dtype = numpy_dtype(walker.types[node.inputs[0]].dtype)
            part = walker.new_constant(f"{node.name}/part", np.array(1.0 / len(node.inputs)).astype(dtype))
            made.append(Node(walker.names.take(f"{node.name}/mean"), "Mul", (so_far, part), node.outputs))
        return made

    return rule


def _group_norm(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if opset >= 21:
        return [node]
    channels, groups = walker.types[node.inputs[0]].shape[1], int(node.attrs["num_groups"])
    inputs = [node.inputs[0]]
    for name in node.inputs[1:]:
        value = walker.constants.get(name)
        if value is None:
            raise ModelError(f"node {node.name!r} (GroupNormalization) has scales that are not constant")
        inputs.append(walker.new_constant(f"{name}/channels", np.repeat(value, channels // groups)))
    return [replace(node, inputs=tuple(inputs))]


def _transpose(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    rank = _rank(node, walker)
    perm = tuple(int(p) for p in node.attrs.get("perm", tuple(reversed(range(rank)))))
    if sorted(perm) != list(range(rank)):
        raise ModelError(f"node {node.name!r} (Transpose) has perm {list(perm)}, no order of {rank} dimensions")
    return [with_attrs(node, perm=perm)]


def _roi_align(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    mode = "output_half_pixel" if opset < 16 else node.attrs.get("coordinate_transformation_mode", "half_pixel")
    return [with_attrs(node, coordinate_transformation_mode=mode)]


def _grid_sample(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    mode = node.attrs.get("mode", "bilinear" if opset < 20 else "linear")
    return [with_attrs(node, mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))]


def _dft(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if opset >= 20:
        return [node]
    axis = walker.new_constant(f"{node.name}/axis", np.array(node.attrs.get("axis", 1), np.int64))
    return [replace(with_attrs(node, ("axis",)), inputs=(node.inputs[0], _input(node, 1), axis))]


def _scatter(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    return [replace(node, op="ScatterElements")]


def _mean_variance(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    rank = _rank(node, walker)
    given = node.attrs.get("axes", tuple(a for a in (0, 2, 3) if a < rank))
    return [with_attrs(node, axes=tuple(sorted({_positive(int(a), rank, node) for a in given})))]


def _lrn(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    if node.attrs["size"] < 1:
        raise ModelError(f"node {node.name!r} (LRN) has size {node.attrs['size']}: it must be at least 1")
    return [node]


def _windowed(node: Node, opset: int, walker: Walker) -> Sequence[Node]:
    return [explicit_window(node, walker)]


_REDUCE = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
           "ReduceProd", "ReduceSumSquare")  # fmt: skip
RULES: dict[str, Rule] = {
    **{op: _axes_to_input(18) for op in _REDUCE},
    "ReduceSum": _axes_to_input(13),
    "ArgMax": _axis(0), "ArgMin": _axis(0), "Concat": _axis(), "Gather": _axis(0), "GatherElements": _axis(0),
    "LayerNormalization": _axis(-1), "RMSNormalization": _axis(-1), "LpNormalization": _axis(-1),
    "MeanVarianceNormalization": _mean_variance,
    "Clip": _clip, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Flatten": _flatten,
    "Softmax": _softmax, "LogSoftmax": _softmax, "Hardmax": _softmax,
    "Dropout": _dropout, "BatchNormalization": _batch_norm, "Slice": _slice, "Pad": _pad, "Split": _split,
    "TopK": _topk, "Upsample": _resize, "Resize": _resize, "Transpose": _transpose,
    "Sum": _chain("Add"), "Max": _chain("Max"), "Min": _chain("Min"), "Mean": _chain("Add"),
    "GroupNormalization": _group_norm, "RoiAlign": _roi_align, "GridSample": _grid_sample, "Scatter": _scatter,
    "Conv": _windowed, "ConvTranspose": _windowed, "MaxPool": _windowed, "AveragePool": _windowed,
    "LpPool": _windowed, "DFT": _dft, "LRN": _lrn,
}  # fmt: skip
