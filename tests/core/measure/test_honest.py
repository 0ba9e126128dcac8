"""What is told beside figures that can't be believed."""

from dataclasses import replace

import pytest

from core.measure.honest import copy_note, finals_notes, noise, others_note
from core.measure.measurement import GpuState, Measurement, Phase

STEADY = Measurement("w", "a", Phase.FINAL, (10.0, 10.1, 9.9, 10.0, 10.05), 1e-4, 1e-3)


@pytest.mark.parametrize(
    ("gbs", "words"), [(4000, ""), (2500, ""), (1000, "21% of this GPU"), (9000, "timer is wrong")]
)
def test_a_copy_far_from_the_memorys_bandwidth(gbs: float, words: str) -> None:
    note = copy_note(gbs, 4800)
    assert words in note and bool(note) is bool(words)


@pytest.mark.parametrize(("processes", "words"), [(0, ""), (1, ""), (2, "another program"), (4, "3 other programs")])
def test_other_programs(processes: int, words: str) -> None:
    note = others_note(processes)
    assert words in note and bool(note) is bool(words)


def test_noise_and_throttling_of_finals() -> None:
    assert finals_notes("w", [STEADY]) == [] == finals_notes("w", [])
    noisy = replace(STEADY, candidate="b", samples_us=(9.0, 12.0, 8.0, 13.0, 9.5))
    assert noise(noisy.samples_us) > 0.3 > noise((1.0, 2.0))
    (text,) = finals_notes("w", [STEADY, noisy])
    assert "b on w" in text, "the fastest decides"
    slow = replace(noisy, samples_us=tuple(2 * s for s in noisy.samples_us))
    assert finals_notes("w", [STEADY, slow]) == []
    (text,) = finals_notes("w", [replace(STEADY, state=GpuState(throttled=True))])
    assert "held the clocks back" in text
