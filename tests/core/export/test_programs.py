"""Exported libraries in processes that have none of our Python, on the CPU."""

import subprocess

import pytest

from core.importer.load import load_graph
from tests.core.export.emulated import a100_program, emulated_library
from tests.core.export.models import Model
from tests.core.export.programs import HERE, build_program, output_of

pytestmark = pytest.mark.compiles


def net(seed):
    m = Model(seed)
    return m.build(m.op("Relu", m.op("Gemm", m.input(2, 8), m.weight(8, 8), m.weight(8), transB=1)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two libraries of the same shapes, so of the same kernels and template names, with other weights."""
    made = []
    for seed, name in enumerate(("one", "two")):
        folder = tmp_path_factory.mktemp(name)
        emulated_library(a100_program(load_graph(net(seed).SerializeToString())), folder, name)
        made.append(folder)
    return made


def test_two_libraries_and_four_threads_in_one_process(folders, tmp_path):
    program = build_program(HERE / "threads.cpp", folders, tmp_path / "threads")
    assert output_of(program, "4") == "same\n"


def test_the_c_example_runs_without_python(folders, tmp_path):
    program = build_program(folders[0] / "examples/example.c", folders[:1], tmp_path / "example")
    assert output_of(program).count(", ...") == 1
    needed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    assert "python" not in needed and "cudart" not in needed
