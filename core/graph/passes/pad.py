"""Pad of zeros in front of a window. Proves: the window reads the same values from its own padding.

Conv and AveragePool that counts its padding read zeros there. MaxPool reads minus infinity, which is the same where
the padded tensor is never negative and every window covers at least one element of it.
"""

from dataclasses import replace

import numpy as np

from core.graph.ir import Graph, Node

_NEVER_NEGATIVE = ("Relu", "Sigmoid", "Abs", "Exp", "Softmax", "HardSigmoid", "Softplus")


def fold_pad(graph: Graph) -> Graph:
    """Moves a constant Pad of zeros into the pads of the Conv, AveragePool or MaxPool that alone reads it."""
    kept: dict[str, Node] = {}
    absorbed = dict(graph.absorbed)
    for node in graph.nodes:
        pad = graph.producer(node.inputs[0]) if node.inputs else None
        joined = _joined(graph, pad, node) if pad is not None and pad.op == "Pad" and not pad.domain else None
        if joined is not None and pad is not None:
            del kept[pad.name]
            absorbed[pad.name] = f"folded into {node.name}"
        kept[node.name] = joined or node
    return graph.replaced(kept.values(), absorbed=absorbed)


def _joined(graph: Graph, pad: Node, node: Node) -> Node | None:
    if node.domain or node.op not in ("Conv", "AveragePool", "MaxPool") or len(node.outputs) > 1:
        return None
    if pad.output in graph.outputs or graph.consumers(pad.output) != (node,) or pad.output in node.inputs[1:]:
        return None
    amounts = _zero_pads(graph, pad)
    own = node.attrs.get("pads")
    if amounts is None or own is None or node.attrs.get("ceil_mode", 0) or any(amounts[0][:2] + amounts[1][:2]):
        return None
    added = (*amounts[0][2:], *amounts[1][2:])
    attrs = {**node.attrs, "pads": tuple(a + b for a, b in zip(own, added, strict=True))}
    # A window of nothing but padding has no maximum, and runtimes refuse pools that could have one.
    if node.op != "Conv" and any(p >= k for p, k in zip(attrs["pads"], attrs["kernel_shape"] * 2, strict=True)):
        return None
    if node.op == "AveragePool":
        if any(own) and not node.attrs.get("count_include_pad", 0):
            return None
        attrs["count_include_pad"] = 1
    if node.op == "MaxPool" and not _max_allows(graph, pad, attrs):
        return None
    return replace(node, inputs=(pad.inputs[0], *node.inputs[1:]), attrs=attrs)


def _max_allows(graph: Graph, pad: Node, attrs: dict) -> bool:
    maker = graph.producer(pad.inputs[0])
    return maker is not None and maker.op in _NEVER_NEGATIVE and set(attrs["dilations"]) == {1}


def _zero_pads(graph: Graph, pad: Node) -> tuple[list[int], list[int]] | None:
    """(begins, ends) for every dimension, if the pad is of constant extent, none negative, and adds zeros."""
    if pad.attrs.get("mode", "constant") != "constant" or pad.inputs[0] not in graph.types:
        return None
    pads = graph.constant(pad.inputs[1])
    value = graph.constant(pad.inputs[2]) if len(pad.inputs) > 2 and pad.inputs[2] else np.zeros(1)
    if pads is None or value is None or value.any() or (pads < 0).any():
        return None
    rank = len(graph.shape(pad.inputs[0]))
    axes: list[int] = list(range(rank))
    if len(pad.inputs) > 3 and pad.inputs[3]:
        given = graph.constant(pad.inputs[3])
        if given is None:
            return None
        axes = [int(a) % rank for a in given]
    begins, ends = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        begins[axis], ends[axis] = int(pads[i]), int(pads[i + len(axes)])
    return begins, ends
