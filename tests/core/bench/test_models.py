"""Suites that run whole commands, over stand-ins for the commands."""

import json

import pytest

from core.bench import models, tuning_time
from core.errors import BoltError

EXPORTED = {"verify": {"latency_ms": 0.5, "gpu": "NVIDIA H200", "outputs": [{"relative_l2": 5e-4}]}}
TIMES = {"ours_ms": 0.4, "eager_ms": 0.8, "compiled_ms": 0.6, "compile_s": 70.0, "note": "", "gpu": "NVIDIA H200"}


def _answers(monkeypatch, answers) -> list[list[str]]:
    """The commands that were run beside torch.compile; each takes the next answer."""
    calls: list[list[str]] = []

    def answer(command, log):
        if "core.bench.model_child" in command and "folder" not in command[-1]:
            return {"compile_s": 70.0}, ""
        calls.append(list(command))
        return answers[len(calls) - 1]

    monkeypatch.setattr(models, "_json_of", answer)
    return calls


def test_a_model_gets_a_row_for_each_peer(monkeypatch) -> None:
    calls = _answers(monkeypatch, [(EXPORTED, ""), (TIMES, "")])
    data = models.measure(["resnet18"], 32, lambda text: None)
    assert calls[0][-2:] == ["--batch", "32"]
    assert json.loads(calls[1][-1])["compile"] and data["rows"][0]["detail"] == "torch.compile took 70 s"
    assert [(r["peer"].split()[0], round(r["ratio"], 3)) for r in data["rows"]] == [
        ("torch.compile", 1.5),
        ("PyTorch", 2.0),
    ]
    assert all(r["relative_l2"] == 5e-4 for r in data["rows"])


def test_a_model_without_peers_keeps_its_own_figure(monkeypatch) -> None:
    _answers(monkeypatch, [(EXPORTED, ""), ({}, "No module named 'torch'")])
    [row] = models.measure(["resnet18"], 32, lambda text: None)["rows"]
    assert (row["ours_us"], row["peer"], row["detail"]) == (500.0, "not compared", "No module named 'torch'")


def test_without_compile_jobs_the_peer_is_eager_alone(monkeypatch) -> None:
    calls = _answers(monkeypatch, [(EXPORTED, ""), ({**TIMES, "compiled_ms": None}, "")])
    [row] = models.measure(["resnet18"], 32, lambda text: None, compile_jobs=0)["rows"]
    assert not json.loads(calls[1][-1])["compile"]
    assert row["peer"].startswith("PyTorch eager") and row["detail"] == ""


def test_models_that_all_fail_are_an_error(monkeypatch) -> None:
    _answers(monkeypatch, [({}, "error: Loop has no kernel")])
    with pytest.raises(BoltError, match=r"none of a\.onnx"):
        models.measure(["a.onnx"], None, lambda text: None)


def test_tuning_time_runs_cold_again_and_warm(monkeypatch) -> None:
    runs = []

    def tune(command, **options):
        runs.append((command[3], options["env"]["BOLT_CACHE"], options["env"]["BOLT_SHIPPED"]))
        region = {"workload": "w", "candidates": 7}
        out = json.dumps({"gpu": "NVIDIA H200", "regions": [region, region]})
        return type("Done", (), {"returncode": 0, "stdout": out, "stderr": ""})()

    monkeypatch.setattr(tuning_time.subprocess, "run", tune)
    data = tuning_time.measure(("resnet50", "resnet18"), 32, lambda text: None)
    assert [r[0] for r in runs] == ["resnet50", "resnet50", "resnet18"]
    assert len({r[1] for r in runs}) == 1 and all(r[2] == "" for r in runs)
    assert [r["name"] for r in data["rows"]] == ["resnet50 b32 cold", "resnet50 b32 again", "resnet18 b32 warm kernels"]
    assert data["rows"][0]["detail"] == "2 regions, 7 candidates"


def test_a_cache_to_keep_starts_empty(tmp_path) -> None:
    (tmp_path / "records.sqlite").touch()
    with pytest.raises(BoltError, match="is not empty"):
        tuning_time.measure(("resnet50",), 32, lambda text: None, keep=tmp_path)
