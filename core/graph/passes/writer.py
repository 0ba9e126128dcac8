"""Writes nodes in place of one: types inferred, constants folded, names taken from the node's."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.graph.ir import Node, TensorType
from core.graph.proto import element_code, numpy_dtype
from core.graph.walk import Walker
from templates.types import DType


class Writer:
    """Adds nodes to a walk in place of `node`, whose output has the type `result`. Methods take and give tensors."""

    def __init__(self, walker: Walker, node: Node, result: TensorType) -> None:
        self.walker, self.node, self.result = walker, node, result

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.walker.types[tensor].shape

    def dtype(self, tensor: str) -> DType:
        return self.walker.types[tensor].dtype

    def input(self, index: int) -> str:
        """The input at a position; empty if it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else ""

    def value(self, index: int) -> np.ndarray | None:
        """The constant at an input position; None if it is no constant."""
        return self.walker.constants.get(self.input(index))

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A node of one output."""
        output = self.walker.names.take(f"{self.node.output}/{op.lower()}")
        self.walker.add(Node(self.walker.names.take(f"{self.node.name}/{op.lower()}"), op, inputs, (output,), attrs))
        return output

    def finish(self, op: str, *inputs: str, **attrs: Any) -> None:
        """The node that makes the output; it keeps the name."""
        self.walker.add(Node(self.node.name, op, inputs, self.node.outputs[:1], attrs))

    def constant(self, value: Any, like: str | None = None) -> str:
        """A constant, in the element type of the tensor `like`."""
        array = np.asarray(value, numpy_dtype(self.dtype(like)) if like else None)
        return self.walker.new_constant(f"{self.node.name}/value", array)

    def ints(self, values: Sequence[int]) -> str:
        return self.walker.new_constant(f"{self.node.name}/ints", np.array(values, np.int64))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return x if self.shape(x) == tuple(shape) else self.op("Reshape", x, self.ints(shape))

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        return x if list(perm) == sorted(perm) else self.op("Transpose", x, perm=tuple(perm))

    def cast(self, x: str, dtype: DType) -> str:
        return x if self.dtype(x) == dtype else self.op("Cast", x, to=element_code(dtype))
