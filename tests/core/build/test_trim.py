"""Folders that stay below a size: the oldest use goes first, and nothing goes while another process is there."""

import os
import subprocess
import sys
from pathlib import Path

from core.build import cache
from core.build.cache import Entry, KernelCache
from core.build.trim import in_use, mark_used, trim

HOLD = "import sys; from core.build.trim import Used; u = Used(__import__('pathlib').Path(sys.argv[1]), '*', 0); \
print('held', flush=True); sys.stdin.read()"


def made(folder: Path, *ages: int) -> list[Path]:
    """Files of 1000 bytes, used so many seconds ago."""
    files = []
    for number, age in enumerate(ages):
        path = folder / f"{number}.so"
        path.write_bytes(bytes(1000))
        os.utime(path, (1_700_000_000 - age, 1_600_000_000))
        files.append(path)
    return files


def test_the_least_recently_used_go_until_there_is_room(tmp_path: Path) -> None:
    files = made(tmp_path, 50, 10, 40, 20, 30)
    assert trim(tmp_path, "*.so", 5000) == []
    assert trim(tmp_path, "*.so", 4000) == [files[0], files[2]]
    mark_used(files[4])
    assert trim(tmp_path, "*.so", 2500) == [files[3]] and files[4].stat().st_mtime == 1_600_000_000


def test_nothing_goes_while_another_process_is_there(tmp_path: Path) -> None:
    made(tmp_path, 1, 2)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        made(tmp_path, 1, 2)
        with in_use(tmp_path, "*.so", 0):
            assert len(list(tmp_path.glob("*.so"))) == 2
        other.kill()
    with in_use(tmp_path, "*.so", 0):
        assert not list(tmp_path.glob("*.so"))


def test_kernels_whose_library_went_are_compiled_again(tmp_path: Path, monkeypatch) -> None:
    first = KernelCache(tmp_path)
    for key, age in (("aa", 100), ("bb", 1)):
        (tmp_path / "built").write_bytes(key.encode() * 1000)
        library = first.store_library(tmp_path / "built")
        first.store(key, Entry("k", library))
        os.utime(tmp_path / "kernels/lib" / library, (1_700_000_000 - age, 1_600_000_000))
    monkeypatch.setattr(cache, "LIMIT_BYTES", 2500)
    assert KernelCache(tmp_path).find("aa", verify=False) is not None, "the first one is still in use"
    del first
    again = KernelCache(tmp_path)
    assert again.find("aa", verify=False) is None and again.find("bb") is not None


def test_a_folder_that_may_not_be_written_is_used_as_it_is(tmp_path: Path) -> None:
    with in_use(tmp_path / "not there", "*", 0):
        pass
