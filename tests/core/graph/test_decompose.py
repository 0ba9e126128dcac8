"""Operators that others spell out: the graph computes the same before and after, and they are gone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from core.graph.ir import Graph
from core.graph.passes.decompose import decompose
from core.importer.load import import_graph
from tests.core.export.models import Model
from tests.core.graph.equivalence import assert_pass_keeps


def spelled(m: Model, *outputs: str, gone: str) -> Graph:
    before = import_graph(m.build(*outputs).SerializeToString())
    assert any(n.op == gone for n in before)
    after = decompose(before)
    assert_pass_keeps(before, after)
    assert not any(n.op == gone for n in after)
    return after


@pytest.mark.parametrize(
    ("equation", "shapes", "product"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)], True),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)], True),
        ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)], True),
        ("...ij,...jk", [(2, 3, 4), (2, 4, 5)], True),
        ("bij,jk->bik", [(2, 3, 4), (4, 5)], True),
        ("i,i", [(4,), (4,)], True),
        ("i,j->ij", [(4,), (3,)], False),
        ("bij,bij->bi", [(2, 3, 4), (2, 3, 4)], True),
        ("ijk->ki", [(2, 3, 4)], False),
        ("...ii->...i", [(2, 3, 3)], False),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], True),
        ("abc,cd->dab", [(2, 3, 4), (4, 5)], True),
        ("a,b,ab->", [(2,), (3,), (2, 3)], True),
    ],
)
def test_einsum(equation, shapes, product):
    m = Model()
    after = spelled(m, m.op("Einsum", *[m.input(*s) for s in shapes], equation=equation), gone="Einsum")
    assert any(n.op == "MatMul" for n in after) == product


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_einsum_of_two(data):
    extents = dict(zip("abcde", (2, 3, 4, 1, 5), strict=True))
    left, right = (data.draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True)) for _ in range(2))
    output = data.draw(st.permutations(sorted({*left, *right})))
    output = output[: data.draw(st.integers(0, len(output)))]
    equation = f"{''.join(left)},{''.join(right)}->{''.join(output)}"
    m = Model()
    inputs = [m.input(*(extents[c] for c in labels)) for labels in (left, right)]
    spelled(m, m.op("Einsum", *inputs, equation=equation), gone="Einsum")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_transposed_convolution(data):
    spatial, group = data.draw(st.sampled_from([1, 2])), data.draw(st.sampled_from([1, 2]))

    def each(low, high):
        return [data.draw(st.integers(low, high)) for _ in range(spatial)]

    kernel, strides, dilations, extents = each(1, 4), each(1, 3), each(1, 2), each(3, 6)
    pads = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
    extra = [data.draw(st.integers(0, s - 1)) for s in strides]
    m = Model()
    inputs = [m.input(2, 4, *extents), m.weight(4, 3, *kernel)]
    inputs += [m.weight(3 * group)] if data.draw(st.booleans()) else []
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": group, "output_padding": extra}
    spelled(m, m.op("ConvTranspose", *inputs, **attributes), gone="ConvTranspose")


def test_a_transposed_convolution_of_whole_strides_multiplies_no_zeros():
    m = Model()
    y = m.op("ConvTranspose", m.input(1, 8, 4, 4), m.weight(8, 4, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1])
    after = spelled(m, y, gone="ConvTranspose")
    conv = next(n for n in after if n.op == "Conv")
    assert after.shape(conv.inputs[1]) == (16, 8, 2, 2)


@pytest.mark.parametrize("scale", [(), (3,), (1, 3, 2, 5)], ids=["tensor", "axis", "blocks"])
@pytest.mark.parametrize("zero", [None, np.uint8, np.int8])
def test_quantisation(scale, zero):
    m = Model()
    x = m.op("Mul", m.input(2, 3, 4, 5), m.const(np.float32(60)))
    if len(scale) == 4:
        x = m.op("Slice", x, m.const(np.array([0])), m.const(np.array([1])))
    attributes = {"axis": 2, "block_size": 2} if len(scale) == 4 else {"axis": 1}
    scales = m.const(np.asarray(m.random.uniform(0.3, 2, scale), np.float32))
    points = [] if zero is None else [m.const(np.asarray(m.random.integers(0, 9, scale), zero))]
    q = m.op("QuantizeLinear", x, scales, *points, **attributes)
    after = spelled(m, q, m.op("DequantizeLinear", q, scales, *points, **attributes), gone="QuantizeLinear")
    assert not any(n.op == "DequantizeLinear" for n in after)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-1, 0, 2])
def test_trilu(upper, k):
    m = Model()
    spelled(m, m.op("Trilu", m.input(2, 4, 5), m.const(np.int64(k)), upper=upper), gone="Trilu")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis):
    m = Model()
    hot = m.op("OneHot", m.input(2, 3, dtype=TensorProto.INT64), m.const(np.int64(4)), m.input(2), axis=axis)
    spelled(m, hot, gone="OneHot")


def test_tile_cast_like_shrink_and_hardmax():
    m = Model()
    x = m.input(2, 3, 4)
    spelled(m, m.op("Tile", x, m.const(np.array([2, 1, 3]))), gone="Tile")
    for op, *more in (("CastLike", m.const(np.float64(0))), ("Shrink",), ("Hardmax",)):
        n = Model()
        n.initializers = list(m.initializers)
        attributes = {"lambd": 0.3, "bias": 0.1} if op == "Shrink" else {}
        spelled(n, n.op(op, n.input(2, 3, 4), *more, **attributes), gone=op)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pools(p):
    m = Model()
    x = m.input(1, 2, 6, 6)
    y = m.op("LpPool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], p=p)
    spelled(m, y, m.op("GlobalLpPool", x, p=p), gone="LpPool")


def test_batch_norm_with_computed_statistics():
    m = Model()
    x, mean = m.input(2, 3, 4, 4), m.input(3)
    y = m.op("BatchNormalization", x, m.weight(3), m.weight(3), mean, m.op("Exp", m.input(3)))
    spelled(m, y, gone="BatchNormalization")


def test_what_is_decided_at_run_time_stays():
    m = Model()
    y = m.op("ConvTranspose", m.input(1, 4, 3, 3), m.input(4, 2, 3, 3))
    before = import_graph(m.build(y).SerializeToString())
    assert [n.op for n in decompose(before)] == ["ConvTranspose"]
