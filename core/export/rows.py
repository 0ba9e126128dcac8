"""Which nodes can run in one pass over rows: reductions and normalisations with their pointwise neighbours.

All of them work on tensors of one shape, reduced over one set of axes. A tensor of the group is full (that shape), or
one value for each row (that shape with the axes at 1), or broadcasts against it. The planner asks `row_space` whether a
group is one, the exporter how.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.export.operators import POINTWISE
from core.graph.ir import Graph, Node

# Reductions of float tensors that a row kernel computes; the pools reduce every spatial axis.
REDUCES = frozenset(
    {
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
        "ReduceProd", "ReduceSum", "ReduceSumSquare",
    }
)  # fmt: skip
SOFTMAX = frozenset({"LogSoftmax", "Softmax"})
NORMS = frozenset(
    {
        "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization",
        "MeanVarianceNormalization", "RMSNormalization",
    }
)  # fmt: skip
ROW_OPERATORS = REDUCES | SOFTMAX | NORMS
# Full tensors a kernel reads: each takes registers for its part of a row.
MOST_FULL_OPERANDS = 6


@dataclass(frozen=True)
class RowSpace:
    """`shape` with dimension 1 cut into (groups, channels of a group) where `groups` > 0; `axes` are of that shape."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    groups: int = 0

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape of full tensors in the graph."""
        return (self.shape[0], self.shape[1] * self.shape[2], *self.shape[3:]) if self.groups else self.shape

    @property
    def reduced(self) -> tuple[int, ...]:
        """One value for each row."""
        return tuple(1 if i in self.axes else e for i, e in enumerate(self.shape))

    def view(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """A broadcasting tensor's shape with this rank; None if it does not broadcast against `whole`."""
        whole = self.whole
        full = (1,) * (len(whole) - len(shape)) + tuple(shape)
        if len(full) != len(whole) or any(e not in (1, w) for e, w in zip(full, whole, strict=True)):
            return None
        if not self.groups:
            return full
        channels = (self.shape[1], self.shape[2]) if full[1] != 1 else (1, 1)
        return (full[0], *channels, *full[2:])

    def holds(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape is full or one value for each row."""
        return self.view(shape) in (self.shape, self.reduced)


def space_of(graph: Graph, node: Node) -> RowSpace | None:
    """What one of ROW_OPERATORS, or a pool over the whole image, works over; None for another node."""
    if not node.inputs or node.inputs[0] not in graph.types:
        return None
    shape = graph.shape(node.inputs[0])
    rank = len(shape)
    if node.op in ("GlobalAveragePool", "GlobalMaxPool"):
        return RowSpace(shape, tuple(range(2, rank)))
    if node.op in REDUCES:
        given = graph.constant(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
        axes = range(rank) if given is None or not given.size else given.reshape(-1)
        return RowSpace(shape, tuple(sorted({int(a) % rank for a in axes}))) if rank else None
    if node.op in SOFTMAX or node.op == "LpNormalization":
        return RowSpace(shape, (int(node.attrs.get("axis", -1)) % rank,)) if rank else None
    if node.op in ("LayerNormalization", "RMSNormalization"):
        return RowSpace(shape, tuple(range(int(node.attrs.get("axis", -1)) % rank, rank)))
    if node.op == "InstanceNormalization":
        return RowSpace(shape, tuple(range(2, rank)))
    if node.op == "MeanVarianceNormalization":
        return RowSpace(shape, tuple(sorted(int(a) % rank for a in node.attrs.get("axes", (0, 2, 3)))))
    if node.op == "GroupNormalization":
        groups = int(node.attrs["num_groups"])
        split = (shape[0], groups, shape[1] // groups, *shape[2:])
        return RowSpace(split, tuple(range(2, len(split))), groups)
    return None


def row_space(graph: Graph, nodes: Sequence[Node]) -> RowSpace | str:
    """The space that these nodes share, or the reason why they are no single pass over rows."""
    spaces = [(n, s) for n in nodes if (s := space_of(graph, n)) is not None]
    if not spaces:
        return "none of the nodes reduces a row"
    first, space = spaces[0]
    for node in nodes:
        objection = row_objection(graph, space, nodes, node)
        if objection:
            return f"{objection}, {first.name} works on rows of {space.whole} over dimensions {space.axes}"
    made = {t for n in nodes for t in n.outputs if t}
    full = {
        t for n in nodes for t in n.inputs
        if t and t not in made and t not in graph.constants and space.view(graph.shape(t)) == space.shape
    }  # fmt: skip
    if len(full) > MOST_FULL_OPERANDS:
        return f"it reads {len(full)} whole tensors, a row kernel holds {MOST_FULL_OPERANDS}"
    return space


def row_objection(graph: Graph, space: RowSpace, nodes: Sequence[Node], node: Node) -> str | None:
    """Why `node` can't be one of `nodes` in a pass over this space; None if it can."""
    names = {n.name for n in nodes}
    if node.op in ROW_OPERATORS:
        own = space_of(graph, node)
        if own is None or (own.whole, own.shape, own.axes) != (space.whole, space.shape, space.axes):
            return f"{node.name} ({node.op}) reduces other rows"
        if not graph.types[node.inputs[0]].dtype.is_float:
            return f"{node.name} ({node.op}) reduces {graph.types[node.inputs[0]].dtype}"
        dropped = node.op in REDUCES and not node.attrs.get("keepdims", 1)
        if dropped and any(r.name in names for r in graph.consumers(node.output)):
            return f"{node.name} ({node.op}) drops the dimensions that it reduces, before a node of the group"
        return None
    if node.op not in POINTWISE:
        return f"{node.name} ({node.op}) is neither pointwise nor a reduction"
    if len(node.outputs) > 1 or not space.holds(graph.shape(node.output)):
        return f"{node.name} ({node.op}) makes another shape"
    if any(space.view(graph.shape(t)) is None for t in node.inputs if t):
        return f"{node.name} ({node.op}) reads a tensor that does not broadcast to the rows"
    return None
