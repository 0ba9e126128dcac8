"""The cluster split-K family: what it serves, how K is cut, and the arithmetic of its exchange."""

from math import ceil

import pytest

from core.search.rank import rank
from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Candidate
from templates.gpu import KNOWN_GPUS
from templates.sm90_split import rules, space
from templates.sm90_split.family import point_of
from templates.types import DType, MatrixLayout
from templates.workload import ConvWorkload, GemmWorkload, Workload

H200 = KNOWN_GPUS["h200"]
SPLIT = families()["sm90_split"]
BIAS_RELU = parse_epilogue("bias+relu")
SMALL_IMAGE = ConvWorkload(32, 7, 7, 512, 512, 3, 3, (1, 1, 1, 1), epilogue=BIAS_RELU)


def first(workload: Workload) -> Candidate:
    return rank(workload, H200, {"sm90_split": SPLIT}).candidates[0].candidate


def test_few_tiles_and_a_long_k_are_cut_until_the_gpu_is_full():
    for workload in (GemmWorkload(1568, 512, 2048, epilogue=BIAS_RELU), SMALL_IMAGE):
        best = first(workload)
        shape = rules.lay(best.kernel, point_of(best.kernel), best.launch.splits, workload, H200)
        assert best.launch.splits > 1 and shape.tiles < H200.sm_count < shape.ctas * 1.4
    assert "sm90_split" in {r.kernel.family for r in rank(SMALL_IMAGE, H200).candidates[:8]}


def test_a_short_k_is_not_cut():
    workload = GemmWorkload(256, 256, 128)
    for kernel in SPLIT.kernels(workload, H200):
        if SPLIT.illegal(kernel, workload, H200) is None:
            assert {c.splits for c in SPLIT.launches(kernel, workload, H200)} == {1}


@pytest.mark.parametrize("m", [1, 2, 7, 16, 32])
def test_small_m_takes_swapped_operands(m):
    best = first(GemmWorkload(m, 4096, 4096, epilogue=BIAS_RELU))
    assert best.kernel.int("swap") and point_of(best.kernel).rows < 2 * max(8, m)


def test_more_tiles_than_a_few_rounds_are_left_to_the_persistent_families():
    large = GemmWorkload(4096, 4096, 4096, epilogue=BIAS_RELU)
    assert all("nothing to gain" in (SPLIT.illegal(k, large, H200) or "") for k in SPLIT.kernels(large, H200))


def test_large_products_of_odd_width_are_taken_all_the_same():
    head = GemmWorkload(1024, 50257, 768, epilogue=BIAS_RELU)
    families_ = {r.kernel.family for r in rank(head, H200).candidates}
    assert "sm90_split" in families_ and "sm90_gemm" not in families_
    assert rank(head, H200).candidates[0].kernel.family == "sm90_split"


@pytest.mark.parametrize(
    ("workload", "vec"),
    [(GemmWorkload(64, 50257, 768), 1), (GemmWorkload(64, 30522, 768), 2), (GemmWorkload(64, 1000, 768), 8)],
    ids=lambda v: getattr(v, "key", v),
)
def test_any_n_is_served_by_narrower_stores(workload, vec):
    assert SPLIT.refuses(workload, H200) is None
    assert {k.alignment for k in SPLIT.kernels(workload, H200)} == {(8, 8, vec)}


@pytest.mark.parametrize(
    ("workload", "word"),
    [
        (GemmWorkload(128, 128, 46), "K = 46"),
        (GemmWorkload(128, 128, 64, dtype=DType.TF32, layout_b=MatrixLayout.ROW), "tf32"),
        (GemmWorkload(128, 128, 64, epilogue=parse_epilogue("identity->i8")), "writes i8"),
        (ConvWorkload(1, 8, 8, 12, 16, 3, 3), "C = 12"),
        (ConvWorkload(1, 64, 64, 16, 16, 3, 3, stride=(9, 1)), "stride 9"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_it_refuses_with_the_reason(workload, word):
    assert word in (SPLIT.refuses(workload, H200) or "")


def test_a_kernel_of_the_other_operator_is_illegal():
    product = GemmWorkload(1568, 512, 4608, epilogue=BIAS_RELU)
    assert not {k.name for k in SPLIT.kernels(product, H200)} & {k.name for k in SPLIT.kernels(SMALL_IMAGE, H200)}
    assert all("gemm" in (SPLIT.illegal(k, SMALL_IMAGE, H200) or "") for k in SPLIT.kernels(product, H200))


@pytest.mark.parametrize("op", ["gemm", "conv"])
@pytest.mark.parametrize("dtype", [DType.F16, DType.TF32])
def test_every_instance_fits_beside_its_neighbour(op, dtype):
    for point in space.points(op, dtype):
        blocks, stages = point.blocks_and_stages(dtype.itemsize)
        used = point.shared_bytes(stages, dtype.itemsize)
        assert stages >= 2 and used <= H200.smem_per_block
        assert blocks * (used + 1024) <= H200.smem_per_sm
        assert point.exchange_bytes() <= used


@pytest.mark.parametrize("splits", range(1, space.MAX_SPLITS + 1))
@pytest.mark.parametrize("point", [space.Point(64, 32, 64), space.Point(128, 96, 64), space.Point(64, 8, 64, True)])
def test_every_partial_sum_has_one_place_that_its_owner_reads(point, splits):
    """The address arithmetic of exchange() and finish() in include/bolt/sm90_split.hpp."""
    pitch, own = point.columns + (4 if point.swap else 8), ceil(point.rows / splits)
    written = {}
    for rank_ in range(splits):
        for row in range(point.rows):
            owner = row // own
            assert owner < splits
            for column in range(point.columns):
                place = owner, ((rank_ - owner) * own + row) * pitch + column
                assert place not in written and 0 <= place[1] * 4 < point.exchange_bytes()
                written[place] = rank_, row, column
    read = {
        (owner, (slot * own + at) * pitch + column): (slot, owner * own + at, column)
        for owner in range(splits)
        for at in range(min(own, point.rows - owner * own))
        for slot in range(splits)
        for column in range(point.columns)
    }
    assert read == written
