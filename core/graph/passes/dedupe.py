"""Equal constants. Proves: readers get an array of the same type, shape and bytes under another name."""

from dataclasses import replace
from hashlib import sha256

import numpy as np

from core.graph.ir import Graph

# Larger constants are weights: equal ones are rare, and comparing them would cost more than importing the model.
_COMPARED_BYTES = 1 << 16


def share_constants(graph: Graph) -> Graph:
    """Lets equal constants of up to 64 KiB be one."""
    first: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    same: dict[str, str] = {}
    for name, value in graph.constants.items():
        if value.nbytes <= _COMPARED_BYTES:
            digest = sha256(np.ascontiguousarray(value).tobytes()).digest()
            kept = first.setdefault((value.dtype.str + value.dtype.name, value.shape, digest), name)
            if kept != name:
                same[name] = kept
    if not same:
        return graph
    nodes = [replace(n, inputs=tuple(same.get(t, t) for t in n.inputs)) for n in graph.nodes]
    return graph.replaced(nodes, constants={k: v for k, v in graph.constants.items() if k not in same})
