"""Exported libraries on a real GPU: every operator kernel, whole nets, and the C interface's edges."""

import ctypes
import importlib.util
import json

import numpy as np
import onnx
import pytest

from core.build.toolchain import find_toolchain
from core.export.exporter import Origins, export
from core.export.verify import verify
from core.fusion.edit import fuse
from core.fusion.plan import Kind
from core.fusion.planner import plan
from core.fusion.propose import propose
from core.importer.load import load_graph
from core.tuner.choice import estimated
from templates import families
from tests.core.export.models import Model
from tests.core.export.operator_models import MODELS, exact_inputs
from tests.core.export.test_parallel import attention, branches, gated, to_a_norm, to_products

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]


def exported(model, folder, gpu, sm80_only=True, conv_family=None, fused=lambda proposal: False):
    """Export with the best-ranked candidates; the sm80 families compile in seconds. `fused`: proposals to make."""
    if not isinstance(model, str):
        onnx.save(model, folder / "model.onnx")
        model = str(folder / "model.onnx")
    graph = load_graph(model)
    found = plan(graph)
    for proposal in propose(graph, found, gpu.spec):
        if fused(proposal):
            found = fuse(found, graph, proposal.nodes)
    allowed = {n: f for n, f in families().items() if not sm80_only or not n.startswith("sm90")}
    if conv_family is not None:  # convolutions that it does not serve run through the exporter's own kernel
        allowed = {n: families()[n] for n in ("sm80_gemm", conv_family)}
    guesses = {k: estimated(r[0].workload, gpu.spec, allowed) for k, r in found.workloads.items()}
    choices = {k: g for k, g in guesses.items() if g is not None}
    export(graph, found, choices, gpu, folder / "out", find_toolchain(), Origins(model), name="net")
    return folder / "out", graph


def conv_net():
    m = Model()
    y = m.op("Relu", m.conv(m.input(2, 3, 32, 32), 3, 16, strides=[2, 2]))
    y = m.op("Relu", m.op("Add", m.conv(m.op("Relu", m.conv(y, 16, 16)), 16, 16), y))
    y = m.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = m.op("Gemm", m.op("Flatten", y), m.weight(10, 1024, scale=0.05), m.weight(10), transB=1)
    return m.build(m.op("Softmax", y))


@pytest.mark.parametrize("name", MODELS)
def test_every_operator_kernel_computes_what_onnx_runtime_does(tmp_path, gpu, name):
    folder, graph = exported(MODELS[name](), tmp_path, gpu)
    arrays = exact_inputs([(graph.shape(t), graph.types[t].dtype) for t in graph.inputs])
    np.savez(tmp_path / "inputs.npz", **dict(zip(graph.inputs, arrays, strict=True)))
    data = verify(folder, inputs=tmp_path / "inputs.npz")
    assert data["ok"], [o for o in data["outputs"] if not o["ok"]]


def test_a_small_conv_net_is_verified(tmp_path, gpu, runtime_name):
    folder, _ = exported(conv_net(), tmp_path, gpu)
    data = verify(folder, runtime=runtime_name)
    assert data["ok"] and data["latency_ms"] > 0


@pytest.mark.parametrize("model", ["mlp", "resnet18", "dlrm"])
def test_a_built_in_model_is_verified(tmp_path, gpu, model):
    folder, _ = exported(model, tmp_path, gpu)
    assert verify(folder)["ok"]


def test_the_hopper_kernels_work_inside_a_library(tmp_path, gpu):
    if gpu.sm != 90:
        pytest.skip("needs compute capability 9.0")
    folder, _ = exported(conv_net(), tmp_path, gpu, sm80_only=False)
    assert verify(folder)["ok"]


@pytest.mark.parametrize("sm80_only", [True, False])
@pytest.mark.parametrize("make", [attention, gated, to_products, to_a_norm, branches])
def test_products_of_one_input_are_read_as_slices(tmp_path, gpu, make, sm80_only):
    """Queries, keys and values of attention, gate and up, rows of further products, a norm, channels-last images."""
    if gpu.sm != 90 and not sm80_only:
        pytest.skip("needs compute capability 9.0")
    folder, _ = exported(make(), tmp_path, gpu, sm80_only, fused=lambda p: p.kind is Kind.PARALLEL)
    steps = json.loads((folder / "manifest.json").read_text())["steps"]
    assert any(len(s.get("nodes", ())) > 1 and "gemm" in s["kernel"] for s in steps)
    assert verify(folder)["ok"]


@pytest.mark.parametrize("batch", [64, 2048])
def test_a_chain_of_three_runs_inside_a_library(tmp_path, gpu, batch):
    if gpu.sm != 90:
        pytest.skip("needs compute capability 9.0")
    m = Model()
    y = m.op("Relu", m.op("Gemm", m.input(batch, 13), m.weight(512, 13, scale=0.3), m.weight(512), transB=1))
    y = m.op("Relu", m.op("Gemm", y, m.weight(256, 512, scale=0.05), m.weight(256), transB=1))
    model = m.build(m.op("Relu", m.op("Gemm", y, m.weight(64, 256, scale=0.05), m.weight(64), transB=1)))
    folder, _ = exported(model, tmp_path, gpu, sm80_only=False, fused=lambda p: len(p.regions) == 3)
    steps = json.loads((folder / "manifest.json").read_text())["steps"]
    assert sum(s["kernel"].startswith("sm90_tower_b2b") for s in steps) == 1
    assert verify(folder)["ok"]


@pytest.mark.parametrize("family", ["sm80_conv", "sm90_conv", "sm90_direct"])
def test_a_family_writes_into_a_concatenation(tmp_path, gpu, family):
    if gpu.sm != 90 and family.startswith("sm90"):
        pytest.skip("needs compute capability 9.0")
    m = Model()
    x = m.conv(m.input(2, 3, 23, 19), 3, 64)
    right = m.op("Relu", m.op("Add", m.conv(x, 64, 64), x))
    y = m.op("Concat", m.op("Relu", m.conv(x, 64, 40, size=1)), right, m.conv(x, 64, 128), axis=1)
    folder, _ = exported(m.build(m.op("MaxPool", y, kernel_shape=[2, 2])), tmp_path, gpu, conv_family=family)
    steps = json.loads((folder / "manifest.json").read_text())["steps"]
    assert not any("concat" in s["kernel"] for s in steps)
    assert sum(s["kernel"].startswith(family) for s in steps) >= 2
    assert verify(folder)["ok"]


def caller(folder):
    spec = importlib.util.spec_from_file_location("net", folder / "net.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_python_caller_and_changing_pointers(tmp_path, gpu):
    folder, graph = exported(conv_net(), tmp_path, gpu)
    model = caller(folder).Model()
    random = np.random.default_rng(0)
    inputs = [random.uniform(-1, 1, graph.shape(graph.inputs[0])).astype(np.float32) for _ in range(3)]
    first = [model(x) for x in inputs]
    assert all(np.array_equal(model(x), y) for x, y in zip(inputs, first, strict=True))
    assert not np.array_equal(first[0], first[1]) and np.allclose(first[0].sum(1), 1, atol=1e-2)
    with pytest.raises(ValueError):
        model(inputs[0][:1])
    model.close()


def test_torch_tensors_and_torch_graphs(tmp_path, gpu):
    torch = pytest.importorskip("torch")
    folder, graph = exported(conv_net(), tmp_path, gpu)
    model = caller(folder).Model()
    # More sets of pointers than the library keeps graphs for.
    xs = [torch.rand(graph.shape(graph.inputs[0]), device="cuda") * 2 - 1 for _ in range(12)]
    wanted = [torch.from_numpy(model(x.cpu().numpy())).cuda() for x in xs]
    for _ in range(2):
        for x, y in zip(xs, wanted, strict=True):
            assert torch.equal(model(x), y)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        model(xs[0])
    stream.synchronize()
    graphed, static = torch.cuda.CUDAGraph(), xs[0].clone()
    with torch.cuda.graph(graphed):
        result = model(static)
    for x, y in zip(xs, wanted, strict=True):
        static.copy_(x)
        graphed.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, y)


def test_bad_calls_are_answered_not_crashed(tmp_path, gpu):
    folder, _ = exported(conv_net(), tmp_path, gpu)
    library = ctypes.CDLL(str(folder / "libnet.so"))
    library.net_last_error.restype = ctypes.c_char_p
    library.net_last_error.argtypes = [ctypes.c_void_p]
    handle = ctypes.c_void_p()
    wrong = tmp_path / "wrong.safetensors"
    wrong.write_bytes((folder / "net.safetensors").read_bytes()[:-4])
    assert library.net_create(ctypes.byref(handle), str(wrong).encode()) != 0
    assert b"length" in library.net_last_error(None)
    assert library.net_create(ctypes.byref(handle), b"/nothing/there") != 0
    assert b"can't be opened" in library.net_last_error(None)
    assert library.net_create(ctypes.byref(handle), None) == 0
    pointers = (ctypes.c_void_p * 1)(None)
    assert library.net_run(handle, pointers, pointers, None, None) != 0
    assert b"aligned" in library.net_last_error(handle)
    library.net_destroy(handle)
