"""What the sample models are built with: layers that make nodes and seeded weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

BATCH = "N"


class Builder:
    """Collects nodes and weights; every layer takes and returns tensor names. Weights are float32 and seeded.

    He initialisation: normal with variance gain / fan-in, so activations keep the magnitude of the input.
    """

    def __init__(self, name: str, opset: int = 17, seed: int = 2022) -> None:
        self._name = name
        self._opset = opset
        self._random = np.random.default_rng(seed)
        self._nodes: list[NodeProto] = []
        self._weights: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []

    def input(self, name: str, *shape: int, integer: bool = False) -> str:
        """A graph input of shape (N, *shape), float32 or int64."""
        from onnx import TensorProto, helper

        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self._inputs.append(helper.make_tensor_value_info(name, kind, [BATCH, *shape]))
        return name

    def weight(self, name: str, value: np.ndarray) -> str:
        from onnx import numpy_helper

        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def normal(self, name: str, shape: Sequence[int], deviation: float) -> str:
        values = self._random.standard_normal(shape, dtype=np.float32)
        values *= np.float32(deviation)
        return self.weight(name, values)

    def uniform(self, name: str, size: int, low: float, high: float) -> str:
        return self.weight(name, self._random.uniform(low, high, size).astype(np.float32))

    def node(self, op: str, name: str, *inputs: str, **attrs: Any) -> str:
        """A node of one output, called as the node."""
        from onnx import helper

        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def conv(
        self, name: str, x: str, c: int, k: int, window: int, *, stride: int = 1, bias: bool = False, gain: float = 2.0
    ) -> str:
        """Square window, padding window // 2."""
        inputs = [x, self.normal(f"{name}.weight", (k, c, window, window), (gain / (c * window**2)) ** 0.5)]
        if bias:
            inputs.append(self.uniform(f"{name}.bias", k, -0.1, 0.1))
        pad = window // 2
        return self.node(
            "Conv", name, *inputs, kernel_shape=[window] * 2, strides=[stride] * 2, pads=[pad] * 4, group=1
        )  # fmt: skip

    def batch_norm(self, name: str, x: str, channels: int, scale: float = 1.0) -> str:
        """Statistics near those of a unit-variance input; `scale` is the mean of gamma."""
        values = (
            self.uniform(f"{name}.weight", channels, 0.8 * scale, 1.2 * scale),
            self.uniform(f"{name}.bias", channels, -0.1, 0.1),
            self.uniform(f"{name}.running_mean", channels, -0.1, 0.1),
            self.uniform(f"{name}.running_var", channels, 0.8, 1.2),
        )
        return self.node("BatchNormalization", name, x, *values, epsilon=1e-5)

    def relu(self, name: str, x: str) -> str:
        return self.node("Relu", name, x)

    def linear(self, name: str, x: str, features: int, units: int, gain: float = 2.0) -> str:
        """x W^T + b with W of shape (units, features), as torch.nn.Linear on a matrix."""
        weight = self.normal(f"{name}.weight", (units, features), (gain / features) ** 0.5)
        return self.node("Gemm", name, x, weight, self.uniform(f"{name}.bias", units, -0.1, 0.1), transB=1)

    def model(self, outputs: dict[str, Sequence[int]]) -> "ModelProto":
        """The model; `outputs` gives each output's shape after the batch."""
        from onnx import TensorProto, helper

        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [BATCH, *s]) for n, s in outputs.items()]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, infos, self._weights)
        imports = [helper.make_opsetid("", self._opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="bolt-workbench")
