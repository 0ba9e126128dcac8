"""The attention graph handed to cuDNN, on a frontend that writes it down."""

from dataclasses import replace
from typing import Any

import pytest

from core.measure.tensors import Slot
from core.vendor import VendorContext, VendorError, cudnn_attention, peers
from templates.attention import AttentionWorkload, MaskKind, heads_inside
from tests.core.vendor.test_cudnn import Api, Graph, Tensor, api  # noqa: F401  a fixture

INSIDE = heads_inside(4, 40, 64)
WORK = AttentionWorkload(
    2, 4, 2, 40, 40, 64, 64, 0.25, INSIDE, heads_inside(2, 40, 64), heads_inside(2, 40, 64), INSIDE,
    causal=True, mask=MaskKind.ADD, mask_strides=(40, 0, 0),
)  # fmt: skip


@pytest.fixture(autouse=True)
def sdpa(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    said: dict[str, Any] = {}

    def operation(self: Graph, **named: Any) -> tuple[Tensor, None]:
        said.update(named)
        self.last = Tensor("sdpa")
        return self.last, None

    monkeypatch.setattr(Graph, "sdpa", operation, raising=False)
    cudnn_attention._built.cache_clear()
    return said


def context(work: AttentionWorkload) -> VendorContext:
    slots = [Slot(0x100, 0x200, 0, 0x400, 0x500, b1=0x300)]
    return VendorContext(work, None, None, slots, 7, 0x900)  # type: ignore[arg-type]


def test_operands_lie_as_the_workload_says(api: Api, sdpa: dict[str, Any]) -> None:  # noqa: F811
    found = peers(context(WORK))
    [graph] = api.graphs
    assert graph.tensors["q"]["dim"] == [2, 4, 40, 64] and graph.tensors["q"]["stride"] == [10240, 64, 256, 1]
    assert graph.tensors["k"]["dim"] == [2, 2, 40, 64] and graph.tensors["v"]["stride"] == [5120, 64, 128, 1]
    assert graph.tensors["bias"]["dim"] == [2, 1, 1, 40] and graph.tensors["bias"]["stride"] == [40, 40, 40, 1]
    assert (sdpa["attn_scale"], sdpa["use_causal_mask"], sdpa["generate_stats"]) == (0.25, True, False)
    assert graph.last.set["stride"] == [10240, 64, 256, 1] and graph.last.set["data_type"] == "HALF"
    assert [p.detail for p in found.found] == ["plan eng0; fused attention", "plan eng1; fused attention"]
    found.found[1].launch(7, 0)
    assert graph.executed == [({1: 0x100, 2: 0x200, 3: 0x300, 4: 0x400, 5: 0x500}, 0x900, 1, 5)]


def test_what_is_not_compared_is_said(api: Api) -> None:  # noqa: F811
    found = peers(context(replace(WORK, mask=MaskKind.KEEP)))
    assert not found.found and found.notes[0].endswith("its attention takes no boolean mask")
    api.plans = ["bad"]
    assert "none of its plans supports" in peers(context(WORK)).notes[0]
    api.plans = ["fails"]
    cudnn_attention._built.cache_clear()
    with pytest.raises(VendorError, match="execution failed"):
        peers(context(WORK)).found[0].launch(7, 0)
