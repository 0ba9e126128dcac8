"""Project files: what is written is read back; what is damaged or newer is refused and left alone."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.fusion.edit import split
from core.fusion.files import plan_data, plan_from
from core.project import Project, ProjectError, load_project, save_project
from core.session import open_model
from templates.types import DType

VIEW = {"mode": "Time", "place": [0.5, 1, 2]}
GIVEN = Project("resnet50", 32, DType.F16, "h200", {"groups": []}, VIEW, {"pairs": {"groups": [1]}}, "pairs")


def test_a_project_is_read_back(tmp_path: Path) -> None:
    save_project(GIVEN, tmp_path / "a.bolt")
    assert load_project(tmp_path / "a.bolt") == GIVEN
    assert [p.name for p in tmp_path.iterdir()] == ["a.bolt"]


def test_a_model_beside_the_project_moves_with_it(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    (before / "net.onnx").write_bytes(b"x")
    save_project(Project(str(before / "net.onnx"), None, DType.BF16, "a100"), before / "p.bolt")
    before.rename(after)
    assert load_project(after / "p.bolt").model == str(after / "net.onnx")


def test_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "new.bolt"
    text = json.dumps({"format": "bolt-project", "version": 3, "model": "mlp"})
    path.write_text(text)
    with pytest.raises(ProjectError, match="version 3, this program reads up to 2; update"):
        load_project(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "change",
    [{"model": 3}, {"model": ""}, {"batch": "x"}, {"batch": 0}, {"batch": True}, {"dtype": "f8"}, {"gpu": None},
     {"plan": []}, {"kept": []}, {"kept": {"a": 1}}, {"plan_name": None}, {"view": 7}, {"format": "other"},
     {"version": "1"}],
)  # fmt: skip
def test_damaged_files_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    save_project(GIVEN, tmp_path / "a.bolt")
    data = json.loads((tmp_path / "a.bolt").read_text()) | change
    (tmp_path / "a.bolt").write_text(json.dumps(data))
    with pytest.raises(ProjectError):
        load_project(tmp_path / "a.bolt")


def test_a_project_without_kept_plans_is_still_read(tmp_path: Path) -> None:
    save_project(GIVEN, tmp_path / "a.bolt")
    data = json.loads((tmp_path / "a.bolt").read_text()) | {"version": 1}
    old = {k: v for k, v in data.items() if k not in ("kept", "plan_name")}
    (tmp_path / "a.bolt").write_text(json.dumps(old))
    assert load_project(tmp_path / "a.bolt") == Project("resnet50", 32, DType.F16, "h200", {"groups": []}, VIEW)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_never_break_it(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.bolt"
        path.write_bytes(data)
        with pytest.raises(ProjectError):
            load_project(path)


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProjectError, match="can't write the project"):
        save_project(GIVEN, tmp_path / "file" / "a.bolt")


def test_an_edited_plan_goes_through_the_project(tmp_path: Path) -> None:
    session = open_model("mlp")
    edited = split(session.plan, session.graph, session.plan.regions[0].id)
    save_project(Project("mlp", None, DType.F16, "h200", plan_data(edited)), tmp_path / "a.bolt")
    assert plan_from(load_project(tmp_path / "a.bolt").plan, session.graph) == edited
