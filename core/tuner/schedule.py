"""Which kernels are compiled, and in which order; which workload a GPU takes up next."""

from collections.abc import Container, Iterable, Sequence

from core.tuner.ports import KernelBuilder
from core.tuner.task import Task
from templates.family import Kernel

BUILD_SHARE = 0.6  # of a time budget; the rest is for measuring what was built


class Chosen:
    """The kernels that cost nothing more: built ones, and those another workload takes already."""

    def __init__(self, builder: Container[Kernel]) -> None:
        self._builder = builder
        self._taken: set[Kernel] = set()

    def take(self, kernels: Iterable[Kernel]) -> None:
        self._taken.update(kernels)

    def __contains__(self, kernel: object) -> bool:
        return kernel in self._taken or kernel in self._builder


def kernel_order(tasks: Sequence[Task]) -> list[Kernel]:
    """Kernels that the tasks wait for, most useful first.

    A kernel's use is the sum over the workloads that want it of the workload's weight over the kernel's place in its
    ranking: shared kernels, and favourites of what takes the most time, come first.
    """
    use: dict[Kernel, float] = {}
    for task in tasks:
        places = {r.kernel: i for i, r in enumerate(task.ranking.candidates)}
        for kernel in task.waiting:
            place = places.get(kernel, len(places))
            use[kernel] = use.get(kernel, 0.0) + task.estimate_us / (1 + place)
    return sorted(use, key=lambda k: -use[k])


def fit_budget(order: Sequence[Kernel], tasks: Sequence[Task], builder: KernelBuilder, seconds: float) -> list[Kernel]:
    """The kernels that can be compiled in `seconds`, least useful ones left out; each task keeps its first."""
    firsts = {task.ranking.candidates[0].kernel for task in tasks if task.ranking.candidates}
    keep = [k for k in order if k in firsts]
    rest = [k for k in order if k not in firsts]
    low, high = 0, len(rest)
    while low < high:
        middle = (low + high + 1) // 2
        if builder.seconds([*keep, *rest[:middle]]) <= seconds:
            low = middle
        else:
            high = middle - 1
    wanted = {*keep, *rest[:low]}
    return [k for k in order if k in wanted]


def keep_only(kept: Sequence[Kernel], tasks: Sequence[Task]) -> None:
    """Leaves the tasks waiting for `kept` alone; those that lose a kernel are marked as cut."""
    wanted = set(kept)
    for task in tasks:
        task.cut = not wanted.issuperset(task.waiting)
        task.waiting = {k: c for k, c in task.waiting.items() if k in wanted}


def next_task(tasks: Sequence[Task], gpu: int) -> Task | None:
    """What a free GPU goes on with: its most advanced task, else one of its own or nobody's with the most to screen.

    A task that was begun on another GPU stays there, so that its figures compare; one that was only prepared may move.
    """
    able = [t for t in tasks if not t.done and (t.gpu == gpu or not t.begun)]
    for task in able:
        if task.screened:
            return task
    ready = [t for t in able if t.ready]
    return max(ready, key=lambda t: (t.gpu in (gpu, None), len(t.ready), t.estimate_us), default=None)


def to_prepare(tasks: Sequence[Task], gpu: int, gpus: int) -> list[Task]:
    """The tasks for which a waiting GPU makes ready: its own, filled up to its share with those of nobody."""
    left = [t for t in tasks if not t.done]
    own = [t for t in left if t.gpu == gpu]
    share = -(-len(left) // gpus)
    free = [t for t in left if t.gpu is None][: max(0, share - len(own))]
    for task in free:
        task.gpu = gpu
    return own + free
