"""What records are replayed when the user names neither GPU nor batch."""

import pytest

from core.device import detect_gpu
from core.errors import DeviceError
from core.records.store import Records
from core.session import open_model
from core.tuner.recorded import open_recorded, recorded_gpu
from templates.types import DType

H200 = "NVIDIA H200"


def _gpu_here() -> bool:
    try:
        detect_gpu()
    except DeviceError:
        return False
    return True


@pytest.fixture
def shipped(tmp_path):
    store = Records(tmp_path / "records.sqlite")
    yield store
    store.close()


@pytest.mark.skipif(_gpu_here(), reason="there is a GPU here, so auto means it")
def test_without_a_gpu_auto_is_the_one_of_the_records(shipped) -> None:
    gpu, why = recorded_gpu("auto", shipped)
    assert gpu.name == H200
    assert why == f"no GPU here: these are the records of {H200}"


def test_a_named_gpu_needs_no_word(shipped) -> None:
    gpu, why = recorded_gpu("a100", shipped)
    assert (gpu.spec.sm, why) == (80, "")


def test_an_unknown_name_is_refused(shipped) -> None:
    with pytest.raises(DeviceError, match="no GPU is called"):
        recorded_gpu("voodoo2", shipped)


@pytest.mark.skipif(_gpu_here(), reason="there is a GPU here, so auto means it")
def test_without_gpu_and_records_auto_is_refused(tmp_path) -> None:
    store = Records(tmp_path / "empty.sqlite", shipped=[])
    with pytest.raises(DeviceError):
        recorded_gpu("auto", store)
    store.close()


def test_a_built_in_model_comes_at_its_recorded_batch(shipped) -> None:
    session, why = open_recorded("resnet18", None, DType.F16, None, shipped, H200)
    assert session.batch == 32
    assert "batch 32" in why and "--batch takes another" in why
    assert all(shipped.best(key, H200) for key in session.plan.workloads)


def test_the_batch_asked_for_is_kept(shipped) -> None:
    session, why = open_recorded("resnet18", 2, DType.F16, None, shipped, H200)
    assert (session.batch, why) == (2, "")
    assert session.plan == open_model("resnet18", 2).plan


def test_without_records_the_model_stays_as_it_is(shipped) -> None:
    session, why = open_recorded("mlp", None, DType.F16, None, shipped, "Tesla T4")
    assert (session.batch, why) == (None, "")
