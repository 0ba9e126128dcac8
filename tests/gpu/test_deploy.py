"""Exported libraries where people use them: C and C++ programs, PyTorch, CuPy, JAX, several batch sizes, partly in ONNX
Runtime, layer by layer; and that ten thousand runs hold no more memory. A few minutes, most of it nvcc.
"""

import ctypes
import importlib.util
import json
import shutil
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest

from core.build.toolchain import find_toolchain
from core.cli import run
from core.export.exporter import Bucket, Origins, export, export_buckets
from core.export.reference import random_inputs, reference_outputs
from core.export.verify import verify
from core.export.verify_child import Library
from core.fusion.planner import plan
from core.importer.load import load_graph
from core.measure.runtime import open_runtime
from core.tuner.choice import estimated
from templates import families
from tests.core.export.models import Model
from tests.core.export.programs import HERE, build_program, output_of
from tests.core.export.test_partial import net as partial_net

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]
_RUNS = 10_000
_KEPT_BYTES = 4 << 20  # the driver's own pools grow in steps of 2 MiB


def conv_net(batch=2, seed=0):
    m = Model(seed)
    y = m.op("Relu", m.conv(m.input(batch, 3, 32, 32), 3, 16, strides=[2, 2]))
    y = m.op("Relu", m.op("Add", m.conv(m.op("Relu", m.conv(y, 16, 16)), 16, 16), y))
    y = m.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = m.op("Gemm", m.op("Flatten", y), m.weight(10, 1024, scale=0.05), m.weight(10), transB=1)
    return m.build(m.op("Softmax", y))


def choices(found, gpu):
    """The best-ranked candidates of the sm80 families, which compile in seconds."""
    allowed = {n: f for n, f in families().items() if not n.startswith("sm90")}
    guesses = {k: estimated(r[0].workload, gpu.spec, allowed) for k, r in found.workloads.items()}
    return {k: g for k, g in guesses.items() if g is not None}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, gpu):
    """Two libraries of the same kernels and other weights: "one" and "two"."""
    made = []
    for seed, name in enumerate(("one", "two")):
        folder = tmp_path_factory.mktemp(name)
        onnx.save(conv_net(seed=seed), folder / "model.onnx")
        graph = load_graph(folder / "model.onnx")
        found = plan(graph)
        origins = Origins(str(folder / "model.onnx"))
        export(graph, found, choices(found, gpu), gpu, folder / "out", find_toolchain(), origins, name=name)
        made.append(folder / "out")
    return made


@pytest.fixture(scope="module")
def growing(tmp_path_factory, gpu):
    """One library for batches of up to 8."""
    folder = tmp_path_factory.mktemp("growing")
    onnx.save(conv_net(), folder / "model.onnx")
    buckets = []
    for batch in (1, 3, 8):
        graph = load_graph(folder / "model.onnx", batch)
        found = plan(graph)
        buckets.append(Bucket(batch, graph, found, choices(found, gpu)))
    origins = Origins(str(folder / "model.onnx"), 8)
    export_buckets(buckets, gpu, folder / "out", find_toolchain(), origins, name="growing")
    return folder / "out"


def caller(folder, name):
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def some_inputs(count, batch=2):
    random = np.random.default_rng(0)
    return [random.uniform(-1, 1, (batch, 3, 32, 32)).astype(np.float32) for _ in range(count)]


def test_c_and_cpp_examples_run_without_python(folders, tmp_path):
    printed = [
        output_of(build_program(folders[0] / f"examples/example.{kind}", folders[:1], tmp_path / kind))
        for kind in ("c", "cpp")
    ]
    assert printed[0] == printed[1] and ", ..." in printed[0]


def test_the_cmake_package(folders, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    subprocess.run(["cmake", "-S", folders[0] / "examples", "-B", tmp_path], check=True)
    subprocess.run(["cmake", "--build", tmp_path], check=True)
    assert ", ..." in output_of(tmp_path / "example_cpp")


def test_two_libraries_and_four_threads_in_one_process(folders, tmp_path):
    program = build_program(HERE / "threads.cpp", folders, tmp_path / "threads")
    assert output_of(program, "500") == "same\n"


def test_ten_thousand_runs_hold_no_more_memory(folders):
    """Twelve sets of pointers, more than graphs are kept: captured, updated and launched over and over."""
    runtime = open_runtime("cuda-bindings", 0)
    library = Library(folders[0] / "libone.so", "one")
    stream = runtime.stream()
    sets = [(runtime.alloc(2 * 3 * 32 * 32 * 4), runtime.alloc(256)) for _ in range(12)]

    def work(runs):
        for i in range(runs):
            library.run([sets[i % 12][0]], [sets[i % 12][1]], 0, stream)
        runtime.synchronize()
        with open("/proc/self/statm") as file:
            return runtime.free_bytes(), int(file.read().split()[1]) * 4096

    work(500)
    before, after = work(500), work(_RUNS)
    assert before[0] - after[0] <= _KEPT_BYTES, "device memory"
    assert after[1] - before[1] <= _KEPT_BYTES, "host memory"
    library.close()


def test_libraries_that_come_and_go_hold_no_more_memory(folders):
    runtime = open_runtime("cuda-bindings", 0)
    model = caller(folders[0], "one")
    x = some_inputs(1)[0]

    def work(count):
        for _ in range(count):
            loaded = model.Model()
            loaded(x)
            loaded.close()
        runtime.synchronize()
        return runtime.free_bytes()

    work(5)
    assert work(5) - work(50) <= _KEPT_BYTES


def test_every_batch_size_and_the_padded_ones_are_verified(growing):
    data = verify(growing)
    assert data["ok"] and [b["batch"] for b in data["batches"]] == [1, 2, 3, 7]
    model = caller(growing, "growing").Model()
    for batch in range(1, 9):
        x = some_inputs(1, batch)[0]
        source = json.loads((growing / "manifest.json").read_text())["source"]
        wanted = reference_outputs(source, {"in0": x})[0]
        assert np.linalg.norm(model(x) - wanted) <= 1e-2 * np.linalg.norm(wanted)
    model.close()


def test_layer_by_layer_every_step_agrees(folders, growing):
    for folder in (folders[0], growing):
        data = verify(folder, per_layer=True)
        assert data["ok"] and len(data["layers"]) >= 5
        assert all(row["ok"] and not row["overflowed"] for row in data["layers"]), data["layers"]


def test_a_partial_export_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    onnx.save(partial_net(), tmp_path / "net.onnx")
    out = tmp_path / "out"
    assert run(["export", str(tmp_path / "net.onnx"), "-o", str(out), "--partial", "--no-tune", "--name", "cut"]) == 0
    assert capsys.readouterr().out.count("relative L2") == 2, "each library is verified"
    x = random_inputs(load_graph(tmp_path / "net.onnx"))["in0"]
    mine, wanted = caller(out, "cut").Model()(x), reference_outputs(str(tmp_path / "net.onnx"), {"in0": x})
    assert np.linalg.norm(mine[0] - wanted[0]) <= 1e-2 * np.linalg.norm(wanted[0])


def test_torch_hands_over_without_a_copy_on_its_current_stream(folders):
    torch = pytest.importorskip("torch")
    model = caller(folders[0], "one").Model()
    xs = [torch.from_numpy(x).cuda() for x in some_inputs(8)]
    wanted = [torch.from_numpy(model(x.cpu().numpy())).cuda() for x in xs]
    out = torch.full_like(wanted[0], float("nan"))
    assert model(xs[0], out=[out]) is out and torch.equal(out, wanted[0])
    with pytest.raises(ValueError, match="another element type"):
        model(xs[0].half())
    with pytest.raises(ValueError, match="not dense"):
        model(xs[0].to(memory_format=torch.channels_last))
    wrong = []

    def on_a_stream(first):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(200):
                k = (first + i) % len(xs)
                if not torch.equal(model(xs[k] + 0.0), wanted[k]):
                    wrong.append(k)

    threads = [threading.Thread(target=on_a_stream, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, "each run has a workspace of its own"
    model.close()


def test_the_torch_operator_compiles_exports_and_is_captured(folders, growing):
    torch = pytest.importorskip("torch")
    sys.path[:0] = [str(folders[0]), str(growing)]
    try:
        import growing_torch
        import one_torch
    finally:
        del sys.path[:2]
    x = torch.from_numpy(some_inputs(1)[0]).cuda()
    wanted = one_torch.run(x)
    torch.library.opcheck(one_torch.run, (x,), test_utils=("test_schema", "test_faketensor"))

    class Around(torch.nn.Module):
        def forward(self, x):
            return one_torch.run(x + 0.0) * 2.0

    assert torch.equal(torch.export.export(Around(), (x,)).module()(x), wanted * 2.0)
    for mode in ("default", "reduce-overhead"):  # the second captures CUDA graphs
        compiled = torch.compile(Around(), mode=mode, fullgraph=True)
        for _ in range(4):
            assert torch.equal(compiled(x).clone(), wanted * 2.0)
    for batch in (1, 5, 8):
        x = torch.from_numpy(some_inputs(1, batch)[0]).cuda()
        assert torch.equal(growing_torch.run(x).cpu(), growing_torch.run(x.cpu()))


@pytest.mark.parametrize("library", ["cupy", "jax"])
def test_arrays_of_other_libraries(folders, library):
    other = pytest.importorskip(library)
    numbers = some_inputs(1)[0]
    model = caller(folders[0], "one").Model()
    wanted = model(numbers)
    x = other.asarray(numbers) if library == "cupy" else other.device_put(numbers, other.devices("gpu")[0])
    y = model(x)
    assert type(y) is type(x) and np.array_equal(other.asnumpy(y) if library == "cupy" else np.asarray(y), wanted)
    del y
    model.close()


def test_a_program_without_a_runtime_uses_the_librarys_device_memory(folders):
    library = ctypes.CDLL(str(folders[0] / "libone.so"))
    handle, memory = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.one_create(ctypes.byref(handle), None) == 0
    for _ in range(100):
        assert library.one_alloc(handle, ctypes.c_size_t(1 << 28), ctypes.byref(memory)) == 0
        assert memory.value % 256 == 0
        library.one_free(memory)
    assert library.one_synchronize(handle, None) == 0
    library.one_destroy(handle)
