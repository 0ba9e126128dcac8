"""Every operator kernel compiles, for an architecture without and one with programmatic dependent launch."""

import re

import pytest

from core.build.nvcc import compile_library
from core.build.toolchain import find_toolchain
from core.export.emit import operators_unit
from core.export.kernels import operator_kernels
from templates.operators import FOLDER, HEADERS
from templates.types import DType
from tests.core.export.models import lowered
from tests.core.export.operator_models import MODELS


@pytest.mark.compiles
@pytest.mark.timeout(600)
@pytest.mark.parametrize("arch", ["80", "90a"])
def test_every_operator_kernel_compiles(tmp_path, arch):
    wanted = {"80": ["windows", "rows", "pointwise"], "90a": ["windows", "rows"]}[arch]
    units = []
    for name in wanted:
        kernels, _ = operator_kernels(lowered(MODELS[name](), DType.F16))
        unit = tmp_path / f"{name}.cu"
        unit.write_text(operators_unit(kernels, name))
        units.append(unit)
    compile_library([units[-1]], tmp_path / "lib.so", arch, find_toolchain(), [f"-I{FOLDER}"])
    for unit in units[:-1]:
        compile_library([unit], tmp_path / "lib.so", arch, find_toolchain(), [f"-I{FOLDER}"])


def test_every_kernel_waits_before_it_touches_an_activation():
    """The memory plan relies on it: under PDL a kernel that does not wait could overwrite what is still read."""
    for header in HEADERS:
        text = (FOLDER / header).read_text()
        for kernel in re.findall(r"__global__.*?\n}\n", text, re.DOTALL):
            name = re.search(r"(\w+_kernel)\(", kernel)
            body = kernel[kernel.index("{") :]
            assert "wait_for_producers();" in body, (header, name)
            before = body[: body.index("wait_for_producers();")]
            assert not re.search(r"\bload<|\bstore\(|\b[xy]\[", before), (header, name)


def test_generated_kernels_wait_too():
    kernels, _ = operator_kernels(lowered(MODELS["pointwise"](), DType.F16))
    bodies = [k.source for k in kernels if "__global__" in k.source]
    assert bodies
    for body in bodies:
        assert body.index("wait_for_producers") < body.index("store(")
        loads = [body.index(f"in{i}[") for i in range(9) if f" = in{i}[" in body]
        assert all(body.index("wait_for_producers") < at for at in loads)
