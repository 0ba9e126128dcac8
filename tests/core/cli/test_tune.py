import contextlib
import json
import os
import signal
import threading
from dataclasses import replace
from functools import partial

import pytest

from core import cli
from core.fusion.plan import FusionPlan, Kind, Region
from core.records.rows import Identity
from core.records.store import Records
from core.search.rank import rank
from core.session import Session
from core.tuner.job import Options, TuningJob
from tests.core.tuning_stubs import SimulatedBuilder, SimulatedMeasurer, StubFamily, gemm, gpu_identity

FAMILY = StubFamily(tiles=(16, 32, 64, 128))
BAD = StubFamily(tiles=(13, 999))
IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The verb with a simulated GPU: its options reach `made`."""
    regions = tuple(
        Region(f"fc{i}", Kind.GEMM, (f"fc{i}",), ("a",), ("b",), "", workload=gemm(m=m))
        for i, m in enumerate((64, 1024, 64))
    )
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    plan = FusionPlan("toy", (*regions, Region("pool", Kind.POOL, ("p",), ("b",), ("c",), "")))
    for place in ("core.session.open_model", "core.tuner.recorded.open_model"):
        monkeypatch.setattr(place, lambda *a: Session(None, plan, "toy", "toy", None, "f16"))
    bench = Bench()

    @contextlib.contextmanager
    def local_job(work, options, gpu, runtime, jobs, gpus):
        bench.asked, bench.gpus = (options, gpu, runtime, jobs), gpus
        records = Records(shipped=[], families={"stub": bench.family})
        bench.measurer = SimulatedMeasurer(delay_s=bench.delay_s)
        bench.measurer.on_screen = bench.on_screen
        yield TuningJob(work, IDENTITY, SimulatedBuilder(), [bench.measurer], records, options, {"stub": bench.family})

    monkeypatch.setattr("core.tuner.local.local_job", local_job)
    monkeypatch.setattr("templates.families", lambda: {"stub": bench.family})
    monkeypatch.setattr("core.records.store.all_families", lambda: {"stub": bench.family})
    return bench


class Bench:
    family = FAMILY
    delay_s = 0.0
    asked = None

    def on_screen(self) -> None:
        return


def test_json_is_what_other_programs_rely_on(bench, capsys):
    assert cli.run(["tune", "toy", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert set(out) == {"model", "gpu", "regions", "seconds", "measured"}
    assert (out["model"], out["gpu"], out["measured"]) == ("toy", "NVIDIA H200", True)
    assert [r["id"] for r in out["regions"]] == ["fc0", "fc1", "fc2"]
    first, _, third = out["regions"]
    assert set(first) == {"id", "kind", "workload", "best", "vendor", "speedup", "candidates", "failed"}
    assert first["best"]["family"] == "stub" and first["workload"] == gemm(m=64).key
    assert first["vendor"] == {"library": "cublasLt 13.0.2", "us": 12.0}
    assert first["speedup"] == pytest.approx(12.0 / first["best"]["us"])
    assert first["best"] == third["best"] and first["candidates"] > 4


def test_text_goes_to_stdout_and_progress_to_stderr(bench, capsys):
    assert cli.run(["tune", "toy"]) == 0
    told = capsys.readouterr()
    assert "fc1" in told.out and "cublasLt" in told.out and "speed-up" in told.out
    assert "2 workloads in 3 regions" in told.err
    assert cli.run(["tune", "toy", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_options_reach_the_job(bench, capsys):
    line = "tune toy --gpu h200 --budget 2.5 --jobs 3 --limit 5 --retune --no-vendor --runtime pycuda -q"
    assert cli.run(line.split()) == 0
    assert bench.asked == (Options(2.5, 5, False, True), "h200", "pycuda", 3) and bench.gpus == 1


@pytest.mark.parametrize(("text", "gpus"), [("2", 2), ("all", None)])
def test_several_gpus_are_asked_for(bench, capsys, text, gpus):
    assert cli.run(["tune", "toy", "-q", "--gpus", text]) == 0
    assert bench.gpus == gpus


@pytest.mark.parametrize(
    "option",
    ["--gpus 0", "--gpus some", "--budget 0", "--budget x", "--jobs 0", "--limit -1", "--speed -1", "--dtype fp8"],
)
def test_bad_usage_is_status_2(bench, option, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.run(["tune", "toy", *option.split()])
    assert stop.value.code == 2


def test_a_region_without_a_kernel_is_status_1_and_one_line(bench, capsys):
    bench.family = BAD
    assert cli.run(["tune", "toy", "--json", "-q"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["regions"][0]["best"] is None
    assert told.err.count("\n") == 1 and "no kernel that works" in told.err


def test_replay_plays_the_records_and_says_that_nothing_was_measured(bench, capsys):
    assert cli.run(["tune", "toy", "--json", "-q"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert cli.run(["tune", "toy", "--json", "--replay", "--gpu", "h200"]) == 0
    told = capsys.readouterr()
    replayed = json.loads(told.out)
    assert not replayed["measured"] and replayed["regions"] == tuned["regions"]
    assert "nothing is measured" in told.err
    assert cli.run(["tune", "toy", "--replay", "--gpu", "t4"]) == 1
    assert "have no record for Tesla T4" in capsys.readouterr().err


def test_a_kept_run_can_be_replayed(bench, tmp_path, capsys):
    run = tmp_path / "run.jsonl.gz"
    assert cli.run(["tune", "toy", "--json", "-q", "--record-run", str(run)]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert cli.run(["replay", str(run), "--json"]) == 0
    told = capsys.readouterr()
    out = json.loads(told.out)
    assert out["model"] == "toy" and not out["measured"] and "nothing is measured" in told.err
    by_key = {w["workload"]: w for w in out["workloads"]}
    assert by_key[gemm(m=64).key]["regions"] == ["fc0", "fc2"]
    for region in tuned["regions"]:
        assert by_key[region["workload"]]["best"]["us"] == region["best"]["us"]
    assert cli.run(["replay", str(tmp_path / "none")]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_measured_and_the_same_command_goes_on(bench, capsys, number):
    bench.delay_s = 0.02
    bench.on_screen = lambda: (
        threading.Timer(0, os.kill, (os.getpid(), number)).start() if len(bench.measurer.screened) == 2 else None
    )
    assert cli.run(["tune", "toy", "--json", "-q"]) == 130
    told = capsys.readouterr()
    assert json.loads(told.out)["model"] == "toy" and told.err.count("\n") == 1 and "kept" in told.err
    before = set(bench.measurer.screened)
    assert before
    bench.on_screen = lambda: None
    assert cli.run(["tune", "toy", "--json", "-q"]) == 0
    assert not before & set(bench.measurer.screened)


def test_persistent_tunes_pairs_and_writes_the_plan_with_those_that_pay(bench, capsys, monkeypatch, tmp_path):
    from core.fusion.planner import plan
    from core.tuner import local
    from tests.core.fusion.graphs import Net, weight

    class Pairs(StubFamily):
        def refuses(self, workload, gpu):
            return None

    net = Net(x=(4096, 64))
    y = net.op("MatMul", "x", net.const(weight(64, 64)), name="fc1")
    graph = net.graph(net.op("MatMul", y, net.const(weight(64, 32)), name="fc2"))
    families = {"b2b_stub": Pairs("b2b_stub", (64,))}
    monkeypatch.setattr("core.session.open_model", lambda *a: Session(graph, plan(graph), "toy", "toy", None, "f16"))
    for place in ("core.fusion.residence.all_families", "core.records.store.all_families", "templates.families"):
        monkeypatch.setattr(place, lambda: families)
    monkeypatch.setattr(local, "gpu_here", lambda name: gpu_identity())

    @contextlib.contextmanager
    def local_job(work, options, gpu, runtime, jobs, proposals, gpus):
        records = Records(shipped=[], families=families)
        measurer = SimulatedMeasurer()
        yield TuningJob(work, IDENTITY, SimulatedBuilder(), [measurer], records, options, families, proposals=proposals)

    monkeypatch.setattr(local, "local_job", local_job)
    assert cli.run(["tune", "toy", "--persistent", str(tmp_path / "plan.json")]) == 0
    told = capsys.readouterr()
    assert "r0 + r1 fused: " in told.err and "in one kernel, faster than" in told.err
    (group,) = json.loads((tmp_path / "plan.json").read_text())["groups"]
    assert group == {"kind": "b2b_gemm", "nodes": ["fc1", "fc2"]}
    assert cli.run(["tune", "toy", "--replay", "--persistent", "x"]) == 1


def test_audit_measures_everything_and_tells_the_regret(bench, capsys, monkeypatch):
    @contextlib.contextmanager
    def local_job(work, options, gpu, cache):
        assert options.limit > 1000 and not options.vendor and options.retune
        records = Records(shipped=[], families={"stub": bench.family})
        measurers = [SimulatedMeasurer()]
        yield TuningJob(work, IDENTITY, SimulatedBuilder(), measurers, records, options, {"stub": bench.family})

    monkeypatch.setattr("core.bench.audit.local_job", local_job)
    monkeypatch.setattr("core.bench.audit.rank", partial(rank, families={"stub": bench.family}))
    assert cli.run(["tune", "toy", "--audit", "--limit", "1", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["suite"] == "audit-toy" and [r["name"] for r in out["rows"]] == ["fc0", "fc1"]
    assert all("4 measured" in r["peer"] for r in out["rows"])
    assert out["regret"]["worst"] >= out["regret"]["median"] >= 0


@pytest.mark.parametrize("option", [["--audit"], ["--persistent", "plan.json"]])
def test_what_measures_is_not_replayed(bench, option, capsys):
    assert cli.run(["tune", "toy", "--replay", *option]) == 1
    assert f"{option[0]} measures, --replay does not" in capsys.readouterr().err


def test_a_scheduler_tunes_for_each_kind_of_gpu_there(bench, capsys, monkeypatch):
    from core.cluster import job as cluster
    from core.cluster.tasks import Parts

    asked = []

    @contextlib.contextmanager
    def cluster_job(work, options, address, gpu, parts):
        asked.append((address, gpu, parts))
        made = []
        for name in ("NVIDIA H200", "Tesla T4"):
            identity = replace(IDENTITY, gpu=replace(IDENTITY.gpu, name=name))
            records = Records(shipped=[], families={"stub": bench.family})
            parts_of_it = SimulatedBuilder(), [SimulatedMeasurer(gpu=identity.gpu)], records
            made.append(TuningJob(work, identity, *parts_of_it, options, {"stub": bench.family}))
        yield cluster.KindsJob(made)

    monkeypatch.setattr(cluster, "cluster_job", cluster_job)
    assert cli.run(["tune", "toy", "--json", "--scheduler", "127.0.0.1:8786", "--runtime", "pycuda"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert asked == [("127.0.0.1:8786", "auto", Parts("pycuda"))] and data["gpu"] == "NVIDIA H200"
    assert [other["gpu"] for other in data["others"]] == ["Tesla T4"]
    assert len(data["others"][0]["regions"]) == len(data["regions"]) == 3
    assert cli.run(["tune", "toy", "--scheduler", "127.0.0.1:8786"]) == 0
    assert "toy on Tesla T4" in capsys.readouterr().out
    assert cli.run(["tune", "toy", "--scheduler", "x", "--persistent", "y"]) == 1
