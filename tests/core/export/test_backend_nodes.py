"""ONNX's node tests of the operators that are easily got wrong, lowered and run in numpy; some as a library on the CPU.

All of them run on the GPU: tests/gpu/backend_nodes.py.
"""

import pytest

from core.export.lower import lower
from core.fusion.planner import plan
from templates.types import DType
from tests.backend_nodes import DISPUTED, cases_of, difference, prepared
from tests.core.export.emulated import a100_program, emulated_library, load_caller
from tests.core.export.models import fake_choices
from tests.core.export.reference import execute
from tests.gpu.backend_nodes import feeds_of, judged, merged, record

MODULES = (
    "averagepool", "batch_normalization", "convtranspose", "cumsum", "dequantizelinear", "einsum", "gatherelements",
    "gathernd", "groupnormalization", "hardmax", "instance_normalization", "layernormalization", "lpnormalization",
    "lppool", "maxpool", "mod", "onehot", "quantizelinear", "resize", "rmsnormalization", "scatterelements",
    "scatternd", "tile", "topk", "trilu", "where",
)  # fmt: skip
# Why the exporter says no: types and extents that no graph holds, and what the operators' table lists.
EXPECTED = (
    "element type", "every dimension must be at least 1", "second output (the indices)", "tf_crop_and_resize",
    "has unsupported type", "no kernel for the operator QuantizeLinear",
)  # fmt: skip


def test_lowered_they_give_what_onnx_says():
    cases = cases_of(MODULES)
    failed, refused = [], []
    for case in cases:
        made = prepared(case, DType.TF32)
        if isinstance(made, str):
            refused.append(case.name)
            assert any(reason in made for reason in EXPECTED), f"{case.name}: {made}"
            continue
        baked, graph = made
        if any(t.dtype == DType.BF16 for t in graph.types.values()):  # numpy has no bfloat16
            continue
        found = plan(graph, DType.TF32)
        results = execute(lower(graph, found, fake_choices(found)), [baked.inputs[t] for t in graph.inputs])
        wrong = difference(baked, results)
        assert bool(wrong) or case.name not in DISPUTED, f"{case.name} passes: no longer disputed"
        failed += [f"{case.name}: {wrong}"] if wrong and case.name not in DISPUTED else []
    assert not failed, "\n".join(failed)
    assert len(cases) > 180 and len(refused) < 0.25 * len(cases), refused


@pytest.mark.compiles
def test_many_of_them_run_in_one_library(tmp_path):
    names = ("topk", "scatternd", "rmsnormalization", "cumsum", "groupnormalization")
    made = [m for m in (prepared(c, DType.TF32) for c in cases_of(names)[::2]) if not isinstance(m, str)]
    cases, graphs = [c for c, _ in made], [g for _, g in made]
    emulated_library(a100_program(merged(graphs), DType.TF32), tmp_path, "nodes")
    results = load_caller(tmp_path, "nodes").Model()(*feeds_of(cases, graphs))
    outcomes = judged(cases, graphs, results, DType.TF32)
    data = record(outcomes, DType.TF32, "emulated")
    assert len(cases) > 12 and data["passed"] == data["cases"] == len(cases), data["missed"]
