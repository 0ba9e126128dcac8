"""`advise` on records, with a simulated GPU, and applied."""

import contextlib
import json

import onnx
import pytest

from core import cli
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.job import TuningJob
from tests.core.advise import models
from tests.core.tuning_stubs import SimulatedBuilder, SimulatedMeasurer, StubFamily, gpu_identity

IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BOLT_SHIPPED", "")
    return models.spelled_out(tmp_path / "spelled.onnx")


@pytest.fixture
def gpu(monkeypatch):
    """A simulated GPU; holds the workloads and options of each job."""
    family = StubFamily()
    asked = []

    @contextlib.contextmanager
    def local_job(work, options, gpu, runtime, jobs):
        asked.append((list(work), options))
        records = Records(families={"stub": family})
        yield TuningJob(work, IDENTITY, SimulatedBuilder(), [SimulatedMeasurer()], records, options, {"stub": family})

    monkeypatch.setattr("core.tuner.local.local_job", local_job)
    monkeypatch.setattr("core.tuner.local.gpu_here", lambda name: IDENTITY.gpu)
    monkeypatch.setattr("core.device.detect_gpu", lambda: IDENTITY.gpu)
    monkeypatch.setattr("templates.families", lambda: {"stub": family})
    monkeypatch.setattr("core.records.store.all_families", lambda: {"stub": family})
    return asked


def told(capsys, *line: str) -> dict:
    assert cli.run(["advise", *line, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)


def test_without_records_nothing_is_invented_and_the_command_is_named(net, capsys):
    out = told(capsys, str(net), "--gpu", "h200", "--batch", "4")
    assert set(out) == {"model", "batch", "gpu", "measured", "advice", "command"}
    assert {a["kind"] for a in out["advice"]} == {"activation", "roofline", "batch"}
    for advice in out["advice"]:
        assert advice["price"]["gain_us"] is None and advice["price"]["estimated_gain_us"] is None
        assert advice["price"]["missing"]
    assert out["command"] == f"python3 main.py advise {net} --batch 4 --measure"
    assert cli.run(["advise", str(net), "--gpu", "h200"]) == 0
    text = capsys.readouterr().out
    assert "not measured" in text and "--measure" in text and "saves" not in text and "costs" not in text


def test_estimates_stand_apart(net, capsys):
    line = (str(net), "--gpu", "h200", "--kind", "batch", "activation", "--batches", "8,16", "--estimate")
    out = told(capsys, *line)
    assert all(a["price"]["gain_us"] is None for a in out["advice"])
    for advice in out["advice"]:  # the rules do not see what an epilogue computes
        kind = float if advice["kind"] == "batch" else type(None)
        assert all(isinstance(w["estimated_gain_us"], kind) for w in advice["ways"])
    assert cli.run(["advise", *line]) == 0
    assert "not measured" in (text := capsys.readouterr().out) and "estimated: " in text


def test_measuring_is_one_run_that_prices_all_of_it(net, gpu, capsys):
    line = (str(net), "--batch", "4", "--batches", "1,8", "--limit", "3")
    out = told(capsys, *line, "--measure")
    ((workloads, options),) = gpu
    assert len({w.key for w in workloads}) == len(workloads)
    assert options.retune and options.limit == 3
    assert out["measured"]
    for advice in out["advice"]:
        assert advice["price"]["missing"] == [], advice["id"]
        if advice["kind"] != "roofline":
            assert advice["price"]["gain_us"] is not None and advice["price"]["runs"] == 1
    again = told(capsys, *line)
    assert not again["measured"] and again["advice"] == out["advice"] and len(gpu) == 1


def test_only_what_has_no_price_is_measured(net, gpu, capsys):
    told(capsys, str(net), "--batch", "4", "--kind", "activation", "--measure")
    told(capsys, str(net), "--batch", "4", "--kind", "activation", "--measure")
    assert len(gpu) == 1
    told(capsys, str(net), "--batch", "4", "--kind", "activation", "batch", "--batches", "8", "--measure")
    assert {w.m for w in gpu[1][0]} == {4, 8}


def test_advice_is_written_as_a_changed_model(net, capsys, tmp_path):
    target = tmp_path / "new" / "relu.onnx"
    out = told(capsys, str(net), "--gpu", "h200", "--apply", "activation-gelu-erf-relu", "-o", str(target))
    assert out["file"] == str(target) and not out["keeps_function"]
    ops = [n.op_type for n in onnx.load(target).graph.node]
    assert "Relu" in ops and "Erf" not in ops and "Sigmoid" in ops


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--apply", "nothing", "-o", "x.onnx"], "there is no advice 'nothing'"),
        (["--apply", "roofline-unmeasured", "-o", "x.onnx"], "roofline-unmeasured has nothing to apply"),
        (["--apply", "batch"], "--apply ID and -o FILE go together"),
        (["-o", "x.onnx"], "--apply ID and -o FILE go together"),
    ],
)
def test_what_can_not_be_applied_is_one_line(net, capsys, line, said):
    assert cli.run(["advise", str(net), "--gpu", "h200", "-q", *line]) == 1
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.mark.parametrize("option", ["--batches 0,4", "--batches x", "--kind colour", "--limit 0"])
def test_bad_usage_is_status_2(net, option, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.run(["advise", str(net), *option.split()])
    assert stop.value.code == 2
