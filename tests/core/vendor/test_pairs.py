"""A pair's vendor peers: combinations of each operator's fastest algorithms, over the operands of its parts."""

import math
from collections.abc import Callable

import pytest

from core.measure.tensors import Slot
from core.vendor import Peer, VendorAbsent, VendorContext, VendorError, cublaslt, cudnn, peers
from templates.workload import B2bConvWorkload, ConvWorkload, GemmWorkload, Workload

PAIR = B2bConvWorkload(ConvWorkload(1, 8, 8, 16, 24, 3, 3, (1, 1, 1, 1)), 40)
SLOT = Slot(1, 2, 3, 4, 5, 6, 7, 8, 9)
Made = list[tuple[str, Workload, Slot]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Made:
    """What was launched: algorithm, workload, operands."""
    launched: Made = []

    def offer(source: str, names: list[str]) -> Callable[[VendorContext], list[Peer]]:
        def found(context: VendorContext) -> list[Peer]:
            def peer(name: str) -> Peer:
                def launch(stream: int, slot: int) -> None:
                    launched.append((name, context.workload, context.slots[slot]))

                return Peer(source, name, launch)

            return [peer(name) for name in names]

        return found

    monkeypatch.setattr(cudnn, "peers", offer("cudnn 9", ["slow", "quick", "broken", "middle"]))
    monkeypatch.setattr(cublaslt, "peers", offer("cublasLt 13", ["only"]))
    return launched


def context(ran: Made) -> VendorContext:
    def time(launch: Callable[[int, int], None]) -> float:
        launch(1, 0)
        return {"slow": 3.0, "middle": 2.0, "broken": math.inf}.get(ran.pop()[0], 1.0)

    nothing = None  # neither a device nor a reference is touched
    return VendorContext(PAIR, nothing, nothing, [SLOT], 1, 0, time)  # type: ignore[arg-type]


def test_the_fastest_of_each_operator_are_chained(ran: Made) -> None:
    found = peers(context(ran))
    assert [(p.source, p.detail) for p in found.found] == [
        ("cudnn 9 + cublasLt 13", "quick | only"),
        ("cudnn 9 + cublasLt 13", "middle | only"),
    ]
    found.found[0].launch(1, 0)
    assert ran == [("quick", PAIR.first, Slot(1, 2, 3, 4, 9)), ("only", PAIR.second, Slot(9, 6, 7, 8, 5))]
    assert isinstance(PAIR.second, GemmWorkload)


def test_a_missing_library_is_told_once(ran: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(context: VendorContext) -> list[Peer]:
        raise VendorAbsent("libcudnn.so.9 is not installed")

    monkeypatch.setattr(cudnn, "peers", absent)
    found = peers(context(ran))
    assert found.found == [] and found.notes == ["cuDNN not compared: libcudnn.so.9 is not installed"]

    def none(context: VendorContext) -> list[Peer]:
        raise VendorError("none of its plans supports the convolution")

    monkeypatch.setattr(cudnn, "peers", none)
    assert PAIR.first.key in peers(context(ran)).notes[0]
