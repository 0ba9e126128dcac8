"""The parts of a cluster job on their own, without a cluster."""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from core.build.cache import KernelCache
from core.device import GpuIdentity
from core.errors import DeviceError, ToolchainError, WorkerLost
from core.measure.measurement import Stage
from core.tuner.events import Note
from core.tuner.gpus import LocalGpu
from core.tuner.job import TuningJob
from tests.core.tuner.test_job import FAMILY, IDENTITY, WORKLOADS, records
from tests.core.tuning_stubs import (
    SimulatedBuilder,
    SimulatedMeasurer,
    StubFamily,
    fake_toolchain,
    gpu_identity,
    kernels_of,
)

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

from core.cluster import serve, tasks
from core.cluster.__main__ import _parser, main
from core.cluster.builder import ClusterBuilder
from core.cluster.connection import BatchKilled, ClusterError, Connection, Worker
from core.cluster.job import Crew, KindsJob, _kinds
from core.cluster.measurer import ClusterMeasurer
from core.cluster.tasks import Answer, Code, Description, Parts, code_of
from core.errors import BoltError

GPU = gpu_identity()
CODE = Code("13.0.88", "g++", "12.2.0", "4.2.0", "headers", (("stub", 1),))


@dataclass
class Cluster:
    """A Connection whose workers are values; `answers` say what a call on a worker comes to."""

    known: dict[str, Worker]
    answers: dict[str, Any] = field(default_factory=dict)
    approved: list[str] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    address: str = "127.0.0.1:8786"
    slots: int = 3

    def workers(self) -> dict[str, Worker]:
        return dict(self.known)

    def wait_for(self, wanted, limit_s: float) -> bool:
        return wanted(self.known)

    def approve(self, worker: str) -> None:
        self.approved.append(worker)

    def call_on(self, worker: str, work, *arguments, gpu: bool = True):
        self.calls.append((worker, work.__name__, gpu, *arguments))
        found = self.answers[worker]
        found = found.pop(0) if isinstance(found, list) else found
        if isinstance(found, Exception):
            raise found
        return found

    def call(self, work, *arguments, stop: threading.Event):
        return self.call_on("any", work, *arguments)


def cluster(**hosts: Description | Exception) -> Cluster:
    """A worker for each; one called c... has no GPU."""
    workers = {name: Worker(name, f"{name} name", 2, not name.startswith("c")) for name in hosts}
    return Cluster(workers, dict(hosts))


def described(gpu: GpuIdentity | None = GPU, **changes: Any) -> Description:
    return Description("host", replace(CODE, **changes), gpu)


def test_workers_that_run_the_same_code_take_part():
    made = cluster(g=described(), c=described(None), other=described(nvcc="12.9"), odd=described(headers="x"))
    crew = Crew(made, Parts())
    assert [m.worker for m in crew.measurers] == ["g"] and made.approved == ["g", "c"]
    assert crew.notes == [
        "the worker other name is left out: it has nvcc 12.9, not 13.0.88",
        "the worker odd name is left out: it has another version of this program",
    ]
    assert ("c", "describe", False, Parts(), False) in made.calls  # no GPU is taken for a worker without one


def test_a_gpu_that_does_not_work_is_left_out_and_told_once():
    made = cluster(g=described(), broken=DeviceError("no NVIDIA driver", "install it"))
    crew = Crew(made, Parts())
    assert crew.look() == [] and crew.notes == ["the worker broken name is left out: no NVIDIA driver; install it"]


def test_workers_that_come_back_are_met_again():
    made = cluster(g=described())
    crew = Crew(made, Parts())
    assert crew.look() == []
    gone = made.known.pop("g")
    assert crew.look() == []
    made.known["g"] = gone
    (again,) = crew.look()
    again.lost = True  # a connection that was lost and is there again, with the same worker
    assert [m.worker for m in crew.look()] == ["g"]
    made.answers["late"] = WorkerLost("gone")
    made.known["late"] = Worker("late", "late", 1, True)
    assert crew.look() == [] and crew.notes == []
    made.answers["late"] = described()
    assert [m.worker for m in crew.look()] == ["late"]


def test_without_a_gpu_there_is_no_job():
    with pytest.raises(ClusterError, match=r"no worker of 127.0.0.1:8786 has a GPU.*core.cluster worker"):
        Crew(cluster(c=described(None)), Parts(), 0.0)


def test_the_kinds_to_tune_for():
    t4 = replace(GPU, name="Tesla T4")
    crew = Crew(cluster(a=described(), b=described(t4), d=described()), Parts())
    assert _kinds(crew, "auto") == [GPU, t4] and _kinds(crew, "t4") == [t4]
    with pytest.raises(ClusterError, match="the workers have NVIDIA H200, Tesla T4"):
        _kinds(crew, "a100")


def test_libraries_follow_only_when_they_are_missing(tmp_path):
    library = tmp_path / "x.so"
    library.write_bytes(b"code")
    kernel = kernels_of(StubFamily())[0]
    pair = (tasks.Candidate(kernel), tasks.BuiltKernel(kernel, library, 1.0, False))
    made = Cluster({}, {"g": [Answer(missing=("x.so",)), Answer(notes=("cuDNN is absent",)), Answer()]})
    measurer = ClusterMeasurer(made, "g", "host GPU 0", GPU, Parts())
    assert list(measurer.screen(WORKLOADS[0], [pair])) == [] and measurer.notes == ["cuDNN is absent"]
    assert [call[-1].data for call in made.calls] == [None, b"code"]
    measurer.final(WORKLOADS[0], [pair], vendor=True)
    assert made.calls[-1][-2][0].data is None and made.calls[-1][-1] is True


def test_trouble_of_a_host_costs_that_gpu_and_not_the_job():
    made = Cluster({}, {"g": ToolchainError("no space", "make some")})
    with pytest.raises(DeviceError, match="no space; make some"):
        ClusterMeasurer(made, "g", "g", GPU, Parts()).get_ready(WORKLOADS[0], False)
    made.answers["g"] = WorkerLost("gone")
    measurer = ClusterMeasurer(made, "g", "g", GPU, Parts())
    measurer.close()
    measurer.close()
    assert len(made.calls) == 2 and measurer.lost


def test_a_batch_that_takes_workers_along_is_tried_kernel_by_kernel(tmp_path):
    families = {"stub": StubFamily()}
    made = Cluster({}, {"any": BatchKilled("4 workers died of the same task")})
    builder = ClusterBuilder(made, Parts(), fake_toolchain(tmp_path), GPU.spec, tmp_path, families)
    first, second = kernels_of(StubFamily())[:2]
    assert builder.compile_batch((first, second), threading.Event()) == [(first,), (second,)]
    results = dict(builder.build([first, second]))
    assert all(r.stage is Stage.COMPILE and "4 workers died" in r.reason for r in results.values())
    assert builder.cache.find(builder.key(first)) is None  # another day it may compile


def test_a_worker_that_would_compile_other_code_refuses(tmp_path, monkeypatch):
    from core.build.builder import Builder

    class Own(Parts):
        def builder(self, gpu):
            return Builder(fake_toolchain(tmp_path), gpu, tmp_path, families_by_name={"stub": StubFamily()})

    kernels = tuple(kernels_of(StubFamily())[:2])
    with pytest.raises(ToolchainError, match="other code than is meant"):
        tasks.build_batch(Own(), kernels, GPU.spec, ["a", "b"])
    keys = [Own().builder(GPU.spec).key(k) for k in kernels]
    built = tasks.build_batch(Own(), kernels, GPU.spec, keys)
    assert [key for key, _, kept in built.entries if kept] == keys
    assert {name for name, _ in built.libraries} == {entry.library for _, entry, _ in built.entries}
    bad = tuple(kernels_of(StubFamily(tiles=(13, 32))))
    keys = [Own().builder(GPU.spec).key(k) for k in bad]
    assert tasks.build_batch(Own(), bad, GPU.spec, keys).smaller == ((bad[1],), (bad[0],))


def test_a_library_must_be_what_its_name_says(tmp_path):
    cache, other = KernelCache(tmp_path / "a"), KernelCache(tmp_path / "b")
    file = tmp_path / "made.so"
    file.write_bytes(b"code")
    name = cache.store_library(file)
    assert other.take_in(name, None) is None
    path = other.take_in(name, b"code")
    assert path is not None and path.read_bytes() == b"code" and other.take_in(name, None) == path
    with pytest.raises(ToolchainError, match=r"not as 0000\.so"):
        other.take_in("0000.so", b"code")


def test_code_is_described_with_all_headers_and_families():
    toolchain = fake_toolchain(Path("/tmp"))
    code = code_of(toolchain)
    assert code == code_of(toolchain) and len(code.headers) == 64 and dict(code.families)["sm90_gemm"] >= 1
    assert code.difference(replace(code, host_version="13")) == "host version 13, not 12.2.0"
    made = code.toolchain()
    assert (made.nvcc_version, made.host_compiler.name, made.host_version) == ("13.0.88", "g++", "12.2.0")


# -- several kinds


def kind(folder: Path, name: str, **fields: Any) -> TuningJob:
    identity = replace(IDENTITY, gpu=replace(GPU, name=name))
    measurer = SimulatedMeasurer(gpu=identity.gpu, **fields)
    return TuningJob(WORKLOADS, identity, SimulatedBuilder(), [measurer], records(folder), families={"stub": FAMILY})


def test_kinds_are_tuned_side_by_side_into_one_database(tmp_path):
    job = KindsJob([kind(tmp_path, "NVIDIA H200"), kind(tmp_path, "Tesla T4")])
    events: list[Any] = []
    results = job.run(events.append)
    assert len(results) == 4 and set(job.others) == {"Tesla T4"} and len(job.others["Tesla T4"]) == 4
    assert {r.identity.gpu.name for r in records(tmp_path).all()} == {"NVIDIA H200", "Tesla T4"}
    assert all(e.text.startswith("Tesla T4: ") for e in events if isinstance(e, Note))


def test_an_error_for_one_kind_is_raised_and_what_the_others_did_is_kept(tmp_path):
    def lost() -> None:
        raise DeviceError("the T4 is gone")

    job = KindsJob([kind(tmp_path, "NVIDIA H200"), kind(tmp_path, "Tesla T4", on_screen=lost)])
    with pytest.raises(DeviceError, match="the T4 is gone"):
        job.run(lambda event: None)
    assert "NVIDIA H200" in {r.identity.gpu.name for r in records(tmp_path).all()}


def test_a_failure_from_outside_ends_the_job(tmp_path):
    job = kind(tmp_path, "NVIDIA H200", delay_s=0.01)
    job.fail(ClusterError("the scheduler is gone"))
    with pytest.raises(ClusterError):
        job.run(lambda event: None)


# -- processes


def test_a_worker_for_each_gpu_and_one_that_compiles():
    gpus = [LocalGpu(i, str(i), "", GPU) for i in range(2)]
    plans = serve.plan_workers(gpus, 6, "box")
    assert [(p.name, p.slots, p.gpu, p.visible) for p in plans] == [
        ("box GPU 0", 1, True, "0"), ("box GPU 1", 1, True, "1"), ("box compilers", 6, False, None),
    ]  # fmt: skip
    assert len(serve.plan_workers(gpus, 0, "box")) == 2 and serve.plan_workers([], None, "box")[0].slots >= 1


def test_all_listens_on_loopback_unless_told_otherwise():
    for line in (["scheduler"], ["here"], ["worker", "127.0.0.1:8786"]):
        assert _parser().parse_args(line).host == "127.0.0.1"


def test_a_host_without_a_gpu_is_told_what_to_do(capsys):
    assert main(["worker", "127.0.0.1:8786"]) == 1
    assert "--gpus none" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_no_scheduler(address, monkeypatch):
    monkeypatch.setattr("core.cluster.connection.CONNECT_LIMIT_S", 0.2)
    with pytest.raises(ClusterError, match=f"no scheduler answers at {address}"):
        Connection(address)


def test_errors_keep_their_line_on_the_way_from_a_worker():
    import pickle

    error = DeviceError("the GPU is gone", "reset it")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what Dask does
    assert isinstance(again, BoltError) and str(again) == str(error)
