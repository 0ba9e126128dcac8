"""Where tensors of the model lie between the steps of a program: what comparing it layer by layer needs to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import ExportError
from core.export import layout as L

if TYPE_CHECKING:
    from core.export.forms import Form
    from core.export.memory import MemoryPlan
    from core.export.program import Buffer, Program


@dataclass(frozen=True)
class Placed:
    """A tensor that fills a buffer, in this layout."""

    tensor: str
    buffer: int
    layout: L.Layout


def placements(forms: "Mapping[str, Mapping[Form, int]]", buffers: "Sequence[Buffer]") -> tuple[Placed, ...]:
    """One tensor for each buffer that one fills without padding: the one it was made for, else one of its views."""
    found: dict[int, Placed] = {}
    for tensor, copies in forms.items():
        for form, index in copies.items():
            if form.channels or form.layout.size != buffers[index].elements:
                continue
            if index not in found or tensor == buffers[index].tensor:
                found[index] = Placed(tensor, index, form.layout)
    return tuple(found[i] for i in sorted(found))


def written(program: "Program", memory: "MemoryPlan") -> dict[int, list[dict[str, Any]]]:
    """For each step the tensors that are whole in memory once it has run, as plain JSON values.

    "space" is "arena" or "output"; "at" is the offset in the workspace in bytes, or which output; "extents" and "order"
    are those of a core.export.layout.Layout.
    """
    from core.export.program import Space

    outputs = {port.buffer: i for i, port in enumerate(program.outputs)}
    last = {index: number for number, step in enumerate(program.steps) for index in step.writes}
    shapes = {port.buffer: (port.name, L.row_major(port.type.shape)) for port in program.outputs}
    known = {p.buffer: (p.tensor, p.layout) for p in program.placed} | shapes
    found: dict[int, list[dict[str, Any]]] = {}
    for index, number in last.items():
        buffer = program.buffers[index]
        if index not in known:
            continue
        tensor, layout = known[index]
        arena = buffer.space is Space.ARENA
        found.setdefault(number, []).append(
            {"tensor": tensor, "dtype": str(buffer.dtype), "elements": buffer.elements,
             "space": "arena" if arena else "output", "at": memory.offsets[index] if arena else outputs[index],
             "extents": list(layout.extents), "order": list(layout.order)}
        )  # fmt: skip
    return found


def require_writes(data: Mapping[str, Any]) -> None:
    """Raises ExportError if the manifest does not soundly tell what each step writes, as before it was written down."""

    def sound(placed: Any) -> bool:
        whole = all(type(placed.get(k)) is int and placed[k] >= 0 for k in ("elements", "at"))
        listed = all(isinstance(placed.get(k), list) for k in ("extents", "order"))
        return whole and listed and placed.get("space") in ("arena", "output") and isinstance(placed["tensor"], str)

    try:
        if all(sound(placed) for step in data["steps"] for placed in step["writes"]) and isinstance(
            data["regions"], list
        ):
            return
    except (TypeError, KeyError, AttributeError):
        pass
    raise ExportError("the manifest does not tell what each step of the library writes", "export the model again")


def logical(memory: np.ndarray, placed: Mapping[str, Any], shape: Sequence[int]) -> np.ndarray:
    """The tensor of `shape` from the flat contents of its buffer."""
    return L.unpack(memory, L.Layout(tuple(placed["extents"]), tuple(placed["order"])), shape)


def stored_in(folder: Path, step: int, number: int) -> Path:
    """The file in which the process that runs the library leaves the `number`-th tensor of a step."""
    return folder / f"step{step}_{number}.npy"
