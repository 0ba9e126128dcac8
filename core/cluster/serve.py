"""A cluster's processes: the scheduler, and a host's workers, kept running until they are told to stop.

A host has one worker for each GPU, which measures and does nothing else, and one that compiles. Workers whose scheduler
goes away wait for it to come back.
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import dask.config
from distributed import Nanny, Scheduler

from core.build.machine import LIGHT_NVCC_BYTES, cores, default_jobs
from core.cluster.connection import GPU
from core.errors import BoltError
from core.tuner.gpus import LocalGpu

LOOPBACK = "127.0.0.1"
_AGAIN_S = 1.0
_START_LIMIT_S = 60.0
CONFIG = {
    # A worker that says nothing for so long is taken for dead, and what it ran is run elsewhere.
    "distributed.scheduler.worker-ttl": "60s",
    # No HTTP pages: they would listen on further ports.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # A compiler's memory is its own, not the worker's: Dask must not pause or end workers over it.
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
}


@dataclass(frozen=True)
class WorkerPlan:
    """One worker process: its name, tasks side by side, GPU resource, and what CUDA_VISIBLE_DEVICES is for it."""

    name: str
    slots: int
    gpu: bool
    visible: str | None = None


def plan_workers(gpus: Sequence[LocalGpu], jobs: int | None, host: str) -> list[WorkerPlan]:
    """A worker for each GPU, and one with `jobs` compilers (None: as cores and memory allow, a core left to each GPU).

    `jobs` 0 leaves the compiling worker out.
    """
    if jobs is None:
        jobs = max(1, min(default_jobs(LIGHT_NVCC_BYTES), cores() - len(gpus)))
    measuring = [WorkerPlan(f"{host} {gpu.name}", 1, True, gpu.visible) for gpu in gpus]
    return measuring + ([WorkerPlan(f"{host} compilers", jobs, False)] if jobs else [])


def run(scheduler: str | None, port: int, host: str, workers: Sequence[WorkerPlan], serve_scheduler: bool) -> None:
    """Runs until SIGINT or SIGTERM.

    Args:
        scheduler: the address that workers join; their own scheduler's if None.
        port, host: where the scheduler listens (port 0: any free one); `host` also where workers listen.
        serve_scheduler: whether there is one here.
    """
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with dask.config.set(CONFIG):
        asyncio.run(_run(scheduler, port, host, workers, serve_scheduler))


async def _run(
    scheduler: str | None, port: int, host: str, workers: Sequence[WorkerPlan], serve_scheduler: bool
) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    async with contextlib.AsyncExitStack() as stack:
        if serve_scheduler:
            served = await stack.enter_async_context(_scheduler(host, port))
            print(f"scheduler at {served.address.removeprefix('tcp://')}", flush=True)
            scheduler = served.address
        assert scheduler is not None
        keeping = [asyncio.create_task(_keep(scheduler, host, plan, over)) for plan in workers]
        await over.wait()
        await asyncio.gather(*keeping)


def _scheduler(host: str, port: int) -> Scheduler:
    try:
        return Scheduler(host=host, port=port, dashboard=False, dashboard_address=f"{LOOPBACK}:0")
    except OSError as error:
        raise BoltError(f"the scheduler can't listen on {host}:{port} ({error})", "choose another --port") from None


async def _keep(scheduler: str, host: str, plan: WorkerPlan, over: asyncio.Event) -> None:
    """A worker, started again whenever it or its scheduler has ended."""
    told = False
    while not over.is_set():
        try:
            async with _nanny(scheduler, host, plan) as nanny:
                print(f"worker {plan.name} joined {scheduler.removeprefix('tcp://')}", flush=True)
                told = False
                ends = [asyncio.create_task(nanny.finished()), asyncio.create_task(over.wait())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
        except (TimeoutError, OSError, RuntimeError) as error:
            if not told:
                print(f"worker {plan.name} waits for {scheduler}: {error or type(error).__name__}", file=sys.stderr)
                told = True
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(over.wait(), _AGAIN_S)


def _nanny(scheduler: str, host: str, plan: WorkerPlan) -> Nanny:
    environment = {} if plan.visible is None else {"CUDA_VISIBLE_DEVICES": plan.visible}
    return Nanny(
        scheduler, nthreads=plan.slots, name=plan.name, resources={GPU: 1} if plan.gpu else {},
        host=host, env=environment, memory_limit=0, dashboard=False, dashboard_address=f"{LOOPBACK}:0",
        death_timeout=_START_LIMIT_S, silence_logs=logging.ERROR,
    )  # fmt: skip
