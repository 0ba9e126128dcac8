import gzip
import json
import threading
import typing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.errors import RecordError
from core.measure.measurement import Failure, GpuState, Measurement, Phase, Stage
from core.tuner import events as events_module
from core.tuner.events import (
    BuildFinished,
    CandidateMeasured,
    Event,
    JobFinished,
    JobStarted,
    Note,
    WorkloadFinished,
)
from core.tuner.replay import ReplayJob, events_from_records
from core.tuner.runfile import EVENTS, RunWriter, TimedEvent, decode, encode, find_run, read_run
from tests.core.tuner.test_job import WORKLOADS, job, of, records, run
from tests.core.tuning_stubs import gemm

finite = st.floats(allow_nan=False, allow_infinity=False)
states = st.builds(GpuState, st.integers(), st.integers(), st.integers(), finite, st.booleans())
measurements = st.builds(
    Measurement, st.text(), st.text(), st.sampled_from(Phase), st.lists(finite, min_size=1).map(tuple), finite, finite,
    st.text(), st.text(), states,
)  # fmt: skip
st.register_type_strategy(GpuState, states)
st.register_type_strategy(Measurement, measurements)
st.register_type_strategy(
    Failure, st.builds(Failure, st.text(), st.text(), st.sampled_from(Stage), st.text(), st.text())
)
st.register_type_strategy(float, finite)
any_event = st.one_of([st.from_type(kind) for kind in EVENTS.values()])


@settings(max_examples=150, deadline=None)
@given(event=any_event)
def test_every_event_survives_json(event):
    assert decode(json.loads(json.dumps(encode(event)))) == event


@settings(max_examples=20, deadline=None)
@given(played=st.lists(any_event, max_size=5))
def test_a_run_file_round_trips(tmp_path_factory, played):
    path = tmp_path_factory.mktemp("run") / "r.jsonl.gz"
    ticks = iter(range(100))
    with RunWriter(path, now=lambda: float(next(ticks))) as writer:
        for event in played:
            writer(event)
    assert read_run(path) == [TimedEvent(float(i + 1), event) for i, event in enumerate(played)]


json_values = st.recursive(
    st.none() | st.booleans() | finite | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@example(data={"event": {}})
@given(
    data=json_values
    | st.fixed_dictionaries({"event": st.sampled_from(sorted(EVENTS))}, optional={"level": json_values})
)
def test_decoding_anything_else_is_a_value_error(data):
    with pytest.raises(ValueError):
        decode(data)


def test_every_event_class_is_known():
    assert set(EVENTS.values()) == set(typing.get_args(events_module.Event))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"{}\n", mtime=0),
        gzip.compress(b'{"format":"bolt-run","version":9}\n', mtime=0),
    ],
)
def test_a_file_that_is_no_run_is_one_line(tmp_path, content):
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="not a whole run file"):
        read_run(path)


def test_a_cut_run_file_is_one_line(tmp_path):
    path = tmp_path / "r.jsonl.gz"
    with RunWriter(path) as writer:
        for i in range(300):
            writer(Note("info", f"{i * 7919}"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RecordError, match="not a whole run file"):
        read_run(path)


def test_a_run_that_cannot_be_kept_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="can't be written"):
        RunWriter(tmp_path / "file" / "run.jsonl.gz")


def test_runs_are_found_by_name(tmp_path):
    with RunWriter(tmp_path / "mlp-h200.jsonl.gz"):
        pass
    assert find_run("mlp-h200", tmp_path) == find_run(str(tmp_path / "mlp-h200.jsonl.gz"))
    with pytest.raises(RecordError, match="one of: mlp-h200"):
        find_run("vgg", tmp_path)


def test_a_recorded_run_replays_the_same_events_and_says_that_nothing_is_measured(tmp_path):
    path = tmp_path / "run.jsonl.gz"
    told: list[Event] = []
    with RunWriter(path) as writer:

        def both(event: Event) -> None:
            told.append(event)
            writer(event)

        results = job(tmp_path).run(both)
    again: list[Event] = []
    assert ReplayJob(read_run(path), speed=0).run(again.append) == results
    assert again[1:] == told[1:] and told[0].measured and not again[0].measured


def test_a_replay_can_be_paused_resumed_and_cancelled():
    timed = [TimedEvent(i * 0.01, Note("info", str(i))) for i in range(100)]
    played: list[Event] = []
    replay = ReplayJob(timed)

    def listen(event: Event) -> None:
        played.append(event)
        if len(played) == 5:
            replay.pause()
            threading.Timer(0.3, replay.resume).start()
        if len(played) == 8:
            replay.cancel()

    replay.run(listen)
    assert len(played) == 9 and played[-1].cancelled and replay.cancelled


def test_records_make_a_run(tmp_path):
    results, _ = run(job(tmp_path))
    timed = events_from_records(WORKLOADS, records(tmp_path), "NVIDIA H200")
    played: list[Event] = []
    replayed = ReplayJob(timed, speed=0).run(played.append)
    assert {k: (r.best, r.vendor, r.measured, r.failed) for k, r in replayed.items()} == {
        k: (r.best, r.vendor, r.measured, r.failed) for k, r in results.items()
    }
    assert all(r.from_records for r in replayed.values())
    assert not of(JobStarted, played)[0].measured and isinstance(played[-1], JobFinished)
    assert any("nothing is measured" in n.text for n in of(Note, played))
    assert of(CandidateMeasured, played) and len(of(WorkloadFinished, played)) == len(WORKLOADS)


def test_a_workload_without_a_record_is_named(tmp_path):
    run(job(tmp_path))
    with pytest.raises(RecordError, match=r"1 of 5 workloads have no record for NVIDIA H200.*gemm 3x"):
        events_from_records([*WORKLOADS, gemm(m=3)], records(tmp_path), "NVIDIA H200")


def test_a_run_from_before_a_field_was_there_still_plays():
    old = {"event": "BuildFinished", "kernel": "stub_t64", "seconds": 1.0, "cached": False}
    assert decode(old) == BuildFinished("stub_t64", 1.0, False)
    with pytest.raises(ValueError, match="not the fields"):
        decode({**old, "registres": 3})
