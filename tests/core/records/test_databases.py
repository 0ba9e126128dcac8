"""Another user's database as a source of records."""

import sqlite3

import pytest

from core import cli
from core.errors import RecordError
from core.records.databases import read_any
from core.records.exchange import write_file
from core.records.store import Records
from tests.core.records.test_store import CANDIDATES, FAMILY, IDENTITY, KEY, failed, measured, records


def test_a_database_in_use_is_read_whole_and_left_as_it_is(tmp_path):
    theirs = records(tmp_path)
    theirs.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="a")
    theirs.add(failed(CANDIDATES[1]), IDENTITY, CANDIDATES[1], run="a")  # still in the write-ahead log
    before = sorted(p.name for p in tmp_path.iterdir())
    tables = read_any(theirs.path)
    assert tables == theirs.dump() | {k: sorted(v, key=lambda r: r["id"]) for k, v in theirs.dump().items()}
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    write_file(tmp_path / "x.json.gz", theirs.dump())
    assert read_any(tmp_path / "x.json.gz") == tables


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0 and then nothing", b"{}"])
def test_what_is_neither_is_one_line(tmp_path, content):
    (tmp_path / "x.sqlite").write_bytes(content)
    with pytest.raises(RecordError, match=r"x\.sqlite"):
        read_any(tmp_path / "x.sqlite")


def test_a_row_that_was_changed_by_hand_is_refused(tmp_path):
    theirs = records(tmp_path)
    theirs.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="a")
    theirs.close()
    with sqlite3.connect(theirs.path) as connection:
        connection.execute("UPDATE measurements SET samples = '[1.0]'")
    connection.close()
    with pytest.raises(RecordError, match=r"records\.sqlite is damaged: row .* was changed"):
        read_any(theirs.path)


def test_two_databases_are_merged_and_imported_by_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("core.records.store.all_families", lambda: {"stub": FAMILY})
    for name, us in (("mine", 5.0), ("theirs", 7.0)):
        store = records(tmp_path / name)
        store.add(measured(CANDIDATES[0], us), IDENTITY, CANDIDATES[0], run=name)
        store.close()
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "mine"))
    assert cli.run(["records", "import", str(tmp_path / "theirs" / "records.sqlite")]) == 0
    both = [str(tmp_path / n / "records.sqlite") for n in ("mine", "theirs")]
    assert cli.run(["records", "merge", *both, "-o", str(tmp_path / "both.json.gz")]) == 0
    mine = Records(tmp_path / "mine" / "records.sqlite", shipped=[])
    assert {r.outcome.us for r in mine.all(KEY)} == {5.0, 7.0}
    assert read_any(tmp_path / "both.json.gz")["measurements"] == read_any(mine.path)["measurements"]
    mine.close()
