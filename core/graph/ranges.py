"""How large the values of a graph's tensors get, measured by running it in ONNX Runtime on the CPU in its own type."""

from collections.abc import Mapping

import numpy as np

from core.errors import ModelError
from core.graph.ir import Graph
from core.graph.proto import numpy_dtype, type_proto
from core.graph.to_onnx import to_model

LARGEST_HALF = 65504.0
# All tensors of the graph are held at once.
_MOST_BYTES = 8 << 30


def peaks(graph: Graph, feeds: Mapping[str, np.ndarray] | None = None, seed: int = 0) -> dict[str, float]:
    """Largest magnitude of every floating-point tensor that a node makes.

    Names do not depend on the batch, so a graph at batch 1 serves for any. `feeds` are inputs by name; without them
    floats are uniform in [-1, 1] and integers 0. Raises ModelError if ONNX Runtime can't run the graph.
    """
    import onnxruntime
    from onnx import helper

    made = [t for n in graph.nodes for t in n.outputs if t in graph.types and graph.types[t].dtype.is_float]
    if sum(graph.types[t].nbytes for t in made) > _MOST_BYTES:
        raise ModelError("the model's tensors are too large to measure their range", "measure it at a smaller batch")
    model = to_model(graph)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_value_info(t, type_proto(graph.types[t])) for t in made)
    given = dict(feeds) if feeds is not None else _random(graph, seed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        values = session.run(made, {i.name: given[i.name] for i in session.get_inputs()})
    except runtime_failures() as error:
        raise ModelError(f"ONNX Runtime can't run {graph.name!r} to measure its range: {error}") from None
    return {t: float(np.abs(np.asarray(v, np.float64)).max()) for t, v in zip(made, values, strict=True)}


def runtime_failures() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises for a model it can't load or run: classes of its own, which share no base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (RuntimeError, ValueError, *own)


def beyond_half(measured: Mapping[str, float]) -> dict[str, float]:
    """The tensors that float16 can't hold, in the order given."""
    return {t: peak for t, peak in measured.items() if not peak <= LARGEST_HALF}


def _random(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    found = {}
    for name in graph.inputs:
        kind = graph.types[name]
        dtype = numpy_dtype(kind.dtype)
        found[name] = (
            random.uniform(-1, 1, kind.shape).astype(dtype) if kind.dtype.is_float else np.zeros(kind.shape, dtype)
        )
    return found
