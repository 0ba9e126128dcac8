"""The core's graph as the canvas needs it: indices, labels, widths and edges. No Qt."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from app.format import one_line
from app.graph.layout import Edge
from core.fusion.plan import FusionPlan, Region
from core.graph.ir import Graph, Node
from core.graph.repeats import Repeat

_FAMILIES = {
    "conv": {"Conv", "ConvTranspose", "ConvInteger"},
    "gemm": {"Gemm", "MatMul", "MatMulInteger", "Einsum"},
    "activation": {
        "Relu", "LeakyRelu", "Clip", "Gelu", "Sigmoid", "HardSwish", "HardSigmoid", "Softplus", "Tanh", "Elu", "Selu",
        "PRelu", "Erf", "Softmax", "LogSoftmax", "Mish", "Celu", "Swish",
    },
    "arithmetic": {
        "Add", "Sub", "Mul", "Div", "Sum", "Pow", "Sqrt", "Exp", "Log", "Neg", "Abs", "Max", "Min", "Mean", "Where",
        "Reciprocal", "Cast", "Equal", "Greater", "Less", "And", "Or", "Not",
    },
    "normalization": {
        "BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "LRN",
        "RMSNormalization", "LpNormalization",
    },
    "pool": {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"},
    "shape": {
        "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "Gather", "Expand",
        "Pad", "Tile", "Shape", "Identity", "Resize", "Upsample", "DepthToSpace", "SpaceToDepth", "GatherElements",
        "GatherND",
    },
    "reduction": {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ArgMax", "ArgMin"},
}  # fmt: skip
FAMILY_OF = {op: family for family, ops in _FAMILIES.items() for op in ops}
FAMILIES = (*_FAMILIES, "io", "other", "fold")


@dataclass(frozen=True)
class Box:
    """One box of the canvas: an operator, an input or output of the model, or folded repeats of a block.

    Only an operator has a `node`; only folded repeats have `members`, the names of their operators.
    """

    name: str
    title: str
    detail: str
    family: str
    node: Node | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class GraphModel:
    """Boxes and edges of one graph. Operators (and folds) come first, in graph order; then inputs, then outputs."""

    graph: Graph
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    tensors: tuple[str, ...]  # of each edge

    @cached_property
    def index(self) -> dict[str, int]:
        """Operator name -> the box it is, or is folded into."""
        found = {b.name: i for i, b in enumerate(self.boxes) if b.node is not None}
        return found | {name: i for i, b in enumerate(self.boxes) for name in b.members}

    @cached_property
    def folds(self) -> int:
        """How many boxes stand for folded repeats."""
        return sum(1 for b in self.boxes if b.members)

    @cached_property
    def widths(self) -> list[float]:
        return [_width(b) for b in self.boxes]

    def region_index(self, plan: FusionPlan) -> list[int]:
        """The region's place in the plan for each box, -1 for inputs and outputs."""
        owner = {name: i for i, region in enumerate(plan.regions) for name in region.nodes}
        return [owner.get(b.name, -1) if b.node is not None else -1 for b in self.boxes]

    def search(self, text: str) -> list[int]:
        """Boxes whose name, operator, shape or tensor holds the text; all words must match."""
        words = text.lower().split()
        return [i for i, hay in enumerate(self._haystacks) if all(w in hay for w in words)] if words else []

    @cached_property
    def _haystacks(self) -> list[str]:
        found = []
        for box in self.boxes:
            tensors = (*box.node.inputs, *box.node.outputs) if box.node else ()
            found.append(" ".join((box.name, box.title, box.detail, *tensors, *box.members)).lower())
        return found


def graph_model(graph: Graph, folds: Sequence[Repeat] = ()) -> GraphModel:
    """Every node a box; of each repeat in `folds` the first block only, and one box for the rest."""
    boxes: list[Box] = []
    box_of: dict[str, int] = {}
    folded = {i: fold for fold in folds for i in fold.others()}
    for i, node in enumerate(graph.nodes):
        fold = folded.get(i)
        if fold is None:
            boxes.append(
                Box(node.name, one_line(node.op), node_detail(graph, node), FAMILY_OF.get(node.op, "other"), node)
            )
        elif i == fold.others().start:
            names = tuple(graph.nodes[j].name for j in fold.others())
            detail = f"equal blocks of {fold.period} nodes"
            boxes.append(Box(f"repeats of {node.name}", f"+{fold.count - 1} more", detail, "fold", None, names))
        box_of[node.name] = len(boxes) - 1
    edges: dict[Edge, str] = {}
    for name in graph.inputs:
        boxes.append(Box(name, one_line(name), _type_text(graph, name), "io"))
        for reader in graph.consumers(name):
            edges.setdefault((len(boxes) - 1, box_of[reader.name]), name)
    for node in graph.nodes:
        for tensor in node.outputs:
            for reader in graph.consumers(tensor) if tensor else ():
                edges.setdefault((box_of[node.name], box_of[reader.name]), tensor)
    for name in graph.outputs:
        boxes.append(Box(name, one_line(name), _type_text(graph, name), "io"))
        maker = graph.producer(name)
        if maker is not None:
            edges.setdefault((box_of[maker.name], len(boxes) - 1), name)
    drawn = {e: t for e, t in edges.items() if e[0] != e[1]}
    return GraphModel(graph, tuple(boxes), tuple(drawn), tuple(drawn.values()))


def node_detail(graph: Graph, node: Node) -> str:
    """The second line of a box: what tells this operator from its like."""
    out = graph.types.get(node.outputs[0]) if node.outputs else None
    shape = "x".join(map(str, out.shape)) if out else ""
    if node.op == "Conv" and len(node.inputs) > 1 and node.inputs[1] in graph.types:
        k, c, *window = graph.shape(node.inputs[1])
        groups = int(node.attrs.get("group", 1))
        strides = set(node.attrs.get("strides", ()))
        stride = f" /{next(iter(strides))}" if len(strides) == 1 and strides != {1} else ""
        return f"{'x'.join(map(str, window))}{stride}  {c * groups} → {k}" + (f"  g{groups}" if groups > 1 else "")
    if node.op in ("MatMul", "Gemm") and len(node.inputs) > 1 and node.inputs[1] in graph.types:
        return f"{'x'.join(map(str, graph.shape(node.inputs[1])))} → {shape}"
    if node.op in ("MaxPool", "AveragePool") and "kernel_shape" in node.attrs:
        return f"{'x'.join(str(int(v)) for v in node.attrs['kernel_shape'])}  → {shape}"
    return shape


def region_title(region: Region, graph: Graph) -> str:
    """ "conv + bias + relu", or the operators of a region that is not tuned."""
    if region.workload is None:
        return " + ".join(one_line(graph.node(n).op) for n in region.nodes)
    ops = [o.op for o in region.epilogue.ops]
    return " + ".join([region.kind.replace("_", " "), *ops])


def box_line(items: Sequence[str], most: int = 6) -> str:
    """Names in one line, the rest counted."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def _type_text(graph: Graph, tensor: str) -> str:
    kind = graph.types.get(tensor)
    return f"{kind.dtype}  {'x'.join(map(str, kind.shape))}" if kind else ""


def _width(box: Box) -> float:
    """Wide enough for both lines at 100 %, within bounds; longer text is elided."""
    wanted = max(len(box.title) * 8.2, len(box.detail) * 6.6) + 30
    return float(min(188.0, max(92.0, round(wanted / 4) * 4)))
