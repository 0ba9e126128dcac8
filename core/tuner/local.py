"""A tuning job on this machine's GPU, put together from the real parts: for the command line, export and the window."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from core.build.builder import Builder
from core.build.machine import LIGHT_NVCC_BYTES, cores, default_jobs
from core.build.toolchain import Toolchain, find_toolchain
from core.device import GpuIdentity, resolve_gpu
from core.errors import DeviceError
from core.fusion.plan import FusionPlan
from core.fusion.propose import Proposal
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.again import AgainJob
from core.tuner.gpus import gpus_here
from core.tuner.job import Options, TuningJob
from core.tuner.ports import Measurer
from templates.workload import Workload


def record_identity(gpu: GpuIdentity, toolchain: Toolchain) -> Identity:
    """What this machine's measurements are recorded under."""
    return Identity(gpu, toolchain.nvcc_version, toolchain.cutlass_version)


def gpu_here(name: str = "auto") -> GpuIdentity:
    """The GPU of this machine, which must be the one that is named. Raises DeviceError."""
    try:
        here = resolve_gpu("auto")
    except DeviceError as error:
        raise DeviceError(error.what, "tuning needs a GPU; `--gpu h200 --replay` plays the records of one") from error
    if name.strip().lower() != "auto" and resolve_gpu(name).name != here.name:
        raise DeviceError(
            f"the GPU here is {here.name}, not {name}", f"leave --gpu out, or add --replay for the records of {name}"
        )
    return here


@contextmanager
def local_job(
    work: FusionPlan | Sequence[Workload],
    options: Options | None = None,
    gpu: str = "auto",
    runtime: str = "cuda-bindings",
    jobs: int | None = None,
    cache: Path | None = None,
    proposals: Sequence[Proposal] = (),
    gpus: int | None = 1,
) -> Iterator[TuningJob]:
    """A job over nvcc, this machine's GPU and the user's records; its compilers and processes end with the context.

    Args:
        gpu: "auto", or a name that this machine's GPU must have.
        runtime: how the GPU is driven, see core.measure.process.
        jobs: compilers side by side; as many as cores and memory allow if not given.
        cache: folder of compiled kernels and records; the user's own if not given.
        proposals: chains of the plan that could be one kernel, tuned beside their parts.
        gpus: how many GPUs of one kind measure side by side; None: all of them.

    Raises:
        DeviceError, ToolchainError, RecordError: a part is missing; the line says which, and what to do.
    """
    with _parts(gpu, runtime, jobs, cache, gpus) as (identity, builder, measurers, records):
        yield TuningJob(work, identity, builder, measurers, records, options, proposals=proposals)


@contextmanager
def local_again(
    workload: Workload, candidate: str, gpu: str = "auto", runtime: str = "cuda-bindings", cache: Path | None = None
) -> Iterator[AgainJob]:
    """A job that measures one candidate, by name, again on this machine's GPU. Arguments and errors as `local_job`."""
    with _parts(gpu, runtime, None, cache, 1) as (identity, builder, measurers, records):
        yield AgainJob(workload, candidate, identity, builder, measurers[0], records)


@contextmanager
def _parts(
    gpu: str, runtime: str, jobs: int | None, cache: Path | None, gpus: int | None
) -> Iterator[tuple[Identity, Builder, list[Measurer], Records]]:
    device = gpu_here(gpu) if gpus == 1 else gpus_here(gpu, gpus)[0].identity
    toolchain = find_toolchain()
    with ExitStack() as stack:
        records = Records(cache / "records.sqlite" if cache else None)
        stack.callback(records.close)
        measurers = _measurers(gpu, runtime, gpus)
        for measurer in measurers:
            stack.callback(measurer.close)
        builder = Builder(toolchain, device.spec, cache, jobs or _jobs_beside(len(measurers)))
        stack.callback(builder.close)
        yield record_identity(device, toolchain), builder, measurers, records


def _measurers(gpu: str, runtime: str, gpus: int | None) -> list[Measurer]:
    """A measuring process for each GPU; none is measured by two."""
    from core.measure.process import ProcessMeasurer

    if gpus == 1:
        return [ProcessMeasurer(runtime)]
    return [ProcessMeasurer(runtime, visible=g.visible, name=g.name) for g in gpus_here(gpu, gpus)]


def _jobs_beside(gpus: int) -> int | None:
    """Compilers that leave a core to each of several measuring processes; None, the builder's own number, for one."""
    return None if gpus == 1 else max(1, min(default_jobs(LIGHT_NVCC_BYTES), cores() - gpus))
