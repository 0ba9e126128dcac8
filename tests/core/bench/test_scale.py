"""The script for several GPUs (tests/gpu/bench_scale.py), without one."""

import contextlib

import pytest

from core.fusion.plan import FusionPlan, Kind, Region
from core.session import Session
from core.tuner.job import TuningJob
from tests.core.tuner.test_job import FAMILY, IDENTITY, records
from tests.core.tuning_stubs import SimulatedBuilder, SimulatedMeasurer, gemm
from tests.gpu import bench_scale
from tests.gpu.bench_scale import Bench, agreement, agreement_text, measure, tune_once, waiting_share


@pytest.fixture
def simulated(tmp_path, monkeypatch):
    regions = tuple(
        Region(f"fc{i}", Kind.GEMM, (f"fc{i}",), ("a",), ("b",), "", workload=gemm(m=64 << i)) for i in range(4)
    )
    plan = FusionPlan("toy", regions)
    monkeypatch.setattr("core.session.open_model", lambda model, batch: Session(None, plan, "toy", "toy", None, "f16"))

    @contextlib.contextmanager
    def local_job(work, options, gpus):
        measurers = [SimulatedMeasurer(name=f"GPU {i}") for i in range(gpus or 1)]
        store, families = records(tmp_path), {"stub": FAMILY}
        yield TuningJob(work, IDENTITY, SimulatedBuilder(), measurers, store, options, families)

    monkeypatch.setattr("core.tuner.local.local_job", local_job)


def test_a_run_tells_winners_finals_and_where_the_time_went(simulated):
    run = tune_once("toy", 32, 2, 4)
    assert run["workloads"] == 4 and len(run["best"]) == 4 and run["failed"] == 0 and len(run["usages"]) == 2
    assert all(run["finals"][key][name] == us for key, (name, us) in run["best"].items())
    assert 0 <= waiting_share(run) <= 1 and sum(u["measurements"] for u in run["usages"]) > 16


def fake(winner: str, us: float) -> dict:
    finals = {"w0": {"a": us, "b": 2 * us}, "w1": {"c": 4.0}}
    usage = {"waiting_s": 4.0, "clocks_mhz": (1, 1980, 3), "measurements": 9}
    return {
        "gpu": "NVIDIA H200", "seconds": 10.0, "workloads": 2, "failed": 1, "usages": [usage], "finals": finals,
        "best": {"w0": (winner, us), "w1": ("c", 4.0)},
    }  # fmt: skip


def test_gpus_agree_or_not():
    found = agreement(fake("a", 10.0), fake("b", 11.0))
    assert (found["workloads"], found["same_winner"], found["compared"]) == (2, 1, 3)
    assert found["median"] == found["largest"] == found["shift"] == pytest.approx(0.1)
    assert agreement_text({"x": found}).startswith(
        "x: same winner on 1 of 2 workloads; 3 finals: median difference 10.00 %"
    )
    nothing = agreement({"best": {}, "finals": {}}, fake("a", 1.0))
    assert nothing == {"workloads": 0, "same_winner": 0, "compared": 0}
    assert agreement_text({"x": nothing}) == "x: same winner on 0 of 0 workloads"


def test_each_run_is_made_once_and_a_cold_one_cut_short_begins_anew(tmp_path, monkeypatch):
    made = []

    def child(self, model, cache, visible):
        made.append((model, cache.name, list(visible), cache.exists()))
        cache.mkdir(exist_ok=True)
        if len(made) == 1:
            raise KeyboardInterrupt
        return fake("a", 10.0)

    monkeypatch.setattr(bench_scale.Bench, "_child", child)
    bench = Bench(tmp_path, 32, 8, lambda line: None)
    with pytest.raises(KeyboardInterrupt):
        measure(bench, ["toy"], [1, 2], ["cold", "warm"])
    for _ in range(2):
        data = measure(bench, ["toy"], [1, 2], ["cold", "warm"])
    one, two = "cache-toy-0-limit8", "cache-toy-0+1-limit8"
    assert made[1:] == [
        ("toy", one, [0], False), ("toy", two, [0, 1], False), ("toy", one, [0], True), ("toy", one, [0, 1], True),
        ("toy", one, [1], True),
    ]  # fmt: skip
    assert [r["name"] for r in data["rows"]] == [
        f"toy b32 {s} {n}" for s in ("cold", "warm") for n in ("1 GPU", "2 GPUs")
    ]
    assert data["rows"][1]["ratio"] == 1.0 and data["rows"][0]["peer_us"] is None
    assert set(data["agreement"]) == {"toy GPU 0 and 1", "toy GPU 0 twice"} and data["suite"] == "scale"
