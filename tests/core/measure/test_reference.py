"""The epilogue interpreter against ONNX's definitions in numpy and against the generated functors; tolerances."""

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from core.build.toolchain import find_toolchain
from core.errors import DeviceError
from core.measure import reference
from core.measure.reference import Reference, ops_of, tolerance
from core.paths import INCLUDE
from templates.epilogue import ACTIVATIONS, COMBINERS, Epilogue, EpilogueOp
from templates.types import DType
from templates.workload import GemmWorkload
from tests.core.measure.host_runtime import HostRuntime

BIAS, SOURCE = 0.625, -1.5
PARAMS = {
    "scale": (0.37,), "shift": (-1.25,), "leaky_relu": (0.01,), "clip": (0.0, 6.0), "hard_sigmoid": (0.2, 0.5),
    "elu": (1.3,),
}  # fmt: skip


def step(name: str) -> EpilogueOp:
    return EpilogueOp(name, PARAMS.get(name, ()))


def defined(op: EpilogueOp, x: float) -> float:
    """ONNX's definition, in double."""
    p = op.params
    table = {
        "bias": lambda: x + BIAS,
        "add": lambda: x + SOURCE,
        "mul": lambda: x * SOURCE,
        "scale": lambda: x * p[0],
        "shift": lambda: x + p[0],
        "relu": lambda: max(x, 0.0),
        "leaky_relu": lambda: x if x >= 0 else p[0] * x,
        "clip": lambda: min(max(x, p[0]), p[1]),
        "gelu_erf": lambda: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
        "gelu_tanh": lambda: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        "silu": lambda: x / (1 + math.exp(-x)),
        "sigmoid": lambda: 1 / (1 + math.exp(-x)),
        "hard_swish": lambda: x * max(0.0, min(1.0, x / 6 + 0.5)),
        "hard_sigmoid": lambda: max(0.0, min(1.0, p[0] * x + p[1])),
        "softplus": lambda: math.log1p(math.exp(x)),
        "tanh": lambda: math.tanh(x),
        "elu": lambda: x if x >= 0 else p[0] * math.expm1(x),
    }
    return table[op.op]()


@pytest.fixture(scope="module")
def library(host_reference: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(host_reference))
    loaded.host_evaluate.restype = ctypes.c_float
    return loaded


def evaluate(library: ctypes.CDLL, chain: Epilogue, x: float) -> float:
    ops = ops_of(chain.ops)
    return float(library.host_evaluate(ctypes.byref(ops), *(ctypes.c_float(v) for v in (x, BIAS, SOURCE))))


@pytest.mark.parametrize("name", [*ACTIVATIONS, *COMBINERS])
def test_each_step_is_what_onnx_defines(library: ctypes.CDLL, name: str) -> None:
    for x in np.linspace(-12, 12, 97):
        wanted = defined(step(name), float(np.float32(x)))
        got = evaluate(library, Epilogue((step(name),)), float(x))
        assert got == pytest.approx(wanted, rel=3e-6, abs=2e-6), x


def test_a_nan_stays_visible(library: ctypes.CDLL) -> None:
    """Steps that keep a NaN by ONNX must not hide one: what they are fed was not written."""
    for name in ("gelu_erf", "gelu_tanh", "silu", "sigmoid", "tanh", "scale", "bias", "add", "mul", "leaky_relu"):
        assert math.isnan(evaluate(library, Epilogue((step(name),)), math.nan)), name


def test_interpreter_and_generated_functors_agree(library: ctypes.CDLL, tmp_path: Path) -> None:
    """Two implementations written apart: one float program from every chain, compiled by the host compiler."""
    chains = [Epilogue((step("bias"), step(a), step("add"), step("scale"))) for a in ACTIVATIONS]
    chains += [Epilogue((step("mul"), step("bias"), step(a))) for a in ACTIVATIONS]
    chains += [Epilogue((step("shift"), step("add"), step("relu"), step("bias"))), Epilogue()]
    functors = "\n".join(chain.functor(f"C{i}") for i, chain in enumerate(chains))
    calls = "".join(f"    case {i}: return C{i}::apply(x, bias, source);\n" for i in range(len(chains)))
    source = tmp_path / "functors.cpp"
    source.write_text(
        f'#include "bolt/activations.h"\n{functors}\n'
        f'extern "C" float apply(int i, float x, float bias, float source) {{\n  switch (i) {{\n{calls}  }}\n'
        "  return 0;\n}\n"
    )
    toolchain = find_toolchain()
    cuda = toolchain.nvcc.resolve().parent.parent / "include"
    includes = [f"-I{INCLUDE}", f"-I{toolchain.cutlass / 'include'}", f"-I{cuda}"]
    out = tmp_path / "functors.so"
    command = [str(toolchain.host_compiler), "-std=c++17", "-shared", "-fPIC", *includes, str(source), "-o", str(out)]
    subprocess.run(command, check=True, timeout=120)
    generated = ctypes.CDLL(str(out))
    generated.apply.restype = ctypes.c_float
    for i, chain in enumerate(chains):
        for x in np.linspace(-9, 9, 37):
            theirs = generated.apply(i, *(ctypes.c_float(v) for v in (x, BIAS, SOURCE)))
            assert evaluate(library, chain, float(x)) == pytest.approx(theirs, rel=1e-5, abs=3e-6), (str(chain), x)


def test_a_chain_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="25 steps"):
        ops_of([step("relu")] * 25)


def test_tolerances() -> None:
    assert tolerance(GemmWorkload(8, 8, 8), 8) == pytest.approx(4 * 2**-11)
    assert tolerance(GemmWorkload(8, 8, 8, epilogue=Epilogue((), DType.BF16)), 8) == pytest.approx(4 * 2**-8)
    assert tolerance(GemmWorkload(8, 8, 8, epilogue=Epilogue((), DType.F32)), 8) == 1e-3
    half = GemmWorkload(8, 8, 1024, accumulator=DType.F16)
    assert tolerance(half, 1024) == pytest.approx(4 * 2**-11 + 2 * 32 * 2**-11)


def test_comparison_against_numpy(host_reference: Path) -> None:
    runtime = HostRuntime()
    ours = Reference(host_reference, runtime)
    rng = np.random.default_rng(3)
    exact = rng.standard_normal(1000).astype(np.float32)
    rounded = exact.astype(np.float16)
    rounded[[5, 7]] = np.nan, np.inf
    d, reference_values = runtime.alloc(2000), runtime.alloc(4000)
    runtime.to_device(d, rounded)
    runtime.to_device(reference_values, exact)
    found = ours.compare(d, DType.F16, reference_values, 1000, 1)
    finite = np.isfinite(rounded)
    difference = rounded[finite].astype(np.float64) - exact[finite]
    assert found.non_finite == 2
    assert found.relative_l2 == pytest.approx(np.linalg.norm(difference) / np.linalg.norm(exact), rel=1e-6)
    assert found.max_abs == pytest.approx(np.abs(difference).max(), rel=1e-6)


def test_a_reference_of_zeros(host_reference: Path) -> None:
    runtime = HostRuntime()
    ours = Reference(host_reference, runtime)
    d, zeros = runtime.alloc(16), runtime.alloc(32)
    runtime.memset(d, 0, 16, 1)
    runtime.memset(zeros, 0, 32, 1)
    assert ours.compare(d, DType.F16, zeros, 8, 1).relative_l2 == 0
    runtime.to_device(d, np.full(8, 1e-3, np.float16))
    assert ours.compare(d, DType.F16, zeros, 8, 1).relative_l2 == math.inf


def test_a_library_that_can_not_be_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"\x7fELF")
    with pytest.raises(DeviceError, match=r"broken\.so"):
        Reference(broken, HostRuntime())


@pytest.mark.compiles
def test_it_compiles_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path))
    path = reference.build("80")
    stamp = path.stat().st_mtime_ns
    assert reference.build("80") == path and path.stat().st_mtime_ns == stamp
    assert path.name.startswith("reference-sm80-")
    loaded = ctypes.CDLL(str(path))
    assert all(hasattr(loaded, f"bolt_ref_{n}") for n in ("fill", "run", "compare", "guard", "elementwise"))
    assert reference.library_path("90a", find_toolchain()) != path
