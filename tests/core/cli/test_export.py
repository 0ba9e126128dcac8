import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

from core.cli import run
from core.export.verify import checked_manifest, other_batches
from core.paths import ROOT
from tests.core.export.models import Model


@pytest.fixture(autouse=True)
def own_records(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path_factory.mktemp("cache")))


def without_compiler(monkeypatch):
    monkeypatch.setattr(
        "core.export.exporter.build_library", lambda folder, name, *rest: (folder / f"lib{name}.so").touch()
    )


def test_an_export_for_a_named_gpu_says_that_nothing_was_measured(tmp_path, monkeypatch, capsys):
    without_compiler(monkeypatch)
    assert run(["export", "mlp", "-o", str(tmp_path / "out"), "--gpu", "a100", "--json", "-q"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["measured"] is False and data["estimated"] == 3 and data["verify"] is None
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["source"] == "mlp" and manifest["measured"] is False
    tuned = [s for s in manifest["steps"] if s["origin"]]
    assert {s["origin"] for s in tuned} == {"estimate"} and all(s["candidate"]["family"] for s in tuned)
    assert "estimates" in (tmp_path / "out" / "report.md").read_text()


def test_several_batch_sizes_make_one_library(tmp_path, monkeypatch, capsys):
    without_compiler(monkeypatch)
    out = tmp_path / "out"
    line = ["export", "mlp", "-o", str(out), "--gpu", "a100", "--batch", "8,1, 32", "-q"]
    assert run([*line, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["batches"] == [1, 8, 32] and data["estimated"] == 9
    manifest = checked_manifest(out)
    assert manifest["batch"] == 32 and manifest["inputs"][0]["shape"][0] == 32
    assert [b["batch"] for b in manifest["buckets"]] == [1, 8, 32]
    assert manifest["buckets"][-1]["steps"] == manifest["steps"] and other_batches(manifest) == [1, 7, 8, 31]
    weights = {b["memory"]["weight_bytes"] for b in manifest["buckets"]}
    assert len(weights) == 1, "they share one file"
    assert (
        "mlp_run_batch" in (out / "include/mlp.h").read_text() and "batch | 1 to 32" in (out / "report.md").read_text()
    )
    assert run(line) == 0
    assert "at the largest of the batch sizes 1, 8, 32" in capsys.readouterr().out
    assert run(["export", "mlp", "-o", str(out), "--gpu", "a100", "--batch", "1,2", "--plan", "p.json"]) == 1
    assert "a plan file is of one batch size" in capsys.readouterr().err


@pytest.mark.parametrize("batch", ["0", "1,", "x", "1,-2"])
def test_a_batch_that_is_no_number_is_bad_usage(tmp_path, batch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(["export", "mlp", "-o", str(tmp_path / "out"), "--batch", batch])
    assert ended.value.code == 2 and "is not a positive whole number" in capsys.readouterr().err


def test_every_unsupported_node_is_named_and_nothing_written(tmp_path, capsys):
    m = Model()
    x = m.input(1, 3, 4, 4)
    onnx.save(m.build(m.op("NonZero", x), m.op("Det", x)), tmp_path / "model.onnx")
    assert run(["export", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "out"), "--gpu", "h200"]) == 1
    error = capsys.readouterr().err
    assert "NonZero 'n0'" in error and "Det 'n1'" in error and error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["mlp", "--gpu", "gtx1"], "no GPU is called"),
        (["nothing.onnx", "--gpu", "h200"], "nothing.onnx"),
        (["mlp", "--gpu", "h200", "--plan", "nothing.json"], "nothing.json"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, arguments, reason):
    assert run(["export", *arguments, "-o", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert reason in error and error.startswith("error: ") and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_help_is_quick_and_imports_no_gpu_library():
    code = (
        "import sys; from core.cli import run\n"
        "try: run(['export', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'onnx', 'cuda', 'PySide6'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.compiles
@pytest.mark.timeout(600)
def test_a_small_conv_net_compiles_for_an_a100(tmp_path, capsys):
    m = Model()
    y = m.op("Relu", m.conv(m.input(1, 3, 16, 16), 3, 16))
    y = m.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = m.op("Gemm", m.op("Reshape", y, m.const(np.array([1, -1]))), m.weight(16 * 64, 8))
    onnx.save(m.build(m.op("Softmax", y)), tmp_path / "net.onnx")
    out = tmp_path / "out"
    assert run(["export", str(tmp_path / "net.onnx"), "-o", str(out), "--gpu", "a100", "--jobs", "2"]) == 0
    assert "not verified: this GPU is not here" in capsys.readouterr().out
    assert (out / "libnet.so").stat().st_size > 100_000
    assert run(["verify", str(out)]) == 1, "this machine has no A100"
