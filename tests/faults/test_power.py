"""A few power cuts; `python -m tests.faults.power --count 200` makes the rest."""

import random
from pathlib import Path

import pytest

from tests.faults.power import cut, look, run


def test_what_was_kept_is_there_after_kill_9(tmp_path: Path) -> None:
    told = run(2, 1, tmp_path)
    assert told["lost"] == told["half_written"] == 0


def test_a_loss_would_be_seen(tmp_path: Path) -> None:
    told = cut(tmp_path, 0, random.Random(1))
    with pytest.raises(AssertionError, match="lost"):
        look(tmp_path, [*told, "project\tanother.onnx"])
