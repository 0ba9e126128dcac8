import json
import multiprocessing
import os
import signal
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import RecordError
from core.measure.measurement import Failure, GpuState, Measurement, Phase, Stage
from core.records.exchange import read_file, write_file
from core.records.rows import Identity, RunSummary
from core.records.store import Records
from templates.family import Candidate
from tests.core.tuning_stubs import StubFamily, gemm, gpu_identity, kernels_of

FAMILY = StubFamily()
IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")
KEY = gemm().key
CANDIDATES = [Candidate(k) for k in kernels_of(FAMILY)]


def measured(
    candidate: Candidate | str, us: float, phase: Phase = Phase.FINAL, source: str = "template"
) -> Measurement:
    name = candidate if isinstance(candidate, str) else candidate.name
    return Measurement(KEY, name, phase, (us, us * 1.1, us * 0.9), 2e-4, 1e-3, source, "", GpuState(1980))


def failed(candidate: Candidate, stage: Stage = Stage.CRASH) -> Failure:
    return Failure(KEY, candidate.name, stage, "it died", "a log")


def records(path: Path, **more) -> Records:
    return Records(path / "records.sqlite", **{"shipped": [], "families": {"stub": FAMILY}, **more})


def test_best_is_the_lowest_final_median_of_the_newest_run(tmp_path):
    store = records(tmp_path)
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="old", taken="2026-01-01")
    store.add(measured(CANDIDATES[1], 9.0), IDENTITY, CANDIDATES[1], run="new", taken="2026-01-02")
    store.add(measured(CANDIDATES[2], 8.0), IDENTITY, CANDIDATES[2], run="new", taken="2026-01-02")
    store.add(measured(CANDIDATES[3], 1.0, Phase.SCREEN), IDENTITY, CANDIDATES[3], run="new", taken="2026-01-02")
    store.add(measured("cublasLt#1", 7.0, source="cublasLt 13"), IDENTITY, run="new", taken="2026-01-02")
    best = records(tmp_path).best(KEY, IDENTITY)
    assert best.candidate == CANDIDATES[2] and best.outcome.us == 8.0
    assert best.identity == IDENTITY and best.outcome == measured(CANDIDATES[2], 8.0)
    assert store.best(KEY, "NVIDIA H200").candidate == CANDIDATES[2]
    assert store.best(KEY, IDENTITY, vendor=True).outcome.source == "cublasLt 13"
    assert store.best(gemm(m=7).key, IDENTITY) is None


def test_the_peer_is_of_the_winners_own_finals(tmp_path):
    store = records(tmp_path)
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="old", taken="2026-01-01")
    store.add(measured("cublasLt#1", 4.0, source="cublasLt 13"), IDENTITY, run="old", taken="2026-01-01")
    assert store.peer(store.best(KEY, IDENTITY)).outcome.us == 4.0
    write_file(tmp_path / "shipped.json", store.dump())
    store.add(measured(CANDIDATES[1], 9.0), IDENTITY, CANDIDATES[1], run="new", taken="2026-01-02")
    assert store.peer(store.best(KEY, IDENTITY)) is None
    other = records(tmp_path / "other", shipped=[tmp_path / "shipped.json"])
    assert other.peer(other.best(KEY, IDENTITY)).outcome.us == 4.0
    other.add(measured(CANDIDATES[1], 9.0), IDENTITY, CANDIDATES[1], run="new", taken="2026-01-02")
    assert other.peer(other.best(KEY, IDENTITY)) is None


@pytest.mark.parametrize(
    "change", [{"driver": "590.1"}, {"memory_mhz": 2619}, {"sm_count": 114}, {"name": "NVIDIA H100"}]
)
def test_another_gpu_or_driver_shares_nothing(tmp_path, change):
    store = records(tmp_path)
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    other = Identity(replace(IDENTITY.gpu, **change), "13.0.88", "4.2.0")
    assert store.best(KEY, other) is None and store.known(KEY, other) == {}
    assert store.best(KEY, replace(IDENTITY, cutlass="4.3.0")) is None


def test_better_figures_for_ranking_orphan_no_record(tmp_path):
    store = records(tmp_path)
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="r")
    store.finish(KEY, IDENTITY, {"stub": 1}, vendor=True, run="r")
    spec = replace(IDENTITY.gpu.spec, dram_gbs=4400.0, tensor_tflops=800.0)
    corrected = replace(IDENTITY, gpu=replace(IDENTITY.gpu, spec=spec))
    assert store.best(KEY, corrected).outcome.us == 5.0 and store.finished(KEY, corrected).run == "r"


def test_a_record_of_another_family_version_is_kept_but_not_trusted(tmp_path):
    records(tmp_path).add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    newer = records(tmp_path, families={"stub": replace(FAMILY, version=2)})
    assert newer.best(KEY, IDENTITY) is None and newer.known(KEY, IDENTITY) == {}
    assert len(newer.all(KEY)) == 1
    assert newer.prune(outdated=True) == 1 and newer.all() == []


def test_failures_keep_their_reason(tmp_path):
    store = records(tmp_path)
    store.add(failed(CANDIDATES[0]), IDENTITY, CANDIDATES[0], flags=("-DX",))
    (record,) = records(tmp_path).failures(KEY)
    assert record.outcome == failed(CANDIDATES[0]) and record.flags == ("-DX",) and record.candidate == CANDIDATES[0]


def test_known_holds_the_newest_outcome_of_a_candidate(tmp_path):
    store = records(tmp_path)
    store.add(measured(CANDIDATES[0], 5.0, Phase.SCREEN), IDENTITY, CANDIDATES[0])
    store.add(failed(CANDIDATES[0]), IDENTITY, CANDIDATES[0])
    store.add(measured("cublasLt#1", 7.0, source="cublasLt 13"), IDENTITY)
    assert {n: r.outcome for n, r in store.known(KEY, IDENTITY).items()} == {CANDIDATES[0].name: failed(CANDIDATES[0])}


def test_finished_and_runs_round_trip(tmp_path):
    store = records(tmp_path)
    assert store.finished(KEY, IDENTITY) is None
    store.finish(KEY, IDENTITY, {"stub": 1}, vendor=True, run="r")
    store.add_run(RunSummary("r", "mlp", "2026-01-01", 3.5, False), IDENTITY)
    again = records(tmp_path)
    found = again.finished(KEY, IDENTITY)
    assert found.families == {"stub": 1} and found.vendor and found.run == "r"
    assert again.runs() == [RunSummary("r", "mlp", "2026-01-01", 3.5, False)]


def test_a_figure_that_is_no_number_is_refused(tmp_path):
    bad = replace(measured(CANDIDATES[0], 5.0), samples_us=(float("nan"),))
    with pytest.raises(ValueError):
        records(tmp_path).add(bad, IDENTITY, CANDIDATES[0])


def test_shipped_records_lie_beneath_the_users_own(tmp_path):
    source = records(tmp_path / "a")
    source.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    file = tmp_path / "h200.json.gz"
    write_file(file, source.dump())
    store = records(tmp_path / "b", shipped=[file])
    best = store.best(KEY, "NVIDIA H200")
    assert best.shipped and best.candidate == CANDIDATES[0]
    assert store.known(KEY, IDENTITY) == {} and store.dump()["measurements"] == []
    store.add(measured(CANDIDATES[1], 6.0), IDENTITY, CANDIDATES[1])
    assert not store.best(KEY, "NVIDIA H200").shipped
    assert [r.shipped for r in store.all(KEY)] == [True, False]
    store.add(failed(CANDIDATES[2]), IDENTITY, CANDIDATES[2])
    assert store.count() == len(store.all()) == 3


def test_finals_only_leaves_screening_and_failures_out(tmp_path):
    store = records(tmp_path)
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    store.add(measured(CANDIDATES[1], 5.0, Phase.SCREEN), IDENTITY, CANDIDATES[1])
    store.add(failed(CANDIDATES[2]), IDENTITY, CANDIDATES[2])
    tables = store.dump(finals_only=True)
    assert len(tables["measurements"]) == len(tables["candidates"]) == 1 and not tables["failures"]
    assert store.dump(gpu="Tesla T4")["measurements"] == []


def test_prune_by_age_and_phase(tmp_path):
    store = records(tmp_path)
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], taken="2025-01-01")
    store.add(measured(CANDIDATES[1], 5.0, Phase.SCREEN), IDENTITY, CANDIDATES[1], taken="2026-01-01")
    store.add(measured(CANDIDATES[2], 5.0), IDENTITY, CANDIDATES[2], taken="2026-01-01")
    assert store.prune(before="2025-06-01") == 1
    assert store.prune(screening=True) == 1
    assert [r.candidate for r in store.all()] == [CANDIDATES[2]]


# -- merging

times = st.floats(min_value=0.1, max_value=1e6)
entries = st.lists(
    st.tuples(st.sampled_from(CANDIDATES), times, st.sampled_from(["2026-01-01", "2026-01-02"])), max_size=6
)


def _filled(path: Path, items) -> Records:
    path.mkdir(parents=True, exist_ok=True)
    store = records(path)
    for candidate, us, taken in items:
        store.add(measured(candidate, us), IDENTITY, candidate, taken=taken)
        store.add(failed(candidate), IDENTITY, candidate, taken=taken)
    return store


@settings(max_examples=15, deadline=None)
@given(a=entries, b=entries)
def test_merging_is_commutative_and_idempotent(tmp_path_factory, a, b):
    folder = tmp_path_factory.mktemp("merge")
    one, two = _filled(folder / "a", a), _filled(folder / "b", b)
    ab, ba = records(folder / "ab"), records(folder / "ba")
    for target, order in ((ab, (one, two)), (ba, (two, one))):
        for source in order:
            target.load(source.dump())
    write_file(folder / "ab.json", ab.dump())
    write_file(folder / "ba.json", ba.dump())
    assert (folder / "ab.json").read_bytes() == (folder / "ba.json").read_bytes()
    assert ab.load(one.dump()) == ab.load(two.dump()) == ab.load(read_file(folder / "ba.json")) == 0
    ids = {r["id"] for s in (one, two) for r in s.dump()["measurements"]}
    assert {r["id"] for r in ab.dump()["measurements"]} == ids
    for store in (one, two, ab, ba):
        store.close()


@pytest.mark.parametrize("name", ["r.json", "r.json.gz"])
def test_a_file_round_trips(tmp_path, name):
    store = _filled(tmp_path / "a", [(CANDIDATES[0], 5.0, "2026-01-01")])
    assert write_file(tmp_path / name, store.dump()) == 4
    assert read_file(tmp_path / name) == store.dump()


def _change_time(document) -> None:
    document["measurements"][0]["samples"] = "[1.0]"


def _drop_gpu(document) -> None:
    document["gpus"] = []


def _drop_column(document) -> None:
    del document["failures"][0]["reason"]


def _other_format(document) -> None:
    document["format"] = "x"


def _newer(document) -> None:
    document["version"] = 9


@pytest.mark.parametrize("damage", [_change_time, _drop_gpu, _drop_column, _other_format, _newer])
def test_a_changed_file_is_refused(tmp_path, damage):
    file = tmp_path / "r.json"
    write_file(file, _filled(tmp_path / "a", [(CANDIDATES[0], 5.0, "2026-01-01")]).dump())
    document = json.loads(file.read_text())
    damage(document)
    file.write_text(json.dumps(document))
    with pytest.raises(RecordError) as told:
        read_file(file)
    assert "\n" not in str(told.value)


@settings(max_examples=60, deadline=None)
@given(
    data=st.binary(max_size=60)
    | st.text(max_size=60).map(lambda t: json.dumps({"format": "bolt-records", "version": 1, "gpus": t}).encode())
)
def test_rubbish_is_one_line(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("rubbish")
    for name in ("r.json", "r.json.gz"):
        (folder / name).write_bytes(data)
        with pytest.raises(RecordError):
            read_file(folder / name)


# -- faults


def test_a_damaged_database_is_one_line(tmp_path):
    (tmp_path / "records.sqlite").write_bytes(b"this is no database, it is a sentence" * 100)
    with pytest.raises(RecordError, match="damaged"):
        records(tmp_path)


def test_a_truncated_database_is_one_line(tmp_path):
    store = _filled(tmp_path, [(c, 5.0 + i, f"2026-01-{i:02}") for i in range(1, 20) for c in CANDIDATES])
    store.close()
    file = tmp_path / "records.sqlite"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 // 4096 * 4096])
    with pytest.raises(RecordError, match="damaged"):
        records(tmp_path).all()


def test_a_locked_database_is_one_line(tmp_path):
    store = records(tmp_path, busy_s=0.1)
    other = sqlite3.connect(tmp_path / "records.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RecordError, match="locked"):
        store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    other.execute("ROLLBACK")
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    assert len(store.all()) == 1


def test_a_newer_database_is_one_line(tmp_path):
    records(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "records.sqlite")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(RecordError, match="newer"):
        records(tmp_path)


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    store = records(tmp_path)
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    connection = store._own._database.conn
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    big = replace(failed(CANDIDATES[0]), log="x" * 16_000)
    with pytest.raises(RecordError, match="full"):
        store.add(big, IDENTITY, CANDIDATES[0])
    assert len(records(tmp_path).all()) == 1


def test_a_place_that_is_no_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="BOLT_CACHE"):
        Records(tmp_path / "file" / "records.sqlite", shipped=[])


def _write_forever(folder: Path) -> None:
    store = records(folder)
    for i in range(100_000):
        store.add(measured(CANDIDATES[i % 4], 5.0 + i), IDENTITY, CANDIDATES[i % 4])
        with (folder / "written").open("a") as log:
            log.write(f"{i}\n")


def test_kill_9_loses_no_record(tmp_path):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_write_forever, args=(tmp_path,))
    process.start()
    log = tmp_path / "written"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().count("\n") > 20) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    written = log.read_text().count("\n")
    found = records(tmp_path).all()
    assert written > 20 and len(found) >= written
    assert {r.outcome.samples_us[0] for r in found} >= {5.0 + i for i in range(written)}


def _open_only(folder: Path, start: float) -> None:
    time.sleep(max(0.0, start - time.time()))
    records(folder, busy_s=30.0).close()


def test_processes_that_make_the_database_at_once_all_succeed(tmp_path):
    context = multiprocessing.get_context("spawn")
    start = time.time() + 3.0
    processes = [context.Process(target=_open_only, args=(tmp_path, start)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0] * 4


def _write_some(folder: Path, offset: int) -> None:
    store = records(folder)
    for i in range(25):
        store.add(measured(CANDIDATES[0], offset + i), IDENTITY, CANDIDATES[0])


def test_two_processes_write_one_database(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_some, args=(tmp_path, offset)) for offset in (100, 200)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0, 0]
    assert len(records(tmp_path).all()) == 50
