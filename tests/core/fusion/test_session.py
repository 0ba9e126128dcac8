"""Opening a model: graph and plan belong together, whatever the options."""

from pathlib import Path

import onnx
import pytest

from core.errors import ModelError, PlanError
from core.fusion.files import save_plan
from core.session import open_model
from templates.types import DType
from tests.core.fusion.graphs import Net


@pytest.fixture
def path(tmp_path: Path) -> Path:
    net = Net(x=(1, 3, 16, 16))
    path = tmp_path / "small.onnx"
    onnx.save(net.model(net.op("Relu", net.conv("x", 8, 3, name="conv1"), name="relu1")), path)
    return path


def test_options_reach_graph_and_plan(path: Path) -> None:
    session = open_model(path, batch=4, dtype=DType.BF16)
    assert (session.name, session.source, session.batch, session.dtype) == ("small", str(path), 4, DType.BF16)
    assert session.graph.shape("x") == (4, 3, 16, 16)
    assert session.plan.dtype is DType.BF16
    assert [r.workload.key.split()[:2] for r in session.plan.regions if r.workload] == [["conv", "4x16x16x4"]]


def test_plan_file_is_taken_in_the_session_s_type(path: Path, tmp_path: Path) -> None:
    first = open_model(path)
    save_plan(first.plan, tmp_path / "plan.json")
    again = open_model(path, dtype=DType.BF16, plan_path=tmp_path / "plan.json")
    assert again.plan.dtype is DType.BF16 and [r.nodes for r in again.plan.regions] == [("conv1", "relu1")]
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(PlanError, match="not a plan file"):
        open_model(path, plan_path=tmp_path / "plan.json")


def test_built_in_model_and_missing_file() -> None:
    assert open_model("mlp").name == "mlp"
    with pytest.raises(ModelError):
        open_model("no such model")
