"""Channel shuffles (ShuffleNet, arXiv 1707.01083): found as one copy, or absorbed into the convolution in front."""

from dataclasses import replace

import numpy as np

from core.export.operators import UNARY
from core.fusion.values import attr, many_readers, uncompilable
from core.graph.ir import Graph, Node
from core.graph.proto import type_of
from core.graph.walk import names_of

# FLOPs for each byte up to which a product waits for memory, zeros among its weights or not: below the balance of fp16
# tensor cores and memory of an A100 (156), H200 (206) and T4 (203).
_MEMORY_BOUND = 150.0


def channel_shuffle(graph: Graph, first: Node) -> tuple[Node, Node, Node] | None:
    """Reshape - Transpose - Reshape that interleaves groups of channels, if `first` starts one."""
    chain = [first]
    while len(chain) < 3:
        readers = graph.consumers(chain[-1].output)
        if len(readers) != 1 or chain[-1].output in graph.outputs:
            return None
        chain.append(readers[0])
    reshape, transpose, back = chain
    if (reshape.op, transpose.op, back.op) != ("Reshape", "Transpose", "Reshape") or any(
        uncompilable(graph, n) for n in chain
    ):
        return None
    before, split = graph.shape(reshape.inputs[0]), graph.shape(reshape.output)
    if len(before) < 3 or split != (before[0], split[1], split[2], *before[2:]) or split[1] * split[2] != before[1]:
        return None
    swapped = [0, 2, 1, *range(3, len(split))]
    if list(transpose.attrs.get("perm", ())) != swapped or graph.shape(back.output) != before:
        return None
    return reshape, transpose, back


def absorb_shuffles(graph: Graph) -> Graph:
    """Channel shuffles into the order of the filters in front of them, where nothing else reads between.

    A grouped 1x1 convolution then becomes an ungrouped one, its filters zero outside their group, where that product is
    bound by memory: it moves the same activations and spares the copy. Proves: the sums are the same, terms of zero
    added, for finite activations.
    """
    changed: dict[str, Node] = {}
    gone: set[str] = set()
    constants, types, absorbed, names = dict(graph.constants), dict(graph.types), dict(graph.absorbed), names_of(graph)
    for node in graph:
        shuffle = channel_shuffle(graph, node) if node.op == "Reshape" else None
        chain = _up_to_conv(graph, node.inputs[0]) if shuffle else None
        if not shuffle or not chain or not _takes_any_order(graph, chain[0]):
            continue
        conv, last = chain[0], chain[-1]
        _, groups, each, *_ = graph.shape(node.output)
        order = np.arange(groups * each).reshape(groups, each).T.reshape(-1)
        inputs = [conv.inputs[0]]
        for tensor, value in zip(conv.inputs[1:], _reordered(graph, conv, order), strict=True):
            inputs.append(names.take(f"{tensor}/shuffled"))
            constants[inputs[-1]], types[inputs[-1]] = value, type_of(value)
        changed[conv.name] = replace(conv, inputs=tuple(inputs), attrs={**conv.attrs, "group": 1})
        changed[last.name] = replace(changed.get(last.name, last), outputs=(shuffle[2].output,))
        gone.update(n.name for n in shuffle)
        absorbed.update({n.name: f"folded into the order of the filters of {conv.name}" for n in shuffle})
    if not gone:
        return graph
    nodes = [changed.get(n.name, n) for n in graph if n.name not in gone]
    return graph.replaced(nodes, constants=constants, types=types, absorbed=absorbed)


def _up_to_conv(graph: Graph, tensor: str) -> list[Node] | None:
    """A Conv with constant filters and the unary nodes after it that make the tensor, each read by the next only."""
    chain: list[Node] = []
    while (node := graph.producer(tensor)) is not None and not node.domain:
        if many_readers(graph, node, tensor) or uncompilable(graph, node):
            return None
        chain.insert(0, node)
        if node.op == "Conv":
            return chain if all(graph.constant(t) is not None for t in node.inputs[1:]) else None
        if node.op not in UNARY:
            return None
        tensor = node.inputs[0]
    return None


def _takes_any_order(graph: Graph, conv: Node) -> bool:
    groups, filters = int(attr(conv, "group", 1)), graph.shape(conv.inputs[1])
    if groups == 1:
        return True
    shape, out = graph.shape(conv.inputs[0]), graph.shape(conv.output)
    if groups == shape[1] or any(e != 1 for e in filters[2:]) or any(attr(conv, "pads", ())):
        return False
    channels, rows = shape[1], out[0] * int(np.prod(out[2:]))
    flops = 2.0 * rows * channels * out[1]
    return flops <= _MEMORY_BOUND * 2.0 * (rows * channels + rows * out[1] + channels * out[1])


def _reordered(graph: Graph, conv: Node, order: np.ndarray) -> list[np.ndarray]:
    """Filters (ungrouped) and, where there is one, bias of the conv in this order of output channels."""
    groups, weight = int(attr(conv, "group", 1)), graph.constants[conv.inputs[1]]
    if groups > 1:
        filters, each = weight.shape[:2]
        wide = np.zeros((filters, groups * each, *weight.shape[2:]), weight.dtype)
        for k in range(filters):
            first = k // (filters // groups) * each
            wide[k, first : first + each] = weight[k]
        weight = wide
    return [weight[order], *(graph.constants[t][order] for t in conv.inputs[2:] if t)]
