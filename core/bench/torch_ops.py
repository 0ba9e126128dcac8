"""What each ONNX operator is in PyTorch. A node is prepared once, with everything that is constant about it read from
the graph, and gives a function of tensors alone: that is all torch.compile gets to see.
"""

from collections.abc import Callable
from typing import Any

from core.graph.ir import Graph, Node

# Tensors of the node's inputs in order, None for one that is left out or is no tensor -> its output, or a tuple.
Call = Callable[[list[Any]], Any]


def prepared(torch: Any, node: Node, graph: Graph) -> Call:
    """The node as a function of tensors. Raises KeyError for an operator that has no form here."""
    return OPS[node.op](torch, node, graph)


def _numbers(node: Node, graph: Graph, position: int) -> list[Any] | None:
    """The constant at an input, flattened into Python numbers; None where there is no such input."""
    found = _constant(node, graph, position)
    return None if found is None else list(found.reshape(-1).tolist())


def _constant(node: Node, graph: Graph, position: int) -> Any:
    name = node.inputs[position] if len(node.inputs) > position else ""
    return graph.constants.get(name) if name else None


def _axes(node: Node, graph: Graph) -> list[int]:
    found = _numbers(node, graph, 1) or node.attrs.get("axes")
    return [int(v) for v in found] if found else list(range(len(graph.shape(node.inputs[0]))))


def _tensor(read: list[Any], position: int) -> Any:
    return read[position] if len(read) > position else None


def _padding(torch: Any, node: Node, spatial: int, value: float) -> tuple[Callable[[Any], Any], list[int]]:
    """ONNX pads (begin..., end...) as what the operator takes, symmetric, and a pad of its own for the rest."""
    pads = list(node.attrs.get("pads", [0] * 2 * spatial))
    begin, end = pads[:spatial], pads[spatial:]
    if begin == end:
        return lambda x: x, begin
    flat = [p for pair in reversed(list(zip(begin, end, strict=True))) for p in pair]
    return lambda x: torch.nn.functional.pad(x, flat, value=value), [0] * spatial


def _conv(torch: Any, node: Node, graph: Graph) -> Call:
    spatial = len(graph.shape(node.inputs[0])) - 2
    pad, padding = _padding(torch, node, spatial, 0.0)
    call = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[spatial - 1]
    stride = list(node.attrs.get("strides", [1] * spatial))
    dilation, groups = list(node.attrs.get("dilations", [1] * spatial)), node.attrs.get("group", 1)
    return lambda read: call(pad(read[0]), read[1], _tensor(read, 2), stride, padding, dilation, groups)


def _pow(torch: Any, node: Node, graph: Graph) -> Call:
    exponent = _numbers(node, graph, 1)
    if exponent is not None and len(exponent) == 1:  # a number, so that squares and cubes are no general powers
        return lambda read: read[0] ** exponent[0]
    return lambda read: read[0] ** read[1]


def _gemm(torch: Any, node: Node, graph: Graph) -> Call:
    turn_a, turn_b = bool(node.attrs.get("transA", 0)), bool(node.attrs.get("transB", 0))
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)

    def call(read: list[Any]) -> Any:
        a, b = read[0].t() if turn_a else read[0], read[1].t() if turn_b else read[1]
        c = _tensor(read, 2)
        if c is not None:
            return torch.addmm(c, a, b, beta=beta, alpha=alpha)
        return alpha * (a @ b) if alpha != 1.0 else a @ b

    return call


def _max_pool(torch: Any, node: Node, graph: Graph) -> Call:
    attrs, spatial = node.attrs, len(graph.shape(node.inputs[0])) - 2
    pad, padding = _padding(torch, node, spatial, float("-inf"))
    ones, kernel = [1] * spatial, list(attrs["kernel_shape"])
    stride, dilation = list(attrs.get("strides", ones)), list(attrs.get("dilations", ones))
    ceil, pool = bool(attrs.get("ceil_mode", 0)), torch.nn.functional.max_pool2d
    return lambda read: pool(pad(read[0]), kernel, stride, padding, dilation, ceil)


def _average_pool(torch: Any, node: Node, graph: Graph) -> Call:
    attrs, spatial = node.attrs, len(graph.shape(node.inputs[0])) - 2
    kernel, stride = list(attrs["kernel_shape"]), list(attrs.get("strides", [1] * spatial))
    ceil, include = bool(attrs.get("ceil_mode", 0)), bool(attrs.get("count_include_pad", 0))
    pads = list(attrs.get("pads", [0] * 2 * spatial))
    pool = torch.nn.functional.avg_pool2d
    if pads[:spatial] == pads[spatial:]:
        return lambda read: pool(read[0], kernel, stride, pads[:spatial], ceil, include)
    pad, _ = _padding(torch, node, spatial, 0.0)

    def call(read: list[Any]) -> Any:
        total = pool(pad(read[0]), kernel, stride, 0, ceil)
        return total if include else total / pool(pad(torch.ones_like(read[0][:1, :1])), kernel, stride, 0, ceil)

    return call


def _reduce(name: str) -> Callable[[Any, Node, Graph], Call]:
    def prepare(torch: Any, node: Node, graph: Graph) -> Call:
        axes, keep, call = _axes(node, graph), bool(node.attrs.get("keepdims", 1)), getattr(torch, name)
        return lambda read: call(read[0], axes, keepdim=keep)

    return prepare


def _clip(torch: Any, node: Node, graph: Graph) -> Call:
    low, high = (None if v is None else float(v[0]) for v in (_numbers(node, graph, 1), _numbers(node, graph, 2)))
    low, high = node.attrs.get("min", low), node.attrs.get("max", high)
    return lambda read: torch.clamp(read[0], low, high)


def _layer_norm(torch: Any, node: Node, graph: Graph) -> Call:
    whole = graph.shape(node.inputs[0])
    shape, epsilon = list(whole[node.attrs.get("axis", -1) % len(whole) :]), node.attrs.get("epsilon", 1e-5)

    def call(read: list[Any]) -> Any:
        bias = _tensor(read, 2)
        bias = None if bias is None else bias.reshape(shape)
        return torch.nn.functional.layer_norm(read[0], shape, read[1].reshape(shape), bias, epsilon)

    return call


def _reshape(torch: Any, node: Node, graph: Graph) -> Call:
    shape = list(graph.shape(node.output))
    return lambda read: read[0].reshape(shape)


def _lrn(torch: Any, node: Node, graph: Graph) -> Call:
    attrs = node.attrs
    size, alpha, beta, bias = attrs["size"], attrs.get("alpha", 1e-4), attrs.get("beta", 0.75), attrs.get("bias", 1.0)
    return lambda read: torch.nn.functional.local_response_norm(read[0], size, alpha, beta, bias)


def _concat(torch: Any, node: Node, graph: Graph) -> Call:
    axis = node.attrs["axis"]
    return lambda read: torch.cat(read, axis)


def _transpose(torch: Any, node: Node, graph: Graph) -> Call:
    order = list(node.attrs.get("perm", range(len(graph.shape(node.inputs[0])))[::-1]))
    return lambda read: read[0].permute(order)


def _softmax(torch: Any, node: Node, graph: Graph) -> Call:
    axis = node.attrs.get("axis", -1)
    return lambda read: torch.softmax(read[0], axis)


def _attention(torch: Any, node: Node, graph: Graph) -> Call:
    """Without past keys and values, further outputs and softcap, as our own kernels have it."""
    attrs, packed = node.attrs, len(graph.shape(node.inputs[0])) == 3
    heads = (attrs.get("q_num_heads", 0), attrs.get("kv_num_heads", 0), attrs.get("kv_num_heads", 0))
    scale, causal = attrs.get("scale"), bool(attrs.get("is_causal", 0))
    call = torch.nn.functional.scaled_dot_product_attention

    def attend(read: list[Any]) -> Any:
        q, k, v = read[:3]
        if packed:
            q, k, v = (x.unflatten(2, (n, -1)).transpose(1, 2) for x, n in zip((q, k, v), heads, strict=True))
        mask, grouped = _tensor(read, 3), q.shape[1] != k.shape[1]
        if causal and mask is not None:  # torch takes one of them
            seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
            mask = mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, float("-inf"))
        y = call(q, k, v, attn_mask=mask, is_causal=causal and mask is None, scale=scale, enable_gqa=grouped)
        return y.transpose(1, 2).flatten(2) if packed else y

    return attend


def _gelu(torch: Any, node: Node, graph: Graph) -> Call:
    form = node.attrs.get("approximate", "none")
    return lambda read: torch.nn.functional.gelu(read[0], approximate=form)


def _gather(torch: Any, node: Node, graph: Graph) -> Call:
    axis, indices = node.attrs.get("axis", 0), _constant(node, graph, 1)
    if indices is None:
        return lambda read: read[0][(slice(None),) * (axis % read[0].dim()) + (read[1],)]
    at = (slice(None),) * (axis % len(graph.shape(node.inputs[0]))) + (indices.tolist(),)
    return lambda read: read[0][at]


def _plain(of: Callable[[Any], Call]) -> Callable[[Any, Node, Graph], Call]:
    """An operator without attributes: `of` takes torch and gives the function."""
    return lambda torch, node, graph: of(torch)


def _first(name: str, functional: bool = False) -> Callable[[Any, Node, Graph], Call]:
    """An operator of one tensor that torch has under `name`."""

    def of(torch: Any) -> Call:
        call = getattr(torch.nn.functional if functional else torch, name)
        return lambda read: call(read[0])

    return _plain(of)


OPS: dict[str, Callable[[Any, Node, Graph], Call]] = {
    "Attention": _attention,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _plain(lambda torch: lambda read: read[0] @ read[1]),
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _plain(lambda torch: lambda read: read[0].mean((2, 3), keepdim=True)),
    "Relu": _first("relu"),
    "Sigmoid": _first("sigmoid"),
    "Tanh": _first("tanh"),
    "Erf": _first("erf"),
    "Sqrt": _first("sqrt"),
    "Softplus": _first("softplus", functional=True),
    "HardSwish": _first("hardswish", functional=True),
    "Clip": _clip,
    "Gelu": _gelu,
    "Add": _plain(lambda torch: lambda read: read[0] + read[1]),
    "Sub": _plain(lambda torch: lambda read: read[0] - read[1]),
    "Mul": _plain(lambda torch: lambda read: read[0] * read[1]),
    "Div": _plain(lambda torch: lambda read: read[0] / read[1]),
    "Pow": _pow,
    "Sum": _plain(lambda torch: lambda read: sum(read[1:], read[0])),
    "Concat": _concat,
    "Gather": _gather,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": _transpose,
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"),
    "LRN": _lrn,
}
