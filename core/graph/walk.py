"""One walk over nodes in order that knows every type and every constant so far: the base of import and of folding."""

from collections.abc import Iterable, Mapping

import numpy as np

from core.errors import ModelError
from core.graph.evaluate import ALWAYS_FOLDED_BYTES, FOLDED_IN_ALL_BYTES, RANDOM, evaluate, is_quick, is_view
from core.graph.infer import Untyped, infer_node
from core.graph.ir import Graph, Node, TensorType
from core.graph.proto import check_size, type_of

COMPUTED = "computed once, its inputs are constants"


class Names:
    """Names already taken by tensors or nodes; gives new ones that are not."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def take(self, wanted: str) -> str:
        """`wanted`, or `wanted` with the first free number behind it."""
        name, number = wanted, 1
        while name in self._taken or not name:
            number += 1
            name = f"{wanted}/{number}"
        self._taken.add(name)
        return name

    def copy(self) -> "Names":
        return Names(self._taken)


def names_of(graph: Graph) -> Names:
    """Every name of the graph: tensors, nodes, and those of removed nodes."""
    return Names({*graph.types, *graph.constants, *graph.untyped, *graph.absorbed, *(n.name for n in graph)})


class Walker:
    """Takes nodes in topological order; infers their types, and replaces those with constant inputs by their values.

    What it proves: a folded tensor has the value that ONNX's reference evaluator computes, and every tensor kept has
    one static type, by ONNX's shape inference or (for operators unknown to ONNX) as `declared` by the model, or stands
    in `untyped` with the reason.
    """

    def __init__(self, opset: int, names: Names, declared: Mapping[str, TensorType] | None = None) -> None:
        self.opset = opset
        self.names = names
        self.declared = declared or {}
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.untyped: dict[str, str] = {}
        self.absorbed: dict[str, str] = {}
        self.nodes: list[Node] = []
        self._given = self._folded = 0  # bytes of constants: the model's own, and computed ones

    def add_input(self, name: str, tensor_type: TensorType) -> None:
        self.types[name] = tensor_type

    def add_constant(self, name: str, value: np.ndarray) -> None:
        self._given += value.nbytes
        self._keep(name, value)

    def _keep(self, name: str, value: np.ndarray) -> None:
        self.constants[name] = value
        self.types[name] = type_of(value)

    def new_constant(self, wanted: str, value: np.ndarray) -> str:
        """Adds a constant under a free name like `wanted`, and returns the name."""
        name = self.names.take(wanted)
        self.add_constant(name, value)
        return name

    def add(self, node: Node) -> None:
        """Raises ModelError if the node does not fit its inputs."""
        if node.op == "Constant" and not node.domain:
            self._add_value(node, [_constant_value(node)])
            return
        if node.op in ("Shape", "Size") and not node.domain and node.inputs[0] in self.types:
            self._add_value(node, [_shape_value(node, self.types[node.inputs[0]])])
            return
        try:
            found = infer_node(node, self.types, self.constants, self.opset)
        except Untyped as reason:
            known = {t: self.declared[t] for t in node.outputs if t in self.declared}
            self.types.update(known)
            self.untyped.update({t: str(reason) for t in node.outputs if t and t not in known})
            self.nodes.append(node)
            return
        if self._foldable(node, found):
            self._folded += 0 if is_view(node) else sum(t.nbytes for t in found.values())
            self._add_value(node, evaluate(node, self.constants, self.opset))
            return
        for name, kind in found.items():
            check_size(kind.shape, f"tensor {name!r} of node {node.name!r} ({node.op})")
        self.types.update(found)
        self.nodes.append(node)

    def _foldable(self, node: Node, found: dict[str, TensorType]) -> bool:
        if node.op in RANDOM or any(n not in self.constants for n in node.inputs if n):
            return False
        if not any(node.inputs) or not found:
            return False
        operands = [self.types[n] for n in node.inputs if n]
        if not is_quick(node, operands, found.values()):
            return False
        size, read = sum(t.nbytes for t in found.values()), sum(t.nbytes for t in operands)
        left = max(FOLDED_IN_ALL_BYTES, self._given) - self._folded
        return is_view(node) or size <= min(left, max(ALWAYS_FOLDED_BYTES, read))

    def _add_value(self, node: Node, values: list[np.ndarray]) -> None:
        for name, value in zip(node.outputs, values, strict=False):
            if name:
                self._keep(name, value)
        self.absorbed[node.name] = COMPUTED

    def finish(self, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
        """The graph. An output that became a constant, or is an input, gets an Identity: nodes make all outputs."""
        made = {t for n in self.nodes for t in n.outputs}
        for output in dict.fromkeys(outputs):
            if output in made:
                continue
            if output not in self.constants:
                raise ModelError(f"graph output {output!r} is made by no node and is no initializer")
            source = self.new_constant(f"{output}/value", self.constants.pop(output))
            self.nodes.append(Node(self.names.take(f"{output}/copy"), "Identity", (source,), (output,)))
            for i, node in enumerate(self.nodes[:-1]):
                if output in node.inputs:
                    self.nodes[i] = Node(
                        node.name, node.op, tuple(source if t == output else t for t in node.inputs), node.outputs,
                        node.attrs, node.domain,
                    )  # fmt: skip
        return Graph(
            name, tuple(self.nodes), inputs, outputs, self.constants, self.types, self.opset, self.absorbed,
            self.untyped,
        )  # fmt: skip


def _shape_value(node: Node, tensor_type: TensorType) -> np.ndarray:
    if node.op == "Size":
        return np.array(tensor_type.size, np.int64)
    return np.array(tensor_type.shape[slice(node.attrs.get("start", 0), node.attrs.get("end"))], np.int64)


def _constant_value(node: Node) -> np.ndarray:
    """The value of a Constant node. Raises ModelError for a string or a sparse one."""
    for key, dtype in (("value", None), ("value_float", np.float32), ("value_floats", np.float32),
                       ("value_int", np.int64), ("value_ints", np.int64)):  # fmt: skip
        if key in node.attrs:
            return np.asarray(node.attrs[key], dtype)
    raise ModelError(f"node {node.name!r} (Constant) holds no numbers")
