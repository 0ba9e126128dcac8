"""cuBLASLt inside an exported library: which records can be carried over, and the calls, against a stand-in."""

import ctypes

import numpy as np
import pytest

from core.export.lower import lower
from core.export.vendor import VendorGemm, vendor_gemm
from core.fusion.planner import plan
from core.importer.load import load_graph
from core.measure.measurement import Measurement, Phase
from core.paths import ROOT
from core.tuner.choice import Choice, Origin
from templates.epilogue import parse_epilogue
from templates.workload import ConvWorkload, GemmWorkload
from tests.core.export.emulated import compile_for_cpu, emulated_library, load_caller
from tests.core.export.models import Model, reference

FUSED = "heuristic 1 algo 7 tile 3 stages 5 splitK 1; fused whatever"


def chosen(workload, source="cublasLt 13.0.2", detail=FUSED):
    vendor = Measurement(workload.key, "vendor", Phase.FINAL, (1.0,), 0.0, 0.0, source, detail)
    return Choice(workload.key, None, None, vendor, Origin.OWN, use_vendor=True)


@pytest.mark.parametrize(
    ("workload", "changes", "reason"),
    [
        (ConvWorkload(1, 8, 8, 8, 8, 3, 3), {"source": "cudnn 9.19.0"}, "can't be put into a library"),
        (GemmWorkload(8, 8, 8), {"source": "cudnn 9.19.0"}, "can't be put into a library"),
        (GemmWorkload(8, 8, 8), {"detail": FUSED + "; separate silu"}, "more than one kernel"),
        (GemmWorkload(8, 8, 8), {"detail": "something else"}, "more than one kernel"),
        (GemmWorkload(8, 8, 8, epilogue=parse_epilogue("bias+silu")), {}, "does not fuse"),
    ],
)
def test_what_can_not_be_carried_over_has_a_reason(workload, changes, reason):
    found = vendor_gemm(workload, chosen(workload, **changes))
    assert isinstance(found, str) and reason in found


def test_the_measured_algorithm_and_epilogue_are_kept():
    workload = GemmWorkload(8, 8, 8, epilogue=parse_epilogue("scale(0.5)+bias+relu"))
    found = vendor_gemm(workload, chosen(workload))
    assert isinstance(found, VendorGemm)
    assert (found.algorithm, found.tile, found.stages, found.splits) == (7, 3, 5, 1)
    assert (found.epilogue, found.alpha, found.row_a, found.row_b) == (6, 0.5, True, False)


def test_a_faster_vendor_kernel_that_stays_out_is_noted():
    m = Model()
    graph = load_graph(m.build(m.conv(m.input(1, 8, 6, 6), 8, 8)).SerializeToString())
    found = plan(graph)
    (key,) = found.workloads
    program = lower(graph, found, {key: chosen(found.regions[0].workload, "cudnn 9.19.0")})
    assert any("cudnn 9.19.0" in note for note in program.notes)


@pytest.mark.compiles
def test_vendor_gemms_compute_what_onnx_runtime_does(tmp_path):
    fake = tmp_path / "libfake.so"
    text = (ROOT / "tests/core/export/fake_cublaslt.cpp").read_text()
    compile_for_cpu(text, fake, ["-Wl,-soname,libcublasLt.so.13"])
    m = Model()
    x = m.input(2, 6, 16)
    y = m.op("Relu", m.op("Add", m.op("MatMul", x, m.weight(16, 24, scale=0.3)), m.weight(24)))
    z = m.op("Relu", m.op("Add", m.op("MatMul", y, m.weight(24, 24, scale=0.2)), y))
    scores = m.op("MatMul", z, m.op("Transpose", m.op("MatMul", y, m.weight(24, 24)), perm=[0, 2, 1]))
    model = m.build(z, m.op("Mul", scores, m.const(np.float32(0.25))))
    graph = load_graph(model.SerializeToString())
    found = plan(graph)
    choices = {k: chosen(r[0].workload) for k, r in found.workloads.items()}
    program = lower(graph, found, choices)
    assert all(s.vendor for s in program.templates) and not program.notes
    library = emulated_library(program, tmp_path, "net", capture=True)
    assert "cublaslt0" in (library.parent / "src" / "plan.cu").read_text()
    held = ctypes.CDLL(str(fake))  # a library is found by its soname once it is loaded
    loaded = load_caller(tmp_path, "net").Model()
    inputs = np.random.default_rng(0).uniform(-1, 1, (2, 6, 16)).astype(np.float32)
    for mine, wanted in zip(loaded(inputs), reference(model, [inputs]), strict=True):
        assert np.linalg.norm(mine - wanted) <= 5e-3 * np.linalg.norm(wanted)
    assert held is not None
