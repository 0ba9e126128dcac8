"""Where vendor libraries are looked for."""

from pathlib import Path

import pytest

from core.vendor import libraries


def test_the_newest_packaged_library_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cublas/lib/libcublasLt.so.12", "cu13/lib/libcublasLt.so.13", "cu13/lib/libcublasLt.so", "cu13/x.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    folders = [tmp_path / "cublas" / "lib", tmp_path / "cu13" / "lib"]
    monkeypatch.setattr(libraries, "_package_folders", lambda: folders)
    assert libraries.packaged("cublasLt") == tmp_path / "cu13" / "lib" / "libcublasLt.so.13"
    assert libraries.packaged("cudnn") is None


def test_load_gives_none_for_what_is_nowhere() -> None:
    assert libraries.load("a_library_nobody_has", (13, 12)) is None


def test_load_finds_a_system_library() -> None:
    assert libraries.load("c", (6,)) is not None
