"""The generated ways in: DLPack arrays from Python, the C++ header and the CMake package, the PyTorch operator.

The library runs on the CPU here, so arrays that claim to be on a GPU are host memory.
"""

import ctypes
import gc
import shutil
import subprocess
import sys

import numpy as np
import pytest

from core.importer.load import load_graph
from tests.core.export.emulated import a100_program, emulated_library, load_caller
from tests.core.export.models import Model, reference

pytestmark = pytest.mark.compiles
_CUDA = 2


def net():
    """A product, and a softmax of it."""
    m = Model()
    y = m.op("Gemm", m.op("Relu", m.op("Add", m.input(2, 3), m.input(1, 3))), m.weight(8, 3), m.weight(8), transB=1)
    return m.build(m.op("Softmax", y), y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("net")
    emulated_library(a100_program(load_graph(net().SerializeToString())), made, "net")
    return made


@pytest.fixture(scope="module")
def caller(folder):
    return load_caller(folder, "net")


@pytest.fixture(scope="module")
def inputs():
    random = np.random.default_rng(0)
    return [aligned(random.uniform(-1, 1, shape).astype(np.float32)) for shape in ((2, 3), (1, 3))]


@pytest.fixture(scope="module")
def wanted(inputs):
    return reference(net(), inputs)


def aligned(array):
    """The array in memory aligned as a GPU's allocator aligns it."""
    memory = np.empty(array.nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    placed = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


class OnGpu:
    """A numpy array that says it is on a GPU. `asked`: the streams it was asked to be ready on."""

    def __init__(self, array, caller):
        self.array, self.caller, self.asked, self.shape = array, caller, [], array.shape

    def __dlpack_device__(self):
        return _CUDA, 0

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        capsule = self.array.__dlpack__()
        managed = ctypes.cast(self.caller._get_pointer(capsule, b"dltensor"), ctypes.POINTER(self.caller._Managed))
        managed.contents.tensor.device_type = _CUDA
        return capsule


def close_to(mine, wanted):
    return all(np.linalg.norm(m - w) <= 5e-3 * np.linalg.norm(w) for m, w in zip(mine, wanted, strict=True))


def read(array, caller):
    """The numbers of a result on the pretended GPU."""
    array._device = (1, 0)
    return np.from_dlpack(array)


def test_numpy_arrays_lists_and_arrays_to_write_into(caller, inputs, wanted):
    model = caller.Model()
    assert close_to(model(*inputs), wanted)
    assert close_to(model(*(x.astype(np.float64).tolist() for x in inputs)), wanted)
    out = [np.full((2, 8), np.nan, np.float32) for _ in range(2)]
    assert model(*inputs, out=out)[0] is out[0] and close_to(out, wanted)
    for bad, reason in (
        ([inputs[0]], "takes 2 inputs"),
        ([inputs[0][:1], inputs[1]], r"'in0' has shape \(1, 3\)"),
    ):
        with pytest.raises(ValueError, match=reason):
            model(*bad)
    with pytest.raises(ValueError, match="dense, writable"):
        model(*inputs, out=[out[0], out[1].astype(np.float16)])
    model.close()


def test_arrays_on_the_gpu_are_handed_over_without_a_copy(caller, inputs, wanted):
    model = caller.Model()
    given = [OnGpu(x, caller) for x in inputs]
    results = model(*given)
    assert [x.asked for x in given] == [[1], [1]], "the default stream waits for them"
    assert all(isinstance(r, caller.Array) and r.__dlpack_device__() == (_CUDA, 0) for r in results)
    assert close_to([read(r, caller) for r in results], wanted)
    model(*given, stream=8)
    assert given[0].asked[-1] == 8
    into = [aligned(np.full((2, 8), np.nan, np.float32)) for _ in range(2)]
    model(*given, out=[OnGpu(x, caller) for x in into])
    assert close_to(into, wanted), "written in place"
    model.close()


def test_a_result_lives_as_long_as_anyone_holds_it(caller, inputs):
    model = caller.Model()
    freed = []
    result = model(*(OnGpu(x, caller) for x in inputs))[0]
    result._free = freed.append
    pointer = result.pointer
    taken = read(result, caller)
    untaken = result.__dlpack__()
    del result
    assert freed == [] and taken.sum() == pytest.approx(2, abs=1e-2)
    del taken
    gc.collect()
    assert freed == []
    del untaken
    gc.collect()
    assert freed == [pointer] and not caller._lent
    model.close()


def test_arrays_that_do_not_fit_are_named(caller, inputs):
    model = caller.Model()

    def call(first):
        return model(OnGpu(first, caller), OnGpu(inputs[1], caller))

    with pytest.raises(ValueError, match=r"'in0' has shape \(3, 2\), not \(2, 3\)"):
        call(inputs[0].reshape(3, 2))
    with pytest.raises(ValueError, match="'in0' is not dense"):
        call(aligned(np.zeros((3, 2), np.float32)).T)
    with pytest.raises(ValueError, match="'in0' has another element type than float32"):
        call(inputs[0].astype(np.float16))
    with pytest.raises(ValueError, match="some arrays are in host memory"):
        model(inputs[0], OnGpu(inputs[1], caller))
    with pytest.raises(RuntimeError, match="aligned to 16"):
        call(aligned(np.zeros(9, np.float32))[1:7].reshape(2, 3))
    model.close()


def test_no_array_library_is_imported_before_it_is_needed(folder):
    code = "import sys, net; assert not {'numpy', 'torch', 'cupy', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def test_c_and_cpp_programs_find_the_library_as_a_cmake_package(folder, tmp_path):
    """No Python in the process: the emulated library is called by the generated examples."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)  # the package may lie anywhere
    subprocess.run(["cmake", "-S", moved / "examples", "-B", tmp_path / "build"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    printed = [
        subprocess.run([tmp_path / "build" / name], check=True, capture_output=True, text=True).stdout
        for name in ("example_c", "example_cpp")
    ]
    assert printed[0] == printed[1] and printed[0].count(", ...") == 2


def test_an_installed_package_is_found_too(folder, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    (tmp_path / "prefix/lib").mkdir(parents=True)
    shutil.copytree(folder / "include", tmp_path / "prefix/include")
    shutil.copytree(folder / "lib/cmake", tmp_path / "prefix/lib/cmake")
    text = (folder / "examples/CMakeLists.txt").read_text().replace("${CMAKE_CURRENT_SOURCE_DIR}/..", "../prefix")
    (tmp_path / "user").mkdir()
    for name in ("example.c", "example.cpp"):
        shutil.copy(folder / "examples" / name, tmp_path / "user")
    (tmp_path / "user/CMakeLists.txt").write_text(text.replace(" PATHS", f" PATHS {tmp_path}/prefix"))
    configure = ["cmake", "-S", tmp_path / "user", "-B", tmp_path / "build"]
    missing = subprocess.run(configure, check=False, capture_output=True, text=True)
    assert missing.returncode != 0 and "libnet.so is not in" in missing.stderr.replace("\n", "")
    shutil.copy(folder / "libnet.so", tmp_path / "prefix/lib")
    subprocess.run(configure, check=True, capture_output=True)


def test_the_cpp_header_throws_the_librarys_reason(folder, tmp_path):
    program = (
        '#include "net.hpp"\n#include <cstdio>\nint main() {\n'
        "  bolt::net::Model a; bolt::net::Model b(std::move(a)); a = std::move(b);\n"
        "  bolt::net::Memory memory(a, 64);\n"
        "  void const* inputs[] = {static_cast<char*>(memory.data()) + 4, memory.data()};\n"
        "  void* outputs[] = {memory.data(), memory.data()};\n"
        "  try { a.run(inputs, outputs); } catch (bolt::net::Error const& e) { std::puts(e.what()); return 0; }\n"
        "  return 1;\n}\n"
    )
    (tmp_path / "user.cpp").write_text(program)
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{folder / 'include'}", f"-L{folder}"]
    subprocess.run(
        ["g++", *flags, tmp_path / "user.cpp", "-lnet", f"-Wl,-rpath,{folder}", "-o", tmp_path / "user"], check=True
    )
    done = subprocess.run([tmp_path / "user"], check=True, capture_output=True, text=True)
    assert "aligned to 16 bytes" in done.stdout


def test_steps_one_by_one_compute_what_a_run_does(folder, inputs, wanted):
    library = ctypes.CDLL(str(folder / "libnet.so"))
    library.net_last_error.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    assert library.net_create(ctypes.byref(handle), None) == 0
    out = [aligned(np.full((2, 8), np.nan, np.float32)) for _ in range(2)]
    sides = [(ctypes.c_void_p * 2)(*(x.ctypes.data for x in side)) for side in (inputs, out)]
    count = library.net_step_count()
    assert count >= 2
    for step in range(count):
        assert library.net_run_step(handle, *sides, None, step, None) == 0
    assert close_to(out, wanted)
    for step in (-1, count):
        assert library.net_run_step(handle, *sides, None, step, None) != 0
        assert b"no such step" in library.net_last_error(handle)
    library.net_destroy(handle)


def test_the_torch_operator_survives_export_and_compile(folder, inputs, wanted):
    torch = pytest.importorskip("torch")
    sys.path.insert(0, str(folder))
    try:
        import net_torch
    finally:
        sys.path.remove(str(folder))
    tensors = [torch.from_numpy(x) for x in inputs]
    assert close_to([y.numpy() for y in net_torch.run(*tensors)], wanted)
    torch.library.opcheck(net_torch.run, tuple(tensors), test_utils=("test_schema", "test_faketensor"))

    class Around(torch.nn.Module):
        def forward(self, x, y):
            return net_torch.run(x * 1.0, y)[1] + 1.0

    exported = torch.export.export(Around(), tuple(tensors))
    assert any(str(n.target).startswith("bolt.net") for n in exported.graph.nodes)
    assert close_to([exported.module()(*tensors).numpy() - 1.0], wanted[1:])
    compiled = torch.compile(Around(), backend="aot_eager", fullgraph=True)
    assert close_to([compiled(*tensors).numpy() - 1.0], wanted[1:])
    with pytest.raises(RuntimeError, match="in0"):
        net_torch.run(tensors[0][:1], tensors[1])
