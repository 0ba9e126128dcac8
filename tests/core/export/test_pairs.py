"""Pairs in an exported program: what one kernel gets of two operators, executed in numpy against ONNX Runtime."""

import numpy as np
import pytest

from core.export.lower import lower
from core.export.program import TemplateStep
from core.fusion.edit import fuse
from core.fusion.planner import plan
from core.fusion.propose import propose
from core.importer.load import load_graph
from templates.types import DType
from templates.workload import Chain
from tests.core.export.models import Model, fake_choices, reference
from tests.core.export.reference import execute


def conv_pair():
    """A padded stem (3 channels, filled up to the 8 of a pair), stride 2, then 1x1 with a residual."""
    m = Model()
    x = m.input(2, 3, 12, 10)
    y = m.op("Relu", m.conv(x, 3, 16, strides=[2, 2]))
    side = m.op("Sigmoid", m.conv(x, 3, 24, strides=[2, 2]))
    return m.build(m.op("Relu", m.op("Add", m.conv(y, 16, 24, size=1), side)))


def pointwise_pair():
    m = Model()
    y = m.op("Relu", m.conv(m.input(2, 16, 6, 5), 16, 24, size=1))
    return m.build(m.op("Tanh", m.conv(y, 24, 8, size=1)))


def gemm_pair():
    """A flattened convolution, so that A's columns lie channels-last; transB on one side only."""
    m = Model()
    y = m.op("Flatten", m.op("Relu", m.conv(m.input(3, 4, 5, 5), 4, 8)))
    y = m.op("Relu", m.op("Gemm", y, m.weight(32, 200, scale=0.1), m.weight(32), transB=1))
    return m.build(m.op("MatMul", y, m.weight(32, 16)))


def tower_pair():
    """Rows of rank 3."""
    m = Model()
    y = m.op("Relu", m.op("Add", m.op("MatMul", m.input(2, 7, 16), m.weight(16, 24)), m.weight(24)))
    return m.build(m.op("Add", m.op("MatMul", y, m.weight(24, 8)), m.weight(8)))


def head_pair():
    """A result of one column, as a recommender's top has."""
    m = Model()
    y = m.op("Relu", m.op("Gemm", m.input(6, 16), m.weight(24, 16), m.weight(24), transB=1))
    return m.build(m.op("Sigmoid", m.op("Gemm", y, m.weight(1, 24), m.weight(1), transB=1)))


def tower_of_three():
    """DLRM's bottom: 13 features, filled up to the 16 that a chain reads; the last product has a residual."""
    m = Model()
    x = m.input(6, 13)
    y = m.op("Relu", m.op("Gemm", x, m.weight(24, 13), m.weight(24), transB=1))
    y = m.op("Tanh", m.op("Gemm", y, m.weight(24, 16), m.weight(16)))
    return m.build(m.op("Add", m.op("MatMul", y, m.weight(16, 8)), m.op("Sigmoid", m.op("Gemm", x, m.weight(13, 8)))))


@pytest.mark.parametrize("make", [conv_pair, pointwise_pair, gemm_pair, tower_pair, head_pair, tower_of_three])
def test_a_pair_computes_what_the_model_computes(make) -> None:
    model = make()
    graph = load_graph(model.SerializeToString())
    made = plan(graph, DType.TF32)  # float32 in memory: nearly exact
    proposals = propose(graph, made)
    assert proposals
    made = fuse(made, graph, proposals[-1].nodes)
    program = lower(graph, made, fake_choices(made))
    (step,) = [s for s in program.steps if isinstance(s, TemplateStep) and isinstance(s.workload, Chain)]
    assert step.b1 is not None and {step.b, step.b1} <= set(step.reads)
    assert (step.source1 is not None) == step.workload.epilogue.has_source
    random = np.random.default_rng(3)
    inputs = [random.uniform(-1, 1, p.type.shape).astype(np.float32) for p in program.inputs]
    for mine, wanted in zip(execute(program, inputs), reference(model, inputs), strict=True):
        assert np.linalg.norm(mine - wanted) <= 2e-5 * np.linalg.norm(wanted)
