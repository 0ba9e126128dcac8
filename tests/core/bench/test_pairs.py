"""The columns of the suites of pairs, from what a tuning job tells."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from core.bench import pairs
from core.bench.suites import suite
from core.measure.measurement import Measurement, Phase
from core.search.rank import rank
from core.tuner.events import CandidateMeasured, WorkloadFinished
from templates import families
from templates.gpu import KNOWN_GPUS
from templates.workload import GemmWorkload

H200 = KNOWN_GPUS["h200"]
PAIR = suite("b2b-gemm")["32768: 576->128->64"]


def _measured(key: str, candidate: str, us: float, phase: Phase = Phase.FINAL, source: str = "template") -> Measurement:
    return Measurement(key, candidate, phase, (us,), 1e-4, 1e-3, source)


def _names() -> dict[str, str]:
    """A candidate of each form."""
    found = {}
    for family in ("sm80_b2b", "sm90_b2b"):
        for ranked in rank(PAIR, H200, {family: families()[family]}, limit=99).candidates:
            params = dict(ranked.kernel.params)
            found.setdefault(pairs.MMA_SYNC.get(str(params.get("residence")), pairs.HOPPER), ranked.candidate.name)
    return found


def test_each_form_has_its_fastest_final() -> None:
    names, (first, second) = _names(), PAIR.parts
    assert set(names) == set(pairs.FORMS[1:])
    heard = {
        PAIR.key: [
            _measured(PAIR.key, names["Hopper"], 9.0), _measured(PAIR.key, names["Hopper"], 5.0, Phase.SCREEN),
            _measured(PAIR.key, names["sm80 RF"], 12.0, Phase.SCREEN), _measured(PAIR.key, names["sm80 smem"], 14.0),
        ],
        first.key: [_measured(first.key, "x", 10.0), _measured(first.key, "y", 8.0)],
        second.key: [_measured(second.key, "z", 4.0)],
    }  # fmt: skip
    found = pairs.forms(PAIR, heard, H200)
    assert {name: form.us for name, form in found.items()} == {
        "templates apart": 12.0, "sm80 RF": 12.0, "sm80 smem": 14.0, "Hopper": 9.0,
    }  # fmt: skip
    assert found["templates apart"].detail == "y | z"
    assert pairs.UNFUSED not in pairs.forms(PAIR, {PAIR.key: heard[PAIR.key]}, H200), "a part was not measured"
    assert pairs.forms(GemmWorkload(8, 8, 8), heard, H200) == {}


def test_parts_are_tuned_beside_the_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Job:
        identity = SimpleNamespace(gpu=SimpleNamespace(name="NVIDIA H200", spec=H200))

        def run(self, listener):
            listener(CandidateMeasured(_measured(PAIR.key, _names()["Hopper"], 9.0)))
            listener(CandidateMeasured(_measured(PAIR.key, "cublasLt", 1.0, source="cublasLt 13")))
            return {w.key: WorkloadFinished(w.key, _measured(w.key, "x", 7.0), None, 1, 0, True) for w in asked}

    @contextmanager
    def local_job(workloads, options, gpu, cache):
        asked.extend(workloads)
        yield Job()

    monkeypatch.setattr(pairs, "local_job", local_job)
    heard = []
    data = pairs.measure("b2b-gemm", {"pair": PAIR}, heard.append)
    assert [w.key for w in asked] == [PAIR.key, *(p.key for p in PAIR.parts)] and len(heard) == 2
    [row] = data["rows"]
    assert row["forms"]["Hopper"]["us"] == 9.0 and row["forms"]["templates apart"]["us"] == 14.0
