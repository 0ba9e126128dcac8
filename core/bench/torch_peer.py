"""The same graph in PyTorch, the peer of whole-model figures: eager and torch.compile, both as one CUDA graph.

The peer gets the simplified graph (constants folded, BatchNorm folded), channels-last fp16 tensors resident on the
GPU and cuDNN's autotuner: its own best form, not a handicapped one.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from core.errors import BoltError
from core.graph.ir import Graph, Node


def unsupported(graph: Graph) -> list[str]:
    """Operators of the graph that have no PyTorch form here; empty when the peer can run it."""
    return sorted({n.op for n in graph} - set(_OPS))


class TorchPeer:
    """Runs `graph` on the GPU through torch. Inputs and outputs are numpy arrays in the graph's own types."""

    def __init__(self, graph: Graph) -> None:
        import torch

        missing = unsupported(graph)
        if missing:
            raise BoltError(f"no PyTorch form for {', '.join(missing)}", "compare without PyTorch")
        torch.backends.cudnn.benchmark = True
        self._torch = torch
        self.graph = graph
        self._module = _module(torch, graph)

    def inputs(self, arrays: Mapping[str, np.ndarray]) -> list[Any]:
        return [_to_gpu(self._torch, arrays[name]) for name in self.graph.inputs]

    def run(self, tensors: list[Any]) -> list[np.ndarray]:
        with self._torch.inference_mode():
            return [t.float().cpu().numpy() for t in self._module(*tensors)]

    def captured(self, tensors: list[Any]) -> Callable[[], None]:
        """The eager model (cuDNN, cuBLAS) as one CUDA graph; call it to replay."""
        return self._capture(self._module, tensors)

    def captured_compiled(self, tensors: list[Any]) -> tuple[Callable[[], None], float]:
        """(torch.compile max-autotune as one CUDA graph, seconds it took to compile)."""
        begin = time.perf_counter()
        compiled = self._torch.compile(self._module, mode="max-autotune-no-cudagraphs", fullgraph=True)
        with self._torch.inference_mode():
            compiled(*tensors)
        self._torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        return self._capture(compiled, tensors), seconds

    def time_choices_under(self, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """Each timing that torch.compile takes while it chooses is taken inside `turn()`: other models may compile
        beside this one and still none is in another's figures.
        """
        from torch._inductor.runtime.benchmarking import benchmarker

        timed, depth = benchmarker.benchmark_gpu, 0

        def in_turn(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth:  # a timing of several parts calls itself
                return timed(*args, **kwargs)
            depth += 1
            try:
                with turn():
                    return timed(*args, **kwargs)
            finally:
                depth -= 1

        benchmarker.benchmark_gpu = in_turn

    def _capture(self, call: Callable[..., Any], tensors: list[Any]) -> Callable[[], None]:
        torch = self._torch
        with torch.inference_mode():
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(3):
                    call(*tensors)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept = call(*tensors)

        def replay() -> None:
            graph.replay()

        replay.outputs = kept  # type: ignore[attr-defined]  # the graph writes there, so it must stay allocated
        return replay


def _to_gpu(torch: Any, array: np.ndarray) -> Any:
    # torch warns of memory it may not write to: constants may be views of one number or of the file's bytes.
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"])).cuda()
    if tensor.is_floating_point():
        tensor = tensor.half()
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _module(torch: Any, graph: Graph) -> Any:
    class GraphModule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            used = dict.fromkeys(t for n in graph for t in n.inputs if t in graph.constants)
            self.slots = {}
            for index, name in enumerate(used):
                array = graph.constants[name]
                if array.dtype.kind == "f":  # integers stay Python values: axes, shapes
                    self.register_buffer(f"c{index}", _to_gpu(torch, array), persistent=False)
                    self.slots[name] = f"c{index}"

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            values: dict[str, Any] = dict(zip(graph.inputs, inputs, strict=True))
            for name, slot in self.slots.items():
                values[name] = getattr(self, slot)
            for node in graph:
                read = [values.get(t, graph.constants.get(t)) if t else None for t in node.inputs]
                result = _OPS[node.op](torch, node, read, graph)
                made = result if isinstance(result, tuple) else (result,)
                values.update(zip(node.outputs, made, strict=False))
            return tuple(values[t] for t in graph.outputs)

    return GraphModule().eval()


def _padded(torch: Any, x: Any, node: Node, value: float) -> tuple[Any, list[int]]:
    """Split ONNX pads (begin..., end...) into what the operator takes (symmetric) and an explicit pad of the rest."""
    spatial = x.dim() - 2
    pads = list(node.attrs.get("pads", [0] * 2 * spatial))
    begin, end = pads[:spatial], pads[spatial:]
    if begin == end:
        return x, begin
    flat = [p for pair in reversed(list(zip(begin, end, strict=True))) for p in pair]
    return torch.nn.functional.pad(x, flat, value=value), [0] * spatial


def _conv(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
    x, pad = _padded(torch, read[0], node, 0.0)
    attrs, spatial = node.attrs, read[0].dim() - 2
    call = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[spatial - 1]
    ones = [1] * spatial
    bias = read[2] if len(read) > 2 else None
    stride, dilation = list(attrs.get("strides", ones)), list(attrs.get("dilations", ones))
    return call(x, read[1], bias, stride, pad, dilation, attrs.get("group", 1))


def _gemm(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
    a = read[0].t() if node.attrs.get("transA", 0) else read[0]
    b = read[1].t() if node.attrs.get("transB", 0) else read[1]
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    if len(read) < 3 or read[2] is None:
        return alpha * (a @ b) if alpha != 1.0 else a @ b
    return torch.addmm(read[2], a, b, beta=beta, alpha=alpha)


def _max_pool(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
    x, pad = _padded(torch, read[0], node, float("-inf"))
    attrs, ones = node.attrs, [1] * (x.dim() - 2)
    return torch.nn.functional.max_pool2d(
        x, list(attrs["kernel_shape"]), list(attrs.get("strides", ones)), pad, list(attrs.get("dilations", ones)),
        bool(attrs.get("ceil_mode", 0)),
    )  # fmt: skip


def _average_pool(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
    attrs, x = node.attrs, read[0]
    ones = [1] * (x.dim() - 2)
    pads = list(attrs.get("pads", [0, 0, 0, 0]))
    kernel, stride = list(attrs["kernel_shape"]), list(attrs.get("strides", ones))
    ceil, include = bool(attrs.get("ceil_mode", 0)), bool(attrs.get("count_include_pad", 0))
    if pads[:2] == pads[2:]:
        return torch.nn.functional.avg_pool2d(x, kernel, stride, pads[:2], ceil, include)
    flat = [pads[1], pads[3], pads[0], pads[2]]
    total = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(x, flat), kernel, stride, 0, ceil)
    if include:
        return total
    inside = torch.nn.functional.pad(torch.ones_like(x[:1, :1]), flat)
    return total / torch.nn.functional.avg_pool2d(inside, kernel, stride, 0, ceil)


def _axes(node: Node, read: list[Any], position: int = 1) -> list[int] | None:
    if len(read) > position and read[position] is not None:
        return [int(v) for v in np.asarray(read[position]).reshape(-1)]
    return [int(v) for v in node.attrs["axes"]] if "axes" in node.attrs else None


def _reduce(name: str) -> Callable[..., Any]:
    def call(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
        axes = _axes(node, read) or list(range(read[0].dim()))
        return getattr(torch, name)(read[0], axes, keepdim=bool(node.attrs.get("keepdims", 1)))

    return call


def _clip(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
    bounds = [None if v is None else float(graph.constants[t]) for v, t in zip(read[1:], node.inputs[1:], strict=True)]
    low, high = [*bounds, None, None][:2]
    return torch.clamp(read[0], low, high)


def _unary(call: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda torch, node, read, graph: call(torch, read[0])


def _layer_norm(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
    axis = node.attrs.get("axis", -1) % read[0].dim()
    shape = list(graph.shape(node.inputs[0])[axis:])
    bias = read[2].reshape(shape) if len(read) > 2 and read[2] is not None else None
    return torch.nn.functional.layer_norm(read[0], shape, read[1].reshape(shape), bias, node.attrs.get("epsilon", 1e-5))


def _reshape(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
    return read[0].reshape(list(graph.shape(node.output)))


def _lrn(torch: Any, node: Node, read: list[Any], graph: Graph) -> Any:
    attrs = node.attrs
    return torch.nn.functional.local_response_norm(
        read[0], attrs["size"], attrs.get("alpha", 1e-4), attrs.get("beta", 0.75), attrs.get("bias", 1.0)
    )


_OPS: dict[str, Callable[..., Any]] = {
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": lambda torch, node, read, graph: read[0] @ read[1],
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda torch, node, read, graph: read[0].mean((2, 3), keepdim=True),
    "Relu": _unary(lambda torch, x: torch.relu(x)),
    "Sigmoid": _unary(lambda torch, x: torch.sigmoid(x)),
    "Tanh": _unary(lambda torch, x: torch.tanh(x)),
    "Erf": _unary(lambda torch, x: torch.erf(x)),
    "Softplus": _unary(lambda torch, x: torch.nn.functional.softplus(x)),
    "HardSwish": _unary(lambda torch, x: torch.nn.functional.hardswish(x)),
    "Sqrt": _unary(lambda torch, x: torch.sqrt(x)),
    "Clip": _clip,
    "Gelu": lambda torch, node, read, graph: torch.nn.functional.gelu(
        read[0], approximate=node.attrs.get("approximate", "none")
    ),
    "Add": lambda torch, node, read, graph: read[0] + read[1],
    "Sub": lambda torch, node, read, graph: read[0] - read[1],
    "Mul": lambda torch, node, read, graph: read[0] * read[1],
    "Div": lambda torch, node, read, graph: read[0] / read[1],
    "Sum": lambda torch, node, read, graph: sum(read[1:], read[0]),
    "Concat": lambda torch, node, read, graph: torch.cat(read, node.attrs["axis"]),
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": lambda torch, node, read, graph: read[0].permute(list(node.attrs["perm"])),
    "Softmax": lambda torch, node, read, graph: torch.softmax(read[0], node.attrs.get("axis", -1)),
    "LayerNormalization": _layer_norm,
    "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"),
    "LRN": _lrn,
}
