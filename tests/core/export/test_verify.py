"""Verification without a GPU: the manifest's checks, the comparison, and a library that crashes, hangs or refuses."""

import json
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest

from core.build.toolchain import find_toolchain
from core.device import resolve_gpu
from core.errors import Cancelled, ExportError
from core.export import verify as module
from core.export.exporter import Bucket, Origins, export, export_buckets
from core.export.reference import index_bound, load_inputs, random_inputs, reference_outputs
from core.export.verify import checked_manifest, nearly_constant, verify
from core.fusion.planner import plan
from core.importer.load import load_graph
from tests.core.export.models import Model


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """A folder with everything but a real library, and its model."""
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    m = Model()
    model = m.build(m.op("Tanh", m.op("Exp", m.input(2, 3))))
    onnx.save(model, tmp_path / "model.onnx")
    graph = load_graph(tmp_path / "model.onnx")
    monkeypatch.setattr(
        "core.export.exporter.build_library", lambda folder, name, *rest: (folder / f"lib{name}.so").touch()
    )
    export(
        graph,
        plan(graph),
        {},
        resolve_gpu("h200"),
        tmp_path / "out",
        find_toolchain(),
        Origins(str(tmp_path / "model.onnx")),
    )
    return tmp_path / "out"


def child(error: float):
    """A stand-in for the process: the right outputs plus an error."""

    def run(folder, data, arrays, *rest):
        right = np.tanh(np.exp(arrays[0]))
        return {"latency_ms": 0.1, "samples_ms": [0.1, 0.2], "gpu": "a GPU"}, [right], [right + np.float32(error)]

    return run


@pytest.mark.parametrize(("error", "ok"), [(0.0, True), (1e-4, True), (0.1, False), (np.nan, False)])
def test_the_worse_of_the_two_runs_decides(exported, monkeypatch, error, ok):
    monkeypatch.setattr(module, "_run_child", child(error))
    data = verify(exported)
    assert data["ok"] is ok and data["outputs"][0]["ok"] is ok
    assert set(data) >= {"library", "outputs", "latency_ms", "reference"}
    assert json.loads(json.dumps(data))["latency_ms"] == 0.1


@pytest.mark.parametrize(
    ("values", "constant"),
    [
        (np.full(1000, 1e-3), True),
        (np.full(1000, 1e-3) + 1e-7 * np.arange(1000), False),
        (np.full(1000, 1e-3) + 1e-9 * np.arange(1000), True),
        (np.zeros(4), True),
        (np.array(3.0), False),
        (np.array([-1.0, 1.0]), False),
        (np.array([7, 7, 7]), True),
        (np.array([np.nan, 1.0]), False),
    ],
)
def test_an_output_that_one_number_would_match_is_noted(exported, monkeypatch, values, constant):
    assert nearly_constant(values.astype(np.float32), 1e-2) is constant
    monkeypatch.setattr(module, "_run_child", child(0.0))
    monkeypatch.setattr(module, "nearly_constant", lambda wanted, tolerance: constant)
    assert ["proves little" in note for note in verify(exported)["notes"]] == [True] * constant


def test_every_batch_size_and_a_padded_one_is_run(tmp_path, monkeypatch):
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "core.export.exporter.build_library", lambda folder, name, *rest: (folder / f"lib{name}.so").touch()
    )
    m = Model()
    onnx.save(m.build(m.op("Tanh", m.op("Exp", m.input(2, 3)))), tmp_path / "model.onnx")
    graphs = {b: load_graph(tmp_path / "model.onnx", b) for b in (2, 5)}
    made = [Bucket(b, graph, plan(graph), {}) for b, graph in graphs.items()]
    origins = Origins(str(tmp_path / "model.onnx"), 5)
    export_buckets(made, resolve_gpu("h200"), tmp_path / "out", find_toolchain(), origins)
    ran = []

    def run(folder, data, arrays, *rest):
        ran.append((rest[-1], arrays[0].shape, tuple(data["outputs"][0]["shape"])))
        return child(0.1 if rest[-1] == 4 else 0.0)(folder, data, arrays)

    monkeypatch.setattr(module, "_run_child", run)
    data = verify(tmp_path / "out")
    assert ran == [(b, (n, 3), (n, 3)) for b, n in ((0, 5), (1, 1), (2, 2), (4, 4))]
    assert [(b["batch"], b["ok"]) for b in data["batches"]] == [(1, True), (2, True), (4, False)]
    assert not data["ok"] and data["outputs"][0]["ok"]


def test_changed_and_missing_files_are_found_before_anything_is_loaded(exported):
    checked_manifest(exported)
    library = next(exported.glob("lib*.so"))
    library.write_bytes(b"other")
    with pytest.raises(ExportError, match="was changed after the export"):
        verify(exported)
    library.unlink()
    with pytest.raises(ExportError, match="lacks the file"):
        verify(exported)


def test_a_library_from_elsewhere_is_loaded_after_a_yes(exported, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_run_child", child(0.0))
    assert verify(exported)["ok"]
    moved = exported.rename(tmp_path / "moved")  # still the very same
    assert verify(moved)["ok"]
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "of another user"))
    with pytest.raises(ExportError, match=r"not exported by you on this machine.*--trust"):
        verify(moved)
    assert verify(moved, trust=True)["ok"]
    next(moved.glob("lib*.so")).write_bytes(b"other")
    with pytest.raises(ExportError, match="was changed after the export"):
        verify(moved, trust=True)


def test_a_manifest_cannot_point_outside_its_folder(exported):
    path = exported / "manifest.json"
    data = json.loads(path.read_text())
    data["files"] |= {"../model.onnx": "0"}
    path.write_text(json.dumps(data))
    with pytest.raises(ExportError, match="lacks the file"):
        verify(exported)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1}'])
def test_a_damaged_manifest_is_one_line(exported, text):
    (exported / "manifest.json").write_text(text)
    with pytest.raises(ExportError, match="no exported library"):
        verify(exported)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../other"},
        {"name": 7},
        {"source": None},
        {"batch": "2"},
        {"dtype": 0},
        {"inputs": True},
        {"inputs": [{"shape": [2, 3], "dtype": "f32"}]},
        {"outputs": [{"name": "y", "shape": [2, []], "dtype": "f32"}]},
        {"outputs": [{"name": "y", "shape": [2, 3], "dtype": []}]},
        {"files": {}},
        {"buckets": [{"batch": 8}, {"batch": 1}]},
    ],
)
def test_a_manifest_of_other_types_is_one_line(exported, change):
    path = exported / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ExportError, match=r"manifest\.json is damaged"):
        verify(exported)


def fake_process(monkeypatch, tmp_path, body: str):
    script = tmp_path / "child.py"
    script.write_text(f"import json, os, sys, time\njob = json.load(open(sys.argv[3]))\n{body}\n")
    monkeypatch.setattr(module.sys, "executable", str(_wrapper(tmp_path, script)))


def _wrapper(tmp_path, script):
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def test_a_crash_is_a_reason(exported, monkeypatch, tmp_path):
    fake_process(monkeypatch, tmp_path, "sys.stderr.write('boom'); sys.stderr.flush(); os.kill(os.getpid(), 11)")
    with pytest.raises(ExportError, match="status -11: boom"):
        verify(exported)


def test_a_hang_is_a_reason(exported, monkeypatch, tmp_path):
    fake_process(monkeypatch, tmp_path, "time.sleep(60)")
    with pytest.raises(ExportError, match="did not finish within"):
        verify(exported, time_limit_s=1.0)


def test_it_can_be_stopped(exported, monkeypatch, tmp_path):
    fake_process(monkeypatch, tmp_path, "time.sleep(60)")
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        verify(exported, cancel=cancel)


def test_a_refusal_of_the_library_is_passed_on(exported, monkeypatch, tmp_path):
    fake_process(monkeypatch, tmp_path, "json.dump({'error': 'wrong GPU'}, open(job['answer'], 'w'))")
    with pytest.raises(ExportError, match="wrong GPU"):
        verify(exported)


def test_another_model_is_told_by_its_inputs(exported, monkeypatch, tmp_path):
    m = Model()
    onnx.save(m.build(m.op("Exp", m.input(2, 4))), tmp_path / "other.onnx")
    monkeypatch.setattr(module, "_run_child", child(0.0))
    with pytest.raises(ExportError, match="takes \\[2, 3\\]"):
        verify(exported, model=str(tmp_path / "other.onnx"))


def test_inputs_from_a_file(exported, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_run_child", child(0.0))
    np.savez(tmp_path / "x.npz", in0=np.ones((2, 3), np.float32))
    assert verify(exported, inputs=tmp_path / "x.npz")["ok"]
    np.savez(tmp_path / "y.npz", in0=np.ones((3, 3), np.float32))
    with pytest.raises(ExportError, match="shape"):
        load_inputs(tmp_path / "y.npz", [{"name": "in0", "shape": [2, 3]}])


def test_the_reference_takes_the_batch_the_export_set():
    graph = load_graph("mlp", 3)
    inputs = random_inputs(graph)
    assert reference_outputs("mlp", inputs)[0].shape[0] == 3


def test_indices_stay_inside_the_smallest_table_they_look_up():
    from onnx import TensorProto

    m = Model()
    index = m.input(4, dtype=TensorProto.INT64)
    shifted = m.op("Reshape", index, m.const(np.array([2, 2])))
    graph = load_graph(
        m.build(m.op("Gather", m.weight(7, 3), index), m.op("Gather", m.weight(5, 3), shifted)).SerializeToString()
    )
    assert index_bound(graph, graph.inputs[0]) == 5
    assert random_inputs(graph)[graph.inputs[0]].max() < 5


@pytest.mark.parametrize("busy", [True, False])
def test_waiting_for_another_program_on_the_gpu_does_not_count(tmp_path, monkeypatch, busy):
    clock, waiting = [0.0], tmp_path / module.WAITING

    class Process:
        def wait(self, timeout: float) -> None:
            clock[0] += 1.0
            if clock[0] > 50:
                waiting.unlink(missing_ok=True)
            if clock[0] < 60:
                raise subprocess.TimeoutExpired("child", timeout)

    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    if busy:
        waiting.touch()
        module._wait(Process(), 20.0, None, waiting)
    else:
        with pytest.raises(ExportError, match="did not finish within 20 s"):
            module._wait(Process(), 20.0, None, waiting)
