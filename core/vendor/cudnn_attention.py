"""cuDNN's fused attention through nvidia-cudnn-frontend: scaled dot product attention over our operands' own strides.

It takes an added mask as its bias and causality from the top left, as we define them. A boolean mask has no form there
without a kernel that converts it, so such workloads are not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from core.vendor import Peer, VendorContext, VendorError, cudnn
from templates.attention import AttentionWorkload, MaskKind, Strides
from templates.types import DType

_Q, _K, _V, _BIAS, _O = 1, 2, 3, 4, 5
_KEPT = 64  # workloads whose plans are kept


class AttentionGraph(cudnn.PlannedGraph):
    """One cuDNN graph: sdpa for inference."""

    def __init__(self, loaded: cudnn.CuDnn, work: AttentionWorkload) -> None:
        kinds, io = loaded.api.data_type, loaded.dtype(work.dtype)
        self._cudnn, self._io = loaded, io
        self.graph = loaded.api.pygraph(
            io_data_type=io, intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT, handle=loaded.handle
        )
        queries, keys = (work.batch, work.heads, work.q_len), (work.batch, work.kv_heads, work.kv_len)
        operands = {
            "q": self._tensor("q", _Q, (*queries, work.head_dim), work.q),
            "k": self._tensor("k", _K, (*keys, work.head_dim), work.k),
            "v": self._tensor("v", _V, (*keys, work.value_dim), work.v),
        }
        self.tensors = [_Q, _K, _V, _O]
        if work.mask is MaskKind.ADD:
            extents = tuple(n if s else 1 for n, s in zip(queries, work.mask_strides, strict=True))
            operands["bias"] = self._tensor("bias", _BIAS, (*extents, work.kv_len), work.mask_strides)
            self.tensors.append(_BIAS)
        out, _ = self.graph.sdpa(
            **operands, attn_scale=work.scale, use_causal_mask=work.causal, generate_stats=False, name="attention"
        )
        out.set_output(True).set_data_type(io).set_uid(_O)
        out.set_dim([*queries, work.value_dim]).set_stride(_strides((*queries, work.value_dim), work.out))

    def _tensor(self, name: str, uid: int, dim: tuple[int, ...], strides: Strides) -> Any:
        return self.graph.tensor(name=name, dim=list(dim), stride=_strides(dim, strides), data_type=self._io, uid=uid)


def _strides(dim: tuple[int, ...], strides: Strides) -> list[int]:
    """With the stride of a dimension of one as in a dense tensor: the library wants no zeros."""
    found = [*strides, 1]
    for i in (2, 1, 0):
        found[i] = found[i] or found[i + 1] * dim[i + 1]
    return found


@lru_cache(_KEPT)
def _built(loaded: cudnn.CuDnn, work: AttentionWorkload) -> tuple[AttentionGraph, tuple[int, ...]]:
    graph = AttentionGraph(loaded, work)
    return graph, tuple(index for index in graph.plans() if index is not None)


def peers(context: VendorContext) -> list[Peer]:
    """The plans for an attention workload. Raises VendorError when there is no library or no plan."""
    work = context.workload
    assert isinstance(work, AttentionWorkload)
    if work.accumulator != DType.F32:
        raise VendorError(f"it is compared with float32 accumulation only, not {work.accumulator}")
    if work.mask not in (MaskKind.NONE, MaskKind.ADD):
        raise VendorError("its attention takes no boolean mask")
    loaded = cudnn.library()
    loaded.api.set_stream(loaded.handle, context.stream)
    graph, plans = _built(loaded, work)
    if not plans:
        raise VendorError("none of its plans supports this attention")
    return [
        Peer(
            loaded.source,
            f"plan {graph.graph.get_plan_name_at_index(index)}; fused attention",
            _launcher(loaded, context, graph, index),
        )
        for index in plans
    ]


def _launcher(
    loaded: cudnn.CuDnn, context: VendorContext, graph: AttentionGraph, index: int
) -> Callable[[int, int], None]:  # fmt: skip
    def launch(stream: int, slot: int) -> None:
        at = context.slots[slot]
        pointers = {_Q: at.a, _K: at.b, _V: at.b1, _BIAS: at.source, _O: at.d}
        try:
            graph.graph.execute_plan_at_index(
                {uid: pointers[uid] for uid in graph.tensors}, context.workspace, index, handle=loaded.handle
            )
        except RuntimeError as error:
            raise VendorError(f"cuDNN plan {index}: {' '.join(str(error).split())}") from None

    return launch
