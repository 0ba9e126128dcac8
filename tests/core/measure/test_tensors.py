"""Operand sets: how many, how they lie, and that nothing of them is left."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DeviceError
from core.measure.args import OperandBytes
from core.measure.reference import Reference
from core.measure.tensors import GUARD, GUARD_BYTE, MAX_SLOTS, Tensors, WrongResult, slot_count
from templates.attention import AttentionWorkload, MaskKind, heads_inside, heads_outside
from templates.epilogue import parse_epilogue
from templates.types import DType
from templates.workload import B2bGemmWorkload, GemmWorkload
from tests.core.measure.host_runtime import HostRuntime

WORKLOAD = GemmWorkload(16, 8, 32, epilogue=parse_epilogue("bias+add+relu"))
L2 = 8 << 10
Made = tuple[HostRuntime, Tensors]


@pytest.fixture
def made(host_reference: Path) -> Made:
    runtime = HostRuntime()
    return runtime, Tensors(WORKLOAD, runtime, Reference(host_reference, runtime), L2, 1)


@given(st.integers(1, 1 << 34), st.integers(0, 1 << 28), st.integers(0, 1 << 38))
def test_slot_count_bounds(nbytes: int, l2: int, free: int) -> None:
    count = slot_count(OperandBytes(nbytes, 0, 0, 0, 0), l2, free)
    assert 1 <= count <= MAX_SLOTS
    if count > 2:
        assert (count - 1) * nbytes < 2 * l2  # not more than the caches ask for
        assert count * nbytes <= free // 2
    elif free >= 5 * (nbytes + 4 * GUARD):
        assert count >= 2


def test_slots_take_twice_the_l2_and_do_not_overlap(made: Made) -> None:
    _, tensors = made
    nbytes = {"a": 16 * 32 * 2, "b": 8 * 32 * 2, "bias": 16, "source": 16 * 8 * 2, "d": 16 * 8 * 2}
    assert tensors.count * sum(nbytes.values()) >= 2 * L2
    spans = sorted((getattr(s, f), getattr(s, f) + size) for s in tensors.slots for f, size in nbytes.items())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert all(begin % 256 == 0 for begin, _ in spans)
    assert list(tensors.checked) == [0, 1]


def test_operands_are_random_scaled_and_differ_between_slots(made: Made) -> None:
    runtime, tensors = made
    a = [np.empty(512, np.float16) for _ in range(2)]
    b = np.empty(256, np.float16)
    for out, slot in zip(a, tensors.slots, strict=False):
        runtime.to_host(out, slot.a)
    runtime.to_host(b, tensors.slots[0].b)
    assert not np.array_equal(a[0], a[1])
    assert np.abs(a[0]).max() <= 1 and a[0].std() > 0.4 and abs(a[0].mean()) < 0.1
    assert np.abs(b).max() <= 32**-0.5 + 1e-3


def write_right_results(runtime: HostRuntime, tensors: Tensors) -> None:
    for i in tensors.checked:
        exact = np.empty(128, np.float32)
        runtime.to_host(exact, tensors._references[i])
        runtime.to_device(tensors.slots[i].d, exact.astype(np.float16))


def test_verify_accepts_the_rounded_reference_and_refuses_less(made: Made) -> None:
    runtime, tensors = made
    assert tensors.verify(lambda: write_right_results(runtime, tensors)).relative_l2 < 5e-4
    with pytest.raises(WrongResult, match="128 of 128 outputs are NaN"):
        tensors.verify(lambda: None)

    def second_slot_only() -> None:
        write_right_results(runtime, tensors)
        runtime.memset(tensors.slots[0].d, 0, 16, 1)

    with pytest.raises(WrongResult, match="relative L2"):
        tensors.verify(second_slot_only)


def test_an_overrun_is_found_once(made: Made) -> None:
    runtime, tensors = made

    def overrun() -> None:
        write_right_results(runtime, tensors)
        runtime.memset(tensors.slots[1].d - GUARD, GUARD_BYTE ^ 1, 3, 1)

    with pytest.raises(WrongResult, match="3 bytes around the output"):
        tensors.verify(overrun)
    tensors.verify(lambda: write_right_results(runtime, tensors))  # the next one is not blamed for it


def test_workspace_is_poisoned_guarded_and_shared(made: Made) -> None:
    runtime, tensors = made
    assert tensors.workspace(0) == 0
    tensors.reserve(4096)
    first = tensors.workspace(1000)
    assert tensors.workspace(4000) == first, "captured graphs keep this address"
    seen = np.empty(4000 + GUARD, np.uint8)
    runtime.to_host(seen, first)
    assert (seen[:4000] == 0xFF).all() and (seen[4000:] == GUARD_BYTE).all()
    larger = tensors.workspace(1 << 20)
    assert larger != 0


def test_everything_is_given_back(host_reference: Path) -> None:
    runtime = HostRuntime()
    reference = Reference(host_reference, runtime)
    before = runtime.allocations
    tensors = Tensors(WORKLOAD, runtime, reference, L2, 1)
    tensors.workspace(1 << 16)
    tensors.free()
    assert runtime.allocations == before
    runtime.free_memory = 10_000  # two slots would do, the references do not fit any more
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
        Tensors(WORKLOAD, runtime, reference, L2, 1)
    assert runtime.allocations == before


def test_a_type_without_reference_is_refused_before_anything_is_taken(host_reference: Path) -> None:
    runtime = HostRuntime()
    reference = Reference(host_reference, runtime)
    before = runtime.allocations
    with pytest.raises(ValueError, match="i8"):
        Tensors(GemmWorkload(8, 8, 8, dtype=DType.I8), runtime, reference, L2, 1)
    assert runtime.allocations == before


def test_a_pair_is_compared_with_two_products_whose_intermediate_is_rounded(host_reference: Path) -> None:
    gemm = GemmWorkload(6, 16, 32, epilogue=parse_epilogue("bias+relu"))
    pair = B2bGemmWorkload(gemm, 8, parse_epilogue("bias+add+tanh"))
    runtime = HostRuntime()
    tensors = Tensors(pair, runtime, Reference(host_reference, runtime), L2, 1)
    slot = tensors.slots[1]

    def read(pointer: int, *shape: int) -> np.ndarray:
        out = np.empty(shape, np.float16)
        runtime.to_host(out, pointer)
        return out.astype(np.float32)

    a, b, bias = read(slot.a, 6, 32), read(slot.b, 16, 32), read(slot.bias, 16)
    b1, bias1, source1 = read(slot.b1, 8, 16), read(slot.bias1, 8), read(slot.source1, 6, 8)
    assert np.abs(b1).max() <= 16**-0.5 + 1e-3 and np.abs(b1).max() > 0.5 * 16**-0.5
    inner = np.maximum(a @ b.T + bias, 0).astype(np.float16).astype(np.float32)
    wanted = np.tanh(inner @ b1.T + bias1 + source1)
    exact = np.empty((6, 8), np.float32)
    runtime.to_host(exact, tensors._references[1])
    assert np.abs(exact - wanted).max() < 2e-4
    assert slot.parts[0].d == slot.parts[1].a == tensors.slots[0].intermediate != 0
    tensors.free()
    assert runtime.allocations == 1  # the reference's own


@pytest.mark.parametrize("mask", MaskKind)
def test_attention_is_compared_with_its_definition(mask: MaskKind, host_reference: Path) -> None:
    work = AttentionWorkload(
        2, 4, 2, 5, 7, 8, 6, 0.25, heads_inside(4, 5, 8), heads_outside(2, 7, 8), heads_inside(2, 7, 6),
        heads_inside(4, 5, 6), causal=mask is MaskKind.NONE, mask=mask,
        mask_strides=(0, 0, 0) if mask is MaskKind.NONE else (35, 0, 7),
    )  # fmt: skip
    runtime = HostRuntime()
    tensors = Tensors(work, runtime, Reference(host_reference, runtime), 1 << 10, 1)
    slot = tensors.slots[0]

    def read(pointer: int, count: int, dtype: type = np.float16) -> np.ndarray:
        out = np.empty(count, dtype)
        runtime.to_host(out, pointer)
        return out.astype(np.float64)

    q = read(slot.a, 2 * 5 * 4 * 8).reshape(2, 5, 4, 8).transpose(0, 2, 1, 3)
    k = np.repeat(read(slot.b, 2 * 2 * 7 * 8).reshape(2, 2, 7, 8), 2, axis=1)
    v = np.repeat(read(slot.b1, 2 * 7 * 2 * 6).reshape(2, 7, 2, 6).transpose(0, 2, 1, 3), 2, axis=1)
    assert np.abs(q).max() > 3 and np.abs(k).max() <= 1
    scores = 0.25 * q @ k.swapaxes(-1, -2)
    if mask is MaskKind.ADD:
        scores = scores + read(slot.source, 70).reshape(2, 1, 5, 7)
    elif mask is MaskKind.NONE:
        scores = np.where(np.tril(np.ones((5, 7), bool)), scores, -np.inf)
    else:
        kept = (read(slot.source, 70, np.uint8) != 0).reshape(2, 1, 5, 7) == mask.keeps
        assert set(kept.reshape(-1)) == {True, False}
        scores = np.where(kept, scores, -1e30 if mask.low else -np.inf)
    with np.errstate(invalid="ignore"):  # rows that see nothing
        weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True).clip(-1e300))
        exact = np.nan_to_num(weights / weights.sum(axis=-1, keepdims=True)) @ v
    found = read(tensors._references[0], exact.size, np.float32).reshape(2, 5, 4, 6).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(found, exact, atol=1e-5)
    tensors.free()
    assert runtime.allocations == 1  # the comparison's result
