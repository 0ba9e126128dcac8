"""1x1 convolutions that became products are compared with cuDNN too: the better of both libraries is the peer."""

from dataclasses import replace
from typing import Any, cast

import pytest

from core.measure.args import operand_bytes, output_shape
from core.vendor import Peer, VendorAbsent, VendorContext, as_convolution, cublaslt, cudnn, peers, prepare
from templates.epilogue import parse_epilogue
from templates.types import MatrixLayout
from templates.workload import ConvWorkload, GemmWorkload

PRODUCT = GemmWorkload(1568, 512, 2048, epilogue=parse_epilogue("bias+relu"))


@pytest.mark.parametrize(
    ("m", "images", "side"),
    [(100352, 32, 56), (1568, 32, 7), (49, 1, 7), (784, 16, 7), (12800, 32, 20), (28 * 28 * 128, 32, 56)],
)
def test_a_product_over_pixels_is_the_convolution_it_was(m, images, side):
    product = replace(PRODUCT, m=m)
    image = as_convolution(product)
    assert image is not None and (image.n, image.h, image.w) == (images, side, side)
    assert (image.c, image.k, image.r, image.s) == (2048, 512, 1, 1) and image.epilogue == product.epilogue
    assert operand_bytes(image) == operand_bytes(product) and output_shape(image) == output_shape(product)


@pytest.mark.parametrize(
    "product",
    [
        *(replace(PRODUCT, m=m) for m in (1, 8, 32, 1024, 1280, 2048, 4096, 16384)),
        replace(PRODUCT, batch=2), replace(PRODUCT, layout_b=MatrixLayout.ROW),
    ],
    ids=lambda w: w.key,
)  # fmt: skip
def test_other_products_are_left_to_cublaslt(product):
    assert as_convolution(product) is None


def context(product: GemmWorkload) -> VendorContext:
    nothing = cast(Any, None)
    return VendorContext(product, nothing, nothing, (), 0, 0)


def peer_of(source: str) -> Peer:
    return Peer(source, "an algorithm", lambda stream, slot: None)


def test_both_libraries_are_asked_and_one_may_be_absent(monkeypatch):
    asked: list[Any] = []
    monkeypatch.setattr(cublaslt, "peers", lambda c: asked.append(c.workload) or [peer_of("cublasLt 13")])
    monkeypatch.setattr(cudnn, "peers", lambda c: asked.append(c.workload) or [peer_of("cudnn 9")])
    assert [p.source for p in peers(context(PRODUCT)).found] == ["cublasLt 13", "cudnn 9"]
    assert isinstance(asked[0], GemmWorkload) and isinstance(asked[1], ConvWorkload)
    assert [p.source for p in peers(context(replace(PRODUCT, m=1280))).found] == ["cublasLt 13"]

    def absent(context: VendorContext) -> list[Peer]:
        raise VendorAbsent("it is not installed")

    monkeypatch.setattr(cudnn, "peers", absent)
    found = peers(context(PRODUCT))
    assert [p.source for p in found.found] == ["cublasLt 13"]
    assert found.notes == ["cuDNN not compared: it is not installed"]


def test_plans_are_prepared_for_the_convolution(monkeypatch):
    asked: list[ConvWorkload] = []
    monkeypatch.setattr(cudnn, "prepare", lambda conv: bool(asked.append(conv)) or True)
    assert prepare(PRODUCT) and asked == [as_convolution(PRODUCT)]
    assert not prepare(replace(PRODUCT, m=1280))
