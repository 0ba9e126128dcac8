"""Odd depths: what is filled up, and that it stands beside the kernels of smaller alignment."""

from dataclasses import replace

import pytest

from core.bench.suites import suite
from core.search.rank import rank
from templates import families
from templates.epilogue import parse_epilogue
from templates.gpu import KNOWN_GPUS
from templates.sm90_padded.family import padded
from templates.types import DType, MatrixLayout
from templates.workload import ConvWorkload, GemmWorkload

H200 = KNOWN_GPUS["h200"]
PADDED = families()["sm90_padded"]
ODD = GemmWorkload(2048, 512, 479, epilogue=parse_epilogue("bias+relu"))


@pytest.mark.parametrize("name", suite("padding"))
def test_the_papers_shapes_are_tried_padded_and_as_they_are(name):
    found = {r.kernel.family for r in rank(suite("padding")[name], H200).candidates}
    assert {"sm90_padded", "sm80_conv"} <= found


@pytest.mark.parametrize(
    ("workload", "depth", "read"),
    [
        (ODD, 480, 1), (replace(ODD, k=46), 48, 2), (replace(ODD, k=300), 304, 4),
        (replace(ODD, k=10, dtype=DType.TF32), 12, 2), (ConvWorkload(2, 9, 9, 174, 64, 3, 3), 176, 2),
    ],
)  # fmt: skip
def test_depths_are_filled_up_to_whole_vectors_and_read_as_wide_as_they_allow(workload, depth, read):
    wide = padded(workload)
    assert (wide.k if isinstance(wide, GemmWorkload) else wide.c) == depth
    kernels = list(PADDED.kernels(workload, H200))
    assert {k.alignment[0] for k in kernels} == {read}
    assert any(PADDED.illegal(k, workload, H200) is None for k in kernels)


@pytest.mark.parametrize(
    ("workload", "word"),
    [
        (GemmWorkload(64, 64, 64), "needs no padding"),
        (replace(ODD, layout_b=MatrixLayout.ROW), "contiguous along K"),
        (ConvWorkload(1, 8, 8, 6, 6, 3, 3, groups=2), "2 groups"),
        (replace(ODD, dtype=DType.F32), "f32"),
    ],
)
def test_it_refuses_with_the_reason(workload, word):
    assert word in (PADDED.refuses(workload, H200) or "")


def test_a_copy_costs_time():
    kernel = next(k for k in PADDED.kernels(ODD, H200) if PADDED.illegal(k, ODD, H200) is None)
    ours = min(PADDED.score(r.candidate, ODD, H200).us for r in rank(ODD, H200, {"p": PADDED}).candidates)
    split = {"s": families()["sm90_split"]}
    assert ours > rank(padded(ODD), H200, split).candidates[0].score.us + 1.0 and kernel.family == "sm90_padded"
