"""Libraries of several batch sizes, run on the CPU: one file of weights, dispatch, padding and cutting."""

import ctypes
import json
import sys

import numpy as np
import pytest

from core.errors import ExportError
from core.export.buckets import buckets
from core.export.emit import Part
from core.export.memory import lifetimes, plan_memory
from core.export.weights import write_shared_weights, write_weights
from core.importer.load import load_graph
from tests.core.export.emulated import a100_program, emulated_buckets, load_caller
from tests.core.export.models import Model, lowered, reference
from tests.core.export.test_callers import OnGpu, aligned

BATCHES = (1, 3, 8)


def net(batch):
    """Two inputs, one that does not grow with the batch, and two outputs, one of two rows a sample."""
    m = Model()
    x, table = m.input(batch, 6), m.input(5, 6)
    y = m.op("Relu", m.op("Gemm", x, m.weight(16, 6), m.weight(16), transB=1))
    z = m.op("MatMul", x, m.op("Transpose", table, perm=[1, 0]))
    return m.build(m.op("Softmax", m.op("Reshape", y, m.const(np.array([2 * batch, 8])))), z)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("grown")
    emulated_buckets({b: a100_program(load_graph(net(b).SerializeToString())) for b in BATCHES}, made, "grown")
    return made


@pytest.fixture(scope="module")
def caller(folder):
    return load_caller(folder, "grown")


def inputs(batch):
    random = np.random.default_rng(batch)
    return [aligned(random.uniform(-1, 1, shape).astype(np.float32)) for shape in ((batch, 6), (5, 6))]


def agree(mine, batch):
    pairs = zip(mine, reference(net(batch), inputs(batch)), strict=True)
    return all(m.shape == w.shape and np.linalg.norm(m - w) <= 5e-3 * np.linalg.norm(w) for m, w in pairs)


@pytest.mark.compiles
@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8])
def test_any_batch_up_to_the_largest_computes_what_onnx_runtime_does(caller, batch):
    model = caller.Model()
    assert agree(model(*inputs(batch)), batch)
    out = [aligned(np.full(shape, np.nan, np.float32)) for shape in ((2 * batch, 8), (batch, 5))]
    for _ in range(2):
        model(*(OnGpu(x, caller) for x in inputs(batch)), out=[OnGpu(x, caller) for x in out])
        assert agree(out, batch)
    model.close()


@pytest.mark.compiles
def test_nothing_is_written_behind_a_cut_output(folder, caller):
    model = caller.Model()
    given = inputs(8)
    out = [aligned(np.full(shape, 7, np.float32)) for shape in ((16, 8), (8, 5))]
    sides = [[x.ctypes.data for x in side] for side in (given, out)]
    model.run(*sides, batch=2)
    assert (out[0][4:] == 7).all() and (out[1][2:] == 7).all() and (out[0][:4] != 7).all()
    model.run(*sides)
    assert agree(out, 8)
    model.close()


@pytest.mark.compiles
def test_batches_that_do_not_fit_and_null_pointers_are_answered(caller):
    model = caller.Model()
    for batch in (0, 9):
        with pytest.raises(ValueError, match="takes batches of 1 to 8"):
            model(np.zeros((batch, 6), np.float32), np.zeros((5, 6), np.float32))
        with pytest.raises(RuntimeError, match=f"it runs batches of 1 to 8, not {batch}"):
            model.run([0, 0], [0, 0], batch=batch)
    with pytest.raises(RuntimeError, match="a pointer is NULL"):
        model.run([0, 0], [0, 0], batch=2)
    with pytest.raises(RuntimeError, match="workspace: it is not aligned"):
        model.run(*[[16, 16]] * 2, workspace=64, batch=2)
    model.close()


@pytest.mark.compiles
def test_steps_are_those_of_the_largest_bucket_and_the_rest_of_the_interface_is_there(folder):
    library = ctypes.CDLL(str(folder / "libgrown.so"))
    handle = ctypes.c_void_p()
    assert library.grown_create(ctypes.byref(handle), None) == 0
    assert [library.grown_bucket(i) for i in range(library.grown_bucket_count())] == list(BATCHES)
    out = [aligned(np.full(shape, np.nan, np.float32)) for shape in ((16, 8), (8, 5))]
    given = inputs(8)
    sides = [(ctypes.c_void_p * 2)(*(x.ctypes.data for x in side)) for side in (given, out)]
    for step in range(library.grown_step_count()):
        assert library.grown_run_step(handle, *sides, None, step, None) == 0
    assert agree(out, 8)
    memory = ctypes.c_void_p()
    assert library.grown_alloc(handle, ctypes.c_size_t(64), ctypes.byref(memory)) == 0 and memory.value % 256 == 0
    library.grown_free(memory)
    assert library.grown_synchronize(handle, None) == 0
    library.grown_destroy(handle)


@pytest.mark.compiles
def test_the_torch_operator_takes_any_batch_also_a_symbolic_one(folder):
    torch = pytest.importorskip("torch")
    sys.path.insert(0, str(folder))
    try:
        import grown_torch
    finally:
        sys.path.remove(str(folder))
    assert agree([y.numpy() for y in grown_torch.run(*map(torch.from_numpy, inputs(2)))], 2)

    class Around(torch.nn.Module):
        def forward(self, x, table):
            return grown_torch.run(x * 1.0, table)

    dynamic = ({0: torch.export.Dim("batch", min=2, max=8)}, None)
    exported = torch.export.export(Around(), tuple(map(torch.from_numpy, inputs(4))), dynamic_shapes=dynamic)
    for batch in (2, 7):
        assert agree([y.numpy() for y in exported.module()(*map(torch.from_numpy, inputs(batch)))], batch)


def test_weights_that_the_buckets_share_are_stored_once(tmp_path):
    programs = [lowered("mlp", batch=b) for b in (1, 8)]
    both = write_shared_weights(programs, tmp_path / "both")
    alone = write_weights(programs[0], tmp_path / "alone")
    assert both[0].data_bytes <= alone.data_bytes * 1.01
    assert both[0].fingerprint == both[1].fingerprint and both[0].device_bytes == both[1].device_bytes
    raw = (tmp_path / "both").read_bytes()
    header = int.from_bytes(raw[:8], "little")
    data = raw[8 + header :]
    for program, told in zip(programs, both, strict=True):
        own = {c.buffer: c for c in told.constants if c.buffer in program.constants}
        assert set(own) == set(program.constants)
        for index, array in program.constants.items():
            c = own[index]
            assert data[c.file_offset : c.file_offset + c.nbytes] == array.tobytes()
    read = {(c.file_offset, c.device_offset) for c in both[0].constants}
    assert {(c.file_offset, c.device_offset) for c in both[1].constants} <= read, "the first loads them all"
    assert len(json.loads(raw[8 : 8 + header])) - 1 == len(read)


def parts(*models):
    found = []
    for batch, model in models:
        program = lowered(model)
        found.append(Part(program, plan_memory(lifetimes(program)), None, batch))
    return found


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda m, x, b: m.op("ReduceMean", x, m.const(np.array([0]))), "does not grow with the batch, so a batch"),
        (lambda m, x, b: m.op("Transpose", x, perm=[1, 0]), "in its first dimension: 3x2, 3x4"),
        (lambda m, x, b: m.op("Reshape", x, m.const(np.array([1, 3 * b]))), "in its first dimension: 1x6, 1x12"),
    ],
)
def test_models_that_cannot_be_padded_are_refused(build, reason):
    def model(batch):
        m = Model()
        return m.build(build(m, m.op("Relu", m.input(batch, 3)), batch))

    with pytest.raises(ExportError, match=reason):
        buckets(parts((2, model(2)), (4, model(4))))


def test_one_part_is_no_bucket_and_equal_shapes_need_none():
    m = Model()
    model = m.build(m.op("Relu", m.input(4, 3)))
    assert buckets(parts((0, model))) is None
    with pytest.raises(ExportError, match="does not grow"):
        buckets(parts((2, model), (4, model)))
