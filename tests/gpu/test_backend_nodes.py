"""A part of ONNX's node tests as one exported library; `python -m tests.gpu.backend_nodes` runs all of them."""

import pytest

from templates.types import DType
from tests.backend_nodes import cases_of
from tests.gpu.backend_nodes import measure

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.mark.parametrize("dtype", [DType.TF32, DType.F16])
def test_node_tests_pass(tmp_path, gpu, dtype):
    cases = cases_of(("topk", "scatternd", "scatterelements", "cumsum", "groupnormalization", "layernormalization"))
    outcomes = measure(cases, dtype, gpu, 4, tmp_path)
    assert [f"{o.case.name}: {o.reason}" for o in outcomes if o.reason and not o.refused] == []
    assert sum(not o.reason for o in outcomes) > 30
