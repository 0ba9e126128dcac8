import os
import stat

import pytest

from core.files import write_atomically


def test_the_old_file_stays_when_the_new_one_fails(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_atomically(path, "old")

    def full(a, b):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_others_may_read_what_the_mask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "x", "\u00e9")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644 and (tmp_path / "x").read_bytes() == b"\xc3\xa9"
