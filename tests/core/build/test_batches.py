from hypothesis import given
from hypothesis import strategies as st

from core.build.batches import LARGEST_BATCH, batch_seconds, makespan, plan_batches
from templates.epilogue import Epilogue
from templates.family import Kernel

SM90 = (50.0, 14.0)


def kernels(count: int, family: str = "a") -> list[Kernel]:
    return [Kernel(family, (("i", i),), Epilogue(), stem=f"{i}") for i in range(count)]


def plan(count: int, jobs: int):
    return plan_batches(kernels(count), lambda k: (), lambda k: SM90, jobs)


def wall(batches, jobs: int) -> float:
    return makespan([batch_seconds(b, lambda k: SM90) for b in batches], jobs)


def test_few_kernels_and_many_cores_get_a_file_each():
    assert [len(b) for b in plan(10, 16)] == [1] * 10


def test_many_kernels_share_files():
    batches = plan(38, 16)
    assert wall(batches, 16) <= 50 + 2 * 14 and max(map(len, batches)) == 3


def test_one_core_fills_its_files():
    assert [len(b) for b in plan(16, 1)] == [LARGEST_BATCH] * 2


def test_the_callers_order_decides_which_start_first():
    batches = plan(40, 4)
    assert [b[0] for b in batches] == sorted((b[0] for b in batches), key=lambda k: k.int("i"))


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    jobs=st.integers(1, 32),
    first=st.floats(1, 100),
    further=st.floats(0, 50),
)
def test_every_kernel_is_in_one_batch_of_its_flags_and_no_plan_is_worse_than_one_each(sizes, jobs, first, further):
    groups = [kernels(n, f"f{i}") for i, n in enumerate(sizes)]
    flat = [k for group in groups for k in group]
    cost = (first, min(first, further))
    batches = plan_batches(flat, lambda k: (k.family,), lambda k: cost, jobs)
    assert sorted(k.name for b in batches for k in b) == sorted(k.name for k in flat)
    assert all(len({k.family for k in b}) == 1 and len(b) <= LARGEST_BATCH for b in batches)
    alone = makespan([first] * len(flat), jobs)
    assert makespan([batch_seconds(b, lambda k: cost) for b in batches], jobs) <= alone + 1e-6


def test_nothing_to_build_is_no_batch():
    assert plan(0, 4) == [] and makespan([], 4) == 0.0
