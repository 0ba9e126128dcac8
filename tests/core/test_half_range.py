"""Models whose activations leave float16: brought into it for whoever runs their weights, measured once, and right."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from core.cli import run
from core.errors import ModelError, RecordError
from core.export.lower import lower
from core.half_range import content_digest
from core.importer.load import load_graph
from core.session import Session, fitted, open_model
from templates.types import DType
from tests.core.export.models import Model, fake_choices, reference
from tests.core.export.reference import execute


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def growing(batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """Convolutions up to 1e9 with residuals, a pool; logits small and far too large, of these the softmax."""
    m = Model(seed)
    x = m.input(batch, 8, 6, 6)
    for _ in range(3):
        x = m.op(
            "Conv", x, m.const(200 * np.abs(m.random.uniform(0, 1, (8, 8, 3, 3))).astype(np.float32)), pads=[1] * 4
        )
        x = m.op("Relu", m.op("Add", x, m.op("Relu", x)))
    pooled = m.op("Flatten", m.op("GlobalAveragePool", m.op("MaxPool", x, kernel_shape=[2, 2])))
    logits = m.op("Gemm", pooled, m.weight(8, 40, scale=3e-2), m.weight(40))
    small = m.op("Gemm", pooled, m.weight(8, 24, scale=2e-10), m.weight(24))
    return m.build(small, m.op("Softmax", logits))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(growing(), tmp_path / "growing.onnx")
    return tmp_path / "growing.onnx"


def never(*given: Any) -> Any:
    raise AssertionError("measured")


def half_outputs(session: Session, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return execute(lower(session.graph, session.plan, fake_choices(session.plan)), inputs)


def test_half_precision_computes_the_original_model(path: Path) -> None:
    plain, session = open_model(path), open_model(path, fit_range=True)
    inputs = [np.random.default_rng(1).uniform(-1, 1, (1, 8, 6, 6)).astype(np.float32)]
    wanted = reference(onnx.load(path), inputs)
    assert wanted[0].std() > 0.05 and 0.2 < wanted[1].max() <= 1
    assert not np.isfinite(half_outputs(plain, inputs)[0]).all()
    for mine, right in zip(half_outputs(session, inputs), wanted, strict=True):
        assert np.linalg.norm(mine - right) / np.linalg.norm(right) < 1e-2
    assert [r.nodes for r in session.plan.regions] == [r.nodes for r in plain.plan.regions]
    assert list(session.plan.workloads) == list(plain.plan.workloads)


def test_what_was_done_is_told(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (note,) = open_model(path, batch=1, fit_range=True).notes
    assert note.startswith("weights rescaled by powers of two so that ") and "tensors fit float16" in note
    assert open_model(path).notes == ()
    assert run(["inspect", str(path), "--json", "--range"]) == 0
    assert json.loads(capsys.readouterr().out)["range"] == [note]
    assert run(["inspect", str(path), "--range"]) == 0
    assert note in capsys.readouterr().out
    assert run(["inspect", "mlp", "--range"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("every activation fits float16")


def test_only_float16_and_only_on_demand(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.half_range.peaks", never)
    assert open_model(path, dtype=DType.BF16, fit_range=True).notes == ()
    session = open_model(path)
    assert run(["inspect", str(path), "-q"]) == 0
    with pytest.raises(AssertionError, match="measured"):
        fitted(session)


def test_peaks_are_measured_once_for_each_content(path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    first = open_model(path, fit_range=True)
    with monkeypatch.context() as patch:
        patch.setattr("core.half_range.peaks", never)
        again = open_model(path, fit_range=True)
        assert again.notes == first.notes and content_digest(again.graph) == content_digest(first.graph)
        onnx.save(growing(seed=1), path)
        with pytest.raises(AssertionError, match="measured"):
            open_model(path, fit_range=True)
    (file,) = (cache / "ranges").iterdir()
    onnx.save(growing(), path)
    for damaged in ("", "[1]", "{", '{"t0": "x"}', '{"t0": null}'):
        file.write_text(damaged)
        assert open_model(path, fit_range=True).notes == first.notes


def test_a_tensor_that_stays_outside_is_named(tmp_path: Path) -> None:
    m = Model()
    y = m.op("MatMul", m.input(4, 8), m.weight(8, 8, scale=1e6))
    onnx.save(m.build(m.op("Tanh", y)), tmp_path / "m.onnx")
    (note,) = open_model(tmp_path / "m.onnx", fit_range=True).notes
    assert "'t0' may exceed float16" in note and "bf16" in note


def test_a_range_that_cannot_be_measured_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise ModelError("too large")

    monkeypatch.setattr("core.half_range.peaks", fails)
    assert open_model(path, fit_range=True).notes == ("whether the activations fit float16 is not known: too large",)


def test_a_cache_that_cannot_be_written_is_one_line(path: Path, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(RecordError, match="BOLT_CACHE"):
        open_model(path, fit_range=True)


@pytest.mark.parametrize("name", ["mlp", "resnet18"])
def test_built_in_models_are_in_range(name: str) -> None:
    session = open_model(name)
    assert fitted(session).graph is session.graph and fitted(session).notes == ()


def test_digest_sees_every_part() -> None:
    graph = load_graph("mlp")
    name, value = next((n, v) for n, v in graph.constants.items() if v.size > 1)
    changed = value.copy()
    changed.flat[-1] += 1
    others = [
        graph.replaced(graph.nodes, constants={**graph.constants, name: changed}),
        graph.replaced(graph.nodes, constants={**graph.constants, name: value.astype(np.float64)}),
        graph.replaced(graph.nodes[:-1]),
        graph.replaced(graph.nodes, inputs=("other",), types={**graph.types, "other": graph.types[graph.inputs[0]]}),
    ]
    assert len({content_digest(g) for g in (graph, *others)}) == 5
    assert content_digest(load_graph("mlp")) == content_digest(graph)


def test_the_manifest_tells_it(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "core.export.exporter.build_library", lambda folder, name, *rest: (folder / f"lib{name}.so").touch()
    )
    assert run(["export", str(path), "-o", str(tmp_path / "out"), "--gpu", "a100", "-q"]) == 0
    notes = json.loads((tmp_path / "out" / "manifest.json").read_text())["notes"]
    assert notes[0].startswith("weights rescaled by powers of two")
    assert not [n for n in notes if "became" in n]


def test_a_model_onnx_runtime_refuses_is_noted(tmp_path: Path) -> None:
    m = Model()
    onnx.save(m.build(m.op("LRN", m.input(1, 8, 4, 4), size=4)), tmp_path / "even.onnx")
    (note,) = open_model(tmp_path / "even.onnx", fit_range=True).notes
    assert note.startswith("whether the activations fit float16 is not known: ONNX Runtime can't run")
    assert "\n" not in note
