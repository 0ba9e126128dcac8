"""The result of a suite: arithmetic, JSON form, storing and recalling."""

import json

import pytest

from core.bench.table import Form, Row, recorded, result, store, text
from core.cli import run
from core.errors import BoltError

ROWS = [
    Row("a", 10.0, "cublasLt", 20.0, 1e-4, "tile x"),
    Row("b", 10.0, "cudnn", 5.0, 1e-4),
    Row("c", 10.0, "not compared", None, 1e-4),
]


def test_ratio_is_the_peers_time_over_ours() -> None:
    data = result("gemm", "NVIDIA H200", ROWS)
    assert [r["ratio"] for r in data["rows"]] == [2.0, 0.5, None]
    assert data["geomean"] == pytest.approx(1.0)
    assert data["minimum"] == 0.5
    assert data["measured"] is True


def test_nothing_compared_gives_no_mean() -> None:
    data = result("gemm", "NVIDIA H200", ROWS[2:])
    assert data["geomean"] is None and data["minimum"] is None
    assert "geometric mean" not in text(data)


def test_tuning_times_are_told_in_seconds() -> None:
    data = result("tuning-time", "NVIDIA H200", [Row("resnet50 cold", 288e6, "not compared", None, None)])
    assert "ours s" in text(data) and "288.00" in text(data)


def test_forms_are_a_table_of_their_own_with_the_gain_over_the_first() -> None:
    forms = {"templates apart": Form(15.0, 1e-4, "a | b"), "Hopper": Form(10.0, 2e-4, "c")}
    rows = [Row("a", 10.0, "cublasLt", 20.0, 1e-4, "c", forms), Row("b", 8.0, "cudnn", None, 1e-4)]
    said = text(result("b2b-gemm", "NVIDIA H200", rows))
    assert "15.00 (1e-04)" in said and "10.00 (2e-04)" in said
    assert "gain over templates apart: geometric mean 1.50, minimum 1.50" in said


def test_stored_results_come_back_as_recorded(tmp_path) -> None:
    path = store(result("gemm", "NVIDIA H200", ROWS), tmp_path)
    assert path.name.startswith("gemm-nvidia-h200-")
    newer = tmp_path / "gemm-other-2999-01-01.json"
    newer.write_text(json.dumps({**result("gemm", "newer", ROWS), "date": "2999-01-01"}))
    data = recorded("gemm", tmp_path)
    assert data["gpu"] == "newer"
    assert data["measured"] is False
    assert "(recorded)" in text(data)


def test_no_recorded_result_is_said(tmp_path) -> None:
    with pytest.raises(BoltError, match="no result of the suite gemm"):
        recorded("gemm", tmp_path)


def test_unwritable_folder_is_said(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoltError, match="cannot write"):
        store(result("gemm", "g", ROWS), tmp_path / "file" / "in")


@pytest.mark.parametrize("suite", ["gemm", "conv"])
def test_the_committed_results_print(suite, capsys) -> None:
    assert run(["bench", suite, "--recorded", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["suite"] == suite and data["measured"] is False
    assert all({"name", "ours_us", "peer", "peer_us", "ratio", "relative_l2"} <= set(r) for r in data["rows"])
