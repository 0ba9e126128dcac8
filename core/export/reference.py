"""The reference an exported library is compared with: ONNX Runtime on the CPU, in the model's own precision."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import ExportError
from core.graph.ir import Graph
from core.graph.ranges import runtime_failures

if TYPE_CHECKING:
    import onnxruntime
    from onnx import ModelProto

_UNBOUNDED = 2  # indices of a table whose size is not known here: 0 or 1


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs by name: floats uniform in [-1, 1], indices uniform in the table they look up, other integers 0 or 1."""
    from core.graph.proto import numpy_dtype

    random = np.random.default_rng(seed)
    found = {}
    for name in graph.inputs:
        kind = graph.types[name]
        if kind.dtype.is_float:
            found[name] = random.uniform(-1, 1, kind.shape).astype(numpy_dtype(kind.dtype))
        else:
            high = index_bound(graph, name)
            found[name] = random.integers(0, high, kind.shape).astype(numpy_dtype(kind.dtype))
    return found


def index_bound(graph: Graph, tensor: str) -> int:
    """The smallest table the tensor indexes, through nodes that keep its values; 2 if it indexes none."""
    bounds = []
    for node in graph.consumers(tensor):
        if node.op == "Gather" and node.inputs[1] == tensor:
            bounds.append(graph.shape(node.inputs[0])[int(node.attrs.get("axis", 0))])
        elif node.op in ("Reshape", "Cast", "Identity", "Slice", "Split", "Transpose", "Squeeze", "Unsqueeze"):
            bounds += [b for t in node.outputs if t and (b := index_bound(graph, t)) != _UNBOUNDED]
    return min(bounds, default=_UNBOUNDED)


def load_inputs(path: Path, graph_inputs: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Inputs from a .npz file, by name. Raises ExportError if one is missing or does not fit."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} can't be read as inputs ({error})", "save them with numpy.savez") from error
    for port in graph_inputs:
        found = arrays.get(port["name"])
        if found is None or list(found.shape) != port["shape"]:
            shape = "nothing" if found is None else f"shape {list(found.shape)}"
            raise ExportError(f"{path} holds {shape} for input {port['name']!r}, not shape {port['shape']}")
    return arrays


def reference_outputs(model: str, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's outputs for a path or a built-in name. Raises ExportError when it can't run the model."""
    import onnxruntime

    try:
        session = _session(model, inputs, onnxruntime)
        wanted = {i.name for i in session.get_inputs()}
        results = session.run(None, {n: a for n, a in inputs.items() if n in wanted})
    except runtime_failures() as error:
        raise ExportError(
            f"ONNX Runtime can't run {model}: {error}", "verify against another file with --model"
        ) from error
    return [np.asarray(r) for r in results]


def _session(model: str, inputs: Mapping[str, np.ndarray], onnxruntime: Any) -> "onnxruntime.InferenceSession":
    from core.importer.read import read_model
    from core.importer.samples import build_sample, sample_names

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    if model in sample_names():
        proto = build_sample(model)
    else:
        proto, folder = read_model(model)
        if folder is not None and not _fixed_otherwise(proto, inputs):
            return onnxruntime.InferenceSession(str(model), options, providers=providers)
    _set_shapes(proto, inputs)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=providers)


def _fixed_otherwise(proto: "ModelProto", inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether an input of the file has a fixed dimension that differs from the array's (the export set the batch)."""
    return any(
        d.HasField("dim_value") and d.dim_value != extent
        for value in proto.graph.input
        if value.name in inputs
        for d, extent in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=False)
    )


def _set_shapes(proto: "ModelProto", inputs: Mapping[str, np.ndarray]) -> None:
    """Give the inputs the arrays' shapes and forget every shape that was inferred from the old ones."""
    for value in proto.graph.input:
        if value.name in inputs:
            for dim, extent in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=False):
                dim.dim_value = extent
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
