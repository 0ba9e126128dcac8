"""What the model says of its inputs and outputs: element types, fixed and symbolic dimensions, the batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import ModelError
from core.graph.ir import Graph, TensorType
from core.graph.proto import ELEMENT, check_size, element_name

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto


@dataclass(frozen=True)
class InputKinds:
    """`kinds`: input -> type at the model's own batch (1 where it is symbolic). `batched`: inputs whose dimension 0 is
    the batch. `symbols`: the names that the batch goes by; empty, and `symbolic` False, if it is fixed.
    """

    kinds: Mapping[str, TensorType]
    batched: frozenset[str]
    batch: int
    symbolic: bool
    symbols: frozenset[str]

    def with_batch(self, batch: int) -> dict[str, TensorType]:
        """The types at another batch. Raises ModelError if the model has none, or it makes a tensor too large."""
        if batch < 1:
            raise ModelError(f"the batch must be at least 1, not {batch}")
        if not self.batched:
            raise ModelError("the model has no batch: none of its inputs has a first dimension")
        kinds = dict(self.kinds)
        for name in self.batched:
            kinds[name] = TensorType(kinds[name].dtype, (batch, *kinds[name].shape[1:]))
            check_size(kinds[name].shape, f"input {name!r}")
        return kinds


def input_kinds(graph: "GraphProto", inputs: Iterable[str]) -> InputKinds:
    """Raises ModelError for an input that is no tensor, or has an open dimension other than the first."""
    values = {v.name: v for v in graph.input}
    kinds, open_first, symbols = {}, set(), set()
    for name in inputs:
        shape = _declared_shape(values[name])
        if shape and not isinstance(shape[0], int):
            open_first.add(name)
            symbols.add(shape[0])
            shape[0] = 1
        for i, extent in enumerate(shape):
            if not isinstance(extent, int):
                raise ModelError(
                    f"dimension {i} ({extent or 'unnamed'}) of input {name!r} is not fixed",
                    "--batch only sets the first dimension; export the model with this one fixed",
                )
        fixed = tuple(d for d in shape if isinstance(d, int))
        check_size(fixed, f"input {name!r}")
        kinds[name] = TensorType(ELEMENT[values[name].type.tensor_type.elem_type], fixed)
    if open_first:
        return InputKinds(
            kinds, frozenset(open_first), 1, True, frozenset(s for s in symbols if isinstance(s, str) and s)
        )
    first = next((k.shape[0] for k in kinds.values() if k.shape), 1)
    batched = frozenset(n for n, k in kinds.items() if k.shape and k.shape[0] == first)
    return InputKinds(kinds, batched, first, False, frozenset())


def declared_kinds(graph: "GraphProto", inputs: InputKinds, batch: int | None) -> dict[str, TensorType]:
    """Static types that the model states for inner tensors and outputs, the batch's symbol replaced.

    Not to be trusted over inference; for the outputs of operators that ONNX has no rule for there is nothing else.
    Where a fixed batch is changed, what the model states no longer holds.
    """
    if batch is not None and not inputs.symbolic and batch != inputs.batch:
        return {}
    found = {}
    for value in (*graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape") or tensor.elem_type not in ELEMENT:
            continue
        shape = [
            d.dim_value if d.HasField("dim_value") else (batch or 1) if d.dim_param in inputs.symbols else 0
            for d in tensor.shape.dim
        ]
        if all(d > 0 for d in shape):
            check_size(tuple(shape), f"tensor {value.name!r}")
            found[value.name] = TensorType(ELEMENT[tensor.elem_type], tuple(shape))
    return found


def check_symbolic_outputs(proto: "GraphProto", graph: Graph, inputs: InputKinds, batch: int) -> None:
    """Outputs that the model declares to have the symbolic batch have it. Raises ModelError."""
    for value in proto.output:
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            known = graph.types.get(value.name)
            if known and dim.dim_param in inputs.symbols and i < len(known.shape) and known.shape[i] != batch:
                raise ModelError(
                    f"output {value.name!r} has shape {list(known.shape)} at batch {batch}: an operator before it has "
                    "another batch baked in",
                    "export the model with the batch you need",
                )


def _declared_shape(value: "ValueInfoProto") -> list[int | str]:
    """Extents as numbers, or the symbol's name ("" if unnamed)."""
    what = f"input {value.name!r}"
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"{what} is not a tensor")
    tensor = value.type.tensor_type
    if tensor.elem_type not in ELEMENT:
        raise ModelError(f"{what} has element type {element_name(tensor.elem_type)}, which is not supported")
    if not tensor.HasField("shape"):
        raise ModelError(f"{what} has no shape", "export the model with fixed input shapes")
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]
