"""How far a tuning job scales: `python -m core.cluster.simulate` prints what resources/scale-simulated.txt keeps.

A discrete simulation of the job's own plan: its ranking chooses the kernels, its planner cuts the batches for that many
compilers, its schedule says which workload a free GPU takes. Durations are those of a recorded run on an H200: what its
compilers took for each family, what a screening and a workload's finals took. Calls and transfers are as measured on a
cluster on one host's loopback (CALL_S, LIBRARY_S). Not simulated: lost workers, records, and the vendor's preparation.
"""

import heapq
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from core.build.artifact import BuiltKernel
from core.build.batches import Batch, batch_seconds, plan_batches
from core.device import GpuIdentity, resolve_gpu
from core.measure.measurement import Phase
from core.records.rows import Identity
from core.search.rank import DEFAULT_LIMIT
from core.session import open_model
from core.tuner.events import BuildFinished, BuildStarted, CandidateMeasured
from core.tuner.prepare import make_tasks, regions_of
from core.tuner.runfile import RUNS, TimedEvent, read_run
from core.tuner.schedule import kernel_order, next_task
from core.tuner.task import Task
from templates import families
from templates.epilogue import Epilogue
from templates.family import Family, Kernel
from templates.workload import Workload

RUN = RUNS / "resnet18-b32-h200.jsonl.gz"
MODELS = ("resnet50", "bert-base", "vgg16", "repvgg-a0", "dlrm")
BATCH = 32
COMPILERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GPUS = (1, 2, 4, 8)
CALL_S = 0.011  # a call of an empty function and its answer: 200 in a row, two cores
LIBRARY_S = 0.02  # the client takes in one compiled library of about 1 MB: a fourth of a call with 4 MiB
PAYS = 0.75  # of the time with half as many compilers, at most, for doubling them to pay
WIDENED = 9  # candidates without a compiler: the best three kernels' other launches
_BUSY_S = 1.0  # a longer pause between two outcomes of a workload is a wait for compilers, no screening


@dataclass(frozen=True)
class Durations:
    """Seconds. `compile_scale`: recorded over estimated compile time, by family; "" for families not recorded."""

    compile_scale: Mapping[str, float]
    screen_s: float
    final_s: float


def recorded_durations(run: Sequence[TimedEvent], found: Mapping[str, Family]) -> Durations:
    """What a recorded run says. Raises ValueError when it holds no compile, no screening or no finals."""
    seconds = {
        e.event.kernel: e.event.seconds for e in run if isinstance(e.event, BuildFinished) and not e.event.cached
    }
    took: dict[str, float] = {}
    estimated: dict[str, float] = {}
    for event in (e.event for e in run if isinstance(e.event, BuildStarted)):
        name = _family(event.kernels[0], found)
        first, further = _estimate(found[name])
        took[name] = took.get(name, 0.0) + sum(seconds.get(k, 0.0) for k in event.kernels)
        estimated[name] = estimated.get(name, 0.0) + first + further * (len(event.kernels) - 1)
    screens, finals = _pauses(run)
    if not (took and screens and finals):
        raise ValueError("the run holds no compile, no screening or no finals")
    scale = {name: took[name] / estimated[name] for name in took}
    scale[""] = sum(took.values()) / sum(estimated.values())
    return Durations(scale, mean(screens), median(finals))


def _family(kernel: str, found: Mapping[str, Family]) -> str:
    return max((name for name in found if kernel.startswith(name + "_")), key=len)


def _estimate(family: Family) -> tuple[float, float]:
    """A family's own estimate; it hardly depends on the kernel."""
    return family.compile_seconds(Kernel(family.name, (), Epilogue()))


def _pauses(run: Sequence[TimedEvent]) -> tuple[list[float], list[float]]:
    """Seconds before each screening's outcome, and before the first outcome of each workload's finals."""
    screens, finals = [], []
    held: set[str] = set()
    last: tuple[float, str] | None = None
    for timed in run:
        if not isinstance(timed.event, CandidateMeasured):
            continue
        m = timed.event.measurement
        same = last is not None and last[1] == m.workload
        if same and last is not None:
            pause = timed.t - last[0]
            if m.phase is Phase.SCREEN and pause <= _BUSY_S:
                screens.append(pause)
            elif m.phase is Phase.FINAL and m.workload not in held:
                finals.append(pause)
        if m.phase is Phase.FINAL:
            held.add(m.workload)
        last = timed.t, m.workload
    return screens, finals


@dataclass(frozen=True)
class Outcome:
    """`compile_s` until the last kernel is there; `waiting`: the share of the GPUs' time with nothing ready by then."""

    compile_s: float
    wall_s: float
    waiting: float


class Simulation:
    """A cold tuning job of the workloads, planned once; `run` may be called often."""

    def __init__(
        self, workloads: Sequence[Workload], gpu: GpuIdentity, found: Mapping[str, Family], durations: Durations,
        limit: int = DEFAULT_LIMIT,
    ) -> None:  # fmt: skip
        self._gpu, self._families, self._durations = gpu.spec, found, durations
        nothing_built: frozenset[Kernel] = frozenset()
        self.tasks = make_tasks(workloads, Identity(gpu, "", ""), found, nothing_built, limit, None)
        self.kernels = kernel_order(self.tasks)

    def seconds(self, kernel: Kernel) -> tuple[float, float]:
        scales = self._durations.compile_scale
        scale = scales.get(kernel.family, scales[""])
        first, further = self._families[kernel.family].compile_seconds(kernel)
        return first * scale, further * scale

    def _flags(self, kernel: Kernel) -> tuple[str, ...]:
        return self._families[kernel.family].flags(kernel, self._gpu)

    def arrivals(self, compilers: int) -> list[tuple[float, Batch]]:
        """When the client has each batch's library, in order of time."""
        batches = plan_batches(self.kernels, self._flags, self.seconds, compilers)
        free = [0.0] * compilers
        built = []
        for batch in batches:
            end = heapq.heappop(free) + CALL_S + batch_seconds(batch, self.seconds)
            heapq.heappush(free, end)
            built.append((end, batch))
        moment, taken = 0.0, []
        for end, batch in sorted(built, key=lambda pair: pair[0]):
            moment = max(moment, end) + LIBRARY_S  # one client takes them in one by one
            taken.append((moment, batch))
        return taken

    def run(self, compilers: int, gpus: int) -> Outcome:
        arrivals = self.arrivals(compilers)
        tasks = [_fresh(task) for task in self.tasks]
        free_at = [0.0] * gpus
        waiting, now = 0.0, 0.0
        last = arrivals[-1][0] if arrivals else 0.0
        coming = iter([*arrivals, (float("inf"), ())])
        moment, batch = next(coming)
        while not all(task.done for task in tasks):
            while moment <= now:
                _arrive(tasks, batch)
                moment, batch = next(coming)
            for gpu in range(gpus):
                if free_at[gpu] <= now and (task := next_task(tasks, gpu)) is not None:
                    waiting += max(0.0, min(now, last) - free_at[gpu])
                    free_at[gpu] = now + self._step(task, gpu)
            later = [t for t in (moment, *free_at) if t > now]
            if not later or min(later) == float("inf"):
                break
            now = min(later)
        wall = max(free_at)
        waiting += sum(max(0.0, last - t) for t in free_at)
        return Outcome(last, wall, waiting / (gpus * wall) if wall else 0.0)

    def _step(self, task: Task, gpu: int) -> float:
        """What a GPU does next for the task, and the seconds it takes."""
        task.gpu, task.begun = gpu, True
        screen = self._durations.screen_s + CALL_S
        if task.screened:
            task.done = True
            return WIDENED * screen + self._durations.final_s + CALL_S
        count = len(task.take_ready())
        task.running = {}
        return count * screen


def _fresh(task: Task) -> Task:
    made = Task(task.workload, task.ranking, task.regions)
    for ranked in task.ranking.candidates:
        made.await_kernel(ranked.candidate)
    return made


def _arrive(tasks: Sequence[Task], batch: Batch) -> None:
    for kernel in batch:
        built = BuiltKernel(kernel, Path(), 0.0, False)
        for task in tasks:
            if kernel in task.waiting:
                task.kernel_built(kernel, built)


def table(simulation: Simulation, title: str) -> list[str]:
    """Wall time by compilers and GPUs; beside it what one GPU waits, and where the compilers stop paying."""
    heading = "".join(f"{f'{g} GPU' + 's' * (g > 1):>9}" for g in GPUS)
    lines = [
        f"{title}: {len(simulation.tasks)} workloads, {len(simulation.kernels)} kernels",
        f"compilers  kernels/min  compile s   use  wall s:{heading}   waiting (1 GPU)",
    ]
    alone = simulation.run(1, 1).compile_s
    wall: list[float] = []
    for compilers in COMPILERS:
        outcomes = [simulation.run(compilers, g) for g in GPUS]
        compile_s = outcomes[0].compile_s
        walls = "".join(f"{o.wall_s:9.0f}" for o in outcomes)
        pace = 60 * len(simulation.kernels) / compile_s
        use = 100 * alone / (compilers * compile_s)
        share = 100 * outcomes[0].waiting
        lines.append(f"{compilers:9}  {pace:11.1f}  {compile_s:9.0f}  {use:3.0f}%  {'':7}{walls}   {share:3.0f}%")
        wall.append(outcomes[0].wall_s)
    longest = max(batch_seconds(b, simulation.seconds) for _, b in simulation.arrivals(COMPILERS[-1]))
    stops = next((n for n, a, b in zip(COMPILERS, wall, wall[1:], strict=False) if b > PAYS * a), COMPILERS[-1])
    lines.append(
        f"From {stops} compilers on twice as many save less than a quarter of the time on one GPU; the longest file "
        f"takes {longest:.0f} s."
    )
    return lines


def report(models: Sequence[str] = MODELS) -> str:
    """The whole text: the durations it rests on, the first model alone, and all models in one job."""
    found, gpu = families(), resolve_gpu("h200")
    durations = recorded_durations(read_run(RUN), found)
    scales = ", ".join(f"{name or 'others'} {scale:.2f}" for name, scale in sorted(durations.compile_scale.items()))
    lines = [
        "Simulated, not measured: a cold tuning job on a cluster (python -m core.cluster.simulate).",
        f"The program's own plan for an H200, with the durations of the recorded run {RUN.name}:",
        f"a screening {durations.screen_s:.3f} s, a workload's finals {durations.final_s:.2f} s, and compile time over",
        f"the estimate: {scales}.",
        f"A call takes {CALL_S} s, taking in a library {LIBRARY_S} s. `use`: the compilers' time against what one",
        "alone needs, whose files are larger. A kernel more in a file is cheap: many compilers do more work in all.",
    ]
    per_model = {model: [w for _, w in regions_of(open_model(model, BATCH).plan)] for model in models}
    groups = {f"{models[0]}, batch {BATCH}": per_model[models[0]]}
    if len(models) > 1:
        groups[f"{', '.join(models)}, batch {BATCH}"] = [w for work in per_model.values() for w in work]
    for title, workloads in groups.items():
        lines += ["", *table(Simulation(workloads, gpu, found, durations), title)]
    return "\n".join(lines) + "\n"


def main() -> int:
    print(report(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
