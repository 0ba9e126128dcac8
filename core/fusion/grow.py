"""Epilogue fusion: growing an anchor along its chain of single readers (paper section 3.1)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from core.fusion.patterns import activation
from core.fusion.plan import Operands
from core.fusion.steps import Chain, Link, step
from core.fusion.values import many_readers, uncompilable
from core.fusion.workload_of import Anchor
from core.graph.ir import Graph, Node
from templates.epilogue import Epilogue, EpilogueOp
from templates.types import DType

_LARGEST = 3.4028235e38


@dataclass
class Growth:
    """An anchor and the chain that joined it. `stopped_at` is the node that could not join, None at a model output."""

    anchor: Anchor
    nodes: list[Node]
    ops: list[EpilogueOp]
    operands: Operands
    output: DType
    tensor: str
    stop_reason: str = ""
    stopped_at: list[Node] = field(default_factory=list)

    @property
    def epilogue(self) -> Epilogue:
        return Epilogue(tuple(self.ops), self.output)


def grow(
    graph: Graph,
    anchor: Anchor,
    native: DType,
    dtype: DType,
    refuse: Callable[[Node], str | None],
    forbidden: Sequence[frozenset[str]] = (),
) -> Growth:
    """Take nodes after the anchor while each is a legal next step. `refuse` names a reason to leave a node out, no
    region holds all nodes of one of the `forbidden` groups.
    """
    seed = anchor.workload.epilogue
    grown = Growth(anchor, [anchor.node], list(seed.ops), anchor.operands, seed.output, anchor.node.output)
    while not grown.stop_reason:
        link = _next(graph, grown, native, dtype, refuse)
        if isinstance(link, Link):
            link = banned([n.name for n in (*grown.nodes, *link.nodes)], forbidden) or link
        if isinstance(link, str):
            grown.stop_reason = link
            grown.stopped_at = list(graph.consumers(grown.tensor))
            break
        grown.nodes.extend(link.nodes)
        grown.ops.extend(link.ops)
        grown.tensor = link.output
        grown.output = link.dtype or grown.output
        bias, source = link.bias or grown.operands.bias, link.source or grown.operands.source
        grown.operands = replace(grown.operands, bias=bias, source=source)
    return grown


def banned(nodes: Sequence[str], forbidden: Sequence[frozenset[str]]) -> str | None:
    """Why these nodes may not be one region: the forbidden group that is among them."""
    inside = frozenset(nodes)
    ban = next((b for b in forbidden if b <= inside), None)
    return f"the plan forbids fusing {' + '.join(n for n in dict.fromkeys(nodes) if n in ban)}" if ban else None


def _next(graph: Graph, grown: Growth, native: DType, dtype: DType, refuse: Callable[[Node], str | None]) -> Link | str:
    x, last = grown.tensor, grown.nodes[-1]
    readers = graph.consumers(x)
    if not readers:
        return f"the output of {last.name} is an output of the model"
    pattern = activation(graph, x, native, lambda node: refuse(node) is None)
    if pattern is not None:
        return _admissible(grown, pattern) or pattern
    reason = many_readers(graph, last, x)
    if reason:
        return reason
    unknown = uncompilable(graph, readers[0])
    if unknown:
        return unknown
    chain = Chain(graph.types[x], grown.anchor.axis, native, dtype)
    link = step(graph, readers[0], x, chain)
    if isinstance(link, str):
        return link
    return refuse(readers[0]) or _admissible(grown, link) or link


def _admissible(grown: Growth, link: Link) -> str | None:
    """Why the link can't follow what the chain already holds: one bias, one source, one conversion at the end."""
    operands, name = grown.operands, link.nodes[-1].name
    # Kernels take parameters as float32; an infinite one is an open end.
    if any(math.isnan(p) or (math.isfinite(p) and abs(p) > _LARGEST) for op in link.ops for p in op.params):
        return f"a constant of {name} is no number, or beyond float32"
    if link.bias and operands.bias:
        return f"{name} is a second bias after {operands.bias}, an epilogue takes one"
    if link.source and operands.source:
        return f"{name} reads {link.source}, a second tensor after {operands.source}; an epilogue takes one"
    if link.dtype is not None and operands.source:
        return f"{name} converts the output to {link.dtype}, but the source tensor {operands.source} is {grown.output}"
    converted = grown.output != grown.anchor.workload.epilogue.output
    if converted and (link.ops or link.dtype is not None):
        return f"the result is already converted to {grown.output} before {name}"
    return None
