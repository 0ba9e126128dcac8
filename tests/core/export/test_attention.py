"""Models with attention, lowered: no copies around the kernel, and what ONNX Runtime computes comes out."""

import numpy as np
import pytest

from core.errors import ExportError
from core.export.lower import lower
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.importer.load import load_graph
from templates.attention import AttentionWorkload
from templates.types import DType
from tests.core.export.emulated import a100_program, emulated_library, load_caller
from tests.core.export.models import reference
from tests.core.export.reference import execute
from tests.core.fusion.attention_models import FORMS
from tests.core.fusion.test_attention import feeds_of


def close(mine: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.linalg.norm(mine - wanted) <= 1e-2 * np.linalg.norm(wanted))


@pytest.mark.parametrize("name", FORMS)
def test_a_model_computes_what_onnx_runtime_does(name: str) -> None:
    build, _, _, copies = FORMS[name]
    model = build()
    graph = prepare(load_graph(model.SerializeToString()))
    program = a100_program(graph)
    steps = [s for s in program.templates if isinstance(s.workload, AttentionWorkload)]
    assert len(steps) == 1 and len(steps[0].reads) == 3 + (steps[0].workload.mask != "none")
    operands = (steps[0].a, steps[0].b, steps[0].b1)  # a mask's type may be converted
    moved = [s for s in program.steps if not s.nodes and s.writes[0] in operands]
    assert len(moved) == copies, moved
    inputs = list(feeds_of(graph).values())
    for mine, wanted in zip(execute(program, inputs), reference(model, inputs), strict=True):
        assert close(mine, wanted)


@pytest.mark.compiles
def test_an_exported_library_runs_it(tmp_path) -> None:
    model = FORMS["gpt2"][0]()
    graph = prepare(load_graph(model.SerializeToString()))
    emulated_library(a100_program(graph), tmp_path, "net")
    inputs = list(feeds_of(graph).values())
    [wanted] = reference(model, inputs)
    assert close(load_caller(tmp_path, "net").Model()(*inputs), wanted)


def test_attention_without_a_kernel_is_refused() -> None:
    graph = prepare(load_graph(FORMS["bert"][0]().SerializeToString()))
    made = plan(graph, DType.F16)
    with pytest.raises(ExportError, match="no kernel for"):
        lower(graph, made, {})
