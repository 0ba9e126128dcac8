"""Small questions to a graph that every rule of the planner asks, and their answers in the user's words."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from core.fusion.operators import ANCHORS
from core.graph.ir import Graph, Node
from templates.types import DType

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def attr(node: Node, name: str, default: Any) -> Any:
    value = node.attrs.get(name, default)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def scalar(graph: Graph, tensor: str) -> float | None:
    """The value of a constant with one element; None for anything else."""
    value = graph.constant(tensor)
    if value is None or value.size != 1 or not (value.dtype.kind in "fiu" or value.dtype.name == "bfloat16"):
        return None
    return float(value.reshape(()))


def present(node: Node) -> tuple[str, ...]:
    """The inputs that are there (an omitted optional input is the empty string)."""
    return tuple(t for t in node.inputs if t)


def listed(names: Sequence[str], limit: int = 4) -> str:
    """'a', 'a and b', 'a, b and c', 'a, b, c and 5 more'."""
    shown = list(names[:limit])
    if len(names) > limit:
        shown = [*names[: limit - 1], f"{len(names) - limit + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def counted(count: int, noun: str) -> str:
    """'two nodes', '12 nodes', 'one node'."""
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} {noun}{'s' * (count != 1)}"


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def uncompilable(graph: Graph, node: Node) -> str | None:
    """Why no kernel can be made of the node: a tensor it reads or makes has no type before the model runs, or the
    operator is not ONNX's own; else None.
    """
    for tensor in node.inputs:
        if tensor and tensor not in graph.types:
            return f"its input {tensor} has no type before the model runs"
    unknown = next((t for t in node.outputs if t and t not in graph.types), None)
    if unknown is not None:
        return graph.untyped.get(unknown, f"the type of {unknown} is not known")
    return f"{node.op} belongs to the operator domain {node.domain}" if node.domain not in ("", "ai.onnx") else None


def leaves_graph(graph: Graph, tensor: str) -> bool:
    return graph.leaves(tensor)


def many_readers(graph: Graph, node: Node, tensor: str) -> str | None:
    """Why the tensor can't stay inside a kernel: it is an output of the model or has several readers; else None."""
    readers = graph.consumers(tensor)
    if leaves_graph(graph, tensor):
        return f"the output of {node.name} is an output of the model"
    if len(readers) > 1:
        names = [r.name for r in readers]
        return f"the output of {node.name} is read by {counted(len(readers), 'node')}: {listed(names)}"
    return None


def native_dtype(graph: Graph) -> DType:
    """The float type the model computes in: that of most GEMM and convolution results, else of most tensors."""
    types = graph.types
    made = Counter((n.op in ANCHORS, t.dtype) for n in graph if (t := types.get(n.outputs[0])) is not None)
    anchors: Counter[DType] = Counter()
    others: Counter[DType] = Counter()
    for (anchor, dtype), count in made.items():
        if dtype.is_float:
            anchors[dtype] += count * anchor
            others[dtype] += count
    votes = +anchors or others
    return votes.most_common(1)[0][0] if votes else DType.F32


def stored_dtype(graph_dtype: DType, native: DType, plan_dtype: DType) -> DType:
    """How a tensor of the graph lies in memory when the plan computes in `plan_dtype`.

    Floats become the plan's type (TF32 is F32 in memory), except F32 tensors of a model that itself computes in F16 or
    BF16: those are the model's own choice of precision. Other types stay.
    """
    if not graph_dtype.is_float:
        return graph_dtype
    if graph_dtype in (DType.F32, DType.F64) and native in (DType.F16, DType.BF16):
        return DType.F32
    return DType.F32 if plan_dtype == DType.TF32 else plan_dtype


def per_channel(graph: Graph, tensor: str, out_shape: tuple[int, ...], axis: int) -> bool:
    """Whether the tensor broadcasts against `out_shape` as one value for each index of `axis` (more than one value)."""
    shape = graph.shape(tensor)
    if len(shape) > len(out_shape):
        return False
    full = (1,) * (len(out_shape) - len(shape)) + shape
    wanted = tuple(e if i == axis else 1 for i, e in enumerate(out_shape))
    return full == wanted and out_shape[axis] > 1
