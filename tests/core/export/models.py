"""Small ONNX models, their graphs and plans, for the exporter's tests."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from core.export.lower import lower
from core.export.program import Program
from core.fusion.planner import plan
from core.graph.proto import type_proto
from core.importer.load import load_graph
from core.tuner.choice import Choice, Origin
from templates.family import Candidate, Kernel
from templates.types import DType


class Model:
    """Builds an ONNX model; tensors are named t0, t1, ..."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes, self.inputs, self.outputs, self.initializers = [], [], [], []
        self._count = 0

    def input(self, *shape: int, dtype: int = TensorProto.FLOAT) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.const((self.random.uniform(-1, 1, shape) * scale).astype(np.float32))

    def const(self, value) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes):
        names = [f"t{self._count + i}" for i in range(outputs)]
        self._count += outputs
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"n{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def conv(self, x: str, channels: int, filters: int, size: int = 3, bias: bool = True, **attributes) -> str:
        groups = attributes.get("group", 1)
        attributes.setdefault("pads", [size // 2] * 4)
        scale = (channels // groups * size * size) ** -0.5
        weight = self.weight(filters, channels // groups, size, size, scale=scale)
        return self.op("Conv", x, weight, *([self.weight(filters)] if bias else []), **attributes)

    def build(self, *outputs: str, opset: int = 21) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "small", self.inputs, [helper.make_empty_tensor_value_info(o) for o in outputs],
            initializer=self.initializers,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        model = onnx.shape_inference.infer_shapes(model)
        if not all(o.type.HasField("tensor_type") for o in model.graph.output):  # behind an operator without a rule
            types = load_graph(model.SerializeToString()).types
            for port in model.graph.output:
                port.type.CopyFrom(type_proto(types[port.name]))
        onnx.checker.check_model(model)
        return model


def fake_choices(found) -> dict[str, Choice]:
    """A stand-in candidate for every workload: the numpy executor needs none."""
    return {
        key: Choice(key, Candidate(Kernel("sm80_conv", (), regions[0].epilogue)), None, None, Origin.ESTIMATE)
        for key, regions in found.workloads.items()
    }


def lowered(model: onnx.ModelProto | str, dtype: DType = DType.TF32, batch: int | None = None) -> Program:
    """TF32 by default: float32 in memory, so the program must equal the reference nearly exactly."""
    graph = load_graph(model if isinstance(model, str) else model.SerializeToString(), batch)
    found = plan(graph, dtype)
    return lower(graph, found, fake_choices(found))


def reference(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], inputs, strict=True)))
