import sys

import pytest

from core.cli import Reporter
from core.cli.tuning_view import TuningView, duration, finished_line, progress_line
from core.measure.measurement import Failure, GpuState, Measurement, Phase, Stage
from core.tuner.events import (
    BuildFinished,
    CandidateFailed,
    JobFinished,
    JobStarted,
    Note,
    Progress,
    WorkloadFinished,
)

BEST = Measurement("w", "stub_t64@pdl", Phase.FINAL, (6.0,), 1e-4, 1e-3)
VENDOR = Measurement("w", "lt", Phase.FINAL, (9.0,), 1e-4, 1e-3, "cublasLt 13")
EVENTS = [
    JobStarted("[red]toy\n", "NVIDIA H200", ("w",), (("r", "w"),), True),
    Note("warning", "the clocks wander"),
    BuildFinished("stub_t64", 1.0, False, 255, 16),
    *[CandidateFailed(Failure("w", f"c{i}", Stage.CRASH, "it [died]\nhere")) for i in range(5)],
    Progress(0, 1, 1, 2, 3, 4, 1, 30.0, GpuState(throttled=True)),
    WorkloadFinished("w", BEST, VENDOR, 3, 1, False),
    JobFinished(1.0),
]


@pytest.mark.parametrize("terminal", [False, True])
def test_names_are_text_and_keep_to_one_line(capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with TuningView(Reporter(False, False)) as view:
        for event in EVENTS:
            view(event)
    told = capsys.readouterr()
    assert told.out == ""
    for text in ("[red]toy on NVIDIA H200", "warning: the clocks wander", "spills 16 bytes", "it [died] here", "1.50x"):
        assert text in told.err.replace("\n", " ") or text in told.err
    assert "c2" in told.err and "c3" not in told.err and "further failures" in told.err


def test_quiet_is_quiet(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with TuningView(Reporter(True, True)) as view:
        for event in EVENTS:
            view(event)
    assert capsys.readouterr().err == ""


def test_lines():
    line = progress_line(EVENTS[8])
    assert line == "built 1/2, measured 3/4, 1 failed, about 30 s left, the GPU's clocks are held back"
    assert finished_line(WorkloadFinished("w", None, None, 0, 2, False)) == "w: no candidate works (2 failed)"
    assert "from records" in finished_line(WorkloadFinished("w", BEST, None, 1, 0, True))
    assert (duration(89), duration(200)) == ("89 s", "3 min")
