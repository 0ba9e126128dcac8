"""Several GPUs of one host in one job. With one GPU the same code runs on that one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.fusion.plan import FusionPlan
from core.paths import ROOT
from core.tuner.gpus import LocalGpu, gpus_here
from core.tuner.job import Options
from core.tuner.local import local_job
from templates.epilogue import parse_epilogue
from templates.workload import GemmWorkload

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def here() -> list[LocalGpu]:
    return gpus_here()


def test_a_child_sees_its_gpu_alone(here: list[LocalGpu]) -> None:
    script = "from core.device import device_count, read_facts; print(device_count(), read_facts().pci_bus)"
    for gpu in here:
        told = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu.visible},
        ).stdout.split()  # fmt: skip
        assert told == ["1", gpu.pci_bus]


@pytest.mark.compiles
def test_every_gpu_takes_part_and_every_workload_has_a_verified_winner(here: list[LocalGpu], tmp_path: Path) -> None:
    """Four shapes of one kernel each: a compile of under a minute, then seconds."""
    epilogue = parse_epilogue("bias+relu")
    work = [GemmWorkload(m, 768, 768, epilogue=epilogue) for m in (1280, 2560, 3840, 5120)]
    with local_job(work, Options(limit=1, vendor=False), cache=tmp_path, gpus=None) as job:
        results = job.run(lambda event: None)
    assert all(results[w.key].best is not None for w in work)
    assert [u.gpu for u in job.usages] == [g.name for g in here]
    assert all(u.states for u in job.usages) and all(u.clocks_mhz[0] > 0 for u in job.usages)


def test_a_plan_without_workloads_needs_no_gpu_time(here: list[LocalGpu], tmp_path: Path) -> None:
    with local_job(FusionPlan("empty", ()), cache=tmp_path, gpus=None) as job:
        assert job.run(lambda event: None) == {} and job.usages == ()
