"""The change that a piece of advice tells, made in a copy of the ONNX model: names, weights and opset stay."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.advise.advice import Change, Deepen, SetBatch, SwapActivations, Widen
from core.advise.channels import Stuck, widen
from core.advise.file import ModelFile, open_file
from core.errors import ModelError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def apply(change: Change, model: str | Path) -> "ModelProto":
    """A changed copy of the model (a path or a built-in name). Raises ModelError where the file can't take it."""
    file = open_file(model)
    match change:
        case SwapActivations():
            _swap(change, file)
        case Deepen():
            _deepen(change, file)
        case Widen():
            _widen(change, file)
        case SetBatch():
            return _with_batch(change, file)
    return file.proto


# --- activations ---------------------------------------------------------------------------------------------------


def _swap(change: SwapActivations, file: ModelFile) -> None:
    make = _SPELLED[change.op]
    for site in change.sites:
        group = file.nodes_named(site.nodes)
        x, y = file.border(group, f"the activation {site.nodes[-1]}")
        made = make(file, x, y, file.name_of(group[-1]))
        file.replace(group, made)


def _node(op: str, inputs: list[str], output: str, name: str, **attrs: Any) -> "NodeProto":
    from onnx import helper

    return helper.make_node(op, inputs, [output], name=name, **attrs)


def _relu(file: ModelFile, x: str, y: str, name: str) -> "list[NodeProto]":
    return [_node("Relu", [x], y, name)]


def _softplus(file: ModelFile, x: str, y: str, name: str) -> "list[NodeProto]":
    return [_node("Softplus", [x], y, name)]


def _silu(file: ModelFile, x: str, y: str, name: str) -> "list[NodeProto]":
    gate = file.fresh(f"{name}/sigmoid")
    return [_node("Sigmoid", [x], gate, gate), _node("Mul", [x, gate], y, name)]


def _hard_swish(file: ModelFile, x: str, y: str, name: str) -> "list[NodeProto]":
    if file.opset >= 14:
        return [_node("HardSwish", [x], y, name)]
    gate = file.fresh(f"{name}/gate")
    return [_node("HardSigmoid", [x], gate, gate, alpha=1 / 6, beta=0.5), _node("Mul", [x, gate], y, name)]


def _gelu(file: ModelFile, x: str, y: str, name: str) -> "list[NodeProto]":
    if file.opset >= 20:
        return [_node("Gelu", [x], y, name)]
    if file.opset < 9:
        raise ModelError(f"GELU needs Erf, which opset {file.opset} lacks", "export the model with opset 9 or newer")
    scaled, erf, shifted, half = (file.fresh(f"{name}/{part}") for part in ("scaled", "erf", "shifted", "half"))
    root, one, point5 = (
        file.scalar(f"{name}/{part}", value, x) for part, value in (("root2", 2**0.5), ("one", 1.0), ("point5", 0.5))
    )
    return [
        _node("Div", [x, root], scaled, scaled),
        _node("Erf", [scaled], erf, erf),
        _node("Add", [erf, one], shifted, shifted),
        _node("Mul", [x, shifted], half, half),
        _node("Mul", [half, point5], y, name),
    ]


_SPELLED: "dict[str, Callable[[ModelFile, str, str, str], list[NodeProto]]]" = {
    "relu": _relu, "gelu_erf": _gelu, "hard_swish": _hard_swish, "softplus": _softplus, "silu": _silu,
}  # fmt: skip


# --- 1x1 convolutions ----------------------------------------------------------------------------------------------


def _deepen(change: Deepen, file: ModelFile) -> None:
    for tensor, channels in change.places:
        before = file.renamed(tensor, f"{tensor}/before_1x1")
        dtype = file.numpy_dtype(tensor)
        name = file.fresh(f"{tensor}/conv1x1")
        weight = file.constant(f"{name}.weight", np.eye(channels, dtype=dtype).reshape(channels, channels, 1, 1))
        bias = file.constant(f"{name}.bias", np.zeros(channels, dtype))
        result = file.fresh(f"{name}/out") if change.relu else tensor
        made = [_node("Conv", [before, weight, bias], result, name, kernel_shape=[1, 1])]
        if change.relu:
            made.append(_node("Relu", [result], tensor, file.fresh(f"{name}.relu")))
        file.insert_behind(before, made)


# --- channels ------------------------------------------------------------------------------------------------------


def _widen(change: Widen, file: ModelFile) -> None:
    try:
        made = widen(file.graph, change.node, change.width)
    except Stuck as reason:
        raise ModelError(f"the channels of {change.node} can't be widened in the file: {reason}") from None
    for (node, name), value in made.constants.items():
        file.set_constant(node, name, value)
    if made.cropped is not None:
        tensor, axis = made.cropped
        before = file.renamed(tensor, f"{tensor}/wide")
        file.insert_behind(before, [_slice(file, before, tensor, axis, made.old)])
    del file.proto.graph.value_info[:]  # shapes between changed


def _slice(file: ModelFile, x: str, y: str, axis: int, size: int) -> "NodeProto":
    name = file.fresh(f"{y}/crop")
    if file.opset < 10:
        return _node("Slice", [x], y, name, starts=[0], ends=[size], axes=[axis])
    ends = [file.constant(f"{name}/{k}", np.array([v], np.int64)) for k, v in (("starts", 0), ("ends", size))]
    return _node("Slice", [x, *ends, file.constant(f"{name}/axes", np.array([axis], np.int64))], y, name)


# --- batch ---------------------------------------------------------------------------------------------------------


def _with_batch(change: SetBatch, file: ModelFile) -> "ModelProto":
    """Written from the graph: a batch baked into reshapes is proven to be one and set there."""
    from core.graph.to_onnx import to_model
    from core.importer.load import import_graph

    return to_model(import_graph(file.source, change.batch))
