"""One candidate measured again on a real GPU: tune a small product, then its second best beside the winner."""

from pathlib import Path

import pytest

from core.measure.measurement import Measurement, Phase
from core.records.store import Records
from core.tuner.events import CandidateMeasured, Event
from core.tuner.job import Options
from core.tuner.local import local_again, local_job
from templates.workload import parse_workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
KEY = "gemm 1024x512x256 f16.f32 row.col bias+relu"


def test_a_candidate_is_measured_again_beside_the_winner(tmp_path: Path) -> None:
    workload = parse_workload(KEY)
    with local_job([workload], Options(limit=4), cache=tmp_path) as job:
        first = job.run(lambda event: None)[KEY]
    assert first.best is not None
    records = Records(tmp_path / "records.sqlite", shipped=[])
    try:
        finals = [
            r.outcome.candidate
            for r in records.all(KEY)
            if r.candidate is not None and isinstance(r.outcome, Measurement) and r.outcome.phase is Phase.FINAL
        ]
        count = records.count()
    finally:
        records.close()
    name = next(n for n in [*finals, first.best.candidate] if n != first.best.candidate or len(finals) == 1)
    events: list[Event] = []
    with local_again(workload, name, cache=tmp_path) as again:
        found = again.run(events.append)[KEY]
    measured = {e.measurement.candidate: e.measurement for e in events if isinstance(e, CandidateMeasured)}
    assert {name, first.best.candidate} <= measured.keys()
    assert found.best is not None and found.best.us == min(measured[name].us, measured[first.best.candidate].us)
    assert measured[name].relative_l2 < 1e-2
    records = Records(tmp_path / "records.sqlite", shipped=[])
    try:
        assert records.count() == count + len(measured)
        best = records.best(KEY, again.identity)
        assert best is not None and best.outcome == found.best
    finally:
        records.close()
