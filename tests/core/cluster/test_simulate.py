"""The simulation of scaling, on a small family whose durations are known."""

from itertools import pairwise

import pytest

from core.cluster.simulate import CALL_S, LIBRARY_S, RUN, WIDENED, Durations, Simulation, recorded_durations, table
from core.tuner.runfile import read_run
from templates import families
from tests.core.tuning_stubs import StubFamily, gemm, gpu_identity

FAMILIES = {"stub": StubFamily(tiles=tuple(range(16, 272, 16)), seconds=(10.0, 2.0))}
DURATIONS = Durations({"": 2.0}, 0.5, 3.0)


def simulation(workloads: int = 6) -> Simulation:
    return Simulation([gemm(m=64 * i) for i in range(1, workloads + 1)], gpu_identity(), FAMILIES, DURATIONS, limit=8)


def test_one_kernel_takes_what_its_steps_take():
    alone = Simulation([gemm()], gpu_identity(), FAMILIES, DURATIONS, limit=1).run(4, 1)
    compile_s = CALL_S + 20.0 + LIBRARY_S
    measure_s = 10 * (0.5 + CALL_S) + 3.0 + CALL_S
    assert WIDENED == 9 and alone.compile_s == pytest.approx(compile_s)
    assert alone.wall_s == pytest.approx(compile_s + measure_s)
    assert alone.waiting == pytest.approx(compile_s / alone.wall_s)


def test_more_compilers_and_more_gpus_are_never_slower_by_more_than_a_step():
    made = simulation()
    step = 9 * (0.5 + CALL_S) + 3.0 + CALL_S
    for gpus in (1, 2, 4):
        walls = [made.run(n, gpus).wall_s for n in (1, 2, 4, 8, 16)]
        assert all(b <= a + step for a, b in pairwise(walls))
    assert made.run(16, 4).wall_s <= made.run(16, 1).wall_s


def test_all_that_is_there_is_measured_once():
    made = simulation()
    outcome = made.run(1000, 1)
    kernels = sum(len(task.ranking.candidates) for task in made.tasks)
    measure_s = (kernels + 9 * len(made.tasks)) * (0.5 + CALL_S) + len(made.tasks) * (3.0 + CALL_S)
    assert outcome.wall_s * (1 - outcome.waiting) == pytest.approx(measure_s, rel=1e-6)


def test_the_recorded_run_has_durations_of_every_kind():
    found = recorded_durations(read_run(RUN), families())
    assert 0.3 < found.compile_scale["sm90_gemm"] < 3 and 0.3 < found.compile_scale[""] < 3
    assert 0.001 < found.screen_s < 1 and 0.01 < found.final_s < 10


def test_the_table_tells_where_it_stops_scaling():
    lines = table(simulation(), "toy")
    assert lines[0] == f"toy: 6 workloads, {len(simulation().kernels)} kernels" and lines[2].split()[0] == "1"
    assert "twice as many save less than a quarter" in lines[-1]
