"""Models with operators that have no kernel: the cut, and the caller that runs libraries and ONNX Runtime in turn."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.cli import run
from core.errors import ExportError
from core.export.partial import stage_model
from core.export.partition import not_carried, partition
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.graph.ir import Graph, Node
from core.importer.load import load_graph
from tests.core.export.emulated import a100_program, emulated_library, load_caller
from tests.core.export.models import Model, reference


def net():
    """Two products around an operator without a kernel, and a way past it."""
    m = Model()
    x = m.op("Relu", m.op("MatMul", m.input(3, 4, 4), m.weight(4, 4)))
    turned = m.op("Mul", m.op("Unsqueeze", m.op("Det", x), m.const(np.array([1, 2]))), x)
    y = m.op("MatMul", m.op("Add", turned, x), m.weight(4, 8))
    return m.build(y, m.op("NonZero", m.op("Relu", y)))


def worth(graph):
    return bool(plan(graph).workloads)


def cut(model):
    graph = prepare(load_graph(model.SerializeToString()))
    return graph, partition(graph, not_carried(graph, plan(graph)), worth)


def test_the_cut_runs_in_order_and_keeps_every_node_once():
    graph, stages = cut(net())
    assert [s.carried for s in stages] == [True, False, True, False]
    assert sorted(n.name for s in stages for n in s.graph) == sorted(n.name for n in graph)
    known = {*graph.inputs}
    for stage in stages:
        assert set(stage.graph.inputs) <= known
        known |= set(stage.graph.outputs)
    assert set(graph.outputs) <= known
    assert [n.op for n in stages[1].graph] == ["Det"] and [n.op for n in stages[3].graph] == ["NonZero"]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_cut_of_any_graph_can_run_in_order(data):
    count = data.draw(st.integers(1, 14))
    nodes, made = [], ["x"]
    for i in range(count):
        reads = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
        nodes.append(Node(f"n{i}", "Op", tuple(reads), (f"t{i}",)))
        made.append(f"t{i}")
    read = {t for n in nodes for t in n.inputs}
    graph = Graph("g", tuple(nodes), ("x",), tuple(t for t in made[1:] if t not in read), {}, {})
    left = data.draw(st.sets(st.sampled_from([n.name for n in nodes])))
    poor = data.draw(st.sets(st.sampled_from([n.name for n in nodes])))
    stages = partition(graph, left, lambda g: not poor & {n.name for n in g})
    known = {"x"}
    for stage in stages:
        inside = set(known)
        assert set(stage.graph.inputs) <= known
        for node in stage.graph:
            assert set(node.inputs) <= inside
            inside |= set(node.outputs)
        known |= set(stage.graph.outputs)
        if stage.carried:
            assert not (left | poor) & {n.name for n in stage.graph}
    assert sorted(n.name for s in stages for n in s.graph) == sorted(n.name for n in nodes)
    assert set(graph.outputs) <= known


def without_compiler(monkeypatch, tmp_path):
    """Libraries of the emulator in place of the compiler's."""
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "core.export.exporter.build_library", lambda folder, name, *rest: (folder / f"lib{name}.so").touch()
    )


@pytest.mark.compiles
def test_a_partial_export_computes_what_onnx_runtime_does(tmp_path, monkeypatch, capsys):
    without_compiler(monkeypatch, tmp_path)
    onnx.save(net(), tmp_path / "net.onnx")
    out = tmp_path / "out"
    line = ["export", str(tmp_path / "net.onnx"), "-o", str(out), "--gpu", "a100", "--partial", "--name", "net"]
    assert run([*line, "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [s["carried"] for s in told["stages"]] == [True, False, True, False]
    assert run(line) == 0 and "net_rest1: 1 nodes, ONNX Runtime" in capsys.readouterr().out, "and replaces the first"
    assert run(["verify", str(out)]) == 1
    assert "verify each of its libraries" in capsys.readouterr().err
    for stage in [s["name"] for s in told["stages"] if s["carried"]]:
        (tmp_path / stage).mkdir()
        program = a100_program(load_graph(out / f"{stage}.onnx"))
        library = emulated_library(program, tmp_path / stage, stage)
        for made in (library, tmp_path / stage / f"{stage}.safetensors"):
            Path(made).replace(out / stage / Path(made).name)
    x = np.random.default_rng(0).uniform(-1, 1, (3, 4, 4)).astype(np.float32)
    mine, wanted = load_caller(out, "net").Model()(x), reference(net(), [x])
    assert np.linalg.norm(mine[0] - wanted[0]) <= 1e-2 * np.linalg.norm(wanted[0])
    assert mine[1].shape[0] == wanted[1].shape[0] == 3


def test_a_model_of_nothing_to_carry_is_refused(tmp_path, capsys):
    m = Model()
    onnx.save(m.build(m.op("Det", m.op("Relu", m.input(2, 3, 3)))), tmp_path / "net.onnx")
    assert run(["export", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "out"), "--gpu", "a100", "--partial"]) == 1
    assert "no part of" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_tensor_without_a_type_between_two_parts_is_named():
    m = Model()
    found = m.op("NonZero", m.input(3, 4))
    graph = load_graph(m.build(m.op("Abs", found)).SerializeToString())
    last = graph.replaced(graph.nodes[1:], inputs=(graph.nodes[0].output,))
    with pytest.raises(ExportError, match="would pass between two parts"):
        stage_model(last)
