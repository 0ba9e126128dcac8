"""Where records come from, which of them no longer hold, and which contradict each other."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.records.exchange import read_file, write_file
from core.records.rows import Identity
from core.records.store import Records
from core.records.summary import summary
from core.records.trust import conflicts, stale
from tests.core.records.test_store import CANDIDATES, FAMILY, IDENTITY, KEY, measured, records
from tests.core.tuning_stubs import gpu_identity


def exported(store, path):
    write_file(path, store.dump())
    return read_file(path)


def test_two_users_databases_merge_without_loss_and_each_record_tells_whose_it_is(tmp_path):
    mine, theirs = records(tmp_path / "mine"), records(tmp_path / "theirs")
    mine.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="a")
    other = Identity(gpu_identity(driver="590.1"), "13.0.88", "4.2.0")
    theirs.add(measured(CANDIDATES[0], 6.0), other, CANDIDATES[0], run="b")
    tables = exported(theirs, tmp_path / "theirs.json.gz")
    assert mine.load(tables, "theirs.json.gz") == 2 and mine.load(tables, "again.json.gz") == 0
    told = {r.run: mine.origin(r) for r in mine.all()}
    assert told["a"] == "measured here" and told["b"].startswith("imported from theirs.json.gz on 20")
    assert {r.outcome.us for r in mine.all()} == {5.0, 6.0}
    assert records(tmp_path / "mine").origin(mine.all()[1]) == told[mine.all()[1].run]  # it is kept


def test_what_was_measured_here_stays_ours_when_it_comes_back(tmp_path):
    mine = records(tmp_path / "mine")
    mine.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="a")
    assert mine.load(exported(mine, tmp_path / "back.json"), "back.json") == 0
    assert mine.origin(mine.all()[0]) == "measured here"


def test_where_a_record_came_from_stays_out_of_the_files(tmp_path):
    mine, theirs = records(tmp_path / "mine"), records(tmp_path / "theirs")
    theirs.add(measured(CANDIDATES[0], 6.0), IDENTITY, CANDIDATES[0], run="b")
    tables = exported(theirs, tmp_path / "x.json")
    mine.load(tables, "secret-name.json")
    assert exported(mine, tmp_path / "y.json") == tables
    assert "secret" not in (tmp_path / "y.json").read_text()


@pytest.mark.parametrize(
    ("here", "reasons"),
    [
        (IDENTITY, ()),
        (replace(IDENTITY, gpu=gpu_identity(driver="590.1")), ("driver is 590.1 here, was 580.159",)),
        (replace(IDENTITY, nvcc="13.1.1"), ("nvcc is 13.1.1 here, was 13.0.88",)),
        (replace(IDENTITY, cutlass="4.3.0"), ("CUTLASS is 4.3.0 here, was 4.2.0",)),
        (replace(IDENTITY, gpu=replace(IDENTITY.gpu, cuda="13.1")), ("CUDA is 13.1 here, was 13.0",)),
        (replace(IDENTITY, gpu=replace(IDENTITY.gpu, name="NVIDIA T4", driver="1")), ()),
        (None, ()),
    ],
)
def test_other_versions_make_a_record_stale(tmp_path, here, reasons):
    store = records(tmp_path)
    record = store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    assert stale(record, store, here) == reasons
    (line,) = summary(store, here)
    assert line.stale == reasons
    if here is not None and reasons:
        assert store.best(KEY, here) is None and len(store.all(KEY)) == 1  # kept, not trusted


def test_another_template_version_makes_it_stale_everywhere(tmp_path):
    record = records(tmp_path).add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0])
    newer = records(tmp_path, families={"stub": replace(FAMILY, version=2)})
    assert stale(record, newer, None) == ("template stub is version 2 now, was 1",)
    assert stale(record, records(tmp_path, families={}), None) == ("template stub is gone",)


def test_sources_that_disagree_are_shown_with_what_each_says(tmp_path):
    mine, theirs = records(tmp_path / "mine"), records(tmp_path / "theirs")
    for candidate, us in ((CANDIDATES[0], 5.0), (CANDIDATES[1], 8.0)):
        mine.add(measured(candidate, us), IDENTITY, candidate, run="a")
    theirs.add(measured(CANDIDATES[0], 6.5), IDENTITY, CANDIDATES[0], run="b")
    theirs.add(measured(CANDIDATES[1], 8.2), IDENTITY, CANDIDATES[1], run="b")
    assert conflicts(mine) == []
    mine.load(exported(theirs, tmp_path / "t.json"), "t.json")
    (conflict,) = conflicts(mine)
    assert conflict.candidate == CANDIDATES[0].name and conflict.ratio == pytest.approx(1.3)
    assert [c.us for c in conflict.claims] == [5.0, 6.5] and conflict.claims[0].origin == "measured here"
    (line,) = summary(mine)
    assert "5.00 us measured here" in line.conflict and "6.50 us imported from t.json" in line.conflict


def test_two_runs_of_one_user_are_no_conflict(tmp_path):
    mine = records(tmp_path)
    mine.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="a", taken="2026-01-01")
    mine.add(measured(CANDIDATES[0], 9.0), IDENTITY, CANDIDATES[0], run="b", taken="2026-01-02")
    assert conflicts(mine) == []


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(1.0, 100.0), min_size=2, max_size=4))
def test_a_conflict_is_there_exactly_where_figures_lie_apart(tmp_path_factory, figures):
    place = tmp_path_factory.mktemp("c")
    mine = Records(place / "r.sqlite", shipped=[], families={"stub": FAMILY})
    for i, us in enumerate(figures):
        store = mine if i == 0 else records(place / str(i))
        store.add(measured(CANDIDATES[0], us), IDENTITY, CANDIDATES[0], run=f"r{i}")
        if i:
            mine.load(exported(store, place / f"{i}.json"), f"{i}.json")
    assert bool(conflicts(mine)) == (max(figures) / min(figures) > 1.15)
    mine.close()
