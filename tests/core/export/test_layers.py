"""Comparing an exported library with ONNX Runtime step by step; the library runs on the CPU."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from core.cli.verify import as_text
from core.errors import ExportError
from core.export import verify_child
from core.export.emit import NUMPY_NAMES, Part
from core.export.forms import Form
from core.export.layers import compare_layers, first_wrong, layer_lines
from core.export.layout import row_major
from core.export.lower import lower
from core.export.manifest import region_of, steps_of
from core.export.memory import lifetimes, plan_memory
from core.export.placement import logical, placements, require_writes, stored_in
from core.export.program import Buffer, Slice, Space
from core.export.reference import random_inputs
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.importer.load import load_graph
from core.tuner.choice import estimated
from templates import families
from templates.gpu import KNOWN_GPUS
from templates.types import DType
from tests.core.export.emulated import emulated_library
from tests.core.export.host_runtime import HostRuntime
from tests.core.export.models import Model, lowered

pytestmark = pytest.mark.compiles


def net():
    """Convolutions in channels-last, a concatenation that they write, a conversion back and a product."""
    m = Model()
    y = m.op("Relu", m.conv(m.input(2, 3, 8, 8), 3, 16))
    y = m.op("Concat", m.conv(y, 16, 16), m.op("Relu", m.conv(y, 16, 16, size=1)), axis=1)
    y = m.op("MaxPool", m.conv(y, 32, 8, size=1), kernel_shape=[2, 2], strides=[2, 2])
    return m.build(m.op("Gemm", m.op("Flatten", m.op("Exp", y)), m.weight(10, 128, scale=0.1), transB=1))


class Exported:
    """A library, what verify reads of its manifest, and the rows of a comparison."""

    def __init__(self, model, folder):
        self.folder = folder
        self.graph = prepare(load_graph(model.SerializeToString()))
        found = plan(self.graph)
        guesses = {k: estimated(r[0].workload, KNOWN_GPUS["a100"], families()) for k, r in found.workloads.items()}
        self.program = lower(self.graph, found, guesses)
        self.library = emulated_library(self.program, folder, "net")
        self.data = json.loads(
            json.dumps(
                {
                    "steps": steps_of(Part(self.program, plan_memory(lifetimes(self.program)), None)),
                    "regions": [region_of(r) for r in found.regions],
                }
            )
        )

    def rows(self, work):
        work.mkdir()
        given = random_inputs(self.graph)
        np.savez(work / "inputs.npz", **{f"input{i}": given[t] for i, t in enumerate(self.graph.inputs)})
        outputs = [{"shape": p.type.shape, "numpy": NUMPY_NAMES[p.type.dtype]} for p in self.program.outputs]
        layers = [[{**p, "numpy": NUMPY_NAMES[DType(p["dtype"])]} for p in s["writes"]] for s in self.data["steps"]]
        job = {"library": str(self.library), "name": "net", "outputs": outputs, "layers": layers, "batch": 0}
        job |= {key: str(work / f"{key}.npz") for key in ("inputs", "results", "answer")}
        verify_child._measured(job, HostRuntime())
        return compare_layers(self.data, self.graph, given, work, 1e-2)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return Exported(net(), tmp_path_factory.mktemp("net"))


def test_every_step_of_a_sound_library_agrees(exported, tmp_path):
    rows = exported.rows(tmp_path / "work")
    assert first_wrong(rows) is None and all(r["largest"] > 0 and not r["overflowed"] for r in rows)
    compared = {r["step"] for r in rows}
    tuned = [i for i, s in enumerate(exported.data["steps"]) if s["origin"]]
    joined = [s for s in exported.program.templates if s.pitch]
    assert len(joined) == 2, "the first of them leaves the joined tensor half written"
    assert len(set(tuned) - compared) == 1 and "all" in layer_lines(rows, "f16")[-1]
    assert {r["region"] for r in rows if r["step"] in tuned} <= {r["id"] for r in exported.data["regions"]}


def test_the_first_region_with_a_wrong_weight_is_named(exported, tmp_path):
    weights = exported.folder / "net.safetensors"
    sound = weights.read_bytes()
    header = int.from_bytes(sound[:8], "little")
    listed = json.loads(sound[8 : 8 + header])
    third = [s for s in exported.program.templates if s.pitch][1]
    first, last = listed[f"t{third.b}"]["data_offsets"]
    start = 8 + header
    weights.write_bytes(sound[: start + first] + bytes(last - first) + sound[start + last :])
    try:
        rows = exported.rows(tmp_path / "work")
    finally:
        weights.write_bytes(sound)
    wrong = first_wrong(rows)
    assert wrong is not None and wrong["nodes"] == list(third.nodes) and wrong["region"] == third.region
    assert any(
        line.startswith(f"first to differ: step {wrong['step']}, {third.region}") for line in layer_lines(rows, "f16")
    )
    assert all(r["ok"] for r in rows if r["step"] < wrong["step"])


def test_overflow_is_told(tmp_path):
    m = Model()
    y = m.op("Mul", m.input(4, 8), m.const(np.float32(9e4)))
    graph = load_graph(m.build(m.op("Tanh", y)).SerializeToString())
    placed = {"tensor": y, "dtype": "f16", "elements": 32, "space": "arena", "at": 0, "extents": [32], "order": [0]}
    placed |= {"first": 0, "width": 0, "pitch": 0}
    data = {"steps": [{"step": 0, "nodes": ["n0"], "writes": [placed]}], "regions": []}
    given = {"in0": np.ones((4, 8), np.float32)}
    with np.errstate(over="ignore"):
        np.save(stored_in(tmp_path, 0, 0), np.full(32, 9e4).astype(np.float16))
    (row,) = compare_layers(data, graph, given, tmp_path, 1e-2)
    assert row["overflowed"] == 32 and row["largest"] > 65504 and not row["ok"] and row["relative_l2"] == np.inf
    text = "\n".join(layer_lines([row], "f16"))
    assert "overflow: 32 elements of" in text
    told = {"outputs": [], "notes": [], "samples_ms": [1.0], "latency_ms": 1.0, "gpu": "", "reference": ""}
    assert text in as_text({**told, "layers": [row], "dtype": "f16"})


def test_what_comes_near_the_largest_half_is_told():
    row = {"step": 0, "region": "", "kind": "", "nodes": [], "tensor": "y", "relative_l2": 0.0, "max_abs": 0.0}
    row |= {"largest": 5e4, "overflowed": 0, "ok": True}
    assert layer_lines([row], "f16")[-1] == "near overflow: y reaches 5e+04 of 65504"
    assert "near" not in layer_lines([row], "bf16")[-1]


def test_an_earlier_export_says_that_it_must_be_made_again():
    with pytest.raises(ExportError, match="export the model again"):
        require_writes({"steps": [{"step": 0}], "regions": []})
    with pytest.raises(ExportError, match="does not tell"):
        require_writes({"regions": []})


def test_every_intermediate_of_resnet18_but_padded_ones_is_placed():
    program = lowered("resnet18")
    written = {i for step in program.steps for i in step.writes}
    placed = {p.buffer for p in program.placed} | {p.buffer for p in program.outputs}
    missing = [program.buffers[i].tensor for i in written - placed]
    assert len(missing) <= 1, missing


def test_tensors_that_one_product_makes_side_by_side_are_told_apart():
    """As attention's queries, keys and values are, if the plan joins them."""
    widths, first, forms = {"q": 8, "k": 16, "v": 8}, 0, {}
    for name, width in widths.items():
        forms[name] = {Form(row_major((6, width)), DType.F16, slice=Slice(first, width, 32)): 0}
        first += width
    forms["k's view"] = forms["k"]
    found = placements(forms, [Buffer(0, DType.F16, 192, Space.ARENA, "q")])
    assert [p.tensor for p in found] == ["q", "k", "v"]
    memory = np.arange(192)
    for placed, columns in zip(found, (slice(0, 8), slice(8, 24), slice(24, 32)), strict=True):
        told = asdict(placed) | {"extents": placed.layout.extents, "order": placed.layout.order}
        assert (logical(memory, told, (6, widths[placed.tensor])) == memory.reshape(6, 32)[:, columns]).all()
