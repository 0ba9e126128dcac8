"""The IR: an ONNX-shaped graph in SSA form. Tensors are names; their types and constant values sit in tables.

Logical shapes are always ONNX's (NCHW); how a tensor lies in memory is decided when the graph is lowered, so every
pass here can be proven by running the graph in ONNX Runtime before and after.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from templates.types import DType


@dataclass(frozen=True)
class TensorType:
    """Element type and static shape. Rank 0 is a scalar; every extent is at least 1 unless the model is refused."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Node:
    """One operator. `name` is unique in the graph and survives every pass that keeps the node.

    An omitted optional input is the empty string. `attrs` hold plain Python values and numpy arrays (never protobuf).
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""

    @property
    def output(self) -> str:
        return self.outputs[0]


@dataclass
class Graph:
    """Nodes in topological order. `types` covers every tensor, `constants` those with a known value.

    The exception are tensors in `untyped` (tensor -> why no type is known before the model runs): nodes that read or
    make one can't be compiled. Every graph output is made by a node. Constants may be strided views of little memory.

    Passes return a new Graph and never change the one they are given; `constants` arrays are shared, not copied.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, np.ndarray]
    types: dict[str, TensorType]
    opset: int = 21
    # Names a pass removed, and what became of them: shown to the user ("folded into conv1").
    absorbed: dict[str, str] = field(default_factory=dict)
    untyped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producer = {t: n for n in self.nodes for t in n.outputs if t}
        self._consumers: dict[str, list[Node]] = {}
        for n in self.nodes:
            for t in dict.fromkeys(n.inputs):
                if t:
                    self._consumers.setdefault(t, []).append(n)
        self._by_name = {n.name: n for n in self.nodes}
        self._leaving = frozenset(self.outputs)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def node(self, name: str) -> Node:
        return self._by_name[name]

    def has_node(self, name: str) -> bool:
        return name in self._by_name

    def producer(self, tensor: str) -> Node | None:
        """The node that makes the tensor; None for inputs and constants."""
        return self._producer.get(tensor)

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        """Nodes that read the tensor, in order, each once."""
        return tuple(self._consumers.get(tensor, ()))

    def leaves(self, tensor: str) -> bool:
        """Whether the tensor is an output of the graph."""
        return tensor in self._leaving

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.types[tensor].shape

    def constant(self, tensor: str) -> np.ndarray | None:
        return self.constants.get(tensor)

    def replaced(self, nodes: Iterable[Node], **changes: Any) -> "Graph":
        """A copy with other nodes (and fields); `changes` are field names of Graph."""
        names = ("name", "inputs", "outputs", "constants", "types", "opset", "absorbed", "untyped")
        values = {f: getattr(self, f) for f in names}
        return Graph(nodes=tuple(nodes), **{**values, **changes})
