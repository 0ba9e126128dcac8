"""A real disk that is full or read-only (a small tmpfs, where one may be mounted): one line, and nothing lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.faults.power import look, whole


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None or _mount("-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)):
        pytest.skip("no file system may be mounted here (root only)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def _mount(*arguments: str) -> int:
    return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode


def _work(folder: Path, number: int) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.faults.work", str(folder), str(number)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ran.stderr, ran.stderr[-2000:]
    return ran.stdout.splitlines()


def test_a_full_disk_then_room_again(disk: Path) -> None:
    told = _work(disk, 1)
    last = told.pop()
    assert last.startswith("refused") and ("space" in last or "full" in last), last
    look(disk, told)
    assert not list(disk.glob(".bolt-export-*")) and not list(disk.glob("*.part"))
    assert _mount("-o", "remount,size=64m", str(disk)) == 0
    told = _work(disk, 2)
    assert told[-1] == "done"
    look(disk, told)


def test_a_read_only_disk(disk: Path) -> None:
    _mount("-o", "remount,size=64m", str(disk))
    told = _work(disk, 1)
    assert told[-1] == "done"
    look(disk, told)
    assert _mount("-o", "remount,ro", str(disk)) == 0
    refused = _work(disk, 2)
    assert refused[-1].startswith("refused") and "ead-only" in refused[-1], refused
    assert _mount("-o", "remount,rw", str(disk)) == 0
    whole(disk)


def test_a_folder_that_goes_away_while_it_is_used(tmp_path: Path) -> None:
    """As a network share does: the error is one line, unless nothing was left to write there, and all kept is whole."""
    folder = tmp_path / "share"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.work", str(folder), "1"], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("measured"):
            break
    os.rename(folder, tmp_path / "gone")
    told, errors = process.communicate()
    assert "Traceback" not in errors, errors[-2000:]
    assert told.splitlines()[-1].startswith(("refused", "done")), told
    whole(tmp_path / "gone")
