"""A whole exported library run on the CPU through its own Python caller: plan, weights, memory plan and C interface."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from core.importer.load import load_graph
from templates.types import DType
from tests.core.export.emulated import a100_program, emulated_library, load_caller
from tests.core.export.models import Model, reference
from tests.core.export.operator_models import MODELS, exact_inputs

pytestmark = pytest.mark.compiles


def net():
    m = Model()
    y = m.op("Relu", m.conv(m.input(2, 3, 12, 12), 3, 16, strides=[2, 2]))
    y = m.op("Relu", m.op("Add", m.conv(m.op("Relu", m.conv(y, 16, 16)), 16, 16), y))
    right = m.op("Relu", m.op("Add", m.conv(y, 16, 16), y))
    y = m.op("Concat", m.conv(y, 16, 16, size=1), right, axis=1)  # both write their half
    y = m.op("MaxPool", m.conv(y, 32, 24, size=1), kernel_shape=[2, 2], strides=[2, 2])
    y = m.op("Gemm", m.op("Flatten", y), m.weight(10, 216, scale=0.1), m.weight(10), transB=1)
    return m.build(m.op("Softmax", y), y)


@pytest.mark.parametrize("dtype", [DType.F16, DType.TF32])
def test_a_conv_net_computes_what_onnx_runtime_does(tmp_path, dtype):
    model = net()
    program = a100_program(load_graph(model.SerializeToString()), dtype)
    assert sum(s.pitch == 32 for s in program.templates) == 2
    emulated_library(program, tmp_path, "net", major=8)
    loaded = load_caller(tmp_path, "net").Model()
    random = np.random.default_rng(0)
    for _ in range(2):
        x = random.uniform(-1, 1, (2, 3, 12, 12)).astype(np.float32)
        for mine, wanted in zip(loaded(x), reference(model, [x]), strict=True):
            assert np.linalg.norm(mine - wanted) <= (5e-3 if dtype == DType.F16 else 1e-5) * np.linalg.norm(wanted)
    assert loaded.workspace_size > 0
    loaded.close()


@pytest.mark.parametrize("name", ["windows", "rows", "pointwise"])
def test_every_operator_inside_a_library(tmp_path, name):
    model = MODELS[name]()
    graph = load_graph(model.SerializeToString())
    emulated_library(a100_program(graph), tmp_path, "ops")
    inputs = exact_inputs([(graph.shape(t), graph.types[t].dtype) for t in graph.inputs])
    results = load_caller(tmp_path, "ops").Model()(*inputs)
    for mine, wanted in zip(results, reference(model, inputs), strict=True):
        if wanted.dtype.kind == "f":
            assert np.linalg.norm(mine - wanted) <= 1e-2 * np.linalg.norm(wanted)
        else:
            assert np.array_equal(mine, wanted)


def test_many_pointer_sets_and_wrong_calls(tmp_path):
    program = a100_program(load_graph(net().SerializeToString()))
    library = ctypes.CDLL(str(emulated_library(program, tmp_path, "net")))
    library.net_last_error.restype = ctypes.c_char_p
    library.net_last_error.argtypes = [ctypes.c_void_p]
    library.net_workspace_size.restype = ctypes.c_size_t
    handle = ctypes.c_void_p()
    assert library.net_create(ctypes.byref(handle), None) == 0
    buffers = np.empty(40 * 4096, np.float32)
    base = buffers.ctypes.data + -buffers.ctypes.data % 256

    def run(at, offset=0, workspace=None):
        inputs = (ctypes.c_void_p * 1)(base + at * 8192 + offset)
        outputs = (ctypes.c_void_p * 2)(base + at * 8192 + 4096, base + at * 8192 + 4352)
        return library.net_run(handle, inputs, outputs, ctypes.c_void_p(workspace), None)

    flat = buffers[(base - buffers.ctypes.data) // 4 :]
    random = np.random.default_rng(0)
    for at in range(12):  # more sets than graphs are kept
        flat[at * 2048 : at * 2048 + 864] = random.uniform(-1, 1, 864)
    for _ in range(2):
        for at in range(12):
            assert run(at) == 0
    first = [flat[at * 2048 + 1024 : at * 2048 + 1044].copy() for at in range(12)]
    assert len({row.tobytes() for row in first}) == 12
    assert all(abs(row.sum() - 2) < 1e-2 for row in first), "two rows of probabilities"
    assert run(0, offset=4) != 0 and b"aligned to 16" in library.net_last_error(handle)
    with ThreadPoolExecutor(1) as other:  # its reason is its own: this thread's stays
        failed = other.submit(lambda: (run(0, workspace=base + 16), library.net_last_error(handle))).result()
    assert failed[0] != 0 and b"aligned to 256" in failed[1]
    assert b"aligned to 16" in library.net_last_error(handle)
    library.net_destroy(handle)


def test_weights_and_devices_that_do_not_fit_are_refused(tmp_path):
    program = a100_program(load_graph(net().SerializeToString()))
    for major, folder in ((8, tmp_path / "right"), (9, tmp_path / "wrong")):
        folder.mkdir()
        emulated_library(program, folder, "net", major)
    with pytest.raises(RuntimeError, match=r"compiled for compute capability 8.0 \(NVIDIA A100.*this device has 9.0"):
        load_caller(tmp_path / "wrong", "net").Model()
    weights = tmp_path / "right" / "net.safetensors"
    good = weights.read_bytes()
    for bad, reason in (
        (good[:-4], "length"),
        (good[:5], "cut short"),
        (good[:20] + b"X" + good[21:], "not the weights"),
    ):
        weights.write_bytes(bad)
        with pytest.raises(RuntimeError, match=reason):
            load_caller(tmp_path / "right", "net").Model()
    weights.unlink()
    with pytest.raises(RuntimeError, match="can't be opened"):
        load_caller(tmp_path / "right", "net").Model()
    (tmp_path / "elsewhere").write_bytes(good)
    load_caller(tmp_path / "right", "net").Model(weights=tmp_path / "elsewhere").close()
