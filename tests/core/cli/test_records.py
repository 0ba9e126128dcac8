import json

import pytest

from core import cli
from core.records.exchange import write_file
from core.records.store import Records
from tests.core.records.test_store import CANDIDATES, FAMILY, IDENTITY, KEY, failed, measured


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("core.records.store.all_families", lambda: {"stub": FAMILY})
    store = Records(shipped=[])
    store.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], taken="2026-01-01T00:00:00")
    store.add(failed(CANDIDATES[1]), IDENTITY, CANDIDATES[1], taken="2026-01-02T00:00:00")
    store.close()
    return tmp_path


def out(capsys, *argv):
    assert cli.run(["records", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_list_and_show(cache, capsys):
    (row,) = [r for r in out(capsys, "list")["workloads"] if not r["shipped"]]
    assert (row["workload"], row["best_us"], row["finals"], row["failed"]) == (KEY, 5.0, 1, 1)
    shown = [r for r in out(capsys, "show", "1024x1024")["records"] if not r["shipped"]]
    assert [r["candidate"] for r in shown] == [c.name for c in CANDIDATES[:2]]
    (failure,) = [r for r in out(capsys, "show", "--failed")["records"] if not r["shipped"]]
    assert (failure["failed"], failure["reason"], failure["log"]) == ("crash", "it died", "a log")
    assert out(capsys, "show", "--gpu", "t4")["records"] == []
    assert cli.run(["records", "list"]) == 0 and cli.run(["records", "show"]) == 0
    assert "failed (crash): it died" in capsys.readouterr().out


def test_export_import_merge(cache, capsys, monkeypatch):
    one, two = str(cache / "one.json.gz"), str(cache / "two.json")
    assert out(capsys, "export", one, "--gpu", "h200")["rows"] == 5
    assert out(capsys, "import", one)["new"] == 0
    monkeypatch.setenv("BOLT_CACHE", str(cache / "other"))
    assert out(capsys, "import", one)["new"] == 5
    assert out(capsys, "merge", one, one, "-o", two)["rows"] == 5
    assert out(capsys, "export", two, "--finals")["rows"] == 3
    assert cli.run(["records", "import", str(cache / "missing")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_prune_wants_a_condition(cache, capsys):
    assert cli.run(["records", "prune"]) == 1
    assert "--before" in capsys.readouterr().err
    assert out(capsys, "prune", "--before", "2026-01-02")["removed"] == 1


def test_a_damaged_database_is_one_line(cache, capsys):
    (cache / "cache/records.sqlite").write_bytes(b"no database" * 1000)
    for file in (cache / "cache").glob("records.sqlite-*"):
        file.unlink()
    assert cli.run(["records", "list"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "damaged" in told


def test_where_a_record_comes_from_is_listed_and_shown(cache, capsys, monkeypatch):
    one = str(cache / "one.json.gz")
    out(capsys, "export", one)
    assert {r["origin"] for r in out(capsys, "show")["records"] if not r["shipped"]} == {"measured here"}
    monkeypatch.setenv("BOLT_CACHE", str(cache / "other"))
    store = Records(shipped=[])
    store.add(measured(CANDIDATES[0], 9.0), IDENTITY, CANDIDATES[0], run="mine", taken="2026-01-03T00:00:00")
    store.close()
    their = Records(cache / "theirs" / "records.sqlite", shipped=[])
    their.add(measured(CANDIDATES[0], 5.0), IDENTITY, CANDIDATES[0], run="theirs", taken="2026-01-01T00:00:00")
    write_file(cache / "theirs.json.gz", their.dump())
    out(capsys, "import", str(cache / "theirs.json.gz"))
    (row,) = [r for r in out(capsys, "list")["workloads"] if not r["shipped"]]
    assert row["origin"] == "measured here" and row["stale"] == [] and "theirs.json.gz" in row["conflict"]
    (conflict,) = out(capsys, "list")["conflicts"]
    assert [c["us"] for c in conflict["claims"]] == [5.0, 9.0]
    assert cli.run(["records", "list"]) == 0 and "sources disagree" in capsys.readouterr().out
