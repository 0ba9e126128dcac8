"""Advice measured on a GPU: one small model, every price known afterwards, a changed copy that runs what was priced."""

import json
from pathlib import Path

import pytest

from core import cli
from core.session import open_model
from tests.core.advise import models

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]


def told(capsys: pytest.CaptureFixture[str], *line: str) -> dict:
    assert cli.run([*line, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)


def test_measured_advice_has_every_price_and_the_copy_runs_what_was_priced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    path = models.convnet(tmp_path / "net.onnx", 64)
    line = ("advise", str(path), "--batch", "8", "--kind", "activation", "deepen", "batch", "--batches", "8,16")
    out = told(capsys, *line, "--measure", "--limit", "2")
    assert out["measured"] and len(out["advice"]) >= 5
    for advice in out["advice"]:
        assert advice["price"]["missing"] == [] and advice["price"]["gain_us"] is not None, advice["id"]
    assert told(capsys, *line)["advice"] == out["advice"]  # from the records alone
    deepen = next(a["id"] for a in out["advice"] if a["kind"] == "deepen")
    target = tmp_path / "deeper.onnx"
    told(capsys, *line, "--apply", deepen, "-o", str(target))
    changed = open_model(str(target), 8)
    apart = next(w for a in out["advice"] if a["id"] == deepen for w in a["ways"] if "own" in w["label"])
    assert {key for term in apart["terms"] for key in term["after"]} <= set(changed.plan.workloads)
