"""A graph whose activations leave float16's range, brought into it before it is planned."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from core.errors import ModelError, RecordError
from core.files import write_atomically
from core.graph.ir import Graph
from core.graph.passes.rescale import exponents_for_half, rescaled
from core.graph.ranges import beyond_half, peaks
from core.paths import cache_dir

# Part of every key: another one makes all peaks be measured again.
_VERSION = 1
_NAMED = 3


def in_half_range(graph: Graph, small: Callable[[], Graph]) -> tuple[Graph, tuple[str, ...]]:
    """(graph, notes): the same graph, or an equal one with tensors scaled by powers of two and a note on it.

    Peaks are those of ONNX Runtime on the CPU over random inputs, kept in the user's cache by the graph's content.
    `small` gives the graph to run for them: one with the same tensor names, at a smaller batch where there is one.
    Raises RecordError if the cache can't be written.
    """
    try:
        measured = _known_peaks(graph, small)
    except ModelError as error:
        return graph, (f"whether the activations fit float16 is not known: {error}",)
    outside = beyond_half(measured)
    exponents = exponents_for_half(graph, measured)
    left = beyond_half({t: peak * 2.0 ** -exponents.get(t, 0) for t, peak in measured.items()})
    notes = []
    if brought := len(outside) - len(left):
        largest = max((t for t in outside if t not in left), key=lambda t: outside[t])
        notes.append(
            f"weights rescaled by powers of two so that {brought} tensor{'s' * (brought > 1)} fit float16 "
            f"({largest!r} reaches {outside[largest]:.2g})"
        )
    if left:
        notes.append(f"{_listed(list(left))} may exceed float16 (65504): --dtype bf16 or tf32 holds it")
    return rescaled(graph, exponents), tuple(notes)


def _known_peaks(graph: Graph, small: Callable[[], Graph]) -> dict[str, float]:
    """core.graph.ranges.peaks of `small`, from the cache if the graph was met before."""
    path = cache_dir() / "ranges" / f"{content_digest(graph)}.json"
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {str(tensor): float(peak) for tensor, peak in known.items()}
    except FileNotFoundError:
        measured = peaks(small())
    except (OSError, ValueError, TypeError, AttributeError):  # damaged: measured and written again
        measured = peaks(small())
    _keep(path, measured)
    return measured


def _keep(path: Path, measured: Mapping[str, float]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(measured))
    except OSError as error:
        raise RecordError(
            f"the cache {path.parent} can't be written ({error.strerror or error})",
            "free some space there, or set BOLT_CACHE to another folder",
        ) from error


def content_digest(graph: Graph) -> str:
    """SHA-256 of everything that decides what the graph computes: nodes, types, and the values of its constants."""
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            text = str(part).encode()
            digest.update(f"{len(text)}:".encode() + text)

    add(_VERSION, graph.opset, [(t, graph.types[t]) for t in graph.inputs], graph.outputs)
    for node in graph.nodes:
        add(node.domain, node.op, node.inputs, node.outputs, sorted(node.attrs))
        for _, value in sorted(node.attrs.items()):
            _add_value(digest, value) if isinstance(value, np.ndarray) else add(value)
    for name, value in sorted(graph.constants.items()):
        add(name)
        _add_value(digest, value)
    return digest.hexdigest()


def _add_value(digest: "hashlib._Hash", value: np.ndarray) -> None:
    """Type, shape and bytes; of a view of one number that number alone."""
    whole = value if any(value.strides) or not value.size else value.reshape(-1)[:1]
    digest.update(f"{value.dtype}{value.shape}{whole.size}".encode())
    digest.update(np.ascontiguousarray(whole).view(np.uint8).reshape(-1).data)


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_NAMED]))
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
