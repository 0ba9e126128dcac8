import json

import pytest

from core.cli import run

GOOD = {"name": "y", "relative_l2": 1e-4, "max_abs": 1e-3, "ok": True}
BAD = {"name": "z\n", "relative_l2": 0.5, "max_abs": 2.0, "ok": False}


def answered(monkeypatch, outputs):
    data = {
        "library": "out/liba.so", "outputs": outputs, "latency_ms": 0.5, "samples_ms": [0.4, 0.5], "gpu": "NVIDIA H200",
        "reference": "ONNX Runtime on the CPU, a.onnx", "tolerance": 0.01,
        "notes": ["y is constant"], "ok": all(o["ok"] for o in outputs),
    }  # fmt: skip
    monkeypatch.setattr("core.export.verify.verify", lambda *a, **k: data)
    return data


def test_a_good_library_is_status_0(monkeypatch, capsys):
    data = answered(monkeypatch, [GOOD])
    assert run(["verify", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == data


def test_a_wrong_output_is_status_1_and_named(monkeypatch, capsys):
    answered(monkeypatch, [GOOD, BAD])
    assert run(["verify", "out"]) == 1
    printed = capsys.readouterr()
    assert "\ny is constant\n" in printed.out
    assert "WRONG" in printed.out and "0.5000 ms" in printed.out
    assert "relative L2 of 0.5" in printed.err and printed.err.count("\n") == 1


def test_a_wrong_output_of_another_batch_is_status_1_and_named(monkeypatch, capsys):
    data = answered(monkeypatch, [GOOD])
    found = {"batch": 7, "outputs": [BAD], "notes": [], "latency_ms": 0.3, "samples_ms": [0.3]}
    data |= {"batches": [found], "ok": False}
    assert run(["verify", "out"]) == 1
    printed = capsys.readouterr()
    assert "batch 7: WRONG" in printed.out and "batch 7: 0.3000 ms" in printed.out
    assert "relative L2 of 0.5" in printed.err


@pytest.mark.parametrize("folder", ["nothing", "."])
def test_a_folder_that_is_no_export(folder, capsys):
    assert run(["verify", folder]) == 1
    assert "no exported library" in capsys.readouterr().err
