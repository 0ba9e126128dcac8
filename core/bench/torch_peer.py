"""The same graph in PyTorch, the peer of whole-model figures: eager and torch.compile, both as one CUDA graph.

The peer gets the simplified graph (constants folded, BatchNorm folded), channels-last fp16 tensors resident on the
GPU and cuDNN's autotuner: its own best form, not a handicapped one.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from core.bench.torch_ops import OPS, prepared
from core.errors import BoltError
from core.graph.ir import Graph


def unsupported(graph: Graph) -> list[str]:
    """Operators of the graph that have no PyTorch form here; empty when the peer can run it."""
    return sorted({n.op for n in graph} - set(OPS))


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
        """(torch.compile max-autotune as one CUDA graph, seconds of compiling). Raises BoltError when it fails."""
        begin = time.perf_counter()
        compiled = self._torch.compile(self._module, mode="max-autotune-no-cudagraphs", fullgraph=True)
        try:
            with self._torch.inference_mode():
                compiled(*tensors)
        except Exception as error:  # a compiler of someone else's: it may raise anything, and the rest goes on without
            said = str(error).strip().splitlines() or [""]
            raise BoltError(f"torch.compile failed: {type(error).__name__}: {said[0]}", "use --no-compile") from error
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
        """Every value of the graph is a slot of a list. What runs is lists and functions: torch.compile traces them."""

        def __init__(self) -> None:
            super().__init__()
            slots = {name: i for i, name in enumerate(graph.inputs)}
            self.buffers_at: list[tuple[int, str]] = []
            for name in dict.fromkeys(t for n in graph for t in n.inputs if t in graph.constants):
                if graph.constants[name].dtype.kind == "f":  # integers are read when a node is prepared
                    slots[name] = len(slots)
                    self.buffers_at.append((slots[name], f"c{slots[name]}"))
                    self.register_buffer(f"c{slots[name]}", _to_gpu(torch, graph.constants[name]), persistent=False)
            self.steps = []
            for node in graph:
                reads = [slots.get(t) if t else None for t in node.inputs]
                writes = [slots.setdefault(t, len(slots)) for t in node.outputs if t]
                self.steps.append((prepared(torch, node, graph), reads, writes))
            self.slot_count, self.results = len(slots), [slots[t] for t in graph.outputs]

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            values: list[Any] = [*inputs, *[None] * (self.slot_count - len(inputs))]
            for slot, name in self.buffers_at:
                values[slot] = getattr(self, name)
            for call, reads, writes in self.steps:
                made = call([None if r is None else values[r] for r in reads])
                for slot, value in zip(writes, made if isinstance(made, tuple) else (made,), strict=False):
                    values[slot] = value
            return tuple(values[r] for r in self.results)

    return GraphModule().eval()
