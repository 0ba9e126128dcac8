"""A slice of the soak; `python -m tests.soak.run` is the whole."""

from pathlib import Path

from tests.soak.run import soak


def test_some_models_after_each_other(tmp_path: Path) -> None:
    told = soak(1_000, tmp_path)
    assert told.candidates >= 1_000 and told.models >= 2 and told.sound, told
