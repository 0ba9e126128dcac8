"""What a programmatic dependent launch of an exported library may read before the kernel in front has ended."""

import re
from dataclasses import replace

from core.export.emit import emit_sources
from core.export.lower import lower
from core.export.memory import lifetimes, plan_memory
from core.export.weights import write_weights
from core.fusion.planner import plan
from core.importer.load import load_graph
from core.tuner.choice import estimated
from templates.gpu import KNOWN_GPUS
from tests.core.export.models import Model


def test_operands_of_earlier_kernels_are_no_constants_to_a_dependent_launch(tmp_path):
    """pdl is 1 where B and the bias are constants, 2 where a kernel of the model makes one of them."""
    m = Model()
    x = m.input(64, 64)
    plain = m.op("MatMul", x, m.weight(64, 64))
    computed_b = m.op("MatMul", plain, m.op("Exp", m.input(64, 64)))
    bias = m.op("Exp", m.input(64))
    graph = load_graph(m.build(m.op("Add", m.op("MatMul", computed_b, m.weight(64, 64)), bias)).SerializeToString())
    found, gpu = plan(graph), KNOWN_GPUS["h200"]
    chosen = {k: estimated(r[0].workload, gpu) for k, r in found.workloads.items()}
    for pdl, wanted in ((True, [1, 2, 2]), (False, [])):
        program = lower(graph, found, {k: launched(choice, pdl) for k, choice in chosen.items()})
        folder = tmp_path / str(pdl)
        folder.mkdir()
        weights = write_weights(program, folder / "net.safetensors")
        emit_sources(program, plan_memory(lifetimes(program)), weights, gpu, "net", folder, "4.2.0")
        text = (folder / "src/plan.cu").read_text()
        assert [int(n) for n in re.findall(r"a\.pdl = (\d+);", text)] == wanted


def launched(choice, pdl: bool):
    candidate = choice.candidate
    return replace(choice, candidate=replace(candidate, launch=replace(candidate.launch, pdl=pdl)))
