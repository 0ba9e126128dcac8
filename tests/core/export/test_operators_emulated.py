"""Every operator kernel run on the CPU, thread by thread, against numpy: the CUDA sources themselves, without a GPU."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from core.export.emit import operators_unit
from core.export.kernels import operator_kernels
from core.export.lower import lower
from core.export.memory import lifetimes, plan_memory
from core.export.operations import Rows
from core.export.program import OperatorStep
from core.fusion.planner import plan
from core.graph.proto import INPUT_SCALE
from core.importer.load import load_graph
from templates.types import DType
from tests.core.export import reference
from tests.core.export.emulated import compile_for_cpu, operator_exports
from tests.core.export.models import Model, fake_choices, lowered
from tests.core.export.operator_models import MODELS, exact_inputs


def emulated(kernels, folder):
    """The operator kernels as a CPU library; {kernel name: function}."""
    text = '#include "emulator.h"\n' + operators_unit(kernels, "emulated") + operator_exports(kernels)
    compile_for_cpu(text, folder / "unit.so")
    library = ctypes.CDLL(str(folder / "unit.so"))
    return {k.name: getattr(library, f"run_{k.name}") for k in kernels}


def aligned(array):
    """A copy at an address aligned to 256 bytes, as the arena's buffers are."""
    raw = np.empty(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    copy = raw[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy


@pytest.mark.compiles
@pytest.mark.parametrize("dtype", [DType.F16, DType.TF32])
@pytest.mark.parametrize("name", MODELS)
def test_kernels_compute_what_their_operations_say(tmp_path, name, dtype):
    check(lowered(MODELS[name](), dtype), dtype, tmp_path)


@pytest.mark.compiles
def test_rows_of_every_width(tmp_path):
    """Parts of a warp to blocks, whole vectors and single numbers, rows that fill no block: half in, half out."""
    m = Model()
    outputs = []
    for rows, width in ((70, 1), (33, 2), (9, 3), (40, 8), (3, 31), (5, 33), (2, 64), (300, 24), (2, 257), (1, 1030),
                        (2, 4104), (1, 9001)):  # fmt: skip
        x, r = m.input(rows, width), m.input(rows, 1)
        total = m.op("Add", m.op("Mul", x, m.weight(width)), r)
        outputs += [m.op("LayerNormalization", total, m.weight(width), m.weight(width)), m.op("Softmax", total)]
    program = lowered(m.build(*outputs), DType.F16)
    made = [s.operation for s in program.steps if isinstance(s, OperatorStep) and isinstance(s.operation, Rows)]
    assert sorted({o.columns for o in made}) == [1, 2, 3, 8, 24, 31, 33, 64, 257, 1030, 4104, 9001]
    assert len(made) == 12, "the sum, the norm and the softmax of it are one pass"
    check(program, DType.F16, tmp_path)


@pytest.mark.compiles
@pytest.mark.parametrize("scale", [0.25, 8.0, 2.0**126])
def test_softmax_of_scaled_logits(tmp_path, scale):
    """Rows of a warp and of a block, columns, and the logarithm; times 2^126 the logits lie beyond float32."""
    m = Model()
    x, long = m.op("Mul", m.input(3, 40, 33), m.const(np.float32(9))), m.op("Abs", m.input(3, 3000))
    outputs = [m.op("Softmax", x, axis=axis) for axis in (1, 2)] + [m.op("LogSoftmax", x), m.op("Softmax", long)]
    graph = load_graph(m.build(*outputs).SerializeToString())
    nodes = [replace(n, attrs={**n.attrs, INPUT_SCALE: scale}) if "Softmax" in n.op else n for n in graph]
    graph = graph.replaced(nodes)
    found = plan(graph, DType.TF32)
    program = lower(graph, found, fake_choices(found))
    check(program, DType.TF32, tmp_path)


def check(program, dtype, tmp_path):
    """Every operator step, each on the reference's values before it."""
    kernels, names = operator_kernels(program)
    functions = emulated(kernels, tmp_path)
    memory = reference.Memory(program, plan_memory(lifetimes(program)))
    values = exact_inputs([(p.type.shape, p.type.dtype) for p in program.inputs])
    for port, value in zip(program.inputs, values, strict=True):
        memory.view(port.buffer)[:] = value.reshape(-1)
    for number, step in enumerate(program.steps):
        inputs = [aligned(memory.view(i)) for i in step.reads]
        reference._run(step, memory)
        if not isinstance(step, OperatorStep):
            continue
        outputs = [
            aligned(np.full(memory.view(i).nbytes, 0xFF, np.uint8).view(memory.view(i).dtype)) for i in step.writes
        ]
        pointers = [(ctypes.c_void_p * len(a))(*(x.ctypes.data for x in a)) for a in (inputs, outputs)]
        assert functions[names[number]](*pointers) == 0
        for mine, index in zip(outputs, step.writes, strict=True):
            wanted = memory.view(index)
            assert not np.isnan(wanted).any()
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(
                    mine.astype(np.float64), wanted.astype(np.float64), rtol=2e-3 if dtype == DType.F16 else 2e-5,
                    atol=2e-3 if dtype == DType.F16 else 1e-5, err_msg=str(step),
                )  # fmt: skip
            else:
                np.testing.assert_array_equal(mine, wanted, err_msg=str(step))
