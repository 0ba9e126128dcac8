"""cuDNN through the graph API of nvidia-cudnn-frontend: NHWC convolution with the steps it can fuse.

Every execution plan the heuristics propose is built and becomes a peer. The library fuses what it can of the chain;
when no plan supports the whole of it, a shorter prefix is tried and the rest runs as a kernel of its own. Plans depend
on the workload alone: they can be built, one at a time, before there are operands (`prepare`).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

from core.vendor import WORKSPACE_BYTES, Peer, VendorAbsent, VendorContext, VendorError, described
from core.vendor.libraries import load
from templates.epilogue import Epilogue, EpilogueOp
from templates.types import DType
from templates.workload import ConvWorkload

MAX_PLANS = 10
# Of processor time, so that compilers beside cost the library no plan. Run-time compiled engines take up to seconds
# each; the best are proposed first.
BUILD_SECONDS = 8.0
_KEPT = 256  # workloads whose plans are kept
_X, _W, _BIAS, _SOURCE, _Y = 1, 2, 3, 4, 5


class CuDnn:
    """The frontend package and a handle on the current context."""

    def __init__(self) -> None:
        # The engines look these up by name when they compile or run; the package's own copies must be the ones found.
        for name, majors in (("nvrtc", (13, 12)), ("cublasLt", (13, 12)), ("cublas", (13, 12)), ("cudnn", (9,))):
            load(name, majors, share=True)
        try:
            self.api: Any = importlib.import_module("cudnn")
        except ImportError as error:
            raise VendorAbsent(f"nvidia-cudnn-frontend is not installed ({error})") from None
        try:
            self.handle = self.api.create_handle()
            version = int(self.api.backend_version())
        except RuntimeError as error:
            raise VendorAbsent(f"libcudnn.so.9 does not work: {' '.join(str(error).split())}") from None
        self.source = f"cudnn {version // 10000}.{version // 100 % 100}.{version % 100}"

    def dtype(self, dtype: DType) -> Any:
        kinds = self.api.data_type
        known = {DType.F16: kinds.HALF, DType.BF16: kinds.BFLOAT16, DType.F32: kinds.FLOAT, DType.TF32: kinds.FLOAT}
        if dtype not in known:
            raise VendorError(f"it is not compared for the type {dtype}")
        return known[dtype]


@cache
def library() -> CuDnn:
    """The one of this process. Raises VendorAbsent."""
    return CuDnn()


def fusable(step: EpilogueOp) -> bool:
    """Whether the graph API has the step as one pointwise operation with ONNX's meaning."""
    if step.op == "elu":
        return step.params == (1.0,)
    return step.op in (
        "bias", "add", "mul", "relu", "leaky_relu", "clip", "gelu_erf", "gelu_tanh", "silu", "sigmoid", "tanh",
        "softplus",
    )  # fmt: skip


def prefixes(epilogue: Epilogue) -> Iterator[tuple[tuple[EpilogueOp, ...], tuple[EpilogueOp, ...]]]:
    """(fused, rest) from the longest fusable prefix down to nothing fused."""
    longest = next((i for i, step in enumerate(epilogue.ops) if not fusable(step)), len(epilogue.ops))
    for length in range(longest, -1, -1):
        yield epilogue.ops[:length], epilogue.ops[length:]


class PlannedGraph:
    """A cuDNN graph and the execution plans for it."""

    graph: Any
    _cudnn: CuDnn

    def plans(self) -> Iterator[int | None]:
        """Builds the plans the heuristics propose, best first, within the limits: one at each step.

        Yields its index, or None for one that can't be used. Nothing when the library does not support the graph.
        """
        modes, graph, unsupported = self._cudnn.api.heur_mode, self.graph, self._cudnn.api.cudnnGraphNotSupportedError
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
            graph.deselect_workspace_greater_than(WORKSPACE_BYTES)
            graph.check_support()
        except (unsupported, RuntimeError):
            return  # the caller tries a shorter prefix, and says so when that fails too
        built, spent, seen = 0, 0.0, set[str]()
        for index in range(graph.get_execution_plan_count()):
            if built == MAX_PLANS or spent > BUILD_SECONDS:
                return
            name = graph.get_plan_name_at_index(index)
            if name in seen:
                continue
            seen.add(name)
            began = time.process_time()
            usable = self._build(index)
            spent += time.process_time() - began
            built += usable
            yield index if usable else None

    def _build(self, index: int) -> bool:
        """False for a plan the heuristic proposes and the device can't run, or that asks for too much workspace."""
        try:
            self.graph.build_plan_at_index(index)
        except (self._cudnn.api.cudnnGraphNotSupportedError, RuntimeError):
            return False
        return bool(self.graph.get_workspace_size_plan_at_index(index) <= WORKSPACE_BYTES)


class ConvGraph(PlannedGraph):
    """One cuDNN graph: conv_fprop and a fused prefix of the epilogue."""

    def __init__(self, cudnn: CuDnn, conv: ConvWorkload, steps: tuple[EpilogueOp, ...]) -> None:
        kinds = cudnn.api.data_type
        self._cudnn, self._conv = cudnn, conv
        io, out = cudnn.dtype(conv.dtype), cudnn.dtype(conv.epilogue.output)
        self.graph = cudnn.api.pygraph(
            io_data_type=io, intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT, handle=cudnn.handle
        )
        x = self._nhwc("x", _X, (conv.n, conv.c, conv.h, conv.w), io)
        w = self._nhwc("w", _W, (conv.k, conv.c // conv.groups, conv.r, conv.s), io)
        top, left, bottom, right = conv.pad
        y = self.graph.conv_fprop(
            image=x, weight=w, pre_padding=[top, left], post_padding=[bottom, right], stride=list(conv.stride),
            dilation=list(conv.dilation), compute_data_type=kinds.FLOAT, name="conv",
        )  # fmt: skip
        self.tensors = [_X, _W, _Y]
        for step in steps:
            y = self._step(step, y, io, out)
        y.set_output(True).set_data_type(out).set_uid(_Y)
        y.set_dim([conv.n, conv.k, conv.p, conv.q]).set_stride(_channels_last(conv.k, conv.p, conv.q))

    def _nhwc(self, name: str, uid: int, dim: tuple[int, int, int, int], kind: Any) -> Any:
        stride = _channels_last(*dim[1:])
        return self.graph.tensor(name=name, dim=list(dim), stride=stride, data_type=kind, uid=uid)

    def _step(self, step: EpilogueOp, y: Any, io: Any, out: Any) -> Any:
        graph, conv = self.graph, self._conv
        if step.op == "bias":
            self.tensors.append(_BIAS)
            return graph.bias(input=y, bias=self._nhwc("bias", _BIAS, (1, conv.k, 1, 1), io), name="bias")
        if step.op in ("add", "mul"):
            self.tensors.append(_SOURCE)
            source = self._nhwc("source", _SOURCE, (conv.n, conv.k, conv.p, conv.q), out)
            return (graph.add if step.op == "add" else graph.mul)(a=y, b=source, name=step.op)
        if step.op == "clip":
            low, high = step.params
            return graph.relu(input=y, lower_clip=low, upper_clip=high, name="clip")
        if step.op == "silu":
            # By position: frontend 1.18 has the keywords of swish's beta and compute type the wrong way round.
            return graph.swish(y, self._cudnn.api.data_type.FLOAT, 1.0, "silu")
        if step.op == "leaky_relu":
            return graph.leaky_relu(input=y, negative_slope=step.params[0], name="leaky_relu")
        names = {"gelu_erf": "gelu", "gelu_tanh": "gelu_approx_tanh"}
        return getattr(graph, names.get(step.op, step.op))(input=y, name=step.op)


class Plans:
    """The plans of one workload: of the longest prefix of its epilogue that the library can run. See `step`."""

    def __init__(self, cudnn: CuDnn, conv: ConvWorkload) -> None:
        self.graph: ConvGraph | None = None
        self.steps: tuple[EpilogueOp, ...] = ()
        self.rest: tuple[EpilogueOp, ...] = ()
        self.built: list[int] = []
        self._work = self._search(cudnn, conv)

    def step(self) -> bool:
        """Builds one more plan. False when there is none left."""
        return next(self._work, False)

    def _search(self, cudnn: CuDnn, conv: ConvWorkload) -> Iterator[bool]:
        for steps, rest in prefixes(conv.epilogue):
            if rest and steps and _loses_type(conv):
                continue
            graph = ConvGraph(cudnn, conv, steps)
            for index in graph.plans():
                if index is not None:
                    self.graph, self.steps, self.rest = graph, steps, rest
                    self.built.append(index)
                yield True
            if self.built:
                return


@lru_cache(_KEPT)
def _plans(cudnn: CuDnn, conv: ConvWorkload) -> Plans:
    return Plans(cudnn, conv)


def prepare(conv: ConvWorkload) -> bool:
    """Builds one more plan for the workload. False when there is none left. Raises VendorError."""
    return conv.accumulator == DType.F32 and _plans(library(), conv).step()


def _channels_last(c: int, h: int, w: int) -> list[int]:
    """Strides of an (n, c, h, w) tensor that lies in memory as (n, h, w, c)."""
    return [h * w * c, 1, w * c, c]


def peers(context: VendorContext) -> list[Peer]:
    """The plans for a conv workload. Raises VendorError when there is no library or no plan."""
    conv = context.workload
    assert isinstance(conv, ConvWorkload)
    if conv.accumulator != DType.F32:
        raise VendorError(f"it is compared with float32 accumulation only, not {conv.accumulator}")
    cudnn = library()
    cudnn.api.set_stream(cudnn.handle, context.stream)
    plans = _plans(cudnn, conv)
    while plans.step():
        continue
    if plans.graph is None:
        raise VendorError("none of its plans supports the convolution")
    graph, rest = plans.graph, plans.rest
    ending = described("+".join(map(str, plans.steps)) or "nothing", rest)
    return [
        Peer(
            cudnn.source,
            f"plan {graph.graph.get_plan_name_at_index(index)}; {ending}",
            _launcher(cudnn, context, graph, index, rest),
        )
        for index in plans.built
    ]


def _loses_type(conv: ConvWorkload) -> bool:
    """Whether storing a partial result in the output's type would change the input of the steps that are left."""
    return conv.epilogue.output.itemsize < conv.dtype.itemsize


def _launcher(
    cudnn: CuDnn, context: VendorContext, graph: ConvGraph, index: int, rest: tuple[EpilogueOp, ...]
) -> Callable[[int, int], None]:
    def launch(stream: int, slot: int) -> None:
        at = context.slots[slot]
        pointers = {_X: at.a, _W: at.b, _BIAS: at.bias, _SOURCE: at.source, _Y: at.d}
        try:
            graph.graph.execute_plan_at_index(
                {uid: pointers[uid] for uid in graph.tensors}, context.workspace, index, handle=cudnn.handle
            )
        except RuntimeError as error:
            raise VendorError(f"cuDNN plan {index}: {' '.join(str(error).split())}") from None
        if rest:
            context.rest(rest, stream, slot)

    return launch
