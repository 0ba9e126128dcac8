"""The tuning job on a real cluster of processes, its measurements replayed from an H200's records.

One cluster serves all tests here: a scheduler, a host with two GPUs, a compiling worker. Processes die in several ways;
what is on record afterwards must be what a job on this machine records, each outcome once.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.build.builder import Builder
from core.measure.measurement import Measurement, Phase
from core.paths import ROOT
from core.records.store import Records
from core.tuner.events import CandidateMeasured, Note
from core.tuner.job import TuningJob
from core.tuner.local import record_identity
from core.tuner.options import Options
from tests.core.cluster.replayed import WORKLOADS, Replayed, ReplayedParts
from tests.core.tuning_stubs import compiler_runs

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

from core.cluster.connection import Connection
from core.cluster.job import cluster_job

OPTIONS = Options(limit=4, vendor=False)
PARTS = ReplayedParts()
LIMIT_S = 60.0


class Host:
    """The cluster's processes. `folder` is what its workers share with the test (tests.core.cluster.replayed)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.environment = {
            **os.environ, "BOLT_TEST": str(folder), "BOLT_CACHE": str(folder / "host"),
            "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver",  # a worker starts in a third of the time
        }  # fmt: skip
        self.scheduler = self._start("core.cluster", "scheduler", "--port", str(self.port))
        self.workers = self._start("tests.core.cluster.replayed", self.address)

    def _start(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline()  # it listens, or a first worker has joined
        return process

    def restart_scheduler(self) -> None:
        """As after a power cut."""
        self.scheduler.kill()
        self.scheduler.wait()
        self.scheduler = self._start("core.cluster", "scheduler", "--port", str(self.port))

    def order(self, what: str) -> None:
        (self.folder / what).touch()

    def close(self) -> None:
        for process in (self.workers, self.scheduler):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in (self.workers, self.scheduler):
            process.wait(LIMIT_S)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(tmp_path_factory.mktemp("host"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def environment(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLT_TEST", str(host.folder))
    monkeypatch.setenv("BOLT_SHIPPED", "")


@pytest.fixture(scope="module")
def local(host: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The winner of each workload by a job on this machine, and what it recorded."""
    folder = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOLT_TEST", str(host.folder))
        measurer, toolchain = Replayed(), PARTS.toolchain()
        identity = record_identity(measurer.identity(), toolchain)
        records = Records(folder / "records.sqlite", shipped=[])
        builder = Builder(toolchain, identity.gpu.spec, folder, jobs=2)
        job = TuningJob(WORKLOADS, identity, builder, [measurer], records, OPTIONS)
        results = job.run(lambda event: None)
    assert len(results) == len(WORKLOADS) and all(r.best for r in results.values())
    return {key: r.best.candidate for key, r in results.items() if r.best}


def screened(folder: Path) -> Counter[tuple[str, str]]:
    kept = Records(folder / "records.sqlite", shipped=[])
    try:
        return Counter(
            (r.outcome.workload, r.outcome.candidate)
            for r in kept.all()
            if isinstance(r.outcome, Measurement) and r.outcome.phase is Phase.SCREEN
        )
    finally:
        kept.close()


def winners(results) -> dict[str, str]:
    return {key: r.best.candidate for key, r in results.items()}


def tune(host: Host, folder: Path, on_measured=lambda count: None, **options):
    """Runs a job on the cluster; `on_measured` is called with the number of outcomes so far. (results, notes)"""
    notes, measured = [], []

    def listen(event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)
        elif isinstance(event, CandidateMeasured):
            measured.append(event.measurement)
            on_measured(len(measured))

    with cluster_job(WORKLOADS, OPTIONS, host.address, cache=folder, parts=PARTS, **options) as job:
        results = job.run(listen)
    assert max(screened(folder).values()) == 1  # nothing twice
    return results, notes


def test_it_equals_the_local_job_and_kernels_travel(host, local, tmp_path):
    results, notes = tune(host, tmp_path)
    assert winners(results) == local
    assert any(n.startswith("host GPU 0: ") for n in notes) and any(n.startswith("host GPU 1: ") for n in notes)
    theirs = host.folder / "host" / "kernels" / "lib"
    names = {p.name for p in (tmp_path / "kernels" / "lib").iterdir()}
    assert names and names <= {p.name for p in theirs.iterdir()}
    runs = compiler_runs(host.folder)
    again, _ = tune(host, tmp_path / "other")  # another client: the host's cache has all kernels
    assert winners(again) == local and compiler_runs(host.folder) == runs
    for path in theirs.iterdir():
        path.unlink()
    (tmp_path / "records.sqlite").unlink()
    results, _ = tune(host, tmp_path)  # libraries follow with their bytes; kernels that are there change the ranking
    assert all(r.best is not None and r.failed == 0 for r in results.values())


def test_workers_that_are_killed_while_they_compile_and_measure(host, local, tmp_path):
    for path in (host.folder / "host" / "kernels" / "index").glob("*/*.json"):
        path.unlink()
    host.order("kill-compile")
    results, notes = tune(host, tmp_path, lambda count: host.order("kill-measure") if count == 4 else None)
    assert winners(results) == local
    assert not [name for name in ("kill-compile", "kill-measure") if (host.folder / name).exists()]
    assert any("left out from here on" in n for n in notes)


def test_a_scheduler_that_is_killed_and_comes_back(host, local, tmp_path):
    results, notes = tune(host, tmp_path, lambda count: host.restart_scheduler() if count == 4 else None)
    assert winners(results) == local
    assert any("takes part from here on" in n for n in notes)


def test_workers_that_are_silent_for_a_while(host, local, tmp_path):
    with Connection(host.address) as connection:
        assert connection.wait_for(lambda workers: len(workers) == 3, LIMIT_S)
        pids = [connection.call_on(w.address, os.getpid, gpu=w.gpu) for w in connection.workers().values()]

    def stall(count: int) -> None:
        if count == 4:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            threading.Timer(1.0, lambda: [os.kill(pid, signal.SIGCONT) for pid in pids]).start()

    results, _ = tune(host, tmp_path, stall)
    assert winners(results) == local


def test_cancel_keeps_what_was_measured(host, local, tmp_path):
    with cluster_job(WORKLOADS, OPTIONS, host.address, cache=tmp_path, parts=PARTS) as job:
        job.run(lambda event: job.cancel() if isinstance(event, CandidateMeasured) else None)
        assert job.cancelled
    assert 1 <= len(screened(tmp_path)) <= 3
