"""What the sample models are built with: layers that make nodes and seeded weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto

BATCH = "N"


class Builder:
    """Collects nodes and weights; every layer takes and returns tensor names. Weights are float32 and seeded.

    He initialisation (uniform, variance gain / fan-in), so activations keep the magnitude of the input.
    """

    def __init__(self, name: str, opset: int = 17, seed: int = 2022) -> None:
        from onnx import ModelProto, helper

        self._random = np.random.default_rng(seed)
        self._model = ModelProto(ir_version=8, producer_name="bolt-workbench")
        self._model.opset_import.append(helper.make_opsetid("", opset))
        self._model.graph.name = name

    def input(self, name: str, *shape: int, integer: bool = False) -> str:
        """A graph input of shape (N, *shape), float32 or int64."""
        from onnx import TensorProto, helper

        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self._model.graph.input.append(helper.make_tensor_value_info(name, kind, [BATCH, *shape]))
        return name

    def weight(self, name: str, value: np.ndarray) -> str:
        from onnx import helper

        # Filled in place: of VGG-16's half a gigabyte no further copy is made.
        tensor = self._model.graph.initializer.add()
        tensor.name = name
        tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor.dims.extend(value.shape)
        tensor.raw_data = value.tobytes()
        return name

    def scalar(self, name: str, value: float) -> str:
        return self.weight(name, np.array(value, np.float32))

    def spread(self, name: str, shape: Sequence[int], deviation: float) -> str:
        """A weight, uniform around 0 with the given standard deviation."""
        values = self._random.random(shape, dtype=np.float32)
        values -= np.float32(0.5)
        values *= np.float32(12**0.5 * deviation)
        return self.weight(name, values)

    def uniform(self, name: str, size: int, low: float, high: float) -> str:
        return self.weight(name, self._random.uniform(low, high, size).astype(np.float32))

    def node(self, op: str, name: str, *inputs: str, **attrs: Any) -> str:
        """A node of one output, called as the node."""
        from onnx import helper

        self._model.graph.node.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def conv(
        self, name: str, x: str, c: int, k: int, window: int, *, stride: int = 1, bias: bool = False, gain: float = 2.0,
        group: int = 1,
    ) -> str:  # fmt: skip
        """Square window, padding window // 2."""
        shape = (k, c // group, window, window)
        inputs = [x, self.spread(f"{name}.weight", shape, (gain / (shape[1] * window**2)) ** 0.5)]
        if bias:
            inputs.append(self.uniform(f"{name}.bias", k, -0.1, 0.1))
        pad = window // 2
        return self.node(
            "Conv", name, *inputs, kernel_shape=[window] * 2, strides=[stride] * 2, pads=[pad] * 4, group=group
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
        weight = self.spread(f"{name}.weight", (units, features), (gain / features) ** 0.5)
        return self.node("Gemm", name, x, weight, self.uniform(f"{name}.bias", units, -0.1, 0.1), transB=1)

    def model(self, outputs: dict[str, Sequence[int]]) -> "ModelProto":
        """The model; `outputs` gives each output's shape after the batch."""
        from onnx import TensorProto, helper

        for name, shape in outputs.items():
            info = helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, *shape])
            self._model.graph.output.append(info)
        return self._model
