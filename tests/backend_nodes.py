"""ONNX's own tests of single operators (onnx.backend.test), as far as exported libraries carry the operators.

A model of one node, its inputs and what it must give. Inputs that decide kernels (shapes, axes, weights) are inputs of
ONNX's models; where the exporter wants them constant they become initializers, and `baked` names them.
"""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import defs, numpy_helper
from onnx.backend.test.case import node as node_cases

from core.errors import BoltError
from core.export.lower import lower, refuse_missing_kernels
from core.export.operators import ON_THE_HOST, SUPPORTED
from core.export.program import Program
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.graph.ir import Graph
from core.graph.passes.decompose import RULES
from core.importer.load import load_graph
from core.importer.read import NEWEST_OPSET
from templates.types import DType

# What the importer makes constants or nothing of.
_FOLDED = frozenset({"Constant", "ConstantOfShape", "Dropout", "EyeLike", "Range", "Shape", "Size"})
OPERATORS = SUPPORTED | set(RULES) | set(ON_THE_HOST) | _FOLDED

# Where ONNX Runtime, the reference of `verify`, gives something else than these tests want, we do as it does.
DISPUTED = {
    f"test_resize_downsample_scales_{mode}_align_corners": "length_resized is taken as a whole number"
    for mode in ("linear", "cubic")
}


@dataclass(frozen=True)
class Case:
    """`inputs` by name, of the model as it is; `wanted` in the order of the model's outputs."""

    name: str
    op: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    wanted: tuple[np.ndarray, ...]
    rtol: float
    atol: float
    baked: tuple[str, ...] = ()


def all_cases() -> list[Case]:
    """Every test of OPERATORS, without those of the functions that define operators. Takes 20 s."""
    with np.errstate(all="ignore"):  # some tests divide by zero and overflow on purpose
        return list(_cases(node_cases.collect_testcases(None)))


def cases_of(modules: Sequence[str]) -> list[Case]:
    """The tests of some files of onnx/backend/test/case/node, which fill one list as they are imported."""
    with np.errstate(all="ignore"):
        for module in modules:
            importlib.import_module(f"{node_cases.__name__}.{module}")
    names = {m.replace("_", "") for m in modules}
    return [c for c in _cases(node_cases._NodeTestCases) if c.op.lower() in names]


def _cases(found: Iterable) -> Iterator[Case]:
    for test in found:
        graph = test.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type not in OPERATORS or graph.node[0].domain:
            continue
        if test.model.functions or test.name.endswith("_expanded"):
            continue
        given, wanted = test.data_sets[0]
        inputs, outputs = [_array(v) for v in given], [_array(v) for v in wanted]
        if any(v is None for v in (*inputs, *outputs)):  # sequences, optionals
            continue
        named = dict(zip([i.name for i in graph.input], inputs, strict=True))
        op = graph.node[0].op_type
        yield Case(test.name, op, _at_our_opset(test.model), named, tuple(outputs), test.rtol, test.atol)


def _array(value: object) -> np.ndarray | None:
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None


def _at_our_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model under the newest opset we import, if that has the operator: what it must give stays what it was."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    there = defs.has(made.graph.node[0].op_type, NEWEST_OPSET)
    for entry in made.opset_import:
        if there and entry.domain in ("", "ai.onnx") and entry.version > NEWEST_OPSET:
            entry.version = NEWEST_OPSET
    return made


def prepared(case: Case, dtype: DType) -> tuple[Case, Graph] | str:
    """The case as the exporter takes it, its prepared graph; or the reason why it does not."""
    reason = ""
    for baked in ((), tuple(list(case.inputs)[1:]), tuple(case.inputs)):
        attempt = _baked(case, baked)
        try:
            graph = prepare(load_graph(attempt.model.SerializeToString()))
            made = plan(graph, dtype)
            refuse_missing_kernels(graph, made)
            return attempt, graph
        except BoltError as error:
            reason = reason or error.what
    return reason


def _baked(case: Case, names: Sequence[str]) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    kept = [i for i in model.graph.input if i.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(case.inputs[n], n) for n in names)
    return replace(case, model=model, baked=tuple(names))


def lowered(graph: Graph, dtype: DType, choices: dict) -> Program:
    """The program; raises BoltError."""
    return lower(graph, plan(graph, dtype), choices)


def difference(case: Case, results: Sequence[np.ndarray], looser: float = 1.0) -> str | None:
    """What is wrong with the results, as one line; None if nothing is. `looser` times the test's own tolerance."""
    for number, (mine, wanted) in enumerate(zip(results, case.wanted, strict=False)):
        if mine.shape != wanted.shape:
            return f"output {number} has shape {list(mine.shape)}, not {list(wanted.shape)}"
        if wanted.dtype.kind not in "f" and wanted.dtype.name != "bfloat16":
            if not np.array_equal(mine.astype(wanted.dtype), wanted):
                return f"output {number} differs in {int((mine != wanted).sum())} of {wanted.size} elements"
            continue
        a, b = mine.astype(np.float64), wanted.astype(np.float64)
        if not np.allclose(a, b, rtol=case.rtol * looser, atol=max(case.atol, 1e-5) * looser, equal_nan=True):
            return f"output {number} is off by {np.nanmax(np.abs(a - b)):.2g}, values up to {np.nanmax(np.abs(b)):.2g}"
    return None
