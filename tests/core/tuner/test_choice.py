import pytest

from core.fusion.plan import FusionPlan, Kind, Region
from core.measure.measurement import Measurement, Phase
from core.records.exchange import write_file
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.choice import Origin, choose, estimated
from templates.family import Candidate
from templates.workload import ConvWorkload
from tests.core.tuning_stubs import H200, StubFamily, gemm, gpu_identity, kernels_of

FAMILY = StubFamily()
IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")
CANDIDATE = Candidate(kernels_of(FAMILY)[0])
PLAN = FusionPlan("m", (Region("r", Kind.GEMM, ("n",), ("a",), ("b",), "", workload=gemm()),))


def measured(name: str, us: float, source: str = "template") -> Measurement:
    return Measurement(gemm().key, name, Phase.FINAL, (us,), 1e-4, 1e-3, source)


@pytest.fixture
def records(tmp_path):
    store = Records(tmp_path / "r.sqlite", shipped=[], families={"stub": FAMILY})
    store.add(measured(CANDIDATE.name, 8.0), IDENTITY, CANDIDATE, run="a", taken="2026-01-01")
    store.add(measured("lt", 7.0, "cublasLt 13"), IDENTITY, run="a", taken="2026-01-01")
    return store


def test_the_template_is_chosen_and_the_vendor_told(records):
    choice = choose(PLAN, records, IDENTITY)[gemm().key]
    assert choice.candidate == CANDIDATE and choice.us == 8.0 and not choice.use_vendor
    assert choice.vendor.us == 7.0 and choice.origin is Origin.OWN


def test_a_faster_vendor_is_used_only_when_allowed(records):
    assert choose(PLAN, records, "NVIDIA H200", allow_vendor=True)[gemm().key].use_vendor
    records.add(measured(CANDIDATE.name, 6.0), IDENTITY, CANDIDATE, run="b", taken="2026-01-02")
    choice = choose(PLAN, records, IDENTITY, allow_vendor=True)[gemm().key]
    assert not choice.use_vendor and choice.us == 6.0 and choice.vendor is None  # another run's vendor does not compare


def test_no_record_is_no_choice(records):
    assert choose([gemm(m=3).key], records, IDENTITY) == {}
    assert choose(PLAN, records, "Tesla T4") == {}


def test_shipped_records_are_marked(records, tmp_path):
    write_file(tmp_path / "x.json.gz", records.dump())
    other = Records(tmp_path / "o.sqlite", shipped=sorted(tmp_path.glob("*.json.gz")), families={"stub": FAMILY})
    assert choose(PLAN, other, "NVIDIA H200")[gemm().key].origin is Origin.SHIPPED


def test_an_estimate_has_no_time():
    choice = estimated(gemm(), H200, {"stub": FAMILY})
    assert choice.origin is Origin.ESTIMATE and choice.us is None and choice.candidate is not None
    assert estimated(ConvWorkload(1, 8, 8, 8, 8, 3, 3), H200, {"stub": FAMILY}) is None
