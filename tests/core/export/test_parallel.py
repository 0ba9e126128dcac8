"""Products of one input in an exported program: slices read in place, executed in numpy against ONNX Runtime."""

import numpy as np
import pytest

from core.export.emit import _fields, _pointers
from core.export.lower import lower
from core.export.operations import Pointwise
from core.export.program import OperatorStep, Program, TemplateStep
from core.fusion.edit import fuse
from core.fusion.plan import Kind
from core.fusion.planner import plan
from core.fusion.propose import propose
from core.importer.load import load_graph
from templates.attention import AttentionWorkload
from templates.types import DType
from templates.workload import GemmWorkload
from tests.core.export.models import Model, fake_choices, reference
from tests.core.export.reference import execute

HEADS, WIDTH = 4, 8


def projections(m: Model, x: str, batch: int, rows: int, biased: str = "qkv") -> list[str]:
    made = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        y = m.op("MatMul", x, m.weight(32, HEADS * WIDTH, scale=0.3))
        y = m.op("Add", y, m.weight(HEADS * WIDTH)) if name in biased else y
        y = m.op("Reshape", y, m.const(np.array([batch, rows, HEADS, WIDTH])))
        made.append(m.op("Transpose", y, perm=perm))
    return made


def attention(biased: str = "qkv"):
    """Queries, keys and values of one tensor, then the projection of the result and the residual."""
    m = Model()
    x = m.input(2, 6, 32)
    q, k, v = projections(m, x, 2, 6, biased)
    scores = m.op("Softmax", m.op("Mul", m.op("MatMul", q, k), m.const(np.float32(WIDTH**-0.5))), axis=-1)
    y = m.op("Transpose", m.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = m.op("Reshape", y, m.const(np.array([2, 6, HEADS * WIDTH])))
    return m.build(m.op("Add", m.op("MatMul", y, m.weight(32, 32)), x))


def gated():
    """An MLP's gate and up projections in an exporter's other order: both are read by one pointwise node."""
    m = Model()
    x = m.input(5, 16)
    gate, up = m.op("MatMul", x, m.weight(16, 24)), m.op("MatMul", x, m.weight(16, 24))
    y = m.op("Max", gate, up)
    return m.build(m.op("MatMul", m.op("Exp", m.op("Neg", y)), m.weight(24, 8)))


def to_products():
    """Each slice is the left operand of another product: rows further apart than they are long."""
    m = Model()
    x = m.input(5, 16)
    left, right = (m.op("Relu", m.op("Gemm", x, m.weight(24, 16), m.weight(24), transB=1)) for _ in range(2))
    return m.build(m.op("MatMul", left, m.weight(24, 8)), m.op("Tanh", m.op("MatMul", right, m.weight(24, 16))))


def to_a_norm():
    m = Model()
    x = m.input(2, 5, 16)
    left, right = (m.op("MatMul", x, m.weight(16, 24)) for _ in range(2))
    norm = m.op("LayerNormalization", m.op("Div", left, m.op("Exp", right)), m.weight(24), m.weight(24))
    return m.build(m.op("MatMul", norm, m.weight(24, 8)))


def branches():
    """1x1 convolutions of one image: channels-last slices, read by a pointwise node and by another 1x1."""
    m = Model()
    x = m.input(2, 16, 4, 3)
    left, right = (m.op("Relu", m.conv(x, 16, 8, size=1)) for _ in range(2))
    y = m.op("Sigmoid", m.op("Exp", left))
    return m.build(m.op("Div", m.op("Exp", m.conv(right, 8, 8, size=1)), m.op("Add", y, m.const(np.float32(1)))))


def fused(make, dtype: DType = DType.TF32) -> tuple[object, Program]:
    model = make()
    graph = load_graph(model.SerializeToString())
    made = plan(graph, dtype)
    (found,) = [p for p in propose(graph, made) if p.kind is Kind.PARALLEL]
    made = fuse(made, graph, found.nodes)
    return model, lower(graph, made, fake_choices(made))


def computes(model, program: Program, tolerance: float = 2e-5) -> None:
    random = np.random.default_rng(3)
    inputs = [random.uniform(-1, 1, p.type.shape).astype(np.float32) for p in program.inputs]
    for mine, wanted in zip(execute(program, inputs), reference(model, inputs), strict=True):
        assert np.linalg.norm(mine - wanted) <= tolerance * np.linalg.norm(wanted)


def copies_of(buffer: int, program: Program) -> list[OperatorStep]:
    return [s for s in program.steps if isinstance(s, OperatorStep) and not s.nodes and buffer in s.reads]


@pytest.mark.parametrize("make", [gated, to_products, to_a_norm, branches])
def test_slices_are_read_where_they_lie(make) -> None:
    model, program = fused(make)
    computes(model, program)
    joint = next(s for s in program.templates).d
    assert not copies_of(joint, program)


@pytest.mark.parametrize("biased", ["qkv", "qv", ""])
def test_attention_reads_queries_keys_and_values_in_one_matrix(biased: str) -> None:
    model, program = fused(lambda: attention(biased), DType.F16)
    computes(model, program, 2e-3)
    joint, heads = [s for s in program.templates][:2]
    assert isinstance(joint.workload, GemmWorkload) and joint.workload.n == 96
    assert joint.workload.epilogue.has_bias == bool(biased)
    assert isinstance(heads.workload, AttentionWorkload) and heads.a == heads.b == heads.b1 == joint.d
    assert not copies_of(joint.d, program)
    fields, starts = dict(_fields(heads, program)), {f: byte for f, _, byte in _pointers(heads, program)}
    assert (starts["a"], starts["b"], starts["b1"]) == (0, 64, 128)
    assert [fields[f"q_{s}"] for s in ("batch", "head", "row")] == [str(6 * 96), "8", "96"]
    assert [fields[f"v_{s}"] for s in ("batch", "head", "row")] == [str(6 * 96), "8", "96"]


def test_a_product_of_a_slice_has_its_leading_dimension() -> None:
    _, program = fused(to_products)
    readers = [s for s in program.templates if s.slices]
    assert [dict(_fields(s, program))["lda"] for s in readers] == ["48", "48"]
    assert [dict((f, b) for f, _, b in _pointers(s, program))["a"] for s in readers] == [0, 96]


def test_what_reads_dense_tensors_gets_a_copy() -> None:
    """A plan made by hand may join what the planner would not: it computes the same, one slice is copied."""
    m = Model()
    x = m.input(2, 16, 4, 3)
    left, right = (m.conv(x, 16, 8, size=1) for _ in range(2))
    model = m.build(m.op("Flatten", m.conv(left, 8, 8)), m.op("Exp", right))
    graph = load_graph(model.SerializeToString())
    made = plan(graph, DType.TF32)
    assert all(p.kind is not Kind.PARALLEL for p in propose(graph, made))
    made = fuse(made, graph, ["n0", "n1"])
    program = lower(graph, made, fake_choices(made))
    computes(model, program)
    joint = next(s for s in program.steps if isinstance(s, TemplateStep)).d
    (copy,) = copies_of(joint, program)
    assert isinstance(copy.operation, Pointwise)
