"""What of an epilogue cuBLASLt can run inside the matmul, and its descriptors on a library that writes them down."""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from core.measure.tensors import Slot
from core.vendor import VendorContext, VendorError, cublaslt, peers
from core.vendor.cublaslt import CublasLt, HeuristicResult, Matmul, MatmulAlgo, fusions
from templates.epilogue import parse_epilogue
from templates.types import DType, MatrixLayout
from templates.workload import GemmWorkload


@pytest.mark.parametrize(
    ("chain", "fused", "epilogue", "alpha", "source"),
    [
        ("identity", 0, 1, 1.0, False),
        ("bias", 1, 4, 1.0, False),
        ("relu", 1, 2, 1.0, False),
        ("bias+relu", 2, 6, 1.0, False),
        ("bias+gelu_tanh", 2, 36, 1.0, False),
        ("gelu_tanh", 1, 32, 1.0, False),
        ("bias+gelu_erf", 1, 4, 1.0, False),  # its GELU is the tanh form
        ("bias+add", 2, 4, 1.0, True),
        ("add", 1, 1, 1.0, True),
        ("bias+add+relu", 3, 6, 1.0, True),  # C is added before the epilogue
        ("add+bias+relu", 3, 6, 1.0, True),
        ("bias+relu+add", 2, 6, 1.0, False),  # the residual after the activation is not
        ("bias+mul", 1, 4, 1.0, False),
        ("bias+relu+shift(1)", 2, 6, 1.0, False),
        ("scale(0.125)", 1, 1, 0.125, False),
        ("scale(0.125)+bias+relu", 3, 6, 0.125, False),
        ("bias+scale(0.125)", 1, 4, 1.0, False),
        ("relu+bias", 1, 2, 1.0, False),
        ("clip(0,6)", 0, 1, 1.0, False),
    ],
)
def test_fused_prefix(chain: str, fused: int, epilogue: int, alpha: float, source: bool) -> None:
    parsed = parse_epilogue(chain)
    found = next(fusions(parsed))
    assert found.steps == parsed.ops[:fused] and found.rest == parsed.ops[fused:]
    assert (found.epilogue, found.alpha, found.source) == (epilogue, alpha, source)


def test_structures_have_the_sizes_of_cublaslt_h() -> None:
    """sizeof and offsetof as printed by a C program over cublasLt.h 13.1."""
    assert ctypes.sizeof(MatmulAlgo) == 64 and ctypes.sizeof(HeuristicResult) == 96
    assert (HeuristicResult.workspace.offset, HeuristicResult.state.offset, HeuristicResult.waves.offset) == (
        64,
        72,
        76,
    )


class Written:
    """A libcublasLt that records its calls and proposes two algorithms, the second not supported."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.layouts: list[tuple[int, ...]] = []
        self.desc: dict[int, Any] = {}
        self.batches: list[tuple[int, int]] = []
        self.proposes = 2

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            return self.answer(name, arguments)

        return call

    def answer(self, name: str, a: tuple[Any, ...]) -> int:
        self.calls.append((name, a))
        if name == "cublasLtMatrixLayoutCreate":
            self.layouts.append((a[1], a[2].value, a[3].value, a[4].value))
        if name == "cublasLtMatmulDescSetAttribute":
            self.desc[a[1]] = a[2]._obj.value
        if name == "cublasLtMatrixLayoutSetAttribute":
            self.batches.append((a[1], a[2]._obj.value))
        if name == "cublasLtMatmulAlgoGetHeuristic":
            for i in range(self.proposes):
                a[8][i].state = i
            a[9]._obj.value = self.proposes
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    written = Written()
    lt = object.__new__(CublasLt)
    lt._library, lt.source, lt.handle = written, "cublasLt 13.0.2", ctypes.c_void_p(1)
    monkeypatch.setattr(cublaslt, "_cublaslt", lambda: lt)
    yield written


def context(workload: GemmWorkload, rest: list[Any]) -> VendorContext:
    class Reference:
        def elementwise(self, *arguments: Any) -> None:
            rest.append(arguments)

    slots = [Slot(0x100, 0x200, 0x300, 0x400, 0x500), Slot(0x110, 0x210, 0x310, 0x410, 0x510)]
    return VendorContext(workload, None, Reference(), slots, 7, 0x900)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout_a", "layout_b", "b", "a", "ops"),
    [
        ("row", "col", (2, 40, 24, 40), (2, 40, 16, 40), (1, 0)),
        ("row", "row", (2, 24, 40, 24), (2, 40, 16, 40), (0, 0)),
        ("col", "col", (2, 40, 24, 40), (2, 16, 40, 16), (1, 1)),
    ],
)
def test_layouts_of_the_transposed_product(
    library: Written, layout_a: str, layout_b: str, b: tuple[int, ...], a: tuple[int, ...], ops: tuple[int, int]
) -> None:
    """(type, rows, columns, leading dimension) of column-major B^T, A^T and D^T."""
    gemm = GemmWorkload(16, 24, 40, layout_a=MatrixLayout(layout_a), layout_b=MatrixLayout(layout_b))
    Matmul(cublaslt._cublaslt(), gemm, next(fusions(gemm.epilogue)), context(gemm, []))
    assert library.layouts == [b, a, (2, 24, 16, 24)]
    assert (library.desc[3], library.desc[4], library.desc[7]) == (*ops, 1)
    assert library.batches == []


def test_batches_and_a_shared_b(library: Written) -> None:
    gemm = GemmWorkload(16, 24, 40, batch=12, shared_b=True)
    Matmul(cublaslt._cublaslt(), gemm, next(fusions(gemm.epilogue)), context(gemm, []))
    assert library.batches == [(5, 12), (6, 0), (5, 12), (6, 640), (5, 12), (6, 384)]


def test_a_launch_points_at_its_slot_and_runs_what_is_left(library: Written) -> None:
    gemm = GemmWorkload(16, 24, 40, epilogue=parse_epilogue("bias+relu+add"))
    separate: list[Any] = []
    [peer] = cublaslt.peers(context(gemm, separate))
    assert peer.source == "cublasLt 13.0.2" and peer.detail.endswith("fused bias+relu; separate add")
    peer.launch(7, 1)
    name, arguments = library.calls[-1]
    assert name == "cublasLtMatmul" and library.desc[8] == 0x310
    assert [arguments[i].value for i in (3, 5, 8, 10, 13, 15)] == [0x210, 0x110, 0x510, 0x510, 0x900, 7]
    assert (arguments[2]._obj.value, arguments[7]._obj.value) == (1.0, 0.0)
    [(d, out, bias, kind, source, rows, columns, steps, stream)] = separate
    assert (d, out, bias, kind, source, rows, columns, stream) == (0x510, "f16", 0x310, "f16", 0x410, 16, 24, 7)
    assert [str(s) for s in steps] == ["add"]


def test_the_source_is_c_with_beta_one(library: Written) -> None:
    gemm = GemmWorkload(16, 24, 40, epilogue=parse_epilogue("scale(0.5)+bias+add+relu"))
    [peer] = cublaslt.peers(context(gemm, []))
    peer.launch(7, 0)
    _, arguments = library.calls[-1]
    assert (arguments[2]._obj.value, arguments[7]._obj.value, arguments[8].value) == (0.5, 1.0, 0x400)
    assert peer.detail.endswith("fused scale(0.5)+bias+add+relu")


def test_a_bias_of_another_type_than_the_output_is_not_fused(library: Written) -> None:
    gemm = GemmWorkload(16, 24, 40, epilogue=parse_epilogue("bias+relu->f32"))
    [peer] = cublaslt.peers(context(gemm, []))
    assert peer.detail.endswith("fused nothing; separate bias+relu") and library.desc[7] == 1


def test_a_shorter_prefix_where_the_longest_is_not_supported(library: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    proposals = iter([0, 2])

    answer = library.answer

    def picky(name: str, arguments: tuple[Any, ...]) -> int:
        if name == "cublasLtMatmulAlgoGetHeuristic":
            library.proposes = next(proposals)
        return answer(name, arguments)

    monkeypatch.setattr(library, "answer", picky)
    gemm = GemmWorkload(16, 24, 40, epilogue=parse_epilogue("bias+gelu_tanh"))
    [peer] = cublaslt.peers(context(gemm, []))
    assert peer.detail.endswith("fused bias; separate gelu_tanh")


def test_no_algorithm_and_other_accumulators_are_notes(library: Written) -> None:
    library.proposes = 0
    gemm = GemmWorkload(16, 24, 40)
    found = peers(context(gemm, []))
    assert found.found == [] and "cuBLASLt not compared on gemm 16x24x40" in found.notes[0]
    half = GemmWorkload(16, 24, 40, accumulator=DType.F16)
    assert "float32 accumulation only" in peers(context(half, [])).notes[0]


def test_a_failing_call_is_a_vendor_error(library: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = GemmWorkload(16, 24, 40)
    [peer] = cublaslt.peers(context(gemm, []))
    monkeypatch.setattr(library, "answer", lambda name, arguments: 15)
    with pytest.raises(VendorError, match="cublasLtMatmul gave status 15"):
        peer.launch(7, 0)


def test_an_absent_library_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "load", lambda *arguments: None)
    cublaslt._cublaslt.cache_clear()
    found = peers(context(GemmWorkload(8, 8, 8), []))
    assert found.found == [] and "libcublasLt.so.13 and .12 are not installed" in found.notes[0]
