"""Runs a model and a graph made from it in ONNX Runtime on the same seeded input, and compares."""

import numpy as np
import onnx
import onnxruntime

from core.graph.ir import Graph
from core.graph.proto import numpy_dtype
from core.graph.to_onnx import to_model


def run_model(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by name; ONNX Runtime without its own graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = {i.name for i in session.get_inputs()}
    return dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in wanted}), strict=True))


def feeds_for(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Uniform in [-1, 1] for floats, small indices (0 or 1) for integers."""
    random = np.random.default_rng(seed)
    made = {}
    for name in graph.inputs:
        kind = graph.types[name]
        dtype = numpy_dtype(kind.dtype)
        if kind.dtype.is_float:
            made[name] = random.uniform(-1, 1, kind.shape).astype(dtype)
        else:
            made[name] = random.integers(0, 2, kind.shape).astype(dtype)
    return made


def compare(wanted: dict[str, np.ndarray], got: dict[str, np.ndarray], rtol: float, atol: float) -> None:
    assert list(wanted) == list(got)
    for name, value in wanted.items():
        assert value.shape == got[name].shape and value.dtype == got[name].dtype, name
        np.testing.assert_allclose(got[name].astype(np.float64), value.astype(np.float64), rtol, atol, err_msg=name)


def assert_same(model: onnx.ModelProto, graph: Graph, rtol: float = 1e-4, atol: float = 1e-5, seed: int = 0) -> None:
    """The graph is a valid ONNX model that computes what the model file does."""
    made = to_model(graph)
    onnx.checker.check_model(made, full_check=made.ByteSize() < 2**27)
    feeds = feeds_for(graph, seed)
    compare(run_model(model, feeds), run_model(made, feeds), rtol, atol)


def assert_pass_keeps(before: Graph, after: Graph, rtol: float = 1e-4, atol: float = 1e-5, seed: int = 0) -> None:
    """A pass changed nothing that the outputs show."""
    assert_same(to_model(before), after, rtol, atol, seed)
