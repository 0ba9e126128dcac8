"""The inspect verb: the JSON other programs rely on, the tables, the exit status."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from core.cli import run
from core.cli.inspect import as_text
from core.fusion import edit
from core.fusion.files import save_plan
from core.fusion.plan import Kind
from core.session import open_model
from tests.core.fusion.graphs import Net

REGION = {"id": str, "kind": str, "nodes": list, "workload": (str, type(None)), "reason": str}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    net = Net(x=(1, 3, 16, 16))
    y = net.op("MaxPool", net.op("Relu", net.conv("x", 8, 3, name="conv1"), name="relu1"), kernel_shape=[2, 2])
    path = tmp_path / "small.onnx"
    onnx.save(net.model(y), path)
    return path


def test_json_is_what_cli_md_promises(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--json", "--batch", "4"]) == 0
    out = capsys.readouterr()
    data = json.loads(out.out)
    assert set(data) == {"model", "nodes", "regions", "left_alone", "supported"}
    assert (data["model"], data["nodes"], data["supported"]) == ("small", 3, True)
    for region in data["regions"]:
        assert set(region) == set(REGION)
        assert all(isinstance(region[key], kind) for key, kind in REGION.items())
        Kind(region["kind"])
    assert data["regions"][0]["nodes"] == ["conv1", "relu1"]
    assert data["regions"][0]["workload"].startswith("conv 4x16x16x4 k8x3x3 ")
    assert [set(x) for x in data["left_alone"]] == [{"node", "op", "reason"}]
    assert not out.err


def test_text_has_every_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--graph"]) == 0
    text = capsys.readouterr().out
    for part in ("graph 'small'", "Regions", "Workloads", "Left alone", "Fusions refused", "3 nodes in 2 regions"):
        assert part in text


def test_plan_is_saved_edited_and_read_back(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert run(["inspect", str(model), "-q", "--save-plan", str(file)]) == 0
    data = json.loads(file.read_text())
    data["groups"][0]["nodes"] = ["conv1"]
    file.write_text(json.dumps(data))
    capsys.readouterr()
    assert run(["inspect", str(model), "--json", "--plan", str(file)]) == 0
    assert [r["nodes"] for r in json.loads(capsys.readouterr().out)["regions"]] == [["conv1"], ["relu1"], ["maxpool0"]]
    data["groups"][0]["nodes"] = ["conv1", "maxpool0"]
    file.write_text(json.dumps(data))
    assert run(["inspect", str(model), "--plan", str(file)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "maxpool0" in err


def test_model_with_an_operator_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Mystery", ["a"], ["b"], name="strange [bold]", domain="com.example"),
        helper.make_node("Relu", ["b"], ["y"], name="last"),
    ]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 8]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]
    path = tmp_path / "unknown.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    assert run(["inspect", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert not data["supported"]
    assert [r["kind"] for r in data["regions"] if "strange [bold]" in r["nodes"]] == ["other"]
    assert run(["inspect", str(path)]) == 0
    assert "Mystery strange [bold]: operator com.example.Mystery is unknown to ONNX" in capsys.readouterr().out


@pytest.mark.parametrize("batch", ["0", "-1", "x", "1.5"])
def test_bad_batch_is_bad_usage(model: Path, batch: str) -> None:
    with pytest.raises(SystemExit) as stop:
        run(["inspect", str(model), f"--batch={batch}"])
    assert stop.value.code == 2


def test_model_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "noise.onnx"
    path.write_bytes(np.random.default_rng(0).bytes(100))
    assert run(["inspect", str(path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")


LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("light_*.onnx"))


@pytest.mark.parametrize("path", LIGHT, ids=lambda p: p.stem)
def test_light_models(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["supported"] and sum(len(r["nodes"]) for r in data["regions"]) == data["nodes"]
    assert all(x["reason"] for x in data["left_alone"]) and all(r["reason"] for r in data["regions"])


def test_all_nine_light_models_are_there() -> None:
    assert len(LIGHT) == 9


def test_chains_for_one_kernel_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "mlp"]) == 0
    told = capsys.readouterr().out
    assert "Regions that share a tensor" in told and "if faster" in told and "tune --persistent" in told
    assert run(["inspect", "dlrm", "--batch", "2048"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "it can stay in shared memory (smem)" in words, "512-256-1: only the tower stores a result of one column"
    assert "registers (RF) or shared memory (smem)" in words and "intermediates of 512 and 256 columns" in words
    assert run(["inspect", "resnet18"]) == 0
    assert "reads a halo of the intermediate" in " ".join(capsys.readouterr().out.split())


def test_what_a_plan_file_decides_is_told(tmp_path: Path) -> None:
    session = open_model("mlp")
    region = next(r for r in session.plan.regions if len(r.nodes) > 1)
    plan = edit.pin(edit.forbid(session.plan, session.graph, region.nodes), session.plan.regions[-1].id)
    save_plan(plan, tmp_path / "plan.json")
    text = as_text(open_model("mlp", plan_path=tmp_path / "plan.json"))
    assert "Fusions forbidden by the plan" in text and "pinned; " in text
