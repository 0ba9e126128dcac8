"""What lowering one node needs to know."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.errors import ExportError
from core.export import layout as L
from core.export.forms import Builder
from core.export.lower_pointwise import iteration_layout
from core.graph.ir import Node


@dataclass(frozen=True)
class Context:
    """What lowering one node needs: the builder, and the layout that a tensor's readers want (None: any)."""

    builder: Builder
    preferred: Callable[[str], L.Layout | None]

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.builder.graph.shape(tensor)

    def ints(self, node: Node, index: int) -> list[int] | None:
        """Values of a constant input; None when it is not there."""
        if len(node.inputs) <= index or not node.inputs[index]:
            return None
        value = self.builder.graph.constant(node.inputs[index])
        if value is None:
            raise ExportError(f"input {index} of {node.name!r} ({node.op}) must be a constant")
        return [int(v) for v in np.asarray(value).reshape(-1)]

    def layout_of(self, tensor: str) -> L.Layout:
        """The layout to read the tensor in when any would do."""
        wanted = self.preferred(tensor)
        return iteration_layout(self.builder, [tensor], self.shape(tensor), wanted)
